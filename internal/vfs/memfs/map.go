package memfs

import (
	"slices"

	"github.com/varvelog/varve/internal/vfs"
)

// mapping is a map of a file: heap memory that the file's pages alias, so that
// stores are seen by ReadAt and loads see WriteAt, as with a shared mapping.
type mapping struct {
	handle *handle
	data   []byte // nil after Unmap
}

// Map implements vfs.File.
func (h *handle) Map(size int, mode vfs.MapMode) (vfs.Map, error) {
	if err := h.lock("mmap", mode == vfs.MapReadWrite); err != nil {
		return nil, err
	}
	defer h.fs.mu.Unlock()
	f := h.file
	if int64(size) > f.size {
		// The operating system would allow it and fault later.
		return nil, h.fail("mmap", vfs.ErrMapFault)
	}
	if whole := pagesIn(int64(size)) * pageSize; whole > len(f.buf) {
		if f.maps > 0 {
			return nil, h.fail("mmap", vfs.ErrUnsupported)
		}
		f.alias(make([]byte, whole))
	}
	f.maps++
	f.mapped = max(f.mapped, int64(size))
	m := &mapping{handle: h, data: f.buf[:size:size]}
	h.fs.mapped[m] = struct{}{}
	return m, nil
}

// alias moves the first pages of the current view into buf.
func (f *file) alias(buf []byte) {
	f.buf = buf
	n := len(buf) / pageSize
	for len(f.pages) < n {
		f.pages = append(f.pages, nil)
	}
	for i := range n {
		page := buf[i*pageSize : (i+1)*pageSize : (i+1)*pageSize]
		copy(page, f.pages[i])
		f.pages[i] = page
	}
}

// unalias gives the pages memory of their own again when the last map is gone,
// so that a late store through a map is lost as it should be.
func (f *file) unalias() {
	for i := range len(f.buf) / pageSize {
		page := f.pages[i]
		if !samePage(page, pageAt(f.durable, i)) {
			f.touch(i)
		}
		f.pages[i] = nil
		if !allZero(page) {
			f.pages[i] = slices.Clone(page)
		}
	}
	f.buf, f.mapped = nil, 0
}

// Bytes implements vfs.Map.
func (m *mapping) Bytes() []byte { return m.data }

// Flush implements vfs.Map. Only the bytes of the range are read: those behind
// it may be stored to meanwhile.
func (m *mapping) Flush(from, to int) error {
	if from >= to || m.data == nil {
		return nil
	}
	h := m.handle
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	f := h.file
	for i := from / pageSize; i <= (to-1)/pageSize; i++ {
		lo, hi := max(from, i*pageSize), min(to, (i+1)*pageSize)
		page := slices.Clone(pageAt(f.durable, i))
		if page == nil {
			page = make([]byte, pageSize)
		}
		copy(page[lo-i*pageSize:], m.data[lo:hi])
		f.setDurable(i, page)
	}
	return nil
}

// AdviseRandom implements vfs.Map.
func (m *mapping) AdviseRandom() error { return nil }

// Unmap implements vfs.Map.
func (m *mapping) Unmap() error {
	h := m.handle
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if m.data == nil {
		return nil
	}
	m.data = nil
	delete(h.fs.mapped, m)
	if h.file.maps--; h.file.maps == 0 {
		h.file.unalias()
	}
	return nil
}
