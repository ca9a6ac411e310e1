package memfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Loss is one thing that was not synced when the power went: a crash keeps it
// or loses it.
type Loss struct {
	Kind   string // "create", "mkdir", "rename", "unlink", "page", "sector" or "size"
	Name   string // path of the file; new name of a rename
	Offset int64  // page, sector: first byte; size: the length that is not durable
}

// Choice decides what a crash keeps.
type Choice struct {
	// Keep says whether this loss reaches the disk after all. Required.
	Keep func(Loss) bool
	// Tear says whether a dirty page is torn, so that Keep is asked for each of
	// its 512-byte sectors. nil never tears.
	Tear func(Loss) bool
	// Length picks what is left of a file that had become longer, between the
	// durable length and the new one. nil keeps it as a whole.
	Length func(from, to int64) int64
}

// DropAll loses everything that was not synced.
func DropAll() Choice { return Choice{Keep: func(Loss) bool { return false }} }

// KeepAll keeps everything, as the death of the process alone does.
func KeepAll() Choice { return Choice{Keep: func(Loss) bool { return true }} }

// Random keeps each loss with probability keep, each by its own throw, and tears
// a quarter of the dirty pages. The same seed on the same disk gives the same crash.
func Random(keep float64, seed uint64) Choice {
	r := rand.New(rand.NewPCG(seed, 0x76617276))
	return Choice{
		Keep:   func(Loss) bool { return r.Float64() < keep },
		Tear:   func(Loss) bool { return r.IntN(4) == 0 },
		Length: func(from, to int64) int64 { return from + r.Int64N(to-from+1) },
	}
}

// Crash returns the disk as the next boot finds it. The receiver is not changed,
// so one moment can be crashed in many ways. Locks are gone, and all that is on
// the new disk is durable.
func (m *FS) Crash(c Choice) *FS {
	m.mu.Lock()
	defer m.mu.Unlock()
	crash := &crash{choice: c, seen: map[node]node{}, fs: New()}
	crash.fs.limit, crash.fs.now = m.limit, m.now
	crash.kept = map[*nameOp]bool{}
	crash.fs.root = crash.dir(m.root, "")
	return crash.fs
}

// crash is one Crash while it runs.
type crash struct {
	choice Choice
	fs     *FS
	seen   map[node]node    // a file with two names stays one file
	kept   map[*nameOp]bool // decided, for the other half of a rename
}

func (c *crash) node(n node, name string) node {
	if made, ok := c.seen[n]; ok {
		return made
	}
	var made node
	switch n := n.(type) {
	case *dir:
		made = c.dir(n, name)
	case *file:
		made = c.file(n, name)
	}
	c.seen[n] = made
	return made
}

func (c *crash) dir(d *dir, name string) *dir {
	entries := maps.Clone(d.durable)
	for _, op := range d.ops {
		if op.kept || c.keepOp(op, name) {
			op.apply(entries)
		}
	}
	out := newDir()
	for _, base := range slices.Sorted(maps.Keys(entries)) {
		n := c.node(entries[base], name+"/"+base)
		out.entries[base], out.durable[base] = n, n
	}
	return out
}

func (c *crash) keepOp(op *nameOp, dirName string) bool {
	if kept, ok := c.kept[op]; ok {
		return kept
	}
	kept := c.choice.Keep(Loss{Kind: op.kind, Name: dirName + "/" + op.name})
	if kept && op.twin != nil && !op.twin.kept {
		// The old name may go only when the new one is there.
		kept = c.keepOp(op.twin, dirName)
	}
	c.kept[op] = kept
	return kept
}

func (c *crash) file(f *file, name string) *file {
	out := &file{perm: f.perm, modified: f.modified, durable: slices.Clone(f.durable)}
	size := c.size(f, name)
	f.eachDirty(func(i int) {
		at := int64(i) * pageSize
		if _, lost := f.lost[i]; (lost && samePage(pageAt(f.pages, i), f.lost[i])) || at >= f.size || at >= size {
			return // an older, longer length comes back with its old bytes
		}
		if page, changed := c.page(f, i, name); changed {
			out.setDurable(i, page)
		}
	})
	out.cutTo(size)
	out.durableSize, out.size = size, size
	out.pages = slices.Clone(out.durable)
	for i, page := range out.pages {
		if page != nil {
			out.claim(&FS{}, i)
			c.fs.used++
		}
	}
	return out
}

func (c *crash) size(f *file, name string) int64 {
	switch {
	case f.size == f.durableSize || !c.choice.Keep(Loss{Kind: "size", Name: name, Offset: f.size}):
		return f.durableSize
	case f.size > f.durableSize && c.choice.Length != nil:
		return c.choice.Length(f.durableSize, f.size)
	}
	return f.size
}

// page is what the crash leaves of a dirty page; changed is false when that is
// the durable one.
func (c *crash) page(f *file, i int, name string) (page []byte, changed bool) {
	current := pageAt(f.pages, i)
	loss := Loss{Kind: "page", Name: name, Offset: int64(i) * pageSize}
	if c.choice.Tear == nil || !c.choice.Tear(loss) {
		if !c.choice.Keep(loss) {
			return nil, false
		}
		return slices.Clone(current), true
	}
	const sector = 512
	page = make([]byte, pageSize)
	copy(page, pageAt(f.durable, i))
	for at := 0; at < pageSize; at += sector {
		loss := Loss{Kind: "sector", Name: name, Offset: int64(i)*pageSize + int64(at)}
		if !c.choice.Keep(loss) {
			continue
		}
		clear(page[at : at+sector])
		if current != nil {
			copy(page[at:at+sector], current[at:])
		}
	}
	return page, true
}

// cutTo drops what lies past size, so that a longer length later shows zeros.
func (f *file) cutTo(size int64) {
	n := pagesIn(size)
	f.durable = f.durable[:min(n, len(f.durable))]
	if tail := size % pageSize; tail != 0 && pageAt(f.durable, n-1) != nil {
		page := slices.Clone(f.durable[n-1])
		clear(page[tail:])
		f.durable[n-1] = page
	}
}
