package tracefs

import "github.com/varvelog/varve/internal/vfs"

// file writes down the operations of the file below.
type file struct {
	vfs.File
	log *Log
}

// ReadAt implements vfs.File.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.log.read(err, "read %s off=%d n=%d", f.Name(), off, len(p))
	return n, err
}

// WriteAt implements vfs.File.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	f.log.add(err, "write %s off=%d n=%d", f.Name(), off, len(p))
	return n, err
}

// WritevAt implements vfs.File.
func (f *file) WritevAt(bufs [][]byte, off int64) (int64, error) {
	n, err := f.File.WritevAt(bufs, off)
	f.log.add(err, "write %s off=%d n=%d", f.Name(), off, n)
	return n, err
}

// Truncate implements vfs.File.
func (f *file) Truncate(size int64) error {
	err := f.File.Truncate(size)
	f.log.add(err, "truncate %s size=%d", f.Name(), size)
	return err
}

// Reserve implements vfs.File.
func (f *file) Reserve(off, n int64) error {
	err := f.File.Reserve(off, n)
	f.log.add(err, "reserve %s off=%d n=%d", f.Name(), off, n)
	return err
}

// Sync implements vfs.File.
func (f *file) Sync() error {
	err := f.File.Sync()
	f.log.add(err, "sync %s", f.Name())
	return err
}

// SyncData implements vfs.File.
func (f *file) SyncData() error {
	err := f.File.SyncData()
	f.log.add(err, "syncdata %s", f.Name())
	return err
}

// Map implements vfs.File.
func (f *file) Map(size int, mode vfs.MapMode) (vfs.Map, error) {
	m, err := f.File.Map(size, mode)
	f.log.read(err, "map %s size=%d", f.Name(), size)
	if err != nil {
		return nil, err
	}
	return &mapping{Map: m, name: f.Name(), log: f.log}, nil
}

// SetModTime implements vfs.File.
func (f *file) SetModTime(ms int64) error {
	err := f.File.SetModTime(ms)
	f.log.add(err, "modtime %s", f.Name())
	return err
}

// Close implements vfs.File.
func (f *file) Close() error {
	err := f.File.Close()
	f.log.read(err, "close %s", f.Name())
	return err
}

// mapping writes down flushes.
type mapping struct {
	vfs.Map
	name string
	log  *Log
}

// Flush implements vfs.Map.
func (m *mapping) Flush(from, to int) error {
	err := m.Map.Flush(from, to)
	m.log.add(err, "msync %s from=%d to=%d", m.name, from, to)
	return err
}

// Unmap implements vfs.Map.
func (m *mapping) Unmap() error {
	err := m.Map.Unmap()
	m.log.read(err, "unmap %s", m.name)
	return err
}
