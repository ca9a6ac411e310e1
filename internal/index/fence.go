package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/varvelog/varve/internal/vfs"
)

// A fence holds the first key of every page of entries in the heap, so that a
// lookup touches one page of the file and no other: a cold lookup costs one
// page fault, where a binary search of the file costs a dozen. It grows with the
// appends of an index; one that was opened from disk builds it at its first
// lookup by reading the file once in order.

// addFence notes the first key of a page.
func (v *view) addFence(page int, key int64) {
	keys := *v.fence.Load()
	if page >= len(keys) {
		grown := make([]int64, max(8, 2*len(keys)))
		copy(grown, keys)
		keys = grown
		v.fence.Store(&grown)
	}
	keys[page] = key
}

// chunkSize is how much of an index is read at a time to build its fence.
const chunkSize = 64 * pageSize

// Buffers lent for the time of one lookup or scan.
var (
	pages  = sync.Pool{New: func() any { return new([pageSize]byte) }}
	chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}
)

// buildFence reads the index once from front to end.
func (x *mapped) buildFence(v *view) error {
	x.fenceMu.Lock()
	defer x.fenceMu.Unlock()
	if v.fence.Load() != nil {
		return nil
	}
	n := v.count.Load()
	count := (int(n) + x.perPage - 1) / x.perPage
	keys := make([]int64, count)
	chunk := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(chunk)
	stride := x.perPage * x.entry
	whole := chunkSize / stride // pages of entries that fit into one chunk
	for p := 0; p < count; p += whole {
		at := int64(p) * int64(stride)
		b := chunk[:min(int64(whole*stride), n*int64(x.entry)-at)]
		if err := v.read(b, at); err != nil {
			return err
		}
		for i := 0; i*stride < len(b); i++ {
			keys[p+i] = x.key(b[i*stride:])
		}
	}
	v.fence.Store(&keys)
	return nil
}

// readFull fills b from bytes that are known to be there.
func readFull(file vfs.File, b []byte, at int64) error {
	n, err := file.ReadAt(b, at)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("index bytes %d to %d: %w", at, at+int64(len(b)), err)
}

// entryAt copies entry i into out.
func (x *mapped) entryAt(v *view, i int64, out *[timeEntrySize]byte) error {
	at := i * int64(x.entry)
	if v.data != nil {
		src := v.data[at : at+int64(x.entry)]
		err := vfs.Guard(func() { copy(out[:], src) })
		if err == nil {
			return nil
		}
		x.fault(v, at, false, err)
	}
	page := pages.Get().(*[pageSize]byte)
	defer pages.Put(page)
	if err := readFull(v.file, page[:x.entry], at); err != nil {
		return err
	}
	copy(out[:], page[:x.entry])
	return nil
}

// pair is an entry and, when it lies in the same page, the one after it.
type pair struct {
	entry, next [timeEntrySize]byte
	hasNext     bool
}

// take copies entry i of a page, and the one after it, if the page has one.
func (p *pair) take(page []byte, i, size int) {
	copy(p.entry[:size], page[i*size:])
	if p.hasNext = (i+2)*size <= len(page); p.hasNext {
		copy(p.next[:size], page[(i+1)*size:])
	}
}

// floor finds the last entry whose key is not above target, copies it into out
// and returns its slot, or -1 when every key is above.
func (x *mapped) floor(v *view, target int64, out *pair) (int64, error) {
	n := v.count.Load()
	if n == 0 {
		return -1, nil
	}
	if v.fence.Load() == nil {
		if err := x.buildFence(v); err != nil {
			return -1, err
		}
	}
	count := (int(n) + x.perPage - 1) / x.perPage
	page := findPage((*v.fence.Load())[:count], target)
	if page < 0 {
		return -1, nil
	}
	first := int64(page * x.perPage)
	size := int(min(n-first, int64(x.perPage))) * x.entry
	at := first * int64(x.entry)
	if v.data != nil {
		b := v.data[at : at+int64(size)]
		i := -1
		err := vfs.Guard(func() {
			if i = x.search(b, target); i >= 0 {
				out.take(b, i, x.entry)
			}
		})
		if err == nil {
			return slot(first, i), nil
		}
		x.fault(v, at, false, err)
	}
	buf := pages.Get().(*[pageSize]byte)
	defer pages.Put(buf)
	b := buf[:size]
	if err := readFull(v.file, b, at); err != nil {
		return -1, err
	}
	i := x.search(b, target)
	if i >= 0 {
		out.take(b, i, x.entry)
	}
	return slot(first, i), nil
}

func slot(first int64, i int) int64 {
	if i < 0 {
		return -1
	}
	return first + int64(i)
}

// findPage returns the last page whose first key is not above target, or -1.
func findPage(keys []int64, target int64) int {
	last := len(keys) - 1
	if keys[last] <= target { // nearly every lookup is at the tail
		return last
	}
	if keys[0] > target {
		return -1
	}
	lo, hi := 0, last-1
	for lo < hi {
		mid := int(uint(lo+hi+1) >> 1)
		if keys[mid] <= target {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// search returns the last entry of a page whose key is not above target, or -1
// when the page was overwritten with something that is not an index.
func (x *mapped) search(b []byte, target int64) int {
	if x.entry == offsetEntrySize {
		return searchOffsets(b, target)
	}
	lo, hi := 0, len(b)/timeEntrySize-1
	for lo < hi {
		mid := int(uint(lo+hi+1) >> 1)
		if int64(binary.BigEndian.Uint64(b[mid*timeEntrySize:])) <= target {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	if x.key(b[lo*timeEntrySize:]) > target {
		return -1
	}
	return lo
}

func searchOffsets(b []byte, target int64) int {
	lo, hi := 0, len(b)/offsetEntrySize-1
	for lo < hi {
		mid := int(uint(lo+hi+1) >> 1)
		if int64(int32(binary.BigEndian.Uint32(b[mid*offsetEntrySize:]))) <= target {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	if int64(int32(binary.BigEndian.Uint32(b[lo*offsetEntrySize:]))) > target {
		return -1
	}
	return lo
}

// bounds is AbstractIndex.indexSlotRangeFor: the slots of the greatest entry
// not above target and of the smallest not below it, -1 where there is none.
// compare says how entry i stands to the target. The search is Kafka's to the
// step: with equal or unsorted keys its path decides, and a match that it only
// narrows down to, without comparing it, does not count as the upper one.
func (x *mapped) bounds(n int64, compare func(i int64) (int, error)) (lower, upper int64, err error) {
	if n == 0 {
		return -1, -1, nil
	}
	hot := max(0, n-1-int64(8192/x.entry))
	c, err := compare(hot)
	if err != nil {
		return -1, -1, err
	}
	if c < 0 {
		return binarySearch(hot, n-1, n, compare)
	}
	if c, err = compare(0); err != nil {
		return -1, -1, err
	}
	if c > 0 {
		return -1, 0, nil
	}
	return binarySearch(0, hot, n, compare)
}

func binarySearch(lo, hi, n int64, compare func(i int64) (int, error)) (lower, upper int64, err error) {
	for lo < hi {
		mid := (lo + hi + 1) / 2
		c, err := compare(mid)
		switch {
		case err != nil:
			return -1, -1, err
		case c > 0:
			hi = mid - 1
		case c < 0:
			lo = mid
		default:
			return mid, mid, nil
		}
	}
	if lo == n-1 {
		return lo, -1, nil
	}
	return lo, lo + 1, nil
}
