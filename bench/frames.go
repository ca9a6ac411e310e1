package main

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// fill writes bytes that do not compress.
func fill(b []byte, seed uint64) {
	x := seed*2862933555777941757 + 3037000493
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
}

const batchHeader = 61

// batch builds an uncompressed batch of n records that is exactly size bytes long, header included. All
// records but the last have values of the same length.
func batch(size, n int, ts int64) []byte {
	each := (size-batchHeader)/n - 10
	for {
		b := appendBatch(n, max(0, each), 0, ts)
		last := max(0, each) + size - len(b)
		for range 6 { // the length of a length may change once or twice
			if last < 0 {
				break
			}
			b = appendBatch(n, max(0, each), last, ts)
			if len(b) == size {
				return b
			}
			last += size - len(b)
		}
		each-- // the last record's size falls between two lengths of its varint
	}
}

// appendBatch builds a batch whose values have each bytes, but the last one last bytes; last 0 means each.
func appendBatch(n, each, last int, ts int64) []byte {
	value := make([]byte, max(each, last))
	fill(value, uint64(n))
	var records, body []byte
	for i := range n {
		v := value[:each]
		if i == n-1 && last > 0 {
			v = value[:last]
		}
		body = append(body[:0], 0) // attributes
		body = binary.AppendVarint(body, 0)
		body = binary.AppendVarint(body, int64(i))
		body = binary.AppendVarint(body, -1) // no key
		body = binary.AppendVarint(body, int64(len(v)))
		body = append(body, v...)
		body = binary.AppendVarint(body, 0) // headers
		records = binary.AppendVarint(records, int64(len(body)))
		records = append(records, body...)
	}
	b := kmsg.RecordBatch{
		Length: int32(batchHeader - 12 + len(records)), PartitionLeaderEpoch: -1, Magic: 2,
		LastOffsetDelta: int32(n - 1), FirstTimestamp: ts, MaxTimestamp: ts,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(n), Records: records,
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], castagnoli))
	return raw
}

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench"))

// frame is a whole request with its size in front.
func frame(req kmsg.Request, version int16) []byte {
	req.SetVersion(version)
	return formatter.AppendRequest(nil, req, 1)
}

const (
	produceVersion = 13
	fetchVersion   = 17
)

func produceFrame(topic [16]byte, partition int32, records []byte, acks int16) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 30_000
	t, p := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	t.TopicID, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return frame(req, produceVersion)
}

// fetchFrame is a fetch outside of a session, and the place of its offset in the frame.
func fetchFrame(topic [16]byte, partition int32, maxBytes, minBytes, waitMs int32) (b []byte, offsetAt int) {
	const marker = 0x1122334455667788
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = waitMs, minBytes, 64<<20
	req.SessionEpoch = -1
	t, p := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, marker, maxBytes
	t.TopicID, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	b = frame(req, fetchVersion)
	return b, bytes.Index(b, binary.BigEndian.AppendUint64(nil, marker))
}
