package commitlog

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// incoming is one append on its way to the lock: what was found out about its
// bytes without it.
type incoming struct {
	origin Origin
	cfg    *Config
	now    kafka.Timestamp

	buf     []byte // whole batches only; the caller's bytes, or rebuilt ones
	rebuilt *rebuild
	batches int
	codec   record.Codec // of the last compressed batch

	first         kafka.Offset // base offset of the first batch; NoOffset for old formats
	lastOfFirst   kafka.Offset
	last          kafka.Offset
	records       int32 // of a leader's one batch
	maxTimestamp  kafka.Timestamp
	logAppendTime kafka.Timestamp
	leaderEpoch   kafka.LeaderEpoch // of the last batch
}

func refuse(err error, format string, args ...any) error {
	return &AppendError{Err: err, Message: fmt.Sprintf(format, args...)}
}

// analyze frames the batches of buf and checks each as a whole
// (UnifiedLog.analyzeAndValidateRecords). Bytes behind the last whole batch are
// left out.
func (l *Log) analyze(in *incoming, buf []byte, epoch kafka.LeaderEpoch) error {
	in.first, in.lastOfFirst, in.last = kafka.NoOffset, kafka.NoOffset, kafka.NoOffset
	in.maxTimestamp, in.logAppendTime = kafka.NoTimestamp, kafka.NoTimestamp
	in.leaderEpoch = kafka.NoLeaderEpoch
	monotonic := true
	size := 0
	for {
		n, ok, err := record.NextBatch(buf[size:])
		if err != nil {
			return refuse(ErrCorrupt, "%v in topic partition %s.", err, l.partition)
		}
		if !ok {
			break
		}
		b := buf[size : size+n]
		h, err := record.ParseHeader(b)
		if err != nil {
			return refuse(ErrCorrupt, "%v in topic partition %s.", err, l.partition)
		}
		if err := l.analyzeOrigin(in, &h, epoch); err != nil {
			return err
		}
		if in.origin == Replication && h.LeaderEpoch > epoch && epoch != kafka.NoLeaderEpoch {
			// Written by a later leader than the one asked: fetched again from it (KAFKA-18723).
			l.say(slog.LevelWarn, "batch skipped: its leader epoch is above the replica's", "offset", h.BaseOffset, "epoch", h.LeaderEpoch, "replica", epoch)
			break
		}
		if in.batches == 0 {
			if h.Magic >= record.MagicV2 {
				in.first = h.BaseOffset
			}
			in.lastOfFirst = h.LastOffset
		}
		if in.last >= h.LastOffset {
			monotonic = false
		}
		in.last = h.LastOffset
		in.leaderEpoch = h.LeaderEpoch
		if in.origin != Replication && int64(n) > int64(in.cfg.MaxMessageBytes) {
			return refuse(ErrMessageTooLarge,
				"The record batch size in the append to %s is %d bytes which exceeds the maximum configured value of %d).",
				l.partition, n, in.cfg.MaxMessageBytes)
		}
		if record.Check(b) != nil {
			return refuse(ErrCorrupt, "Record is corrupt (stored crc = %d) in topic partition %s.", h.CRC, l.partition)
		}
		if h.MaxTimestamp > in.maxTimestamp {
			in.maxTimestamp = h.MaxTimestamp
		}
		if c := h.Codec(); c != record.None {
			in.codec = c
		}
		in.batches++
		size += n
	}
	if !monotonic && (in.origin == RaftLeader || in.origin == Replication) {
		return refuse(ErrOffsetsOutOfOrder, "Out of order offsets found in append to %s: last offset %d", l.partition, in.last)
	}
	in.buf = buf[:size]
	return nil
}

func (l *Log) analyzeOrigin(in *incoming, h *record.Header, epoch kafka.LeaderEpoch) error {
	switch {
	case in.origin == RaftLeader && h.LeaderEpoch != epoch:
		return refuse(ErrInvalidRecord,
			"Append from Raft leader did not set the batch epoch correctly, expected %d but the batch has %d", epoch, h.LeaderEpoch)
	case in.origin == Client && h.Magic >= record.MagicV2 && h.BaseOffset != 0:
		return refuse(ErrInvalidRecord,
			"The baseOffset of the record batch in the append to %s should be 0, but it is %d", l.partition, h.BaseOffset)
	}
	return nil
}

// validate checks the records of a leader's one batch against the topic and
// makes the batch what will be written but for its offset and leader epoch
// (LogValidator). The batch is patched in place, or rebuilt when its codec is
// not the topic's.
func (l *Log) validate(in *incoming) error {
	b := record.Batch(in.buf)
	if b.Magic() != record.MagicV2 {
		return refuse(ErrInvalidRecord, "Produce requests are only allowed to contain record batches with magic version 2 in topic partition %s", l.partition)
	}
	if in.batches > 1 {
		return refuse(ErrInvalidRecord, "Compressed outer record has more than one batch")
	}
	if err := l.validateBatch(in, b); err != nil {
		return err
	}
	target := in.cfg.targetCodec(in.codec)
	inPlace := in.codec == target || in.codec == record.None && b.IsControl()

	var dec *record.Decompressor
	if in.codec != record.None {
		dec = l.scratch.decompressors.Get()
		dec.MaxRecord = int(in.cfg.MaxDecompressedBytes)
		defer l.scratch.decompressors.Put(dec)
	}
	sum, err := b.Summarize(dec)
	if err != nil {
		return l.unreadable(err)
	}
	if err := l.validateRecords(in, b, &sum, dec); err != nil {
		return err
	}
	in.records = int32(sum.Count)
	in.maxTimestamp = sum.MaxTimestamp
	if in.cfg.TimestampType == kafka.LogAppendTime {
		in.maxTimestamp, in.logAppendTime = in.now, in.now
	}
	if inPlace {
		if in.codec != record.None && !(sum.Consecutive && b.BaseOffset() == 0) {
			// Kafka takes the way of a rebuild without the records' contents, and fails.
			return refuse(ErrUnprocessable, "Offsets of the compressed batch are not consecutive in topic partition %s", l.partition)
		}
		b.SetMaxTimestamp(in.cfg.TimestampType, in.maxTimestamp)
		return nil
	}
	return l.rebuild(in, b, target, dec)
}

// unreadable classifies an error of reading the records of a batch whose
// checksum is right.
func (l *Log) unreadable(err error) error {
	switch {
	case errors.Is(err, record.ErrInvalid):
		return refuse(ErrInvalidRecord, "%v", err)
	case errors.Is(err, record.ErrTooLarge): // a producer splits such a batch and sends its parts
		return refuse(ErrMessageTooLarge, "%v in topic partition %s", err, l.partition)
	}
	return refuse(ErrUnprocessable, "%v in topic partition %s", err, l.partition)
}

func (l *Log) validateBatch(in *incoming, b record.Batch) error {
	if in.origin != Client {
		return nil
	}
	span := int64(b.LastOffset()) - int64(b.BaseOffset()) + 1
	count := int64(b.Count())
	switch {
	case span <= 0:
		return refuse(ErrInvalidRecord, "Batch has an invalid offset range: [%d, %d] in topic partition %s", b.BaseOffset(), b.LastOffset(), l.partition)
	case count <= 0:
		return refuse(ErrInvalidRecord, "Invalid reported count for record batch: %d in topic partition %s", count, l.partition)
	case span != count:
		return refuse(ErrInvalidRecord, "Inconsistent batch offset range [%d, %d] and count of records %d in topic partition %s",
			b.BaseOffset(), b.LastOffset(), count, l.partition)
	case b.IsControl():
		return refuse(ErrInvalidRecord, "Clients are not allowed to write control records in topic partition %s", l.partition)
	case b.ProducerID() != kafka.NoProducerID && b.ProducerID() >= 0 && b.BaseSequence() < 0:
		return refuse(ErrInvalidRecord, "Invalid sequence number %d in record batch with producerId %d in topic partition %s",
			b.BaseSequence(), b.ProducerID(), l.partition)
	}
	return nil
}

// sane timestamps are far enough from the ends of int64 that differences of two
// of them cannot wrap.
const sane = 1 << 61

// validateRecords decides from the summary whether every record is allowed, and
// only when one is not, or when arithmetic could wrap as Java's does, looks at each.
func (l *Log) validateRecords(in *incoming, b record.Batch, sum *record.Summary, dec *record.Decompressor) error {
	stamped := sum.Count - sum.NoTimestamps
	fine := !in.cfg.CleanupCompact || sum.NullKeys == 0
	if b.TimestampType() == kafka.LogAppendTime && (in.cfg.TimestampType == kafka.LogAppendTime || sum.NoTimestamps > 0) {
		fine = false
	}
	if in.cfg.TimestampType == kafka.CreateTime && stamped > 0 {
		lo, hi := int64(sum.MinTimestamp), int64(sum.MaxTimestamp)
		if lo < -sane || hi > sane || int64(in.now)-lo > in.cfg.TimestampBeforeMax || hi-int64(in.now) > in.cfg.TimestampAfterMax {
			fine = false
		}
	}
	if fine {
		return nil
	}
	return l.recordErrors(in, b, dec)
}

func (l *Log) recordErrors(in *incoming, b record.Batch, dec *record.Decompressor) error {
	var it record.Iterator
	if err := it.Reset(b, dec); err != nil {
		return l.unreadable(err)
	}
	var list []RecordError
	badTime := false
	for it.Next() {
		msg, isTime := l.recordError(in, b, it.Record())
		if msg == "" {
			continue
		}
		badTime = badTime || isTime
		list = append(list, RecordError{Index: int32(it.Index()), Message: msg})
	}
	switch {
	case it.Err() != nil:
		return l.unreadable(it.Err())
	case len(list) == 0:
		return nil
	case badTime:
		return &AppendError{Err: ErrInvalidTimestamp, RecordErrors: list,
			Message: "One or more records have been rejected due to invalid timestamp"}
	}
	var first []string
	for _, e := range list[:min(len(list), 3)] {
		first = append(first, "RecordError(batchIndex="+strconv.Itoa(int(e.Index))+", message='"+e.Message+"')")
	}
	return &AppendError{Err: ErrInvalidRecord, RecordErrors: list, Message: fmt.Sprintf(
		"One or more records have been rejected due to %d record errors in total, and only showing the first three errors at most: [%s]",
		len(list), strings.Join(first, ", "))}
}

// recordError is LogValidator.validateRecord: the first check that fails counts.
func (l *Log) recordError(in *incoming, b record.Batch, r *record.Record) (msg string, isTime bool) {
	if in.cfg.CleanupCompact && r.Key == nil {
		return "Compacted topic cannot accept message without key in topic partition " + l.partition.String(), false
	}
	if in.cfg.TimestampType == kafka.CreateTime && r.Timestamp != kafka.NoTimestamp {
		diff := int64(in.now) - int64(r.Timestamp) // wraps, as in Kafka
		if diff > in.cfg.TimestampBeforeMax || -diff > in.cfg.TimestampAfterMax {
			return fmt.Sprintf("Timestamp %d of message with offset %d is out of range. The timestamp should be within [%d, %d]",
				r.Timestamp, r.Offset, int64(in.now)-in.cfg.TimestampBeforeMax, int64(in.now)+in.cfg.TimestampAfterMax), true
		}
	} else if b.TimestampType() == kafka.LogAppendTime {
		return fmt.Sprintf("Invalid timestamp type in message with offset %d. Producer should not set timestamp type to LogAppendTime.", r.Offset), true
	}
	return "", false
}

// rebuild writes the batch anew with the topic's codec, at offset 0.
func (l *Log) rebuild(in *incoming, b record.Batch, target record.Codec, dec *record.Decompressor) error {
	r := l.scratch.rebuilds.Get().(*rebuild)
	in.rebuilt = r
	o := record.BuildOptions{
		Codec: target, Level: in.cfg.level(target),
		LeaderEpoch: kafka.NoLeaderEpoch, TimestampType: in.cfg.TimestampType, LogAppendTime: in.logAppendTime,
		ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(),
		Transactional: b.IsTransactional(), Control: b.IsControl(), DeleteHorizon: kafka.NoTimestamp,
	}
	if err := r.records.Reset(b, dec); err != nil {
		return l.unreadable(err)
	}
	r.builder.Reset(o)
	for r.records.Next() {
		rec := r.records.Record()
		r.builder.Append(rec.Timestamp, rec.Key, rec.Value, rec.Headers)
	}
	if err := r.records.Err(); err != nil {
		return l.unreadable(err)
	}
	out, err := r.builder.Finish()
	if err != nil {
		return refuse(ErrUnprocessable, "%v in topic partition %s", err, l.partition)
	}
	in.buf = out
	return nil
}

// release gives back what the append borrowed; its bytes become invalid.
func (in *incoming) release(s *Scratch) {
	if in.rebuilt != nil {
		s.rebuilds.Put(in.rebuilt)
		in.rebuilt = nil
	}
}
