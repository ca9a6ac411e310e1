package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// An index of a sealed segment is checked in full at its first use, and one that
// is not right is made anew from the .log. Who comes meanwhile waits for that: it
// reads the .log once, where each of them would walk it from its start. Where it
// fails they do walk: no answer is ever taken from an index that is known to be wrong.

// What is known of an index file.
const (
	unvetted = iota // not looked at yet, or wrong
	vetted          // agreed with the .log when it was looked at
)

// vetting is what is known of one of the two indexes.
type vetting struct {
	state atomic.Int32
	mu    sync.Mutex
	// ended is closed when the check under way has ended, with what it made anew;
	// nil: there is none. Guarded by mu.
	ended chan struct{}
}

// Rebuilt says that an index was made anew from the .log.
type Rebuilt struct {
	Path     string
	Reason   string
	Entries  int
	Duration int64 // milliseconds
	InMemory bool  // it could not be written to the disk; the file is as it was
}

const (
	// vetSamples is how many entries are compared with the batches that they point at.
	vetSamples = 16
	// sparse is how much of a .log the end of an index may leave out before it
	// counts as damaged: Kafka up to 3.8 made one entry for each append of a
	// follower, which may hold megabytes.
	sparse = 16 << 20
	// emptyUpTo is how many times index.interval.bytes a .log may have without any
	// entry: what was appended since the last one is not known after a restart.
	emptyUpTo = 64
)

// offsetsUsable checks the offset index of a sealed segment at its first use.
func (s *Segment) offsetsUsable(f vfs.File) bool {
	if s.opts.ReadOnly || s.active.Load() {
		return true
	}
	if s.offsetVet.state.Load() == vetted {
		return true
	}
	usable, _ := s.vet(f, &s.offsetVet, s.offsetProblem, s.rebuildOffsets)
	return usable
}

// timesUsable does the same for the time index.
func (s *Segment) timesUsable(f vfs.File) bool {
	if s.opts.ReadOnly || s.active.Load() {
		return true
	}
	if s.timeVet.state.Load() == vetted {
		return true
	}
	usable, _ := s.vet(f, &s.timeVet, s.timeProblem, s.rebuildTimes)
	return usable
}

// VetIndexes checks both indexes of a segment and makes those anew that are
// wrong, for its owner before it becomes the active one.
func (s *Segment) VetIndexes() error {
	h, f, err := s.use()
	if err != nil {
		return err
	}
	defer h.release()
	s.offsetsUsable(f)
	s.timesUsable(f)
	return nil
}

// VetTimes checks the time index before MaxTimestamp is believed for a lookup.
func (s *Segment) VetTimes() error {
	if s.timeVet.state.Load() == vetted || s.opts.ReadOnly || s.active.Load() {
		return nil
	}
	h, f, err := s.use()
	if err != nil {
		return err
	}
	defer h.release()
	s.timesUsable(f)
	return nil
}

// Mend makes anew the indexes that an Examine has found to be wrong, and returns
// how many.
func (s *Segment) Mend(e *Examination) (rebuilt int) {
	if e.OffsetIndex == "" && e.TimeIndex == "" || s.active.Load() {
		return 0
	}
	h, f, err := s.use()
	if err != nil {
		return 0
	}
	defer h.release()
	wrong := func(reason string) func(vfs.File) (string, error) {
		return func(vfs.File) (string, error) { return reason, nil }
	}
	if e.OffsetIndex != "" {
		if _, made := s.vet(f, &s.offsetVet, wrong(e.OffsetIndex), s.rebuildOffsets); made {
			rebuilt++
		}
	}
	if e.TimeIndex != "" {
		if _, made := s.vet(f, &s.timeVet, wrong(e.TimeIndex), s.rebuildTimes); made {
			rebuilt++
		}
	}
	return rebuilt
}

// vet runs one check at a time, and makes the index anew when it finds a problem;
// made says so. Whoever comes meanwhile waits, and takes its outcome. Nobody waits
// with a lock that the one who checks takes: what Options are told comes last.
func (s *Segment) vet(f vfs.File, v *vetting, problem func(vfs.File) (string, error), rebuild func(vfs.File, string) (Rebuilt, error)) (usable, made bool) {
	v.mu.Lock()
	if ended := v.ended; ended != nil {
		v.mu.Unlock()
		<-ended
		return v.state.Load() == vetted, false
	}
	ended := make(chan struct{})
	v.ended = ended
	v.mu.Unlock()

	var told Rebuilt
	var failed error
	reason, err := problem(f)
	if err == nil && reason != "" { // an error is of the disk, or the segment has gone: this lookup does without
		v.state.Store(unvetted)
		told, failed = rebuild(f, reason)
		made = failed == nil
	}
	usable = err == nil && failed == nil
	if usable {
		v.state.Store(vetted) // else the next use tries again
	}
	v.mu.Lock()
	v.ended = nil
	v.mu.Unlock()
	close(ended)

	if failed != nil {
		_ = s.rebuildFailed(failed) // the lookup does without
	} else if made && s.opts.OnRebuilt != nil {
		s.opts.OnRebuilt(told)
	}
	return usable, made
}

// doubtOffsets has the offset index checked again at its next use: something in
// it did not fit the .log.
func (s *Segment) doubtOffsets() {
	if !s.active.Load() {
		s.offsetVet.state.CompareAndSwap(vetted, unvetted)
	}
}

func (s *Segment) doubtTimes() {
	if !s.active.Load() {
		s.timeVet.state.CompareAndSwap(vetted, unvetted)
	}
}

// readable turns an index file that is shorter than it was, or gone, into a
// problem of the index, and leaves errors of the disk.
func readable(problem string, err error) (string, error) {
	if err != nil && (index.IsShort(err) || errors.Is(err, fs.ErrNotExist)) {
		return err.Error(), nil
	}
	return problem, err
}

// offsetProblem is the full check of an offset index.
func (s *Segment) offsetProblem(f vfs.File) (string, error) {
	size := s.size.Load()
	n, err := s.offsets.Len()
	if err != nil {
		return readable("", err)
	}
	problem, err := readable(s.offsets.Check(size))
	if err != nil || problem != "" {
		return problem, err
	}
	last, err := s.offsets.Last()
	if err != nil {
		return readable("", err)
	}
	if few := emptyUpTo * max(s.opts.IndexInterval, 4096); n == 0 && size > few {
		if at, found, err := batchBehind(f, 0, size, few); err != nil || found {
			return fmt.Sprintf("no entry for the batch at position %d", at), err
		}
	}
	if gap := size - last.Byte; n > 0 && gap > max(sparse, 16*s.opts.IndexInterval) {
		if at, found, err := batchBehind(f, last.Byte, size, sparse); err != nil || found {
			return fmt.Sprintf("no entry after position %d for the batch at position %d", last.Byte, at), err
		}
	}
	every := max(1, n/vetSamples)
	var entry index.Position
	sampled := false
	var failed error
	err = s.offsets.Entries(func(i int, p index.Position) bool {
		if sampled {
			problem, failed = s.offsetEntryProblem(f, i-1, entry, p.Byte)
		}
		entry, sampled = p, i%every == 0 || i == n-1
		return problem == "" && failed == nil
	})
	err = errors.Join(err, failed)
	if err == nil && problem == "" && sampled {
		problem, err = s.offsetEntryProblem(f, n-1, entry, size)
	}
	return readable(problem, err)
}

// batchBehind finds a batch that starts more than distance behind from, where one starts.
func batchBehind(f vfs.File, from, size, distance int64) (at int64, found bool, err error) {
	sc := record.NewScanner(f, from, size, record.HeaderSize)
	for sc.Next() {
		if sc.Position()-from > distance {
			return sc.Position(), true, nil
		}
	}
	return 0, false, notCorrupt(sc.Err())
}

func notCorrupt(err error) error {
	if errors.Is(err, record.ErrCorrupt) {
		return nil
	}
	return err
}

// offsetEntryProblem compares one entry with the batch that it points at: that
// batch ends at the entry's offset or, in what followers of Kafka up to 3.8 wrote,
// a later one does before byte end, where the next entry points.
func (s *Segment) offsetEntryProblem(f vfs.File, slot int, entry index.Position, end int64) (string, error) {
	sc := search(f, entry.Byte, s.size.Load())
	defer giveBack(sc)
	sc.Reset(f, entry.Byte, s.size.Load()) // headers alone
	for sc.Next() && sc.Position() < end {
		h := sc.Header()
		if h.BaseOffset < s.base || h.LastOffset > entry.Offset {
			break
		}
		if h.LastOffset == entry.Offset {
			return "", nil
		}
	}
	if err := notCorrupt(sc.Err()); err != nil {
		return "", err
	}
	if damagedAt(s.Damaged(), kafka.NoOffset, entry.Byte) != nil {
		return "", nil // what the entry points at is damaged, and it may be right
	}
	return fmt.Sprintf("entry %d: no batch at position %d ends at offset %d", slot, entry.Byte, entry.Offset), nil
}

// timeProblem is the full check of a time index. Behind its last entry no batch
// may be later: its headers are read to the end of the segment.
func (s *Segment) timeProblem(f vfs.File) (string, error) {
	if problem, err := readable(s.times.Check()); err != nil || problem != "" {
		return problem, err
	}
	n, err := s.times.Len()
	if err != nil {
		return "", err
	}
	last, err := s.times.Last()
	if err != nil {
		return readable("", err)
	}
	problem := ""
	err = s.walk(f, s.size.Load(), last.Offset, func(sc *record.Scanner) bool {
		if h := sc.Header(); h.MaxTimestamp > last.Timestamp {
			problem = fmt.Sprintf("last entry has timestamp %d, the batch at offset %d has %d", last.Timestamp, h.BaseOffset, h.MaxTimestamp)
		}
		return problem == ""
	})
	if notCorrupt(err) != nil || problem != "" {
		return problem, notCorrupt(err)
	}
	for i := range min(n, vetSamples) {
		slot := n - 1 - i*(n/min(n, vetSamples))
		entry, err := s.times.Entry(slot)
		if err != nil {
			return readable("", err)
		}
		if ok, err := s.timeEntryFits(f, entry); err != nil || !ok {
			return fmt.Sprintf("entry %d: the batch of offset %d has not the timestamp %d", slot, entry.Offset, entry.Timestamp), err
		}
	}
	return "", nil
}

// timeEntryFits reports whether the batch that holds an entry's offset has its
// timestamp. A damaged batch contradicts nothing.
func (s *Segment) timeEntryFits(f vfs.File, entry index.TimePosition) (fits bool, err error) {
	if damagedAt(s.Damaged(), entry.Offset, -1) != nil {
		return true, nil
	}
	err = s.walk(f, s.size.Load(), entry.Offset, func(sc *record.Scanner) bool {
		h := sc.Header()
		if h.LastOffset < entry.Offset {
			return true
		}
		// The base offset of an old wrapper message is not known without its records.
		fits = h.MaxTimestamp == entry.Timestamp && (h.BaseOffset <= entry.Offset || h.Magic < record.MagicV2)
		return false
	})
	if errors.Is(err, record.ErrCorrupt) {
		return true, nil
	}
	return fits, err
}

// rebuildOffsets makes the offset index anew.
func (s *Segment) rebuildOffsets(f vfs.File, reason string) (Rebuilt, error) {
	return s.rebuild(f, reason, s.offsets, func(e *rebuiltEntries) []byte { return e.offsets }, 8, nil)
}

// rebuildTimes makes the time index anew, and with it the largest timestamp.
func (s *Segment) rebuildTimes(f vfs.File, reason string) (Rebuilt, error) {
	return s.rebuild(f, reason, s.times, func(e *rebuiltEntries) []byte { return e.times }, 12, func(e *rebuiltEntries) { s.setMax(e.max) })
}

// replaceable is an index that can be put in the place of a bad one.
type replaceable interface {
	Path() string
	Stage(entries []byte) error
	Publish() error
	PublishHeap(entries []byte) error
}

// rebuild writes the entries that appends would have made (order O8). On a disk
// without room lookups get them from memory.
func (s *Segment) rebuild(f vfs.File, reason string, x replaceable, of func(*rebuiltEntries) []byte, entrySize int, then func(*rebuiltEntries)) (told Rebuilt, err error) {
	var began int64
	if s.opts.Clock != nil {
		began = s.opts.Clock().UnixMilli()
	}
	e, err := s.entriesOf(f)
	if err != nil {
		return told, err
	}
	b := of(e)
	told = Rebuilt{Path: x.Path(), Reason: reason, Entries: len(b) / entrySize}
	err = x.Stage(b)
	if err == nil {
		err = s.whileSealed(x.Publish)
		if err == nil {
			err = s.fs.SyncDir(s.directory())
		}
	} else if !vfs.IsSync(err) && vfs.IsFull(err) {
		told.InMemory = true
		err = s.whileSealed(func() error { return x.PublishHeap(b) })
	}
	if err != nil {
		return told, err
	}
	if then != nil {
		then(e)
	}
	if s.opts.Clock != nil {
		told.Duration = s.opts.Clock().UnixMilli() - began
	}
	return told, nil
}

// rebuildFailed tells the owner about an error of the disk. That the segment has
// gone, or is written to again, is none.
func (s *Segment) rebuildFailed(err error) error {
	gone := errors.Is(err, ErrClosed) || errors.Is(err, index.ErrClosed) || errors.Is(err, errActive) || errors.Is(err, fs.ErrNotExist)
	if !gone && !errors.Is(err, record.ErrCorrupt) && s.opts.OnRebuildError != nil {
		s.opts.OnRebuildError(err)
	}
	return err
}

// errActive says that a segment is written to.
var errActive = errors.New("segment is the active one")

// whileSealed runs publish unless the segment is written to, or gone, and keeps it from that.
func (s *Segment) whileSealed(publish func() error) error {
	s.coolMu.Lock()
	defer s.coolMu.Unlock()
	switch {
	case s.active.Load():
		return errActive
	case s.hold.Load() == nil:
		return ErrClosed
	}
	return publish()
}

func (s *Segment) directory() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dir
}

// rebuiltEntries are the indexes of a segment as appends would have made them.
type rebuiltEntries struct {
	offsets, times []byte
	max            index.TimePosition
}

// entriesOf goes through the good batches of the .log (see RecoverWith).
func (s *Segment) entriesOf(f vfs.File) (*rebuiltEntries, error) {
	e := &rebuiltEntries{max: index.TimePosition{Timestamp: kafka.NoTimestamp, Offset: s.base}}
	written, lastEntry := kafka.NoTimestamp, int64(0)
	addTime := func() {
		if e.max.Timestamp > written {
			e.times = index.TimeEntry(e.times, s.base, e.max)
			written = e.max.Timestamp
		}
	}
	x := examiner{s: s, upper: s.base + maxRelative + 1, good: func(b *goodBatch) {
		h, pos := &b.Header, b.pos
		if h.MaxTimestamp > e.max.Timestamp {
			e.max = index.TimePosition{Timestamp: h.MaxTimestamp, Offset: h.LastOffset}
		}
		if pos-lastEntry > s.opts.IndexInterval {
			e.offsets = index.OffsetEntry(e.offsets, s.base, index.Position{Offset: h.LastOffset, Byte: pos})
			addTime()
			lastEntry = pos
		}
	}}
	if err := x.run(f); err != nil {
		return nil, err
	}
	addTime()
	return e, nil
}
