// Package golden gives tests the data directories that Apache Kafka 4.4.0 and
// 3.9.2 wrote, and the description of what is in them: testdata/golden at the
// root of the module. README.md there has the cases and the schema.
//
// Only tests import it.
package golden

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
)

// Root is the directory testdata/golden of the module.
func Root(t testing.TB) string {
	t.Helper()
	return filepath.Join(moduleRoot(t), "testdata", "golden")
}

// CLIRoot is the directory testdata/golden-cli of the module.
func CLIRoot(t testing.TB) string {
	t.Helper()
	return filepath.Join(moduleRoot(t), "testdata", "golden-cli")
}

func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd() // a test runs in the directory of its package
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "testdata", "golden", "README.md")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no testdata/golden above the working directory")
		}
		dir = parent
	}
}

// Names lists the cases that have an expect.json, sorted.
func Names(t testing.TB) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(Root(t), "*", "expect.json"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no golden cases below %s: %v", Root(t), err)
	}
	var names []string
	for _, f := range found {
		names = append(names, filepath.Base(filepath.Dir(f)))
	}
	return names
}

// Load reads the description of a case, such as "03-codecs-4.4.0".
func Load(t testing.TB, name string) *Case {
	t.Helper()
	c := &Case{Dir: filepath.Join(Root(t), name)}
	JSON(t, filepath.Join(c.Dir, "expect.json"), c)
	for i := range c.Stages {
		s := &c.Stages[i]
		s.caseDir = c.Dir
		if s.Kafka == "" {
			s.Kafka = c.Kafka
		}
	}
	return c
}

// JSON reads a file of a case, such as "plain.script.json", into v. Numbers
// that v leaves open become json.Number.
func JSON(t testing.TB, file string, v any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// Stage returns the stage of that name, or ends the test.
func (c *Case) Stage(t testing.TB, name string) *Stage {
	t.Helper()
	for i := range c.Stages {
		if c.Stages[i].Name == name {
			return &c.Stages[i]
		}
	}
	t.Fatalf("case %s has no stage %s", c.Name, name)
	return nil
}

// Partition returns the partition whose directory is dir, or ends the test.
func (s *Stage) Partition(t testing.TB, dir string) *Partition {
	t.Helper()
	for i := range s.Partitions {
		if s.Partitions[i].Dir == dir {
			return &s.Partitions[i]
		}
	}
	t.Fatalf("stage %s has no partition %s", s.Name, dir)
	return nil
}

// Unpack copies the stage into a temporary directory of the test and returns
// its path: a data directory as an entry of log.dirs.
func (s *Stage) Unpack(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	s.UnpackTo(t, vfs.OS(), dir)
	return dir
}

// UnpackTo copies the stage into dir of a disk, the memory disk for example.
// Pages of zeros, which preallocated indexes are full of, stay holes.
func (s *Stage) UnpackTo(t testing.TB, fsys vfs.FS, dir string) {
	t.Helper()
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(s.caseDir, filepath.FromSlash(s.Data))
	err := unpackTar(source+".tar.gz", fsys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = copyTree(os.DirFS(source), fsys, dir)
	}
	if err != nil {
		t.Fatalf("unpack stage %s: %v", s.Name, err)
	}
}

// DumpText returns what kafka-dump-log printed for one of the stage's Dump
// files ("dump/clean.txt"), and what it wrote to standard error.
func (s *Stage) DumpText(t testing.TB, dump string) (stdout, stderr string) {
	t.Helper()
	out, err := os.ReadFile(filepath.Join(s.caseDir, filepath.FromSlash(dump)))
	if err != nil {
		t.Fatal(err)
	}
	errFile := filepath.FromSlash(dump[:len(dump)-len(".txt")] + ".err.txt")
	errs, err := os.ReadFile(filepath.Join(s.caseDir, errFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(out), string(errs)
}

func unpackTar(archive string, fsys vfs.FS, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = fsys.MkdirAll(name, 0o755)
		} else {
			err = copyFile(r, h.Size, fsys, name)
		}
		if err != nil {
			return err
		}
	}
}

func copyTree(from fs.FS, fsys vfs.FS, dir string) error {
	return fs.WalkDir(from, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.Join(dir, filepath.FromSlash(p))
		if d.IsDir() {
			return fsys.MkdirAll(name, 0o755)
		}
		data, err := fs.ReadFile(from, p)
		if err != nil {
			return err
		}
		return copyFile(bytes.NewReader(data), int64(len(data)), fsys, name)
	})
}

func copyFile(r io.Reader, size int64, fsys vfs.FS, name string) error {
	if err := fsys.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if err = f.Truncate(size); err == nil {
		err = copyPages(r, size, f)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

func copyPages(r io.Reader, size int64, f vfs.File) error {
	page, zero := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); at < size; {
		n, err := io.ReadFull(r, page[:min(int64(len(page)), size-at)])
		if err != nil {
			return err
		}
		if !bytes.Equal(page[:n], zero[:n]) {
			if _, err := f.WriteAt(page[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	return nil
}
