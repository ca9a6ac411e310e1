package commitlog

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// loader is one Open while it runs (Kafka's LogLoader). Its order of steps
// decides what a crash in the middle of anything turns into.
type loader struct {
	l             *Log
	clean         bool
	recoveryPoint kafka.Offset // of the checkpoint
	logStart      kafka.Offset // of the checkpoint

	segs     []*segment.Segment
	bases    []kafka.Offset // of all segments in the directory, rising
	changed  bool           // names in the directory went or came
	unfit    bool           // the indexes of the last segment do not fit it
	tailNext kafka.Offset   // next offset as the check of a clean tail found it; NoOffset: not checked
	after    []func()       // unlinking of what was renamed

	// keep is the lowest offset at which the log may be cut: what lies below had
	// reached the disk, and is kept whatever is wrong with it. reached is up to
	// where all had: what is cut off below it is damage, and set aside.
	keep      kafka.Offset
	reached   kafka.Offset
	noEpochs  bool               // no leader epoch is known: they are found in the end, from the first batch on
	epochs    []checkpoint.Epoch // met in recovered batches meanwhile
	producers *producer.State    // behind the segment that was recovered last; nil at first
	recovered []*segment.Segment // checked, but not yet flushed
	bytes     int64              // of those
	flushed   kafka.Offset       // below it everything was checked and flushed
}

func (ld *loader) load() error {
	l := ld.l
	ld.tailNext, ld.keep, ld.reached = kafka.NoOffset, ld.recoveryPoint, ld.recoveryPoint
	swaps, err := ld.removeTemporary()
	if err != nil {
		return err
	}
	if err := ld.completeSwaps(swaps); err != nil {
		return err
	}
	rebuildEpochs, err := l.loadEpochs()
	if err != nil {
		return err
	}
	ld.noEpochs = rebuildEpochs || len(l.epochs.load()) == 0
	if err := ld.splitting(ld.loadSegments); err != nil {
		return err
	}
	if err := ld.splitting(ld.recoverLog); err != nil {
		return err
	}
	end, err := ld.end()
	if err != nil {
		return err
	}
	list := newSegmentList(ld.segs)
	active := list.active()
	if err := active.Activate(); err != nil {
		return err
	}
	start := max(ld.logStart, list.bases[0])
	if rebuildEpochs || ld.epochsMissing(list) {
		if err := ld.withoutRoom("leader epochs", l.rebuildEpochs(list)); err != nil {
			return err
		}
	} else if err := ld.assignEpochs(ld.epochs); err != nil {
		return err
	}
	if l.epochs.truncateFromEnd(end) || l.epochs.truncateFromStart(ld.logStart) {
		l.epochs.truncateFromStart(ld.logStart)
		l.epochOwed = true // until it is written each load does this again
	}
	l.segments.Store(list)
	l.start.set(start)
	l.end.store(end, active.BaseOffset(), active.Size())
	l.highWatermark.set(start)
	l.recoveryPoint.set(min(max(ld.recoveryPoint, ld.flushed), end))
	if ld.clean {
		l.recoveryPoint.set(end)
	}
	if err := l.producers.RemoveStray(list.bases); err != nil {
		return err
	}
	if err := l.rebuildProducers(l.producers, ld.segs, start, end, ld.clean); err != nil {
		return err
	}
	if err := l.settleCompactedTxns(list, start); err != nil {
		return err
	}
	if l.producers.Dropped() || ld.changed {
		return l.fs.SyncDir(l.Dir())
	}
	return nil
}

// splitting runs a step again after a segment with too wide offsets was split.
func (ld *loader) splitting(step func() error) error {
	for {
		err := step()
		var over *overflow
		if !errors.As(err, &over) {
			return err
		}
		if err := ld.split(over.segment); err != nil {
			return err
		}
	}
}

// overflow is a segment that holds an offset which its base cannot express.
type overflow struct {
	segment *segment.Segment
	err     error
}

func (e *overflow) Error() string { return e.err.Error() }

// loadSegments opens the segments in the order of their names. Kafka recovers
// one without an offset index or with a damaged transaction index; here also
// one without a time index is, because retention and lookups by time would take
// the age of the file for that of its records.
func (ld *loader) loadSegments() error {
	l := ld.l
	for _, s := range ld.segs {
		if err := s.Abandon(); err != nil {
			return err
		}
	}
	ld.segs, ld.producers, ld.recovered = ld.segs[:0], nil, nil
	names, err := l.fs.ReadDir(l.Dir())
	if err != nil {
		return err
	}
	files := make(map[segment.FileName]bool, len(names))
	ld.bases = ld.bases[:0]
	unflushed := kafka.Offset(math.MaxInt64) // from this segment on recoverLog recovers all
	for _, d := range names {
		n, ok := segment.ParseName(d.Name())
		if !ok || !d.Type().IsRegular() {
			continue
		}
		files[n] = true
		if n.Ext == segment.LogExt && n.Suffix == "" {
			ld.bases = append(ld.bases, n.Base)
			if !ld.clean && (n.Base <= ld.recoveryPoint || unflushed == math.MaxInt64) {
				unflushed = n.Base
			}
		}
	}
	slices.Sort(ld.bases)
	var orphans []segment.FileName
	for _, d := range names {
		n, ok := segment.ParseName(d.Name())
		if !ok || n.Suffix != "" || n.Ext != segment.LogExt && !d.Type().IsRegular() {
			continue
		}
		switch {
		case n.Ext == segment.LogExt && !d.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file", l.path(d.Name()))
		case n.Ext != segment.LogExt && !files[segment.FileName{Base: n.Base, Ext: segment.LogExt}]:
			orphans = append(orphans, n)
		case n.Ext == segment.LogExt:
			has := files[segment.FileName{Base: n.Base, Ext: segment.TimeIndexExt}]
			if err := ld.loadSegment(n.Base, has, n.Base < unflushed); err != nil {
				return err
			}
		}
	}
	if err := ld.missing(orphans, unflushed); err != nil {
		return err
	}
	for _, n := range orphans {
		if n.Ext == segment.SnapshotExt {
			continue // of a clean stop, perhaps: see RemoveStray
		}
		l.say(slog.LevelWarn, "orphaned index removed", "file", l.path(n.String()))
		if err := ld.remove(n); err != nil {
			return err
		}
	}
	return nil
}

// below is the base offset of the segment behind s; 0 when s is the last.
func (ld *loader) below(s *segment.Segment) kafka.Offset {
	i, found := slices.BinarySearch(ld.bases, s.BaseOffset())
	if found {
		i++
	}
	if i < len(ld.bases) {
		return ld.bases[i]
	}
	return 0
}

func (ld *loader) loadSegment(base kafka.Offset, hasTimeIndex, check bool) error {
	l := ld.l
	s, err := segment.Open(l.fs, l.Dir(), base, l.segmentOptions())
	if err != nil {
		return err
	}
	ld.segs = append(ld.segs, s)
	if !check {
		return nil
	}
	err = s.SanityCheck()
	if err == nil && !hasTimeIndex && s.Size() > 0 {
		err = &index.CorruptError{Path: s.Times().Path(), Reason: "the file is missing"}
	}
	if err == nil {
		return nil
	}
	var version *index.VersionError // of an entry of the transaction index
	if !errors.Is(err, index.ErrCorrupt) && !errors.As(err, &version) {
		return err
	}
	reason, since := err, l.opts.Now()
	ld.segs = ld.segs[:len(ld.segs)-1] // the producer state before it is built from those below
	found, err := ld.recoverSegment(s, nil, math.MaxInt64)
	ld.segs = append(ld.segs, s)
	if err != nil {
		return err
	}
	var corrupt *index.CorruptError
	if errors.As(reason, &corrupt) {
		l.indexRebuilt(corrupt.Path, corrupt.Reason, found.Entries, since)
		return nil
	}
	l.indexRebuilt(s.Txns().Path(), reason.Error(), found.Entries, since)
	return nil
}

// recoverLog recovers what may not have reached the disk: every segment from the
// recovery point on, unless the last stop was clean and the end of the log
// agrees with that.
func (ld *loader) recoverLog() error {
	if ld.clean {
		ok, err := ld.tailIsWhole()
		if err != nil {
			return err
		}
		if !ok {
			ld.clean = false
			ld.recoveryPoint = min(ld.recoveryPoint, ld.segs[len(ld.segs)-1].BaseOffset())
		}
	}
	if ld.clean || len(ld.segs) == 0 {
		return nil
	}
	list := newSegmentList(ld.segs)
	ld.bases = list.bases // a segment may have been split
	unflushed := list.span(ld.recoveryPoint, math.MaxInt64)
	since := ld.l.opts.Now()
	for i, s := range unflushed {
		later := unflushed[i+1:]
		found, err := ld.recoverSegment(s, later, ld.keep)
		if err != nil {
			return err
		}
		if ld.unfit {
			ld.l.indexRebuilt(s.Offsets().Path(), "the indexes do not fit the log", found.Entries, since)
			ld.unfit = false
		}
		ld.tailNext = found.Next
		if found.Cut > 0 {
			return nil
		}
		if len(later) > 0 && found.Next < later[0].BaseOffset() && !ld.mayMiss(s.BaseOffset()) {
			return ld.cutAtHole(s, later, found.Next)
		}
		if err := ld.keepUp(s, later); err != nil {
			return err
		}
	}
	return nil
}

// recoveredBytes is how much is checked before it is made durable, so that a
// start that is killed goes on from there: some milliseconds of checking, and a
// sync less for most partitions, which end in less.
const recoveredBytes = 32 << 20

// keepUp moves the recovery point of a start that takes long.
func (ld *loader) keepUp(s *segment.Segment, later []*segment.Segment) error {
	ld.recovered, ld.bytes = append(ld.recovered, s), ld.bytes+s.Size()
	if ld.bytes < recoveredBytes || len(later) == 0 {
		return nil
	}
	for _, s := range ld.recovered {
		if err := s.Flush(); err != nil {
			return err
		}
	}
	if err := ld.l.fs.SyncDir(ld.l.Dir()); err != nil {
		return err
	}
	ld.recovered, ld.bytes = ld.recovered[:0], 0
	ld.flushed = later[0].BaseOffset()
	if ld.l.opts.OnRecovered != nil {
		ld.l.opts.OnRecovered(ld.flushed)
	}
	return nil
}

// end makes sure that there is a segment and that the log does not end below
// its start, and returns the log end offset.
func (ld *loader) end() (kafka.Offset, error) {
	l := ld.l
	if n := len(ld.segs); n > 0 {
		next := ld.tailNext
		if next == kafka.NoOffset {
			var err error
			if next, err = ld.segs[n-1].ReadNextOffset(); err != nil {
				return 0, err
			}
		}
		if next >= ld.logStart {
			return next, nil
		}
		// Whether the records were deleted or the checkpoint is wrong, which has no
		// checksum, is not known: Kafka deletes them, here they are set aside.
		if err := l.producers.Reset(ld.logStart); err != nil {
			return 0, err
		}
		var a aside
		if err := ld.dropAfterCut(slices.Clone(ld.segs), &a); err != nil {
			return 0, err
		}
		l.report(slog.LevelWarn, "log-start-above-end", "the log ends below its start", l.Dir(),
			"logStartOffset", ld.logStart, "offset", next, "kept", strings.Join(a.files, " "))
		if l.epochs.clear() {
			if err := ld.withoutRoom("leader epochs", l.writeEpochs()); err != nil {
				return 0, err
			}
		}
	}
	s, err := l.createSegment(ld.logStart)
	if err != nil {
		return 0, err
	}
	ld.segs = append(ld.segs, s)
	ld.changed = true
	return ld.logStart, nil
}

func (ld *loader) discard(gone []*segment.Segment) error {
	l := ld.l
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	for _, s := range gone {
		if derr := l.discardLocked(l.producers, s); derr != nil {
			err = errors.Join(err, derr)
			continue
		}
		err = errors.Join(err, s.Retire()) // closed, should nobody come to unlink it
	}
	ld.after = append(ld.after, func() { l.unlinkLater(gone) })
	return err
}

// epochsMissing reports whether the first batch names an epoch and the
// checkpoint none at all, as after a crash that lost its content.
func (ld *loader) epochsMissing(list *segmentList) bool {
	if len(ld.l.epochs.load()) > 0 {
		return false
	}
	missing := false
	errStop := errors.New("stop")
	for _, s := range list.segs {
		if s.Size() == 0 {
			continue
		}
		_, err := s.Scan(0, 1, func(h *record.Header, _ []byte, _ int64) error {
			missing = h.Magic >= record.MagicV2 && h.LeaderEpoch >= 0
			return errStop
		})
		return missing && errors.Is(err, errStop)
	}
	return false
}

// recoverSegment checks and rebuilds one segment. The producer state before it
// comes from the newest snapshot below it and the segments in between, and is
// left as a snapshot at its end, so that the next segment starts from there.
//
// later are the segments behind it: when the log ends in this one they go, and
// they go first. A crash in between then leaves the damage where it is, and not
// a log with a hole in it. Below keep nothing is cut.
func (ld *loader) recoverSegment(s *segment.Segment, later []*segment.Segment, keep kafka.Offset) (found segment.Recovered, err error) {
	l := ld.l
	l.say(slog.LevelDebug, "recovering segment", "base", s.BaseOffset())
	st, err := ld.producersAt(s.BaseOffset())
	if err != nil {
		return found, err
	}
	var tail aside
	found, err = s.RecoverWith(segment.RecoverOptions{
		Visit: func(h *record.Header, b []byte, _ int64) error { return ld.recoveredBatch(s, st, h, b) },
		Keep:  keep, Below: ld.below(s), Gaps: l.Config().CleanupCompact || ld.mayMiss(s.BaseOffset()),
		Scanned: func(bytes int64) { ld.scanned(0, bytes) },
		BeforeCut: func(c segment.Cut) error {
			if tail, err = ld.beforeCut(s, c); err != nil {
				return err
			}
			return ld.dropAfterCut(later, &tail)
		},
	})
	ld.scanned(1, 0)
	var misnamed *segment.MisnamedError
	switch {
	case errors.Is(err, segment.ErrOverflow):
		return found, &overflow{s, err}
	case errors.As(err, &misnamed):
		return found, &MisnamedError{Path: s.Path(), Base: s.BaseOffset(), Found: misnamed.Found}
	case err != nil:
		return found, err
	}
	if found.Cut == 0 && len(later) > 0 && found.Next > later[0].BaseOffset() {
		return found, &MisnamedError{Path: later[0].Path(), Base: later[0].BaseOffset(), Found: found.Next, Below: s.Path()}
	}
	st.SetMapEnd(max(st.MapEnd(), found.Next))
	ld.producers, ld.changed = st, ld.changed || st.Dropped()
	if found.Cut > 0 {
		// Durable before anything is appended: bytes that were cut off must not
		// come back behind what is written in their place.
		if err := s.Flush(); err != nil {
			return found, err
		}
		ld.tailCut(s, found.From, found.From+found.Cut, found.Next, found.Reason, &tail)
	}
	return found, l.snapshot(st)
}

func (ld *loader) scanned(segments int, bytes int64) {
	if ld.l.opts.OnScan != nil {
		ld.l.opts.OnScan(segments, bytes)
	}
}

// producersAt is the producer state at the start of a segment under recovery.
func (ld *loader) producersAt(base kafka.Offset) (*producer.State, error) {
	if st := ld.producers; st != nil && st.MapEnd() == base {
		st.Expire(ld.l.now()) // as if it were read from its snapshot
		return st, nil
	}
	st, err := producer.Open(ld.l.producerConfig())
	if err != nil {
		return nil, err
	}
	return st, ld.l.rebuildProducers(st, ld.segs, ld.logStart, base, false)
}

// withoutRoom lets a full disk pass: a log must be readable on it, and what
// could not be written is found anew at the next start.
func (ld *loader) withoutRoom(what string, err error) error {
	if vfs.IsFull(err) {
		ld.l.say(slog.LevelWarn, "not written: the disk is full", "what", what, "err", err)
		return nil
	}
	return err
}

// snapshot writes the producer state, unless the disk is full.
func (l *Log) snapshot(st *producer.State) error {
	_, err := st.TakeSnapshot(true)
	if vfs.IsFull(err) {
		l.say(slog.LevelWarn, "no producer snapshot: the disk is full", "offset", st.MapEnd(), "err", err)
		return nil
	}
	return err
}

// recoveredBatch takes one good batch of a segment under recovery: its leader epoch
// and what it means for producers and transactions.
func (ld *loader) recoveredBatch(s *segment.Segment, st *producer.State, h *record.Header, b []byte) error {
	if h.Magic < record.MagicV2 {
		return nil
	}
	if h.LeaderEpoch >= 0 {
		e := checkpoint.Epoch{Epoch: h.LeaderEpoch, Start: h.BaseOffset}
		if n := len(ld.epochs); !ld.noEpochs {
			if err := ld.assignEpochs([]checkpoint.Epoch{e}); err != nil {
				return err
			}
		} else if n == 0 || ld.epochs[n-1].Epoch < e.Epoch {
			ld.epochs = append(ld.epochs, e)
		}
	}
	if h.HasProducerID() {
		st.Begin()
		if err := addProducer(st, h, b, producer.Replication, producer.UnknownTxnVersion, 0); err != nil {
			return ld.strange(s, h, err)
		}
		completed := st.Completed()
		st.Commit()
		for _, c := range completed {
			if c.Aborted {
				err := s.AppendTxn(index.AbortedTxn{
					ProducerID: c.ProducerID, FirstOffset: c.FirstOffset, LastOffset: c.LastOffset, LastStable: st.LastStableAfter(c)})
				if err != nil {
					return err
				}
			}
			st.Complete(c)
		}
	}
	st.SetMapEnd(h.LastOffset + 1)
	return nil
}

// assignEpochs adds those that are newer than what is known.
func (ld *loader) assignEpochs(list []checkpoint.Epoch) error {
	l := ld.l
	for _, e := range list {
		if latest, ok := l.epochs.latest(); ok && e.Epoch <= latest.Epoch || !l.epochs.assign(e.Epoch, e.Start) {
			continue
		}
		if err := ld.withoutRoom("leader epochs", l.writeEpochs()); err != nil {
			return err
		}
	}
	return nil
}

// strange lets a batch pass whose checksum is right and whose meaning for
// producers is not: it is there, so it is kept.
func (ld *loader) strange(s *segment.Segment, h *record.Header, err error) error {
	ld.l.event("producer-state-skipped", s.Path(), fmt.Sprintf("batch at offset %d: %v", h.BaseOffset, err))
	return nil
}

// rebuildProducers brings the producer state to end: from a snapshot, and by
// replaying what it does not cover (UnifiedLog.rebuildProducerState). A log that
// was closed cleanly and has no snapshot is taken by Kafka for one without
// producers; here it is replayed as any other, and left with the same files.
func (l *Log) rebuildProducers(st *producer.State, segs []*segment.Segment, logStart, end kafka.Offset, clean bool) error {
	wasEmpty := st.Len() == 0 && st.MapEnd() >= end
	_, hadSnapshot := st.LatestSnapshot()
	if err := st.Reload(logStart, end, l.now()); err != nil {
		return err
	}
	if clean && !hadSnapshot {
		st.ForgetLastSnapshot()
	}
	if end > st.MapEnd() && !wasEmpty && len(segs) > 0 {
		snapshotAt := make([]kafka.Offset, 0, 2)
		for _, s := range segs[max(0, len(segs)-2):] {
			snapshotAt = append(snapshotAt, s.BaseOffset())
		}
		list := newSegmentList(segs)
		for _, s := range list.span(st.MapEnd(), end) {
			from := max(s.BaseOffset(), st.MapEnd(), logStart)
			st.SetMapEnd(from)
			if slices.Contains(snapshotAt, s.BaseOffset()) {
				if err := l.snapshot(st); err != nil {
					return err
				}
			}
			if err := l.replay(st, s, from, end); err != nil {
				return err
			}
		}
	}
	st.SetMapEnd(end)
	return l.snapshot(st)
}

var errReplayed = errors.New("replayed")

// replay gives the batches of s that hold offsets in [from, to) to the producer state.
func (l *Log) replay(st *producer.State, s *segment.Segment, from, to kafka.Offset) error {
	at, ok, err := s.Locate(from)
	if errors.Is(err, record.ErrCorrupt) {
		return nil
	}
	if err != nil || !ok {
		return err
	}
	_, err = s.Scan(at.Byte, s.Size(), func(h *record.Header, b []byte, _ int64) error {
		if h.LastOffset >= to {
			return errReplayed
		}
		if !h.HasProducerID() {
			return nil
		}
		st.Begin()
		if err := addProducer(st, h, b, producer.Replication, producer.UnknownTxnVersion, 0); err != nil {
			l.event("producer-state-skipped", s.Path(), fmt.Sprintf("batch at offset %d: %v", h.BaseOffset, err))
			return nil
		}
		completed := st.Completed()
		st.Commit()
		for _, c := range completed {
			st.Complete(c)
		}
		return nil
	})
	if errors.Is(err, errReplayed) || errors.Is(err, record.ErrCorrupt) {
		return nil // damage below the recovery point is kept and reported where it is read
	}
	return err
}
