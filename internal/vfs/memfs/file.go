package memfs

import (
	"fmt"
	"io"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"github.com/varvelog/varve/internal/vfs"
)

const pageSize = 4096

// file is the content of one file, in both views. A nil page is zeros.
//
// Invariant: a page in durable is never stored to. Where both views have the
// same bytes they may share the page; own gives the current view its own copy.
type file struct {
	perm     fs.FileMode
	modified time.Time

	size   int64
	pages  [][]byte
	blocks []bool       // pages that count against the disk's limit
	dirty  map[int]bool // pages stored to since the last sync, maps apart
	buf    []byte       // memory of the live maps; pages alias it
	maps   int          // live maps
	mapped int64        // size of the largest of them

	durableSize int64
	durable     [][]byte
	lost        map[int][]byte // content that a failed sync marked clean

	gone bool // no name leads here: its blocks are given back
}

func pageAt(pages [][]byte, i int) []byte {
	if i < len(pages) {
		return pages[i]
	}
	return nil
}

func pagesIn(size int64) int { return int((size + pageSize - 1) / pageSize) }

// own returns page i of the current view for a store, or nil when the disk has
// no block for it.
func (f *file) own(m *FS, i int) []byte {
	if !f.claim(m, i) {
		return nil
	}
	for len(f.pages) <= i {
		f.pages = append(f.pages, nil)
	}
	if f.pages[i] == nil {
		f.pages[i] = make([]byte, pageSize)
	}
	return f.unshare(i)
}

// unshare returns page i, which must exist, for a store.
func (f *file) unshare(i int) []byte {
	if durable := pageAt(f.durable, i); durable != nil && &durable[0] == &f.pages[i][0] {
		f.pages[i] = slices.Clone(durable)
	}
	f.touch(i)
	return f.pages[i]
}

func (f *file) touch(i int) {
	if f.dirty == nil {
		f.dirty = map[int]bool{}
	}
	f.dirty[i] = true
}

// claim takes a block for page i; false means the disk is full.
func (f *file) claim(m *FS, i int) bool {
	for len(f.blocks) <= i {
		f.blocks = append(f.blocks, false)
	}
	if f.blocks[i] {
		return true
	}
	if m.limit > 0 && m.used >= m.limit {
		return false
	}
	f.blocks[i] = true
	if !f.gone {
		m.used++
	}
	return true
}

func (f *file) release(m *FS, from int) {
	for i := from; i < len(f.blocks); i++ {
		if f.blocks[i] && !f.gone {
			m.used--
		}
	}
	f.blocks = f.blocks[:min(from, len(f.blocks))]
}

func (f *file) unlinked(m *FS) {
	for _, taken := range f.blocks {
		if taken && !f.gone {
			m.used--
		}
	}
	f.gone = true
}

func (f *file) readAt(p []byte, off int64) int {
	n := int(max(0, min(int64(len(p)), f.size-off)))
	for done := 0; done < n; {
		i, at := int((off+int64(done))/pageSize), int((off+int64(done))%pageSize)
		part := min(n-done, pageSize-at)
		if page := pageAt(f.pages, i); page != nil {
			copy(p[done:done+part], page[at:])
		} else {
			clear(p[done : done+part])
		}
		done += part
	}
	return n
}

func (f *file) writeAt(m *FS, p []byte, off int64) (int, error) {
	for done := 0; done < len(p); {
		i, at := int((off+int64(done))/pageSize), int((off+int64(done))%pageSize)
		page := f.own(m, i)
		if page == nil {
			return done, syscall.ENOSPC
		}
		done += copy(page[at:], p[done:])
		f.size = max(f.size, off+int64(done))
	}
	return len(p), nil
}

func (f *file) truncate(m *FS, size int64) {
	if f.maps > 0 && size < f.mapped {
		panic(fmt.Sprintf("memfs: file shortened to %d bytes under a live map of %d", size, f.mapped))
	}
	if size < f.size {
		keep := pagesIn(size)
		for i := keep; i < len(f.pages); i++ {
			if f.pages[i] != nil || pageAt(f.durable, i) != nil {
				f.touch(i)
			}
		}
		f.pages = f.pages[:min(keep, len(f.pages))]
		f.release(m, keep)
		if tail := size % pageSize; tail != 0 && pageAt(f.pages, keep-1) != nil {
			clear(f.unshare(keep - 1)[tail:])
		}
	}
	f.size = size
}

// sync makes the bytes and the length durable.
func (f *file) sync() {
	n := pagesIn(f.size)
	f.durable = f.durable[:min(n, len(f.durable))]
	f.eachDirty(func(i int) { f.syncPage(i) })
	f.durableSize = f.size
	f.dirty = nil
}

// eachDirty calls visit for the pages that may differ between the views, in
// order: those written and, because stores through a map leave no trace, those
// mapped.
func (f *file) eachDirty(visit func(i int)) {
	mapped := len(f.buf) / pageSize
	for i := range mapped {
		if f.dirty[i] || !samePage(pageAt(f.pages, i), pageAt(f.durable, i)) {
			visit(i)
		}
	}
	var rest []int
	for i := range f.dirty {
		if i >= mapped {
			rest = append(rest, i)
		}
	}
	slices.Sort(rest)
	for _, i := range rest {
		visit(i)
	}
}

func samePage(a, b []byte) bool {
	switch {
	case a == nil && b == nil:
		return true
	case a == nil:
		return allZero(b)
	case b == nil:
		return allZero(a)
	}
	return &a[0] == &b[0] || string(a) == string(b)
}

func allZero(b []byte) bool { return string(b) == string(zeros[:len(b)]) }

var zeros [pageSize]byte

func (f *file) syncPage(i int) {
	if int64(i)*pageSize >= f.size {
		return
	}
	page := pageAt(f.pages, i)
	if lost, ok := f.lost[i]; ok {
		if samePage(page, lost) {
			return // the kernel believes that it is clean
		}
		delete(f.lost, i)
	}
	if page != nil && i < len(f.buf)/pageSize {
		page = slices.Clone(page) // a map may store to it at any time
	}
	f.setDurable(i, page)
}

func (f *file) setDurable(i int, page []byte) {
	for len(f.durable) <= i {
		f.durable = append(f.durable, nil)
	}
	f.durable[i] = page
}

// lose is a sync that failed: every dirty page is marked clean and its bytes
// stay in the current view alone, so that the next sync succeeds and makes
// nothing of this durable.
func (f *file) lose() {
	f.eachDirty(func(i int) {
		if f.lost == nil {
			f.lost = map[int][]byte{}
		}
		page := make([]byte, pageSize)
		copy(page, pageAt(f.pages, i))
		f.lost[i] = page
	})
	f.dirty = nil
}

// handle is an open file.
type handle struct {
	fs       *FS
	file     *file
	name     string
	writable bool
	closed   bool // guarded by fs.mu
}

var _ vfs.File = (*handle)(nil)

func (h *handle) lock(op string, write bool) error {
	h.fs.mu.Lock()
	switch {
	case h.closed:
		h.fs.mu.Unlock()
		return h.fail(op, fs.ErrClosed)
	case write && !h.writable:
		h.fs.mu.Unlock()
		return h.fail(op, syscall.EBADF)
	}
	return nil
}

func (h *handle) fail(op string, err error) error {
	return &fs.PathError{Op: op, Path: h.name, Err: err}
}

// Name implements vfs.File.
func (h *handle) Name() string { return h.name }

// ReadAt implements vfs.File.
func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	if err := h.lock("read", false); err != nil {
		return 0, err
	}
	defer h.fs.mu.Unlock()
	if off < 0 {
		return 0, h.fail("read", syscall.EINVAL)
	}
	n := h.file.readAt(p, off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements vfs.File.
func (h *handle) WriteAt(p []byte, off int64) (int, error) {
	n, err := h.WritevAt([][]byte{p}, off)
	return int(n), err
}

// WritevAt implements vfs.File.
func (h *handle) WritevAt(bufs [][]byte, off int64) (int64, error) {
	if err := h.lock("write", true); err != nil {
		return 0, err
	}
	defer h.fs.mu.Unlock()
	if off < 0 {
		return 0, h.fail("write", syscall.EINVAL)
	}
	h.file.modified = h.fs.now()
	var done int64
	for _, b := range bufs {
		n, err := h.file.writeAt(h.fs, b, off+done)
		done += int64(n)
		if err != nil {
			return done, h.fail("write", err)
		}
	}
	return done, nil
}

// Size implements vfs.File.
func (h *handle) Size() (int64, error) {
	if err := h.lock("stat", false); err != nil {
		return 0, err
	}
	defer h.fs.mu.Unlock()
	return h.file.size, nil
}

// Truncate implements vfs.File. Shortening a file under a live map is a bug and
// panics: the operating system would answer the next access with SIGBUS.
func (h *handle) Truncate(size int64) error {
	if err := h.lock("truncate", true); err != nil {
		return err
	}
	defer h.fs.mu.Unlock()
	if size < 0 {
		return h.fail("truncate", syscall.EINVAL)
	}
	h.file.truncate(h.fs, size)
	h.file.modified = h.fs.now()
	return nil
}

// Reserve implements vfs.File.
func (h *handle) Reserve(off, n int64) error {
	if err := h.lock("fallocate", true); err != nil {
		return err
	}
	defer h.fs.mu.Unlock()
	if off < 0 || n <= 0 {
		return h.fail("fallocate", syscall.EINVAL)
	}
	for i := int(off / pageSize); i < pagesIn(off+n); i++ {
		if !h.file.claim(h.fs, i) {
			return h.fail("fallocate", syscall.ENOSPC)
		}
	}
	return nil
}

// Sync implements vfs.File.
func (h *handle) Sync() error {
	if err := h.lock("sync", false); err != nil {
		return err
	}
	defer h.fs.mu.Unlock()
	h.file.sync()
	return nil
}

// SyncData implements vfs.File.
func (h *handle) SyncData() error { return h.Sync() }

// LoseDirty makes the unsynced pages what a failed fsync leaves: clean in the
// kernel's eyes, and not on the disk. Package faultfs calls it when it fails a sync.
func (h *handle) LoseDirty() {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	h.file.lose()
}

// Fd implements vfs.File: there is none, so bytes are copied to sockets.
func (h *handle) Fd() (uintptr, bool) { return 0, false }

// SetModTime implements vfs.File.
func (h *handle) SetModTime(ms int64) error {
	if err := h.lock("futimes", false); err != nil {
		return err
	}
	defer h.fs.mu.Unlock()
	h.file.modified = time.UnixMilli(ms)
	return nil
}

// Close implements vfs.File.
func (h *handle) Close() error {
	if err := h.lock("close", false); err != nil {
		return err
	}
	defer h.fs.mu.Unlock()
	h.closed = true
	delete(h.fs.handles, h)
	return nil
}
