package commitlog

import (
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/vfs"
)

// Origin says who appends, and so which checks apply (AppendOrigin).
type Origin int

// The origins of an append.
const (
	// Client: offsets are assigned; sequences checked and duplicates detected.
	Client Origin = iota
	// Coordinator: offsets are assigned; producer epochs checked.
	Coordinator
	// RaftLeader: offsets are kept and must follow; each batch has the leader's epoch.
	RaftLeader
	// Replication: offsets are kept; nothing about producers is refused.
	Replication
)

// AppendOptions go with AppendAsLeader.
type AppendOptions struct {
	Origin Origin
	// TxnVersion is the transaction version that a marker was written for.
	TxnVersion int16
	// Guard is the transaction verification guard of the request; 0 for none.
	Guard producer.Guard
}

// AppendInfo is what an append did.
type AppendInfo struct {
	FirstOffset, LastOffset kafka.Offset
	MaxTimestamp            kafka.Timestamp
	// LogAppendTime is -1 unless the topic stamps records, or the batch was a
	// duplicate: then it is the duplicate's timestamp, as Kafka answers.
	LogAppendTime  kafka.Timestamp
	LogStartOffset kafka.Offset
	Duplicate      bool // nothing was written: the batch is already there
	Size           int  // bytes appended
	Rolled         bool // a new segment was started
	LeaderEpoch    kafka.LeaderEpoch
}

// Bound says up to where a read may go.
type Bound int

// The bounds of section 9.2.
const (
	HighWatermark Bound = iota
	LastStable
	LogEnd
)

// ReadOptions go with Read. The zero value reads nothing.
type ReadOptions struct {
	MaxBytes    int64
	Bound       Bound
	MinOneBatch bool // return the first batch even when it is larger than MaxBytes
	// Aborted asks for the aborted transactions of the range; they are appended to AbortedBuf.
	Aborted    bool
	AbortedBuf []AbortedTxn
	// Hint is what an earlier read returned as Next.
	Hint Hint
}

// AbortedTxn is one aborted transaction in a read's range.
type AbortedTxn struct {
	ProducerID  kafka.ProducerID
	FirstOffset kafka.Offset
}

// Hint remembers where a batch starts, so that a read there needs no index.
type Hint struct {
	Segment kafka.Offset // base offset of the segment
	Offset  kafka.Offset // first offset at Byte
	Byte    int64
	Valid   bool
}

// ReadInfo is the answer to a read. The caller sends Region and calls its
// Release, when not nil, exactly once.
type ReadInfo struct {
	Region vfs.Region
	// FirstBatchIncomplete says that the region ends inside its first batch.
	FirstBatchIncomplete bool
	Aborted              []AbortedTxn // nil unless asked for
	Next                 Hint         // valid when the region ends where the log does

	// What was sampled before the read.
	StartOffset, HighWatermark, LastStable, EndOffset kafka.Offset
}

// TimestampOffset is the answer to a lookup by time. Offset -1: nothing found.
type TimestampOffset struct {
	Timestamp kafka.Timestamp
	Offset    kafka.Offset
	Epoch     kafka.LeaderEpoch
}
