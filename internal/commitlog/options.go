package commitlog

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/flusher"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// Options say which log to open and what its owner (logdir) does for it.
type Options struct {
	FS        vfs.FS
	Dir       string // the partition's directory; it must exist
	Partition kafka.TopicPartition
	TopicID   kafka.TopicID // zero: partition.metadata is neither read nor written
	Config    Config

	// RecoveryPoint, LogStartOffset and HighWatermark are the values of the
	// checkpoint files; 0 where they have no entry.
	RecoveryPoint  kafka.Offset
	LogStartOffset kafka.Offset
	HighWatermark  kafka.Offset
	// FirstDirty is up to where the log may have been compacted, so that offsets
	// may be missing between its segments. FirstDirtyKnown is false when there is
	// no checkpoint that says so: then the cleanup policy decides.
	FirstDirty      kafka.Offset
	FirstDirtyKnown bool
	// CleanShutdown says that the directory's clean marker was there.
	CleanShutdown bool

	// ProducerExpiration is producer.id.expiration.ms; 0 means 24 hours.
	ProducerExpiration time.Duration
	// VerifyTransactions is transaction.partition.verification.enable.
	VerifyTransactions bool

	// Scratch is shared by the logs of a process; nil makes one.
	Scratch *Scratch
	// Now is the wall clock; required.
	Now func() time.Time
	// Expiry is the time that retention and producer expiration go by; nil: Now.
	Expiry func() time.Time
	// Logger may be nil.
	Logger *slog.Logger
	// Files bounds how many sealed segments of all the logs that share it have
	// their files open. Nil: no bound.
	Files *segment.Files
	// Jitter gives the roll jitter of a new segment below max milliseconds; nil
	// means 0, as with segment.jitter.ms=0.
	Jitter func(max int64) int64
	// AfterDelay runs f once d has passed (unlinking of `.deleted` files). Nil:
	// files are unlinked at once.
	AfterDelay func(d time.Duration, f func())
	// Background runs f soon, on another goroutine (flush after a roll). Nil: f
	// runs before the call that caused it returns. Jobs of one log may overlap.
	Background func(f func())
	// PersistLogStart makes a raised log start offset durable before the
	// records below it are removed (order O9); nil: not done.
	PersistLogStart func(kafka.Offset) error
	// PersistRecoveryPoint makes a lowered recovery point durable before a
	// truncation (order O10); nil: not done.
	PersistRecoveryPoint func(kafka.Offset) error
	// OnTruncate is told before the log is cut to an offset: what is known of
	// records from there on, such as how far they were compacted, is void. It must
	// not call the log. May be nil.
	OnTruncate func(kafka.Offset)
	// Flusher runs the syncs that answers wait for; it is the one of the file
	// system. Nil: who waits for a sync does it.
	Flusher *flusher.Flusher
	// Offline is shared by the logs of a directory, when not nil: the first
	// failure of any of them, after which none of them writes or acknowledges
	// anything (order O15). The owner may set it too.
	Offline *atomic.Pointer[error]
	// OnFailure is told once about the error that took the log offline; its
	// owner takes the whole directory offline. Called without locks.
	OnFailure func(error)
	// OnFull is told about each change that was refused for lack of room; what
	// names the change. It must not call the log. May be nil.
	OnFull func(what string, err error)
	// Full, when not nil and true, has OnRoom called after an append: the owner
	// sets it while the disk is known to be full.
	Full   *atomic.Bool
	OnRoom func()
	// OnEvent is told what load repaired, cut or set aside. May be nil.
	OnEvent func(Event)
	// OnScan is told, while Open runs, of segments that were checked batch by
	// batch and of bytes that were read for it. It must return at once. May be nil.
	OnScan func(segments int, bytes int64)
	// OnRecovered is told, while Open runs, of a recovery point that holds from
	// now on: what lies below it was checked and is durable, so that a start that
	// is killed does not begin anew. May be nil.
	OnRecovered func(point kafka.Offset)
}
