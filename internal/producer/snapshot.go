package producer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// The layout of a snapshot file; see docs/format/snapshot.md.
const (
	// SnapshotSuffix ends the name of a snapshot file; the offset before it is
	// the one up to which, exclusive, the log is in it.
	SnapshotSuffix  = ".snapshot"
	snapshotVersion = 1
	snapshotHeader  = 10 // version, checksum, count
	snapshotEntry   = 46
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Entry is one producer as a snapshot file has it.
type Entry struct {
	ProducerID       kafka.ProducerID
	Epoch            kafka.ProducerEpoch
	LastSequence     kafka.Sequence // NoSequence: no batch remembered
	LastOffset       kafka.Offset   // last data offset; NoOffset: no batch remembered
	OffsetDelta      int32
	Timestamp        kafka.Timestamp
	CoordinatorEpoch int32
	TxnFirstOffset   kafka.Offset // NoOffset: no open transaction
}

func (e *entry) export() Entry {
	x := Entry{
		ProducerID: e.id, Epoch: e.epoch, LastSequence: kafka.NoSequence, LastOffset: kafka.NoOffset,
		Timestamp: e.lastTimestamp, CoordinatorEpoch: e.coordinatorEpoch, TxnFirstOffset: e.txnFirst,
	}
	if e.n > 0 {
		b := &e.window[e.n-1]
		x.LastSequence, x.LastOffset, x.OffsetDelta = b.LastSequence, b.LastOffset, b.OffsetDelta
	}
	return x
}

func (x *Entry) load() *entry {
	e := newEntry(x.ProducerID)
	e.epoch = x.Epoch
	e.coordinatorEpoch = x.CoordinatorEpoch
	e.lastTimestamp = x.Timestamp
	if x.TxnFirstOffset >= 0 {
		e.txnFirst = x.TxnFirstOffset
	}
	if x.LastOffset >= 0 {
		e.push(Batch{LastSequence: x.LastSequence, LastOffset: x.LastOffset, OffsetDelta: x.OffsetDelta, Timestamp: x.Timestamp})
	}
	return &e
}

// AppendSnapshot appends the content of a snapshot file with these entries.
func AppendSnapshot(dst []byte, entries []Entry) []byte {
	start := len(dst)
	dst = binary.BigEndian.AppendUint16(dst, snapshotVersion)
	dst = binary.BigEndian.AppendUint32(dst, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(entries)))
	for i := range entries {
		x := &entries[i]
		dst = binary.BigEndian.AppendUint64(dst, uint64(x.ProducerID))
		dst = binary.BigEndian.AppendUint16(dst, uint16(x.Epoch))
		dst = binary.BigEndian.AppendUint32(dst, uint32(x.LastSequence))
		dst = binary.BigEndian.AppendUint64(dst, uint64(x.LastOffset))
		dst = binary.BigEndian.AppendUint32(dst, uint32(x.OffsetDelta))
		dst = binary.BigEndian.AppendUint64(dst, uint64(x.Timestamp))
		dst = binary.BigEndian.AppendUint32(dst, uint32(x.CoordinatorEpoch))
		dst = binary.BigEndian.AppendUint64(dst, uint64(x.TxnFirstOffset))
	}
	binary.BigEndian.PutUint32(dst[start+2:], crc32.Checksum(dst[start+6:], castagnoli))
	return dst
}

// DecodeSnapshot reads the content of a snapshot file. The error wraps ErrCorruptSnapshot.
func DecodeSnapshot(data []byte) ([]Entry, error) {
	if len(data) < snapshotHeader {
		return nil, fmt.Errorf("%w: %d bytes, want at least %d", ErrCorruptSnapshot, len(data), snapshotHeader)
	}
	if v := int16(binary.BigEndian.Uint16(data)); v != snapshotVersion {
		return nil, fmt.Errorf("%w: version %d, want %d", ErrCorruptSnapshot, v, snapshotVersion)
	}
	stored, computed := binary.BigEndian.Uint32(data[2:]), crc32.Checksum(data[6:], castagnoli)
	if stored != computed {
		return nil, fmt.Errorf("%w: checksum %d, want %d", ErrCorruptSnapshot, stored, computed)
	}
	n := int64(int32(binary.BigEndian.Uint32(data[6:])))
	if n < 0 || int64(len(data)) != snapshotHeader+n*snapshotEntry {
		return nil, fmt.Errorf("%w: %d entries in %d bytes", ErrCorruptSnapshot, n, len(data))
	}
	out := make([]Entry, n)
	for i := range out {
		b := data[snapshotHeader+i*snapshotEntry:]
		out[i] = Entry{
			ProducerID:       kafka.ProducerID(binary.BigEndian.Uint64(b)),
			Epoch:            kafka.ProducerEpoch(binary.BigEndian.Uint16(b[8:])),
			LastSequence:     kafka.Sequence(binary.BigEndian.Uint32(b[10:])),
			LastOffset:       kafka.Offset(binary.BigEndian.Uint64(b[14:])),
			OffsetDelta:      int32(binary.BigEndian.Uint32(b[22:])),
			Timestamp:        kafka.Timestamp(binary.BigEndian.Uint64(b[26:])),
			CoordinatorEpoch: int32(binary.BigEndian.Uint32(b[34:])),
			TxnFirstOffset:   kafka.Offset(binary.BigEndian.Uint64(b[38:])),
		}
	}
	return out, nil
}

// bucketsFor is the table size of a java.util.HashMap that had this many
// buckets and now holds n entries: it starts at 16, doubles when more than
// three quarters are used, and never shrinks.
func bucketsFor(buckets, n int) int {
	buckets = max(buckets, 16)
	for n*4 > buckets*3 {
		buckets *= 2
	}
	return buckets
}

// bucket is the slot of a java.lang.Long in a HashMap of that many buckets.
func bucket(id kafka.ProducerID, buckets int) int {
	h := uint32(uint64(id) ^ uint64(id)>>32)
	h ^= h >> 16
	return int(h) & (buckets - 1)
}

// sorted lists the producers as Kafka's HashMap would iterate over them, so
// that a snapshot has the same bytes as Kafka's: by bucket, within a bucket by
// insertion. (Kafka's buckets of eight and more become trees when the table has
// 64 buckets or more; those keep insertion order as well.)
func (s *State) sorted() []*entry {
	list := make([]*entry, 0, len(s.entries))
	for _, e := range s.entries {
		list = append(list, e)
	}
	buckets := max(s.buckets, 16)
	sort.Slice(list, func(i, j int) bool {
		a, b := bucket(list[i].id, buckets), bucket(list[j].id, buckets)
		if a != b {
			return a < b
		}
		return list[i].order < list[j].order
	})
	return list
}

// SnapshotName is the file name of the snapshot at offset.
func SnapshotName(offset kafka.Offset) string {
	return fmt.Sprintf("%020d%s", int64(offset), SnapshotSuffix)
}

// ParseSnapshotName reads the offset out of a snapshot's file name.
func ParseSnapshotName(name string) (kafka.Offset, bool) {
	digits, ok := strings.CutSuffix(name, SnapshotSuffix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	return kafka.Offset(n), err == nil
}

func (s *State) path(offset kafka.Offset) string { return path.Join(s.cfg.Dir, SnapshotName(offset)) }

func (s *State) listSnapshots() error {
	names, err := s.cfg.FS.ReadDir(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("list producer snapshots: %w", err)
	}
	s.snapshots = s.snapshots[:0]
	for _, d := range names {
		if offset, ok := ParseSnapshotName(d.Name()); ok && d.Type().IsRegular() {
			s.snapshots = append(s.snapshots, offset)
		}
	}
	slices.Sort(s.snapshots)
	return nil
}

// Snapshots lists the offsets of the snapshot files, rising. The slice is the
// state's own.
func (s *State) Snapshots() []kafka.Offset { return s.snapshots }

// LatestSnapshot is the offset of the newest snapshot file.
func (s *State) LatestSnapshot() (kafka.Offset, bool) {
	if len(s.snapshots) == 0 {
		return 0, false
	}
	return s.snapshots[len(s.snapshots)-1], true
}

// TakeSnapshot writes the state to the file named after MapEnd, unless there is
// nothing new since the last snapshot; wrote says so. Without sync the caller
// makes it durable later by SyncSnapshot.
func (s *State) TakeSnapshot(sync bool) (wrote bool, err error) {
	if s.mapEnd <= s.lastSnap {
		return false, nil
	}
	f, err := s.cfg.FS.OpenFile(s.path(s.mapEnd), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return false, fmt.Errorf("producer snapshot %d: %w", s.mapEnd, err)
	}
	_, err = f.WriteAt(AppendSnapshot(nil, s.Entries()), 0)
	if err == nil && sync {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		err = fmt.Errorf("producer snapshot %d: %w", s.mapEnd, err)
		if vfs.IsSync(err) {
			return false, err // nothing more is done in the directory
		}
		return false, errors.Join(err, s.cfg.FS.Remove(s.path(s.mapEnd)))
	}
	s.addSnapshot(s.mapEnd)
	s.lastSnap = s.mapEnd
	return true, nil
}

// ForgetLastSnapshot makes the next TakeSnapshot write although nothing has
// changed since the last one.
func (s *State) ForgetLastSnapshot() { s.lastSnap = 0 }

func (s *State) addSnapshot(offset kafka.Offset) {
	if i, found := slices.BinarySearch(s.snapshots, offset); !found {
		s.snapshots = slices.Insert(s.snapshots, i, offset)
	}
}

// SyncSnapshot makes a snapshot file durable; one that is gone is no error. It
// needs no lock.
func SyncSnapshot(fsys vfs.FS, dir string, offset kafka.Offset) error {
	f, err := fsys.OpenFile(path.Join(dir, SnapshotName(offset)), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("producer snapshot %d: %w", offset, err)
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// DropSnapshot deletes the snapshot file at offset, if there is one.
func (s *State) DropSnapshot(offset kafka.Offset) error {
	if !s.DetachSnapshot(offset) {
		return nil
	}
	err := s.cfg.FS.Remove(s.path(offset))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s.dropped = true
	return err
}

// Dropped reports whether snapshot files were deleted since it was last asked.
// The caller syncs the directory before it appends: a power cut could bring
// back a snapshot of records that were cut, to be taken for one of those that
// were written in their place.
func (s *State) Dropped() bool {
	d := s.dropped
	s.dropped = false
	return d
}

// DetachSnapshot forgets the snapshot at offset and leaves its file, which the
// caller renames and unlinks. ok is false when there is none.
func (s *State) DetachSnapshot(offset kafka.Offset) (ok bool) {
	i, found := slices.BinarySearch(s.snapshots, offset)
	if found {
		s.snapshots = slices.Delete(s.snapshots, i, i+1)
	}
	return found
}

// RemoveStray lists the snapshot files anew and deletes those that belong to no
// segment, except the newest of them when it is at or above the last segment's
// base: that one is the snapshot of a clean stop. bases must rise.
func (s *State) RemoveStray(bases []kafka.Offset) error {
	if err := s.listSnapshots(); err != nil {
		return err
	}
	latest := kafka.NoOffset
	for _, offset := range slices.Clone(s.snapshots) {
		if _, found := slices.BinarySearch(bases, offset); found {
			continue
		}
		if latest >= 0 {
			if err := s.DropSnapshot(latest); err != nil {
				return err
			}
		}
		latest = offset
	}
	if latest >= 0 && len(bases) > 0 && latest < bases[len(bases)-1] {
		return s.DropSnapshot(latest)
	}
	return nil
}

// Reload makes the state cover [logStart, logEnd) as far as a snapshot allows
// (ProducerStateManager.truncateAndReload): snapshots outside (logStart, logEnd]
// are deleted, and unless the state already ends at logEnd it is replaced by the
// newest one that can be read. MapEnd then says from where the log has to be replayed.
func (s *State) Reload(logStart, logEnd kafka.Offset, now kafka.Timestamp) error {
	for _, offset := range slices.Clone(s.snapshots) {
		if offset > logEnd || offset <= logStart {
			if err := s.DropSnapshot(offset); err != nil {
				return err
			}
		}
	}
	if logEnd == s.mapEnd {
		s.LogStartRaised(logStart)
		return nil
	}
	s.clear()
	for {
		offset, ok := s.LatestSnapshot()
		if !ok {
			s.lastSnap, s.mapEnd = logStart, logStart
			return nil
		}
		err := s.load(offset, now)
		if err == nil {
			s.lastSnap, s.mapEnd = offset, offset
			return nil
		}
		if !errors.Is(err, ErrCorruptSnapshot) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		s.warn("producer snapshot dropped", "event", "snapshot-dropped", "file", s.path(offset), "reason", err)
		if err := s.DropSnapshot(offset); err != nil {
			return err
		}
	}
}

// LoadBelow makes the state that of the newest snapshot at or below end that can
// be read, and changes no file. MapEnd says from where the log has to be replayed:
// from first on when there is none.
func (s *State) LoadBelow(first, end kafka.Offset) error {
	s.clear()
	for _, offset := range slices.Backward(s.snapshots) {
		if offset > end {
			continue
		}
		err := s.load(offset, kafka.NoTimestamp) // nothing has expired at that time
		if err == nil {
			s.mapEnd = offset
			return nil
		}
		if !errors.Is(err, ErrCorruptSnapshot) && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	s.mapEnd = min(first, end)
	return nil
}

func (s *State) load(offset kafka.Offset, now kafka.Timestamp) error {
	data, err := vfs.ReadFile(s.cfg.FS, s.path(offset))
	if errors.Is(err, vfs.ErrTooLarge) {
		return fmt.Errorf("%w: %w", ErrCorruptSnapshot, err)
	}
	if err != nil {
		return fmt.Errorf("producer snapshot %d: %w", offset, err)
	}
	entries, err := DecodeSnapshot(data)
	if err != nil {
		return err
	}
	for i := range entries {
		e := entries[i].load()
		if e.expired(now, s.cfg.Expiration) {
			continue
		}
		s.insert(e)
		if e.txnFirst != kafka.NoOffset {
			s.ongoing = insertTxn(s.ongoing, txn{id: e.id, first: e.txnFirst, last: kafka.NoOffset})
		}
	}
	return nil
}

// LogStartRaised forgets what lies below a raised log start offset.
func (s *State) LogStartRaised(logStart kafka.Offset) {
	s.HighWatermarkPassed(logStart)
	s.mapEnd = max(s.mapEnd, logStart)
	if latest, ok := s.LatestSnapshot(); ok {
		s.lastSnap = latest
	} else {
		s.lastSnap = logStart
	}
}

// Reset forgets everything, deletes all snapshots and starts at offset
// (truncateFullyAndStartAt).
func (s *State) Reset(offset kafka.Offset) error {
	s.clear()
	for _, o := range slices.Clone(s.snapshots) {
		if err := s.DropSnapshot(o); err != nil {
			return err
		}
	}
	s.lastSnap, s.mapEnd = 0, offset
	return nil
}
