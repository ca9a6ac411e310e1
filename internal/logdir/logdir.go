// Package logdir is all partitions of this broker's data directories: lock,
// recover, checkpoint, create, delete, go offline, stop.
//
// Before it on the path: node, which opens and closes it, and replica, which
// asks for the logs. After it: commitlog for one partition, checkpoint for the
// small files.
//
// A start has two steps, because the metadata log lies in one of the
// directories: Open locks the directories and reads whose they are; Load, given
// the metadata, opens the partitions.
package logdir

import (
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/cleaner"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/flusher"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/scrub"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// Options say which directories and how they are kept. FS, Dirs and NodeID are
// needed; the rest has the stated zero values.
type Options struct {
	FS     vfs.FS
	Dirs   []string // log.dirs, and metadata.log.dir when it is another one
	NodeID kafka.BrokerID
	// ClusterID, when not empty, must be the directories'.
	ClusterID string
	// Format makes new directories; it is called with the locks held when none of
	// the directories has a meta.properties and no data is in them. Nil: such
	// directories are refused.
	Format func() error

	// RecoveryThreads is num.recovery.threads.per.data.dir; 0: one a processor.
	RecoveryThreads int
	// OpenSegments bounds the sealed segments that have their files open: three
	// descriptors each, four with aborted transactions. Active segments come on
	// top. 0: 2048.
	OpenSegments int
	// FileDeleteDelay is how long a deleted partition's directory stays; it is
	// the broker's log.segment.delete.delay.ms.
	FileDeleteDelay time.Duration
	// ProducerExpiration is producer.id.expiration.ms; 0: 24 hours.
	ProducerExpiration time.Duration
	VerifyTransactions bool
	// CutRetention is varve.cut.retention: how long what recovery set aside is
	// kept; 0: for ever.
	CutRetention time.Duration
	// Scratch is shared by all logs of the process; nil: one is made.
	Scratch *commitlog.Scratch

	Intervals Intervals
	// Reserve is how many bytes of a disk of total bytes producers must leave
	// free; 0 is none. Nil: the disks are not looked at.
	Reserve func(total int64) int64
	// Cleaner are the settings of compaction; nil: compacted topics are not compacted.
	Cleaner *cleaner.Config
	// ScrubRate is how many bytes a second of each directory are read to check
	// them; 0: none. ScrubNow has that done once at once, as fast as it goes.
	ScrubRate int64
	ScrubNow  bool

	Now    func() time.Time // nil: time.Now
	Expiry func() time.Time // the time that ages are counted by; nil: Now
	Logger *slog.Logger     // nil: nothing is logged
	// NewID makes directory ids and the unique part of names; nil: random.
	NewID func() kafka.UUID
	// Jitter gives a random number below max; nil: math/rand.
	Jitter func(max int64) int64
	// OnOffline is told about each directory that goes offline, once. When online
	// is 0 no directory is left and the broker has to stop. It must not wait for
	// a log.
	OnOffline func(o Offline, online int)
	// OnCompacted is told about each round of compaction. May be nil.
	OnCompacted func(l *commitlog.Log, s cleaner.Stats)
}

// Intervals are the periods of the background tasks. Zero turns a task off.
type Intervals struct {
	Initial         time.Duration // before the first checkpoint and retention run
	RecoveryPoint   time.Duration // log.flush.offset.checkpoint.interval.ms
	LogStart        time.Duration // log.flush.start.offset.checkpoint.interval.ms
	HighWatermark   time.Duration // replica.high.watermark.checkpoint.interval.ms
	Flush           time.Duration // log.flush.scheduler.interval.ms
	Synced          time.Duration // between recovery points of topics that sync each append
	Retention       time.Duration // log.retention.check.interval.ms
	ProducerExpired time.Duration // producer.id.expiration.check.interval.ms
}

// DefaultIntervals are Kafka's.
func DefaultIntervals() Intervals {
	return Intervals{
		Initial:         30 * time.Second,
		RecoveryPoint:   time.Minute,
		LogStart:        time.Minute,
		HighWatermark:   5 * time.Second,
		Synced:          SyncedInterval,
		Retention:       5 * time.Minute,
		ProducerExpired: 10 * time.Minute,
	}
}

// SyncedInterval is how often the recovery points of topics that sync each
// append follow what is durable (faults 4.2), so that a start after a power cut
// finds little that it has to go through.
const SyncedInterval = 5 * time.Second

// maxOpenSegments is the default of Options.OpenSegments.
const maxOpenSegments = 2048

// Manager owns the data directories of one broker.
type Manager struct {
	o         Options
	dirs      []*dir // in the order of Options.Dirs
	clusterID string
	jobs      jobs
	cleaner   *cleaner.Cleaner // nil without compaction
	files     *segment.Files   // of all logs
	progress  progress         // of Load

	mu     sync.RWMutex // guards logs, failed and begun
	logs   map[kafka.TopicPartition]*partition
	failed map[kafka.TopicPartition]failure // on disk, but not opened
	begun  map[kafka.TopicPartition]*dir    // where a creation has failed

	changing sync.Mutex // held while partitions are created or deleted
	loaded   atomic.Bool
	closed   atomic.Bool
}

// partition is one open log and where it lies.
type partition struct {
	log *commitlog.Log
	tp  kafka.TopicPartition
	dir *dir

	reopened bool // not by Load, which failed to

	cleanedMu sync.Mutex
	cleaned   kafka.Offset // see firstDirty; guarded by cleanedMu
	isCleaned bool         // cleaned is known; guarded by cleanedMu
}

// failure is why a partition was not opened.
type failure struct {
	dir *dir // nil when the metadata names a directory that is not here
	err error
}

// dir is one data directory.
type dir struct {
	path    string
	id      kafka.UUID // of meta.properties; zero only when it is offline from the start
	lock    interface{ Close() error }
	made    leavings              // what Open made
	offline atomic.Pointer[error] // sticky
	// broken is set by the first sync or log that fails, a moment before offline,
	// which comes with the news of it: from then on nothing is written.
	broken atomic.Pointer[error]
	full   fullDisk
	space  space
	reads  readErrors

	// Set by Open and Load, then constant.
	flusher     *flusher.Flusher // shared by the directories of one file system
	info        fs.FileInfo      // of the path, as it was locked; nil when offline from the start
	clean       bool             // the marker was there
	brokerEpoch int64            // in it
	complete    bool             // every partition directory was opened

	scrub       *scrub.Scrubber // nil without scrub, and until Load
	checkpoints [checkpointKinds]checkpointFile
}

// ClusterID is what the meta.properties of all directories say.
func (m *Manager) ClusterID() string { return m.clusterID }

// DirectoryID is the directory.id of a path of Options.Dirs.
func (m *Manager) DirectoryID(path string) (id kafka.UUID, ok bool) {
	for _, d := range m.dirs {
		if d.path == path {
			return d.id, !d.id.IsZero()
		}
	}
	return kafka.UUID{}, false
}

// DirectoryIDs lists the ids of the directories that are online.
func (m *Manager) DirectoryIDs() []kafka.UUID {
	var ids []kafka.UUID
	for _, d := range m.dirs {
		if d.err() == nil {
			ids = append(ids, d.id)
		}
	}
	return ids
}

// CleanBrokerEpoch is the broker epoch of the last run, when every directory
// has the clean-shutdown marker with the same one. It is known after Open.
func (m *Manager) CleanBrokerEpoch() (epoch int64, clean bool) {
	for i, d := range m.dirs {
		if !d.clean || d.brokerEpoch < 0 || i > 0 && d.brokerEpoch != epoch {
			return -1, false
		}
		epoch = d.brokerEpoch
	}
	return epoch, len(m.dirs) > 0
}

// Log returns the open log of a partition; nil when there is none.
func (m *Manager) Log(tp kafka.TopicPartition) *commitlog.Log {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if p := m.logs[tp]; p != nil {
		return p.log
	}
	return nil
}

// Failure says why a partition that is on disk has no log; nil when it has one
// or is not on disk. When the reason is Transient, Create opens it.
func (m *Manager) Failure(tp kafka.TopicPartition) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.failed[tp].err
}

// DirectoryOf is the id of the directory that a partition lies in.
func (m *Manager) DirectoryOf(tp kafka.TopicPartition) (id kafka.UUID, ok bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if p := m.logs[tp]; p != nil {
		return p.dir.id, true
	}
	return kafka.UUID{}, false
}

// partitions is a snapshot of the open logs of one directory, or of all when d
// is nil. Order is not defined.
func (m *Manager) partitions(d *dir) []*partition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	list := make([]*partition, 0, len(m.logs))
	for _, p := range m.logs {
		if d == nil || p.dir == d {
			list = append(list, p)
		}
	}
	return list
}

// Partitions lists the partitions that have an open log.
func (m *Manager) Partitions() []kafka.TopicPartition {
	m.mu.RLock()
	defer m.mu.RUnlock()
	list := make([]kafka.TopicPartition, 0, len(m.logs))
	for tp := range m.logs {
		list = append(list, tp)
	}
	return list
}
