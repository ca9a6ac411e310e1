package commitlog

import (
	"io"
	"slices"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// Examine goes through a sealed segment (segment.Examine) with what the log knows
// of it: its leader epochs, and the transactions that were open at its base.
// upper is the base of the segment behind it. It changes nothing.
func (l *Log) Examine(s *segment.Segment, r io.ReaderAt, upper kafka.Offset) (segment.Examination, error) {
	o := segment.ExamineOptions{Upper: upper, Start: l.StartOffset()}
	if len(l.epochs.load()) > 0 {
		o.EpochAt = l.epochs.forOffset
	}
	var err error
	if o.Open, err = l.openTxnsBySnapshot(s.BaseOffset()); err != nil {
		return segment.Examination{}, err
	}
	return s.Examine(r, o)
}

// openTxnsBySnapshot is what was open at an offset by the producer snapshot of it;
// nil when there is none that can be read.
func (l *Log) openTxnsBySnapshot(offset kafka.Offset) (segment.OpenTxns, error) {
	open := segment.OpenTxns{}
	if offset == 0 {
		return open, nil
	}
	data, err := vfs.ReadFile(l.fs, l.path(producer.SnapshotName(offset)))
	if err != nil {
		if vfs.IsReadError(err) {
			return nil, err
		}
		return nil, nil
	}
	entries, err := producer.DecodeSnapshot(data)
	if err != nil {
		return nil, nil // a start makes it anew; here it says nothing
	}
	for i := range entries {
		switch e := &entries[i]; {
		case e.LastOffset >= offset || e.TxnFirstOffset >= offset:
			return nil, nil // of another offset
		case e.TxnFirstOffset >= 0:
			open[e.ProducerID] = e.TxnFirstOffset
		}
	}
	return open, nil
}

// Mend makes anew what an Examine of a segment, in a generation of the log, has
// found to be wrong beside the `.log`: its indexes, and the leader epochs. It
// returns how many indexes that were.
func (l *Log) Mend(s *segment.Segment, e *segment.Examination, generation uint64) (rebuilt int) {
	rebuilt = s.Mend(e)
	open := func() (segment.OpenTxns, error) { return l.openTxnsAt(s.BaseOffset()) }
	if s.MendTxns(e, open, func() bool { return l.Generation() == generation }) {
		rebuilt++
	}
	if e.EpochCache != "" {
		l.mendEpochs(s, e, generation)
	}
	return rebuilt
}

// openTxnsAt is what was open at an offset: by its snapshot, or by an older one
// and a replay.
func (l *Log) openTxnsAt(base kafka.Offset) (segment.OpenTxns, error) {
	if open, err := l.openTxnsBySnapshot(base); open != nil || err != nil {
		return open, err
	}
	st, err := producer.Open(l.producerConfig())
	if err != nil {
		return nil, err
	}
	list := l.segments.Load()
	if err := st.LoadBelow(list.bases[0], base); err != nil {
		return nil, err
	}
	for _, s := range list.span(st.MapEnd(), base) {
		if err := l.replay(st, s, max(s.BaseOffset(), st.MapEnd()), base); err != nil {
			return nil, err
		}
	}
	open := segment.OpenTxns{}
	for _, t := range st.OpenTxns() {
		open[t.ProducerID] = t.FirstOffset
	}
	return open, nil
}

// mendEpochs puts the leader epochs of a segment's batches in the place of what
// the checkpoint has for its offsets. An epoch that holds behind the segment
// begins there at the latest.
func (l *Log) mendEpochs(s *segment.Segment, e *segment.Examination, generation uint64) {
	l.mu.Lock()
	defer l.unlock()
	list := l.segments.Load()
	i := slices.Index(list.segs, s)
	if i < 0 || i+1 == len(list.segs) || l.Generation() != generation || l.Failure() != nil {
		return
	}
	base, upper := list.bases[i], list.bases[i+1]
	old := l.epochs.load()
	// The log start may have been raised since the examination began, and the
	// epochs below it taken out: what is missing there is no damage.
	start := l.start.get()
	if len(old) > 0 {
		start = min(start, old[0].Start)
	}
	if upper <= start {
		return
	}
	var found epochCache
	found.store(e.Epochs)
	found.truncateFromStart(start)
	var entries []checkpoint.Epoch
	add := func(a checkpoint.Epoch) {
		if n := len(entries); n == 0 || a.Epoch > entries[n-1].Epoch && a.Start > entries[n-1].Start {
			entries = append(entries, a)
		}
	}
	for _, a := range old {
		if first, ok := found.earliest(); a.Start < base && (!ok || a.Epoch <= first.Epoch) {
			add(a)
		}
	}
	for _, a := range found.load() {
		add(a)
	}
	if epoch, ok := l.epochs.forOffset(upper); ok {
		add(checkpoint.Epoch{Epoch: epoch, Start: upper})
	}
	for _, a := range old {
		if a.Start > upper {
			add(a)
		}
	}
	if slices.Equal(entries, old) {
		return
	}
	l.epochs.store(entries)
	l.checkpointRebuilt(l.path(checkpoint.EpochFile), e.EpochCache)
	l.epochsChangedLocked(true)
}
