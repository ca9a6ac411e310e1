// Package tracefs wraps a disk and writes down what is done to it, one line an
// operation. The order of writes and syncs is part of the format, so it is kept
// as golden text beside the tests.
//
// Before it on the path: any vfs.FS. After it: tests.
package tracefs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/varvelog/varve/internal/vfs"
)

// Log is a trace. Its zero value is empty and ready.
type Log struct {
	// Reads says whether reads, stats and listings are written down too. Set it
	// before use.
	Reads bool
	// Rewrite, when not nil, changes each line: to replace random names, or to
	// drop the line by returning "". Set it before use.
	Rewrite func(line string) string

	mu    sync.Mutex
	lines []string
}

// String returns the lines so far, each ended by a line feed.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == 0 {
		return ""
	}
	return strings.Join(l.lines, "\n") + "\n"
}

// Reset forgets the lines so far.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = nil
}

// Printf adds a line, for marks between operations.
func (l *Log) Printf(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if l.Rewrite != nil {
		if line = l.Rewrite(line); line == "" {
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *Log) add(err error, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if err != nil {
		line += ": " + cause(err)
	}
	l.Printf("%s", line)
}

func (l *Log) read(err error, format string, args ...any) {
	if l.Reads {
		l.add(err, format, args...)
	}
}

// cause is the text of err without the path, which the line has already.
func cause(err error) string {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err.Error()
	case errors.As(err, &link):
		return link.Err.Error()
	}
	return err.Error()
}

// FS is a disk that is written down. It implements vfs.FS.
type FS struct {
	under vfs.FS
	log   *Log
}

var _ vfs.FS = (*FS)(nil)

// Wrap returns a disk that passes everything on to under and adds to log.
func Wrap(under vfs.FS, log *Log) *FS { return &FS{under: under, log: log} }

// OpenFile implements vfs.FS.
func (m *FS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := m.under.OpenFile(name, flag, perm)
	switch {
	case flag&os.O_CREATE != 0:
		m.log.add(err, "create %s%s", name, openFlags(flag))
	default:
		m.log.read(err, "open %s%s", name, openFlags(flag))
	}
	if err != nil {
		return nil, err
	}
	return &file{File: f, log: m.log}, nil
}

func openFlags(flag int) string {
	var s string
	if flag&os.O_EXCL != 0 {
		s += " excl"
	}
	if flag&os.O_TRUNC != 0 {
		s += " trunc"
	}
	return s
}

// Rename implements vfs.FS.
func (m *FS) Rename(oldname, newname string) error {
	err := m.under.Rename(oldname, newname)
	m.log.add(err, "rename %s %s", oldname, newname)
	return err
}

// Remove implements vfs.FS.
func (m *FS) Remove(name string) error {
	err := m.under.Remove(name)
	m.log.add(err, "remove %s", name)
	return err
}

// Mkdir implements vfs.FS.
func (m *FS) Mkdir(name string, perm fs.FileMode) error {
	err := m.under.Mkdir(name, perm)
	m.log.add(err, "mkdir %s", name)
	return err
}

// MkdirAll implements vfs.FS.
func (m *FS) MkdirAll(name string, perm fs.FileMode) error {
	err := m.under.MkdirAll(name, perm)
	m.log.add(err, "mkdirall %s", name)
	return err
}

// ReadDir implements vfs.FS.
func (m *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := m.under.ReadDir(name)
	m.log.read(err, "readdir %s", name)
	return list, err
}

// Stat implements vfs.FS.
func (m *FS) Stat(name string) (fs.FileInfo, error) {
	info, err := m.under.Stat(name)
	m.log.read(err, "stat %s", name)
	return info, err
}

// SyncDir implements vfs.FS.
func (m *FS) SyncDir(name string) error {
	err := m.under.SyncDir(name)
	m.log.add(err, "syncdir %s", name)
	return err
}

// Lock implements vfs.FS.
func (m *FS) Lock(name string) (io.Closer, error) {
	c, err := m.under.Lock(name)
	m.log.add(err, "lock %s", name)
	if err != nil {
		return nil, err
	}
	return &lock{Closer: c, name: name, log: m.log}, nil
}

type lock struct {
	io.Closer
	name string
	log  *Log
}

// Close gives the lock back.
func (l *lock) Close() error {
	err := l.Closer.Close()
	l.log.add(err, "unlock %s", l.name)
	return err
}

// Usage implements vfs.FS.
func (m *FS) Usage(name string) (total, free int64, err error) { return m.under.Usage(name) }
