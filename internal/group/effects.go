package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

// Waiter names a request whose answer is still owed. The caller chooses the
// numbers; zero means that nobody waits.
type Waiter uint64

// Context is what a request brings besides its body.
type Context struct {
	Waiter     Waiter
	ClientID   string
	ClientHost string // as Kafka stores it, with a leading slash: /127.0.0.1
	Now        kafka.Timestamp
}

// Record is a record for __consumer_offsets. A nil Value is a tombstone.
type Record struct {
	Key, Value []byte
}

// Reply is an answer that is due now. Its version is the caller's to set.
type Reply struct {
	To       Waiter
	Response kmsg.Response
}

// TimerKind says which of a group's timers a key names.
type TimerKind uint8

// The timers of a classic group.
const (
	SessionTimer TimerKind = iota + 1 // a member must be heard of before it fires
	JoinTimer                         // ends the join phase of a rebalance
	SyncTimer                         // ends the wait for SyncGroup requests
)

// String is the kind's name in scripts and logs.
func (k TimerKind) String() string {
	switch k {
	case SessionTimer:
		return "session"
	case JoinTimer:
		return "join"
	case SyncTimer:
		return "sync"
	}
	return "unknown"
}

// TimerKey identifies a timer. Member is empty except for session timers.
type TimerKey struct {
	Kind   TimerKind
	Group  string
	Member string
}

// Timer sets the timer of a key, replacing the one that is set, or cancels it.
type Timer struct {
	Key    TimerKey
	After  time.Duration
	Cancel bool
}

// Outcome is what became of the records of an operation.
type Outcome struct {
	// Err is None once the records are committed. Otherwise it is the error of
	// the append, or ErrRequestTimedOut when the commit took too long.
	Err kafka.ErrorCode
	// Appended reports whether the records are in the log in spite of Err: they
	// may still be committed, so nothing may be taken back.
	Appended bool
	Now      kafka.Timestamp
}

// Effects is what an operation asks for, in this order: append Records as one
// batch; if that worked and Replay is set, give them to [Machine.Replay]; set
// the timers and send the replies; and once the records are committed or have
// failed, call Then and carry out what it returns. Without records, and with
// After committed, Then is due at once.
type Effects struct {
	Records []Record
	Replay  bool
	Replies []Reply
	Timers  []Timer
	Then    func(Outcome) Effects

	// Divisible records may be appended as several batches when one would be too large.
	Divisible bool

	// After, when positive, is where the log must be committed to before Then is
	// called: its answer shows what was written up to there.
	After kafka.Offset
}

func (fx *Effects) reply(to Waiter, r kmsg.Response) {
	if to != 0 {
		fx.Replies = append(fx.Replies, Reply{to, r})
	}
}

func (fx *Effects) record(r Record) { fx.Records = append(fx.Records, r) }

func (fx *Effects) set(kind TimerKind, group, member string, after time.Duration) {
	fx.Timers = append(fx.Timers, Timer{Key: TimerKey{kind, group, member}, After: max(after, 0)})
}

func (fx *Effects) cancel(kind TimerKind, group, member string) {
	fx.Timers = append(fx.Timers, Timer{Key: TimerKey{kind, group, member}, Cancel: true})
}

func (fx *Effects) then(f func(Outcome) Effects) {
	if fx.Then != nil {
		panic("group: an operation has one continuation")
	}
	fx.Then = f
}
