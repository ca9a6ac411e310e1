package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// loaded is what the files say. Loading reads them and changes nothing, so that
// a directory that is refused stays as it was.
type loaded struct {
	image    *metadata.Image
	snapshot snapshotID
	hasLog   bool              // there is a segment file
	end      kafka.Offset      // after the last whole batch
	epoch    kafka.LeaderEpoch // last epoch in the log, else the snapshot's
	cut      int64             // bytes of a torn tail behind the last whole batch
	data     bool              // the log holds records of a controller that count
	bytes    int64             // of the batches behind the snapshot
	openTxn  bool              // the log ends inside a metadata transaction
	kraft    kraftState
	first    []metadata.Record // records of a bootstrap snapshot (end offset 0)
	damaged  []damagedSnapshot // passed over for an older one and the log
}

// kraftState is what the control records say of the quorum itself (KIP-853).
type kraftState struct {
	version int16 // kraft.version
	voters  []record.VoterInfo
	told    bool // the log itself, or a snapshot of it, holds them
}

// replayer applies batches in the order of the log.
type replayer struct {
	delta *metadata.Delta
	kraft kraftState
	it    record.Iterator

	data    bool
	inTxn   bool              // after BeginTransaction
	pending []metadata.Record // of the open transaction
	last    *metadata.Image   // End, Epoch and Timestamp of the last batch
	seen    func(metadata.Record)
}

// batch applies one whole batch whose checksum is right.
func (r *replayer) batch(b record.Batch) error {
	if err := r.it.Reset(b, nil); err != nil {
		return err
	}
	for r.it.Next() {
		rec := r.it.Record()
		var err error
		if b.IsControl() {
			err = r.control(rec)
		} else {
			err = r.record(rec.Value)
		}
		if err != nil {
			return fmt.Errorf("offset %d: %w", rec.Offset, err)
		}
	}
	r.last = &metadata.Image{End: b.NextOffset(), Epoch: b.LeaderEpoch(), Timestamp: b.MaxTimestamp()}
	return r.it.Err()
}

func (r *replayer) control(rec *record.Record) error {
	kind, err := record.ParseControl(rec.Key)
	if err != nil {
		return err
	}
	switch kind {
	case record.KRaftVersion:
		m, err := record.ParseKRaftVersion(rec.Value)
		if err != nil {
			return err
		}
		r.kraft.version = m.KRaftVersion
	case record.KRaftVoters:
		m, err := record.ParseVoters(rec.Value)
		if err != nil {
			return err
		}
		r.kraft.voters, r.kraft.told = m.Voters, true
	}
	return nil
}

// record applies one metadata record; those of a transaction wait for its end.
func (r *replayer) record(value []byte) error {
	rec, _, err := metadata.DecodeRecord(value)
	if err != nil {
		return err
	}
	switch rec.(type) {
	case *metadata.BeginTransactionRecord:
		r.inTxn, r.pending = true, nil
		return nil
	case *metadata.AbortTransactionRecord:
		r.inTxn, r.pending = false, nil
		return nil
	case *metadata.EndTransactionRecord:
		r.inTxn = false
		for _, p := range r.pending {
			if err := r.apply(p); err != nil {
				return err
			}
		}
		r.pending = nil
		return nil
	}
	if r.inTxn {
		r.pending = append(r.pending, rec)
		return nil
	}
	return r.apply(rec)
}

func (r *replayer) apply(rec metadata.Record) error {
	if rec.Type() != metadata.TypeNoOp {
		r.data = true
	}
	if r.seen != nil {
		r.seen(rec)
	}
	return r.delta.Apply(rec)
}

// load reads the newest snapshot that is whole, and the log behind it.
func load(fsys vfs.FS, dir string) (*loaded, error) {
	logDir := filepath.Join(dir, DirName)
	files, err := listFiles(fsys, logDir)
	if err != nil {
		return nil, err
	}
	l := &loaded{image: metadata.NewImage()}
	var damage error // of the newest snapshot
	for _, id := range slices.Backward(files.snapshots) {
		l.snapshot = id
		err := l.readSnapshot(fsys, filepath.Join(logDir, id.name()))
		if err == nil {
			break
		}
		if !errors.Is(err, ErrDamaged) && !errors.Is(err, vfs.ErrNotRegular) {
			return nil, err
		}
		if damage == nil {
			damage = err
		}
		l = &loaded{image: metadata.NewImage(), damaged: append(l.damaged, damagedSnapshot{id, err})}
	}
	if damage != nil && (len(files.logs) == 0 || files.logs[0] > l.snapshot.end) {
		return nil, &RefusedError{Path: filepath.Join(logDir, l.damaged[0].id.name()), Reason: "the snapshot cannot be used", Err: damage,
			Hint: "restore it from a copy: no older snapshot, and not the log, says what it says"}
	}
	if err := l.readLog(fsys, logDir, files.logs); err != nil {
		return nil, err
	}
	if damage != nil && (!l.data || l.end < l.damaged[0].id.end) {
		return nil, &RefusedError{Path: filepath.Join(logDir, l.damaged[0].id.name()), Reason: "the snapshot cannot be used", Err: damage,
			Hint: fmt.Sprintf("restore it from a copy: the log ends at offset %d and does not hold all that it says", l.end)}
	}
	if len(files.snapshots) == 0 && !l.data {
		return l, l.readBootstrapFile(fsys, filepath.Join(dir, bootstrapFile))
	}
	return l, nil
}

// damagedSnapshot is a snapshot that could not be used, newest first.
type damagedSnapshot struct {
	id  snapshotID
	err error
}

// logFiles are the files of the log's directory that loading reads, in order.
type logFiles struct {
	snapshots []snapshotID
	logs      []kafka.Offset // base offsets of the segments
}

func listFiles(fsys vfs.FS, dir string) (logFiles, error) {
	var files logFiles
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return files, nil
	}
	if err != nil {
		return files, err
	}
	for _, e := range entries {
		if id, ok := parseSnapshotName(e.Name()); ok {
			files.snapshots = append(files.snapshots, id)
		}
		if base, ok := parseLogName(e.Name()); ok {
			files.logs = append(files.logs, base)
		}
	}
	slices.SortFunc(files.snapshots, snapshotID.compare)
	slices.Sort(files.logs)
	return files, nil
}

func parseLogName(name string) (kafka.Offset, bool) {
	digits, ok := strings.CutSuffix(name, ".log")
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	return kafka.Offset(n), err == nil
}

// readLog replays the segments from the snapshot's end on.
func (l *loaded) readLog(fsys vfs.FS, dir string, bases []kafka.Offset) error {
	if len(bases) == 0 {
		if l.snapshot.end > 0 {
			return &RefusedError{Path: dir, Reason: fmt.Sprintf("the log behind snapshot %s is missing", l.snapshot.name()),
				Hint: "restore the .log files of this directory"}
		}
		return nil
	}
	l.hasLog = true
	l.end, l.epoch = bases[0], 0 // the log begins before the snapshot ends
	if bases[0] > l.snapshot.end {
		return &RefusedError{Path: dir, Reason: fmt.Sprintf("the log begins at offset %d and the newest snapshot ends at %d", bases[0], l.snapshot.end),
			Hint: "restore the missing snapshot or .log files of this directory"}
	}
	r := replayer{delta: metadata.NewDelta(l.image), kraft: l.kraft, last: l.image}
	for i, base := range bases {
		if err := l.readSegment(fsys, filepath.Join(dir, fmt.Sprintf("%020d.log", base)), base, i == len(bases)-1, &r); err != nil {
			return err
		}
	}
	if l.end < l.snapshot.end {
		return &DamagedError{Path: filepath.Join(dir, fmt.Sprintf("%020d.log", bases[len(bases)-1])), Offset: l.end,
			Reason: fmt.Sprintf("the log ends there, below the end of snapshot %s", l.snapshot.name())}
	}
	l.data = r.data || l.snapshot.end > 0
	l.openTxn, l.kraft = r.inTxn, r.kraft
	l.epoch = max(l.epoch, l.snapshot.epoch)
	l.image = r.delta.Finish(l.end, l.epoch, r.last.Timestamp)
	return nil
}

// readSegment checks and replays one segment. Only the last one may end in
// something that is not a whole batch.
func (l *loaded) readSegment(fsys vfs.FS, path string, base kafka.Offset, last bool, r *replayer) error {
	f, err := fsys.OpenFile(path, 0, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	if base != l.end {
		return &DamagedError{Path: path, Offset: l.end, Reason: fmt.Sprintf("the segment before it ends at offset %d", l.end)}
	}
	s := record.NewScanner(f, 0, size, record.ScanBuffer)
	end := int64(0)
	reason := ""
	for reason == "" && s.Next() {
		b, err := s.Batch()
		if err != nil {
			return err
		}
		if reason = l.badBatch(b); reason != "" {
			break
		}
		end = s.ValidEnd()
		l.end, l.epoch = record.Batch(b).NextOffset(), record.Batch(b).LeaderEpoch()
		if l.end <= l.snapshot.end {
			continue
		}
		l.bytes += int64(len(b))
		if err := r.batch(b); err != nil {
			return replayFailure(path, err)
		}
	}
	if err := s.Err(); err != nil && !errors.Is(err, record.ErrCorrupt) {
		return err
	}
	if end == size {
		return nil
	}
	if reason == "" {
		reason = "no whole batch"
	}
	// There is none in a tail that was being written: only one batch at a time is
	// not yet durable.
	behind, err := record.WholeBatchBehind(f, end, size, l.end)
	if err != nil {
		return err
	}
	if !last || behind {
		return &DamagedError{Path: path, Offset: l.end, Byte: end, Reason: reason + ", and there are sound records there or behind it"}
	}
	l.cut = size - end
	return nil
}

// badBatch says why a batch cannot be the next one of the log; "" when it can.
func (l *loaded) badBatch(b record.Batch) string {
	switch {
	case b.Check() != nil:
		return b.Check().Error()
	case b.Magic() != record.MagicV2:
		return fmt.Sprintf("magic %d", b.Magic())
	case b.BaseOffset() != l.end:
		return fmt.Sprintf("base offset %d, want %d", b.BaseOffset(), l.end)
	case b.LeaderEpoch() < l.epoch:
		return fmt.Sprintf("epoch %d after epoch %d", b.LeaderEpoch(), l.epoch)
	}
	return ""
}

// replayFailure turns what a record did wrong into a refusal.
func replayFailure(path string, err error) error {
	if errors.Is(err, metadata.ErrUnknownRecord) {
		return &RefusedError{Path: path, Reason: "a newer release has written here", Err: err,
			Hint: "use a release that knows this record"}
	}
	return &RefusedError{Path: path, Reason: "the records contradict each other", Err: err}
}
