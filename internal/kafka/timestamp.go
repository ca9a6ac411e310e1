package kafka

import "time"

// Timestamp is milliseconds since 1970-01-01T00:00:00Z, as records carry it.
// -1 is "none"; other negative values are legal record timestamps.
type Timestamp int64

// NoTimestamp is the timestamp of a record or answer that has none.
const NoTimestamp Timestamp = -1

// TimestampOf converts t, rounding down to the millisecond.
func TimestampOf(t time.Time) Timestamp { return Timestamp(t.UnixMilli()) }

// Time converts ts; the result is in UTC.
func (ts Timestamp) Time() time.Time { return time.UnixMilli(int64(ts)).UTC() }

// TimestampType says whose clock stamped the records of a batch.
type TimestampType int8

// The two timestamp types of batch attribute bit 3, and Kafka's word for
// message format 0, which has no timestamps.
const (
	NoTimestampType TimestampType = -1
	CreateTime      TimestampType = 0
	LogAppendTime   TimestampType = 1
)

// String is the name that Kafka's tools print.
func (t TimestampType) String() string {
	switch t {
	case CreateTime:
		return "CreateTime"
	case LogAppendTime:
		return "LogAppendTime"
	}
	return "NoTimestampType"
}

// Since is how many milliseconds ts lies after earlier, negative when before.
// Timestamps of records may be anything: the result is held within an int64.
func (ts Timestamp) Since(earlier Timestamp) int64 {
	d := int64(ts) - int64(earlier)
	switch {
	case earlier < 0 && ts >= 0 && d < 0:
		return 1<<63 - 1
	case earlier > 0 && ts < 0 && d > 0:
		return -1 << 63
	}
	return d
}
