package segment

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// OpenTxns are the transactions that are open where a segment begins: the first
// offset of each, by producer. Nil: it is not known.
type OpenTxns map[kafka.ProducerID]kafka.Offset

// txnComparison follows the transactions of a segment, batch by batch, to hold its
// transaction index against them. An index that lacks an entry lets readers of
// committed records have what was aborted.
type txnComparison struct {
	base, next kafka.Offset
	known      bool // what is open at the base is
	gaps       bool // offsets are missing: compaction has taken batches, and what they began
	open       map[kafka.ProducerID]openTxn
	aborted    []abortedTxn
}

type openTxn struct {
	first kafka.Offset
	data  bool // records of it are there to be served
}

// abortedTxn is an abort marker and the entry that it needs.
type abortedTxn struct {
	index.AbortedTxn
	open openTxn
	was  bool // a transaction of the producer was open; else the marker ended none
}

func newTxnComparison(base kafka.Offset, open OpenTxns) *txnComparison {
	c := &txnComparison{base: base, next: base, known: open != nil, open: map[kafka.ProducerID]openTxn{}}
	for id, first := range open {
		c.open[id] = openTxn{first, true}
	}
	return c
}

// batch takes the next good batch; kind is what its record says if it is a control batch.
func (c *txnComparison) batch(h *record.Header, kind record.ControlType) {
	if h.Magic < record.MagicV2 {
		return
	}
	c.gaps = c.gaps || h.BaseOffset != c.next || h.Count != h.LastOffsetDelta+1
	c.next = h.LastOffset + 1
	if !h.IsTransactional() {
		return
	}
	t, was := c.open[h.ProducerID]
	if !h.IsControl() {
		if !was {
			t.first = h.BaseOffset
		}
		t.data = t.data || h.Count > 0
		c.open[h.ProducerID] = t
		return
	}
	if kind != record.AbortMarker && kind != record.CommitMarker {
		return
	}
	delete(c.open, h.ProducerID)
	if kind == record.CommitMarker {
		return
	}
	a := abortedTxn{AbortedTxn: index.AbortedTxn{ProducerID: h.ProducerID, FirstOffset: t.first, LastOffset: h.LastOffset, LastStable: h.LastOffset + 1}, open: t, was: was}
	for _, o := range c.open {
		a.LastStable = min(a.LastStable, o.first)
	}
	c.aborted = append(c.aborted, a)
}

// list is the entries that the segment needs.
func (c *txnComparison) list() []index.AbortedTxn {
	var list []index.AbortedTxn
	for _, a := range c.aborted {
		if a.was {
			list = append(list, a.AbortedTxn)
		}
	}
	return list
}

// problem says what is wrong with the entries. What is damaged in the .log, has
// been compacted away or lies before the segment may explain a difference: then
// only what would have aborted records served counts.
func (c *txnComparison) problem(entries []index.AbortedTxn, damaged []BadRange) string {
	strict := !c.gaps && len(damaged) == 0
	has := make(map[kafka.Offset]bool, len(entries))
	for _, e := range entries {
		i, found := slices.BinarySearchFunc(c.aborted, e.LastOffset, func(a abortedTxn, o kafka.Offset) int { return cmp.Compare(a.LastOffset, o) })
		if !found || c.aborted[i].ProducerID != e.ProducerID {
			if c.gaps || damagedAt(damaged, e.LastOffset, -1) != nil {
				continue
			}
			return fmt.Sprintf("no abort marker of producer %d at offset %d", e.ProducerID, e.LastOffset)
		}
		has[e.LastOffset] = true
		want := &c.aborted[i]
		wrong := e.LastStable > want.LastStable
		switch {
		case strict && c.known:
			wrong = !want.was || e != want.AbortedTxn
		case want.was && want.FirstOffset >= c.base:
			wrong = wrong || e.FirstOffset > want.FirstOffset || strict && e.FirstOffset >= c.base && e.FirstOffset != want.FirstOffset
		case want.was:
			wrong = wrong || e.FirstOffset != want.FirstOffset
		default:
			wrong = wrong || strict && e.FirstOffset >= c.base
		}
		if wrong {
			return fmt.Sprintf("the transaction of producer %d aborted at offset %d has offset %d, last stable %d; the log says %d, %d",
				e.ProducerID, e.LastOffset, e.FirstOffset, e.LastStable, want.FirstOffset, want.LastStable)
		}
	}
	for i := range c.aborted {
		if a := &c.aborted[i]; a.was && a.open.data && !has[a.LastOffset] {
			return fmt.Sprintf("no entry for the transaction of producer %d aborted at offset %d", a.ProducerID, a.LastOffset)
		}
	}
	return ""
}

// txnEntries reads the transaction index. What is wrong with it by itself is the problem.
func (s *Segment) txnEntries() (list []index.AbortedTxn, problem string, err error) {
	s.touch()
	if err := s.txns.SanityCheck(); err != nil {
		problem, err = broken(err)
		return nil, problem, err
	}
	err = s.txns.Each(func(_ int64, a index.AbortedTxn) bool { list = append(list, a); return true })
	problem, err = broken(err)
	return list, problem, err
}

// broken is readable for a transaction index, which tells by an error what is wrong.
func broken(err error) (string, error) {
	var version *index.VersionError
	if errors.Is(err, index.ErrCorrupt) || errors.As(err, &version) {
		return err.Error(), nil
	}
	return readable("", err)
}

// txnGate is what readers of aborted transactions meet while the index is known
// to be wrong: they wait until the right list is there.
type txnGate struct {
	done chan struct{}
	list []index.AbortedTxn // when it could not be written; the file is wrong still
	err  error
}

// MendTxns makes the transaction index anew for the reason that an Examine gave.
// open finds out what was open at the base; current is asked, once all is read,
// whether that still is what the log holds.
func (s *Segment) MendTxns(e *Examination, open func() (OpenTxns, error), current func() bool) (rebuilt bool) {
	if e.TxnIndex == "" || s.active.Load() {
		return false
	}
	h, f, err := s.use()
	if err != nil {
		return false
	}
	defer h.release()
	g := &txnGate{done: make(chan struct{})}
	s.txnGate.Store(g)
	defer close(g.done)
	began := s.clock()
	list, err := s.abortedTxns(f, e, open)
	if err != nil {
		g.err = s.rebuildFailed(err) // who waits is told; the next pass tries again
		return false
	}
	told := Rebuilt{Path: s.txns.Path(), Reason: e.TxnIndex, Entries: len(list)}
	replaced := false
	err = s.whileSealed(func() (err error) {
		if !current() {
			return errActive
		}
		replaced, err = s.replaceTxns(list)
		return err
	})
	if err == nil && replaced {
		err = s.fs.SyncDir(s.directory())
	}
	if err != nil {
		_ = s.rebuildFailed(err)
		if !vfs.IsFull(err) {
			s.txnGate.CompareAndSwap(g, nil) // it has gone, or its directory is offline
			return false
		}
		g.list, told.InMemory = list, true
		if g.list == nil {
			g.list = []index.AbortedTxn{}
		}
		replaced = true
	} else {
		s.txnGate.CompareAndSwap(g, nil)
	}
	if replaced && s.opts.OnRebuilt != nil {
		told.Duration = s.clock() - began
		s.opts.OnRebuilt(told)
	}
	return replaced
}

// replaceTxns puts a list in the place of the index.
func (s *Segment) replaceTxns(list []index.AbortedTxn) (replaced bool, err error) {
	s.txns.Rebuild()
	for _, a := range list {
		if err := s.txns.Append(a); err != nil {
			return false, err
		}
	}
	return s.txns.Publish()
}

// abortedTxns goes through the segment for the entries of its index. Of what is
// damaged the entries stay as they are.
func (s *Segment) abortedTxns(f vfs.File, e *Examination, open func() (OpenTxns, error)) ([]index.AbortedTxn, error) {
	at, err := open()
	if err != nil {
		return nil, err
	}
	c := newTxnComparison(s.base, at)
	x := examiner{s: s, upper: s.base + maxRelative + 1, good: func(b *goodBatch) { c.batch(&b.Header, b.kind) }}
	if err := x.run(f); err != nil {
		return nil, err
	}
	list := c.list()
	if len(e.Damaged) == 0 {
		return list, nil
	}
	old, _, err := s.txnEntries()
	if err != nil {
		return nil, err
	}
	for _, a := range old {
		if a.ProducerID >= 0 && a.FirstOffset >= 0 && damagedAt(e.Damaged, a.LastOffset, -1) != nil {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b index.AbortedTxn) int { return cmp.Compare(a.LastOffset, b.LastOffset) })
	return slices.CompactFunc(list, func(a, b index.AbortedTxn) bool { return a.LastOffset == b.LastOffset }), nil
}

// clock is the time in milliseconds; 0 without one.
func (s *Segment) clock() int64 {
	if s.opts.Clock == nil {
		return 0
	}
	return s.opts.Clock().UnixMilli()
}

// collect is TxnIndex.Collect of a list in memory.
func (g *txnGate) collect(dst []index.AbortedTxn, from, bound kafka.Offset) (list []index.AbortedTxn, complete bool) {
	for _, a := range g.list {
		if a.LastOffset >= from && a.FirstOffset < bound {
			dst = append(dst, a)
		}
		if a.LastStable >= bound {
			return dst, true
		}
	}
	return dst, false
}
