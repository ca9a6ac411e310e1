// Package commitlog is one partition's log: an ordered list of segments and the
// offsets that bound what may be read of it (Kafka's UnifiedLog, LocalLog and
// LogLoader in one).
//
// Before it on the path: replica, which knows whether this broker leads the
// partition. After it: segment for the bytes, producer for sequences and
// transactions. Appends are serialised by the log's mutex; readers take what
// was published and no lock.
package commitlog

import (
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// cacheLine keeps a value that readers poll off the lines that others write.
const cacheLine = 128

// offsetCell is a published offset alone on its cache lines.
type offsetCell struct {
	atomic.Int64
	_ [cacheLine - 8]byte
}

func (c *offsetCell) get() kafka.Offset  { return kafka.Offset(c.Load()) }
func (c *offsetCell) set(o kafka.Offset) { c.Store(int64(o)) }

// Log is one partition's log.
//
// The writer (appends, rolls, truncation, retention) holds mu. Readers use the
// published fields alone: the segment list, which is immutable, and the offset
// cells. Jobs that mu's holder leaves in after run once mu was released.
type Log struct {
	opts        Options
	fs          vfs.FS
	partition   kafka.TopicPartition
	logger      *slog.Logger
	scratch     *Scratch
	dir         atomic.Pointer[string]
	topicID     atomic.Pointer[kafka.TopicID]
	config      atomic.Pointer[Config]
	truncations atomic.Uint64 // counts them; a flush that ran beside one proves nothing
	// replacements counts those of rewritten segments: a byte position in the
	// file before means nothing in the file after.
	replacements atomic.Uint64

	// Published. Invariant: start <= highWatermark <= end.
	segments      atomic.Pointer[segmentList]
	start         offsetCell
	highWatermark offsetCell
	end           endMark
	// firstUnstable is where the earliest undecided transaction begins,
	// NoOffset without one. It is stored before the end and the high watermark
	// move past the transaction, so that no reader takes its records for stable.
	firstUnstable offsetCell
	unreplicated  atomic.Bool // a decided transaction waits for the high watermark
	recoveryPoint offsetCell
	epochs        epochCache
	failure       atomic.Pointer[error]
	closed        atomic.Bool
	future        atomic.Int64 // base + 1 of the segment that warnOfFuture told of last
	synced        synced
	// startKept is the log start offset that the owner has made durable.
	startKept offsetCell

	mu        sync.Mutex
	producers *producer.State
	after     []func()
	lastFlush time.Time
	// epochOwed says that leader-epoch-checkpoint has to be written before the
	// next record: it misses an assigned epoch, or has one that load dropped.
	epochOwed bool

	flushMu sync.Mutex // one flush at a time; taken before mu
	epochMu sync.Mutex // one writer of leader-epoch-checkpoint at a time; a leaf
}

// now is the wall clock in milliseconds.
func (l *Log) now() kafka.Timestamp { return kafka.TimestampOf(l.opts.Now()) }

// expiry is the time that ages are counted by: what is deleted is gone, so it
// does not follow a clock that jumps.
func (l *Log) expiry() kafka.Timestamp {
	if l.opts.Expiry == nil {
		return l.now()
	}
	return kafka.TimestampOf(l.opts.Expiry())
}

// unlock releases mu and runs what was left to do without it.
func (l *Log) unlock() {
	jobs := l.after
	l.after = nil
	l.mu.Unlock()
	for _, f := range jobs {
		f()
	}
}

// backgroundLocked leaves f to be run soon after mu was released.
func (l *Log) backgroundLocked(f func()) {
	l.after = append(l.after, func() { l.background(f) })
}

func (l *Log) background(f func()) {
	if l.opts.Background == nil {
		f()
		return
	}
	l.opts.Background(f)
}

// Partition is whose log it is.
func (l *Log) Partition() kafka.TopicPartition { return l.partition }

// TopicID is the id in partition.metadata, zero without one.
func (l *Log) TopicID() kafka.TopicID {
	if p := l.topicID.Load(); p != nil {
		return *p
	}
	return kafka.TopicID{}
}

// Dir is the directory of the log's files.
func (l *Log) Dir() string { return *l.dir.Load() }

func (l *Log) path(name string) string { return filepath.Join(l.Dir(), name) }

// Config is the topic's settings now. It must not be changed.
func (l *Log) Config() *Config { return l.config.Load() }

// SetConfig replaces the topic's settings.
func (l *Log) SetConfig(c Config) { l.config.Store(&c) }

// Size is the bytes of all segments' .log files.
func (l *Log) Size() int64 {
	var n int64
	for _, s := range l.segments.Load().segs {
		n += s.Size()
	}
	return n
}

// Segments lists the segments, oldest first: for the cleaner, tools and tests.
// The slice must not be changed.
func (l *Log) Segments() []*segment.Segment { return l.segments.Load().segs }

// ActiveProducers lists what DescribeProducers answers.
func (l *Log) ActiveProducers() []producer.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers.Entries()
}

// ExpireProducers forgets producers that were silent for longer than
// producer.id.expiration.ms and returns how many.
func (l *Log) ExpireProducers() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers.Expire(l.expiry())
}

// SetProducerExpiration changes producer.id.expiration.ms.
func (l *Log) SetProducerExpiration(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.producers.SetExpiration(d)
}

// SetVerifyTransactions changes transaction.partition.verification.enable.
func (l *Log) SetVerifyTransactions(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.producers.SetVerifyTransactions(on)
}

// StartVerification returns the guard that the first batch of a transaction
// must carry once the coordinator has confirmed it; 0 when the transaction is
// open already. fresh becomes the guard when there is none: not 0, never used before.
func (l *Log) StartVerification(id kafka.ProducerID, epoch kafka.ProducerEpoch, seq kafka.Sequence, supportsBump bool, fresh producer.Guard) producer.Guard {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.producers.StartVerification(id, epoch, seq, supportsBump, l.now(), fresh)
}

// EndOffsetForEpoch is where an epoch ends on this log, for
// OffsetForLeaderEpoch; (-1, -1) when that is not known.
func (l *Log) EndOffsetForEpoch(e kafka.LeaderEpoch) (kafka.LeaderEpoch, kafka.Offset) {
	return l.epochs.endOffset(e, l.EndOffset())
}

// LatestEpoch is the newest leader epoch of the log.
func (l *Log) LatestEpoch() (kafka.LeaderEpoch, bool) {
	e, ok := l.epochs.latest()
	return e.Epoch, ok
}

// EarliestEpoch is the oldest leader epoch of the log and where it begins.
func (l *Log) EarliestEpoch() (e kafka.LeaderEpoch, start kafka.Offset, ok bool) {
	first, ok := l.epochs.earliest()
	return first.Epoch, first.Start, ok
}

// EpochForOffset is the leader epoch that wrote offset.
func (l *Log) EpochForOffset(offset kafka.Offset) (kafka.LeaderEpoch, bool) {
	return l.epochs.forOffset(offset)
}

// AssignEpoch records that leader epoch e starts at offset start, as a new
// leader does before it appends. Readers see it at once. It is durable before
// the first record of the epoch is written (faults O12), and at a clean end: a
// start of thousands of idle partitions syncs no file for it.
func (l *Log) AssignEpoch(e kafka.LeaderEpoch, start kafka.Offset) error {
	l.mu.Lock()
	defer l.unlock()
	if err := l.writableLocked(); err != nil {
		return err
	}
	if l.epochs.assign(e, start) {
		l.epochOwed = true
	}
	return nil
}

// StoreEpochs writes leader-epoch-checkpoint when that is owed: the owner calls
// it from time to time, so that neither the first record nor the stop has to.
func (l *Log) StoreEpochs() error {
	l.mu.Lock()
	defer l.unlock()
	if !l.epochOwed || l.writableLocked() != nil {
		return nil
	}
	if err := l.writeEpochs(); err != nil {
		return l.writeErrorLocked("leader epochs", err)
	}
	l.epochOwed = false
	return nil
}

// epochsChangedLocked has the epoch cache written soon; a crash before that is
// put right at load.
func (l *Log) epochsChangedLocked(changed bool) {
	if changed {
		l.backgroundLocked(func() { l.noteSync("leader epochs", l.writeEpochs()) })
	}
}

func (l *Log) writeEpochs() error {
	l.epochMu.Lock()
	defer l.epochMu.Unlock()
	return checkpoint.WriteEpochs(l.fs, l.path(checkpoint.EpochFile), l.epochs.load())
}

// replaceEpochs is writeEpochs before a sync of the directory.
func (l *Log) replaceEpochs() error {
	l.epochMu.Lock()
	defer l.epochMu.Unlock()
	return checkpoint.ReplaceEpochs(l.fs, l.path(checkpoint.EpochFile), l.epochs.load())
}
