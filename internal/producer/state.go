// Package producer keeps what one partition knows of its idempotent and
// transactional producers: their epochs and sequences, the last five batches
// of each, the open transactions, and the `.snapshot` files that carry all of
// it over a restart (Kafka's ProducerStateManager, KIP-98, KIP-360, KIP-890).
//
// Before it on the path: commitlog, which asks it about each batch before the
// batch is written and tells it afterwards. After it: the disk, for snapshots
// only. It knows no clock, no lock and no log: one State belongs to one log and
// is guarded by that log's mutex.
package producer

import (
	"log/slog"
	"time"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// WindowSize is how many batches of a producer are remembered to recognise duplicates.
const WindowSize = 5

// DefaultExpiration is the default of producer.id.expiration.ms.
const DefaultExpiration = 24 * time.Hour

// Config says whose state it is.
type Config struct {
	FS        vfs.FS
	Dir       string // the partition's directory
	Partition kafka.TopicPartition
	// Expiration is how long a producer without an open transaction is kept
	// after its newest timestamp; 0 means DefaultExpiration.
	Expiration time.Duration
	// VerifyTransactions demands a Guard for the first batch of a transaction
	// (transaction.partition.verification.enable).
	VerifyTransactions bool
	Logger             *slog.Logger // may be nil
}

// Batch is what is remembered of an appended batch.
type Batch struct {
	LastSequence kafka.Sequence
	LastOffset   kafka.Offset
	OffsetDelta  int32 // last offset minus first
	Timestamp    kafka.Timestamp
}

// FirstSequence is the sequence of the batch's first record.
func (b *Batch) FirstSequence() kafka.Sequence { return b.LastSequence.Sub(b.OffsetDelta) }

// FirstOffset is the offset of the batch's first record.
func (b *Batch) FirstOffset() kafka.Offset { return b.LastOffset - kafka.Offset(b.OffsetDelta) }

// entry is one producer. The window is a queue, oldest batch first.
type entry struct {
	id               kafka.ProducerID
	epoch            kafka.ProducerEpoch
	coordinatorEpoch int32
	lastTimestamp    kafka.Timestamp // event time of the last batch or marker
	txnFirst         kafka.Offset    // first offset of the open transaction; NoOffset: none
	order            uint64          // rises with each insertion into the map, see snapshotOrder
	n                int             // batches in window
	window           [WindowSize]Batch
}

func newEntry(id kafka.ProducerID) entry {
	return entry{
		id: id, epoch: kafka.NoProducerEpoch, coordinatorEpoch: -1,
		lastTimestamp: kafka.NoTimestamp, txnFirst: kafka.NoOffset,
	}
}

func (e *entry) lastSequence() kafka.Sequence {
	if e.n == 0 {
		return kafka.NoSequence
	}
	return e.window[e.n-1].LastSequence
}

// setEpoch forgets the window when the epoch changes.
func (e *entry) setEpoch(epoch kafka.ProducerEpoch) {
	if e.epoch != epoch {
		e.n = 0
		e.epoch = epoch
	}
}

func (e *entry) push(b Batch) {
	if e.n == WindowSize {
		copy(e.window[:], e.window[1:])
		e.n--
	}
	e.window[e.n] = b
	e.n++
}

// merge takes over what an append added (ProducerStateEntry.update).
func (e *entry) merge(u *entry) {
	e.setEpoch(u.epoch)
	for i := range u.n {
		e.push(u.window[i])
	}
	e.coordinatorEpoch = u.coordinatorEpoch
	e.txnFirst = u.txnFirst
	e.lastTimestamp = u.lastTimestamp
}

func (e *entry) expired(now kafka.Timestamp, after time.Duration) bool {
	return e.txnFirst == kafka.NoOffset && int64(now)-int64(e.lastTimestamp) >= after.Milliseconds()
}

// State is the producers of one partition. Its methods need the mutex of the
// log that owns it.
type State struct {
	cfg     Config
	entries map[kafka.ProducerID]*entry
	// buckets and inserted imitate java.util.HashMap, whose iteration order is
	// the order of the entries in a snapshot file.
	buckets  int
	inserted uint64

	ongoing      []txn // by first offset
	unreplicated []txn // completed, but the high watermark has not passed the marker; by first offset

	mapEnd    kafka.Offset // the state covers the log up to here, exclusive
	lastSnap  kafka.Offset // offset of the last snapshot taken or loaded
	snapshots []kafka.Offset
	dropped   bool // a snapshot file was deleted, see Dropped

	verification map[kafka.ProducerID]*verification

	// Scratch of the append under way; see Begin.
	updates   []update
	updateIdx map[kafka.ProducerID]int
	started   []txn
	completed []CompletedTxn
}

// New makes an empty state that ends at offset 0 and looks at no file.
func New(cfg Config) *State {
	if cfg.Expiration == 0 {
		cfg.Expiration = DefaultExpiration
	}
	return &State{cfg: cfg, entries: make(map[kafka.ProducerID]*entry)}
}

// Open makes an empty state that knows which snapshot files there are. Reload
// loads one.
func Open(cfg Config) (*State, error) {
	s := New(cfg)
	return s, s.listSnapshots()
}

// SetExpiration changes producer.id.expiration.ms.
func (s *State) SetExpiration(d time.Duration) { s.cfg.Expiration = d }

// SetVerifyTransactions changes transaction.partition.verification.enable.
func (s *State) SetVerifyTransactions(on bool) { s.cfg.VerifyTransactions = on }

// SetDir tells where the partition's directory is now.
func (s *State) SetDir(dir string) { s.cfg.Dir = dir }

// Len is the number of producers.
func (s *State) Len() int { return len(s.entries) }

// MapEnd is the offset up to which the state covers the log, exclusive.
func (s *State) MapEnd() kafka.Offset { return s.mapEnd }

// SetMapEnd says that the log up to end, exclusive, is now in the state.
func (s *State) SetMapEnd(end kafka.Offset) { s.mapEnd = end }

// Entries returns a copy of all producers in snapshot order.
func (s *State) Entries() []Entry {
	list := s.sorted()
	out := make([]Entry, len(list))
	for i, e := range list {
		out[i] = e.export()
	}
	return out
}

// Producer returns what is known of one producer.
func (s *State) Producer(id kafka.ProducerID) (Entry, bool) {
	e, ok := s.entries[id]
	if !ok {
		return Entry{}, false
	}
	return e.export(), true
}

// insert puts e into the map as java.util.HashMap.put does.
func (s *State) insert(e *entry) {
	if old, ok := s.entries[e.id]; ok {
		e.order = old.order
	} else {
		s.inserted++
		e.order = s.inserted
	}
	s.entries[e.id] = e
	s.buckets = bucketsFor(s.buckets, len(s.entries))
}

// clear forgets all producers and transactions; snapshots stay.
func (s *State) clear() {
	clear(s.entries)
	s.ongoing = s.ongoing[:0]
	s.unreplicated = s.unreplicated[:0]
}

// Expire forgets producers whose newest timestamp is too old at now, and
// verifications that were never used. It returns how many producers went.
func (s *State) Expire(now kafka.Timestamp) int {
	n := 0
	for id, e := range s.entries {
		if e.expired(now, s.cfg.Expiration) {
			delete(s.entries, id)
			n++
		}
	}
	for id, v := range s.verification {
		if int64(now)-int64(v.created) >= s.cfg.Expiration.Milliseconds() {
			delete(s.verification, id)
		}
	}
	return n
}

func (s *State) warn(msg string, args ...any) {
	if s.cfg.Logger != nil {
		s.cfg.Logger.Warn(msg, args...)
	}
}
