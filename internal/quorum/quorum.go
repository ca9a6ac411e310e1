// Package quorum keeps the metadata log, __cluster_metadata-0: it loads the
// newest snapshot, recovers and replays the log, and appends atomic batches of
// records that are durable before anybody hears of them.
//
// This is the quorum of one voter, a combined broker and controller writing
// alone. Before it on the path: controller, which decides what to write. After
// it: commitlog for the log's files and metadata for what the records mean.
package quorum

import (
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// DirName is the directory of the metadata log inside a data directory.
const DirName = kafka.ClusterMetadataTopic + "-0"

// MaxBatchBytes bounds one batch, and with it one operation
// (KafkaRaftClient.MAX_BATCH_SIZE_BYTES).
const MaxBatchBytes = 8 << 20

// Options say where the log is and how it is kept. FS, Dir, NodeID and
// DirectoryID are needed; the rest has the stated zero values.
type Options struct {
	FS          vfs.FS
	Dir         string // data directory: metadata.log.dir, else the first of log.dirs
	NodeID      kafka.BrokerID
	DirectoryID kafka.UUID // of Dir, from its meta.properties

	Now    func() time.Time // nil: time.Now
	Logger *slog.Logger     // nil: nothing is logged

	IdleInterval     time.Duration // metadata.max.idle.interval.ms; 0: no NoOp records
	SnapshotBytes    int64         // metadata.log.max.record.bytes.between.snapshots; 0: 20 MiB
	SnapshotInterval time.Duration // metadata.log.max.snapshot.interval.ms; 0: none by age
	RetentionBytes   int64         // metadata.max.retention.bytes; 0: 100 MiB, below 0: no limit
	RetentionTime    time.Duration // metadata.max.retention.ms; 0: 7 days, below 0: no limit
	SegmentBytes     int32         // metadata.log.segment.bytes; 0: 1 GiB
	SegmentTime      time.Duration // metadata.log.segment.ms; 0: 7 days

	// AwaitRoom has the records of a start wait when the disk is full, so that
	// the broker can serve readers: they are in force, and written before
	// anything else once there is room (Settle). EndStart ends it.
	AwaitRoom bool
	// OnEmpty is asked, before anything is written, when the log holds no record
	// of a controller: as on a first start, or because it was lost. May be nil.
	OnEmpty func() error
	// OnFailure is told once about the error that ended the log: nothing more
	// can be written, and what is in memory may be ahead of the disk. May be nil.
	OnFailure func(error)
}

func (o *Options) withDefaults() {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	setDefault(&o.SnapshotBytes, 20<<20)
	setDefault(&o.RetentionBytes, 100<<20)
	setDefault(&o.RetentionTime, 7*24*time.Hour)
	setDefault(&o.SegmentBytes, 1<<30)
	setDefault(&o.SegmentTime, 7*24*time.Hour)
}

func setDefault[T int32 | int64 | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// Quorum is the open metadata log of a quorum of one.
//
// Callers decide on head, the state with everything that is on its way; their
// records wait in queue until one of them writes all that wait as one batch,
// syncs it and publishes the images. Invariant: at most one batch of the log is
// not yet durable, so that after a power cut only the last one can be torn, and
// a whole batch behind a damaged one means that acknowledged records are gone.
type Quorum struct {
	o     Options
	dir   string // of the log
	log   *commitlog.Log
	epoch kafka.LeaderEpoch
	kraft kraftState
	first []metadata.Record // see Bootstrap

	// What waits for room, in order; used by who writes (writing). Invariant:
	// committed is what the log holds and, behind it, owed.
	owedState *checkpoint.QuorumState // nil: quorum-state is written
	owed      []record.Batch

	committed atomic.Pointer[metadata.Image]

	mu          sync.Mutex
	changed     *sync.Cond      // on mu: an operation was published or failed
	head        *metadata.Image // committed and what waits in queue
	queue       []*operation
	last        *operation // queued last, perhaps done; nil when head is committed
	writing     bool       // somebody is between taking from queue and publishing
	failed      error      // no more writes; ErrClosed after Close
	subscribers []Subscriber
	maintenance maintenance
	starting    bool // records may be owed
}

// Subscriber hears of every committed change, in order, before the call that
// made it returns. It must not call Update or Append: it would wait for itself.
type Subscriber func(old, next *metadata.Image, delta *metadata.Delta)

// Image is the committed state.
func (q *Quorum) Image() *metadata.Image { return q.committed.Load() }

// Epoch is the quorum epoch of this run.
func (q *Quorum) Epoch() kafka.LeaderEpoch { return q.epoch }

// EndOffset is the offset after the last committed record.
func (q *Quorum) EndOffset() kafka.Offset { return q.Image().End }

// NodeID is the only voter.
func (q *Quorum) NodeID() kafka.BrokerID { return q.o.NodeID }

// Dir is the directory of the log's files.
func (q *Quorum) Dir() string { return q.dir }

// Log is the metadata log, for readers such as dump and verify.
func (q *Quorum) Log() *commitlog.Log { return q.log }

// Bootstrap reports whether the log holds nothing of a controller yet. The
// records are the feature levels to begin with, as the format tool left them.
func (q *Quorum) Bootstrap() (features []metadata.Record, needed bool) {
	return q.first, q.first != nil
}

// Subscribe adds a subscriber. It hears of what is committed after the call.
func (q *Quorum) Subscribe(s Subscriber) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.subscribers = append(q.subscribers, s)
}

func (q *Quorum) path(name string) string { return filepath.Join(q.dir, name) }
