package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// served is what a broker answers about one partition. Batches are compared as
// bytes: that is every record with its offset, key, value, timestamp and headers.
type served struct {
	Start, End, Stable int64
	Batches            []batch
	Aborted            string // aborted transactions that fetches named
	Err                string // what ended the reading, empty at the end of the log
	Times              string // offsets found for a few timestamps
}

// batch is one batch with the offsets of its header.
type batch struct {
	First, Last int64
	Bytes       string
}

func (s served) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "start %d end %d stable %d err %q aborted [%s] times [%s] batches", s.Start, s.End, s.Stable, s.Err, s.Aborted, s.Times)
	for i, x := range s.Batches {
		if i > 0 && x.First == s.Batches[i-1].Last+1 {
			continue
		}
		fmt.Fprintf(&b, " %d…", x.First)
	}
	return b.String()
}

// rawReader reads with Fetch requests of its own making, so that what a client
// library would hide is seen: control batches, aborted records, errors.
type rawReader struct {
	t   *testing.T
	c   *kgo.Client
	adm *kadm.Client
	ids map[string][16]byte
}

func newRawReader(t *testing.T, addr string) *rawReader {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	r := &rawReader{t: t, c: c, adm: kadm.NewClient(c), ids: map[string][16]byte{}}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	topics, err := r.adm.ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range topics {
		r.ids[name] = d.ID
	}
	return r
}

// read reads count partitions of a topic from their log starts.
func (r *rawReader) read(topic string, count int32, times []int64) map[string]served {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	out := map[string]served{}
	var found []kadm.ListedOffsets
	for _, at := range times {
		l, err := r.adm.ListOffsetsAfterMilli(ctx, at, topic)
		if err != nil {
			r.t.Fatalf("offsets of %s by time: %v", topic, err)
		}
		found = append(found, l)
	}
	starts, err := r.adm.ListStartOffsets(ctx, topic)
	if err != nil {
		r.t.Fatalf("log starts of %s: %v", topic, err)
	}
	for n := range count {
		start, _ := starts.Lookup(topic, n)
		s := r.partition(ctx, topic, n, max(start.Offset, 0))
		for _, l := range found {
			o, _ := l.Lookup(topic, n)
			s.Times += fmt.Sprintf("%d@%d ", o.Offset, o.Timestamp)
			if o.Err != nil {
				s.Times += o.Err.Error()
			}
		}
		out[fmt.Sprintf("%s-%d", topic, n)] = s
	}
	return out
}

func (r *rawReader) partition(ctx context.Context, topic string, n int32, next int64) served {
	r.t.Helper()
	s := served{}
	for deadline := time.Now().Add(20 * time.Second); ; {
		p, err := r.fetch(ctx, topic, n, next)
		if err != nil {
			r.t.Fatalf("fetch %s-%d: %v", topic, n, err)
		}
		switch p.ErrorCode {
		case 0:
		case 3, 5, 6, 100: // not yet loaded
			if time.Now().Before(deadline) {
				time.Sleep(100 * time.Millisecond)
				continue
			}
			s.Err = fmt.Sprintf("error %d", p.ErrorCode)
			return s
		default:
			s.Err = fmt.Sprintf("error %d at offset %d", p.ErrorCode, next)
			return s
		}
		s.Start, s.End, s.Stable = p.LogStartOffset, p.HighWatermark, p.LastStableOffset
		for _, a := range p.AbortedTransactions {
			if x := fmt.Sprintf("%d:%d ", a.ProducerID, a.FirstOffset); !strings.Contains(s.Aborted, x) {
				s.Aborted += x
			}
		}
		from := next
		for _, x := range split(p.RecordBatches) {
			if x.Last >= next {
				s.Batches = append(s.Batches, x)
				next = x.Last + 1
			}
		}
		if next >= s.End {
			return s
		}
		if next == from {
			s.Err = fmt.Sprintf("nothing readable at offset %d", next)
			return s
		}
	}
}

// split takes whole batches off the front of b.
func split(b []byte) (out []batch) {
	for len(b) >= 61 {
		size := 12 + int(binary.BigEndian.Uint32(b[8:]))
		if size > len(b) {
			break
		}
		first := int64(binary.BigEndian.Uint64(b))
		out = append(out, batch{first, first + int64(int32(binary.BigEndian.Uint32(b[23:]))), string(b[:size])})
		b = b[size:]
	}
	return out
}

func (r *rawReader) fetch(ctx context.Context, topic string, n int32, at int64) (kmsg.FetchResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.MinBytes, req.SessionEpoch = 1<<20, 0, -1
	req.IsolationLevel = 1
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, r.ids[topic]
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = n, at, 1<<20, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := r.c.Broker(1).RetriableRequest(ctx, req)
	if err != nil {
		return kmsg.FetchResponseTopicPartition{}, err
	}
	f := resp.(*kmsg.FetchResponse)
	if len(f.Topics) != 1 || len(f.Topics[0].Partitions) != 1 {
		return kmsg.FetchResponseTopicPartition{}, fmt.Errorf("error %d, %d topics", f.ErrorCode, len(f.Topics))
	}
	return f.Topics[0].Partitions[0], nil
}
