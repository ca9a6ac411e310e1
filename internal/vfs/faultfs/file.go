package faultfs

import (
	"io/fs"

	"github.com/varvelog/varve/internal/vfs"
)

// file asks before each operation of the file below.
type file struct {
	fs *FS
	vfs.File
}

func (f *file) check(kind Kind, off, n int64) error {
	return f.fs.check(Op{Kind: kind, Name: f.Name(), Offset: off, Length: n})
}

// ReadAt implements vfs.File.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	fault := f.fs.inject(Op{Kind: Read, Name: f.Name(), Offset: off, Length: int64(len(p))})
	if fault.Err != nil {
		n, _ := f.File.ReadAt(p[:min(fault.Done, int64(len(p)))], off)
		return n, &fs.PathError{Op: "read", Path: f.Name(), Err: fault.Err}
	}
	n, err := f.File.ReadAt(p, off)
	if fault.FlipBit && n > 0 {
		p[0] ^= 1
	}
	return n, err
}

// WriteAt implements vfs.File.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.WritevAt([][]byte{p}, off)
	return int(n), err
}

// WritevAt implements vfs.File.
func (f *file) WritevAt(bufs [][]byte, off int64) (int64, error) {
	var total int64
	for _, b := range bufs {
		total += int64(len(b))
	}
	fault := f.fs.inject(Op{Kind: Write, Name: f.Name(), Offset: off, Length: total, Data: bufs})
	if fault.Err == nil {
		return f.File.WritevAt(bufs, off)
	}
	var done int64
	for _, b := range bufs {
		part := min(int64(len(b)), fault.Done-done)
		if part <= 0 {
			break
		}
		n, err := f.File.WriteAt(b[:part], off+done)
		done += int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, &fs.PathError{Op: "write", Path: f.Name(), Err: fault.Err}
}

// Size implements vfs.File.
func (f *file) Size() (int64, error) {
	if err := f.check(Size, 0, 0); err != nil {
		return 0, err
	}
	return f.File.Size()
}

// Truncate implements vfs.File.
func (f *file) Truncate(size int64) error {
	if err := f.check(Truncate, 0, size); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

// Reserve implements vfs.File.
func (f *file) Reserve(off, n int64) error {
	if err := f.check(Reserve, off, n); err != nil {
		return err
	}
	return f.File.Reserve(off, n)
}

// Sync implements vfs.File.
func (f *file) Sync() error {
	if err := f.checkSync(); err != nil {
		return err
	}
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f *file) SyncData() error {
	if err := f.checkSync(); err != nil {
		return err
	}
	return f.File.SyncData()
}

// checkSync fails a sync as the kernel does: the dirty pages count as clean
// afterwards, so that trying again succeeds and proves nothing.
func (f *file) checkSync() error {
	err := f.check(Sync, 0, 0)
	if err != nil {
		if disk, ok := f.File.(interface{ LoseDirty() }); ok {
			disk.LoseDirty()
		}
	}
	return err
}

// Map implements vfs.File.
func (f *file) Map(size int, mode vfs.MapMode) (vfs.Map, error) {
	if err := f.check(Map, 0, int64(size)); err != nil {
		return nil, err
	}
	m, err := f.File.Map(size, mode)
	if err != nil {
		return nil, err
	}
	return &mapping{file: f, Map: m}, nil
}

// Fd implements vfs.File. There is none: every read has to come by ReadAt.
func (f *file) Fd() (uintptr, bool) { return 0, false }

// SetModTime implements vfs.File.
func (f *file) SetModTime(ms int64) error {
	if err := f.check(ModTime, 0, 0); err != nil {
		return err
	}
	return f.File.SetModTime(ms)
}

// Close implements vfs.File. The file below is closed even when the close is
// made to fail, as the kernel does.
func (f *file) Close() error {
	err := f.check(Close, 0, 0)
	if closeErr := f.File.Close(); err == nil {
		err = closeErr
	}
	return err
}

// mapping asks before it flushes and unmaps.
type mapping struct {
	file *file
	vfs.Map
}

// Flush implements vfs.Map.
func (m *mapping) Flush(from, to int) error {
	if err := m.file.check(Flush, int64(from), int64(to-from)); err != nil {
		return err
	}
	return m.Map.Flush(from, to)
}

// Unmap implements vfs.Map. The map below is gone even when this is made to fail.
func (m *mapping) Unmap() error {
	err := m.file.check(Unmap, 0, 0)
	if unmapErr := m.Map.Unmap(); err == nil {
		err = unmapErr
	}
	return err
}
