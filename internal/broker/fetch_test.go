package broker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

// fetching is a Fetch of one topic by name, version 12, without a wait.
func fetching(topic string, parts ...kmsg.FetchRequestTopicPartition) *kmsg.FetchRequest {
	q := kmsg.NewPtrFetchRequest()
	q.Version, q.ReplicaID, q.MinBytes, q.MaxBytes, q.SessionEpoch = 12, -1, 1, 1<<20, -1
	q.Topics = []kmsg.FetchRequestTopic{{Topic: topic, Partitions: parts}}
	return q
}

func from(partition int32, offset int64) kmsg.FetchRequestTopicPartition {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 1<<20
	return p
}

func with(p kmsg.FetchRequestTopicPartition, f func(p *kmsg.FetchRequestTopicPartition)) kmsg.FetchRequestTopicPartition {
	f(&p)
	return p
}

// summary is what matters of an answer's partitions, in order.
func summary(a *kmsg.FetchResponse) string {
	var b strings.Builder
	for _, t := range a.Topics {
		for _, p := range t.Partitions {
			fmt.Fprintf(&b, "%s-%d error %d hw %d lso %d start %d", t.Topic, p.Partition, p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset)
			switch {
			case p.AbortedTransactions == nil:
				b.WriteString(" aborted null")
			default:
				fmt.Fprintf(&b, " aborted %d", len(p.AbortedTransactions))
			}
			fmt.Fprintf(&b, " bytes %d", len(p.RecordBatches))
			if p.DivergingEpoch.Epoch >= 0 {
				fmt.Fprintf(&b, " diverging %d at %d", p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset)
			}
			b.WriteString("; ")
		}
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func TestFetchedPartitionsAreAnsweredAsByKafka(t *testing.T) {
	c := dial(t, newNode(t))
	id := createTopic(c, "t", 3)
	for range 5 {
		produceOne(c, "t", 0)
	}
	deleteRecords(c, "t", 0, 1)
	size := len(oneRecord(t))
	const refused = "hw -1 lso -1 start -1"
	byID := func(id [16]byte, p kmsg.FetchRequestTopicPartition) *kmsg.FetchRequest {
		q := fetching("", p)
		q.Version, q.Topics[0].TopicID = 18, id
		return q
	}
	committed := func(q *kmsg.FetchRequest) *kmsg.FetchRequest { q.IsolationLevel = 1; return q }
	replica := func(q *kmsg.FetchRequest, id int32) *kmsg.FetchRequest { q.ReplicaID = id; return q }
	tests := []struct {
		name string
		q    *kmsg.FetchRequest
		want string
	}{
		{"from the start", fetching("t", from(0, 1)), fmt.Sprintf("t-0 error 0 hw 5 lso 5 start 1 aborted null bytes %d", 4*size)},
		{"read committed has a list", committed(fetching("t", from(0, 4))), fmt.Sprintf("t-0 error 0 hw 5 lso 5 start 1 aborted 0 bytes %d", size)},
		{"at the end", fetching("t", from(0, 5)), "t-0 error 0 hw 5 lso 5 start 1 aborted null bytes 0"},
		{"beyond the end", fetching("t", from(0, 6)), "t-0 error 1 " + refused + " aborted null bytes 0"},
		{"below the start", fetching("t", from(0, 0)), "t-0 error 1 " + refused + " aborted null bytes 0"},
		{"a negative offset", fetching("t", from(0, -1)), "t-0 error 1 " + refused + " aborted null bytes 0"},
		{"an unknown topic", fetching("absent", from(0, 0)), "absent-0 error 3 " + refused + " aborted 0 bytes 0"},
		{"an unknown partition", fetching("t", from(3, 0)), "t-3 error 3 " + refused + " aborted 0 bytes 0"},
		{"an illegal topic name", fetching("..", from(0, 0)), "..-0 error 3 " + refused + " aborted 0 bytes 0"},
		{"a topic id", byID(id, from(0, 4)), fmt.Sprintf("-0 error 0 hw 5 lso 5 start 1 aborted null bytes %d", size)},
		{"an unknown topic id", byID([16]byte{1}, from(0, 0)), "-0 error 100 " + refused + " aborted 0 bytes 0"},
		{"the zero topic id", byID([16]byte{}, from(0, 0)), "-0 error 100 " + refused + " aborted 0 bytes 0"},
		{"an unknown partition of a known id", byID(id, from(9, 0)), "-9 error 3 " + refused + " aborted 0 bytes 0"},
		{"a leader epoch of the future", fetching("t", with(from(0, 1), func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = 99 })), "t-0 error 75 " + refused + " aborted null bytes 0"},
		{"a leader epoch of -2 is none", fetching("t", with(from(0, 4), func(p *kmsg.FetchRequestTopicPartition) { p.CurrentLeaderEpoch = -2 })), fmt.Sprintf("t-0 error 0 hw 5 lso 5 start 1 aborted null bytes %d", size)},
		{"a last epoch of the future", fetching("t", with(from(0, 1), func(p *kmsg.FetchRequestTopicPartition) { p.LastFetchedEpoch = 99 })), "t-0 error 1 " + refused + " aborted null bytes 0"},
		{"beyond the end of the last epoch", fetching("t", with(from(0, 6), func(p *kmsg.FetchRequestTopicPartition) { p.LastFetchedEpoch = 0 })), "t-0 error 0 hw 5 lso 5 start 1 aborted null bytes 0 diverging 0 at 5"},
		{"partition limit of 0 gives the first batch", fetching("t", with(from(0, 1), func(p *kmsg.FetchRequestTopicPartition) { p.PartitionMaxBytes = 0 })), fmt.Sprintf("t-0 error 0 hw 5 lso 5 start 1 aborted null bytes %d", size)},
		{"partition limit of -1", fetching("t", with(from(0, 1), func(p *kmsg.FetchRequestTopicPartition) { p.PartitionMaxBytes = -1 })), "t-0 error -1 " + refused + " aborted null bytes 0"},
		{"a broker that has no replica", replica(fetching("t", from(0, 1)), 7), "t-0 error 6 " + refused + " aborted null bytes 0"},
		{"the debugging consumer", replica(fetching("t", from(0, 4)), -2), fmt.Sprintf("t-0 error 0 hw 5 lso 5 start 1 aborted null bytes %d", size)},
		{"the same partition twice", fetching("t", from(0, 1), from(0, 4)), fmt.Sprintf("t-0 error 0 hw 5 lso 5 start 1 aborted null bytes %d", size)},
		{"no topics", func() *kmsg.FetchRequest { q := fetching("t"); q.Topics, q.MaxWaitMillis = nil, 20_000; return q }(), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := do[*kmsg.FetchResponse](c, tt.q)
			if a.ErrorCode != 0 || a.SessionID != 0 {
				t.Errorf("top error %d, session %d, want none", a.ErrorCode, a.SessionID)
			}
			if got := summary(a); got != tt.want {
				t.Errorf("answer\n%s, want\n%s", got, tt.want)
			}
		})
	}
	t.Run("an unknown isolation level", func(t *testing.T) {
		q := byID(id, from(0, 1))
		q.IsolationLevel = 2
		if a := do[*kmsg.FetchResponse](c, q); a.ErrorCode != -1 || len(a.Topics) != 0 {
			t.Errorf("error %d and %d topics, want -1 and none", a.ErrorCode, len(a.Topics))
		}
	})
	t.Run("an error that names the leader", func(t *testing.T) {
		q := byID(id, from(0, 1))
		q.ReplicaState.ID = 7
		a := do[*kmsg.FetchResponse](c, q)
		p := a.Topics[0].Partitions[0]
		if p.ErrorCode != 6 || p.CurrentLeader.LeaderID != 1 || len(a.Brokers) != 1 || a.Brokers[0].NodeID != 1 || a.Brokers[0].Port == 0 {
			t.Errorf("answer %+v, brokers %+v, want error 6, leader 1 and where it is", p, a.Brokers)
		}
	})
}

func TestFetchKeepsItsLimits(t *testing.T) {
	c := dial(t, newNode(t))
	createTopic(c, "t", 3)
	for partition := range int32(3) {
		for range 10 {
			produceOne(c, "t", partition)
		}
	}
	size := len(oneRecord(t))
	sizes := func(total, part int32) []int {
		q := fetching("t", from(0, 0), from(1, 0), from(2, 0))
		q.MaxBytes = total
		for i := range q.Topics[0].Partitions {
			q.Topics[0].Partitions[i].PartitionMaxBytes = part
		}
		var list []int
		for _, p := range do[*kmsg.FetchResponse](c, q).Topics[0].Partitions {
			list = append(list, len(p.RecordBatches))
		}
		return list
	}
	for _, tt := range []struct {
		name        string
		total, part int32
		want        []int
	}{
		{"enough for all", 1 << 20, 1 << 20, []int{10 * size, 10 * size, 10 * size}},
		{"one byte gives one batch of the first partition", 1, 1, []int{size, 0, 0}},
		{"the limit of a partition may cut its last batch", 1 << 20, int32(size) + 5, []int{size + 5, size + 5, size + 5}},
		{"what one partition leaves is for the next", int32(15 * size), 1 << 20, []int{10 * size, 5 * size, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, sizes(tt.total, tt.part)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFetchSessions(t *testing.T) {
	n := newNode(t)
	c := dial(t, n)
	id := createTopic(c, "t", 3)
	produceOne(c, "t", 0)
	size := len(oneRecord(t))
	begin := func(parts ...kmsg.FetchRequestTopicPartition) int32 {
		t.Helper()
		q := fetching("t", parts...)
		q.SessionEpoch = 0
		a := do[*kmsg.FetchResponse](c, q)
		if a.SessionID <= 0 || a.ErrorCode != 0 {
			t.Fatalf("session %d, error %d, want a session", a.SessionID, a.ErrorCode)
		}
		return a.SessionID
	}
	next := func(c *conn, session, epoch int32, parts ...kmsg.FetchRequestTopicPartition) *kmsg.FetchResponse {
		t.Helper()
		q := fetching("t", parts...)
		q.SessionID, q.SessionEpoch = session, epoch
		if len(parts) == 0 {
			q.Topics = nil
		}
		return do[*kmsg.FetchResponse](c, q)
	}
	row := func(partition int32, hw int64, bytes int) string {
		return fmt.Sprintf("t-%d error 0 hw %d lso %d start 0 aborted null bytes %d", partition, hw, hw, bytes)
	}

	t.Run("an incremental answer lists what is new", func(t *testing.T) {
		s := begin(from(0, 1), from(1, 0), from(2, 0))
		steps := []struct {
			name string
			do   func()
			upd  []kmsg.FetchRequestTopicPartition
			want string
		}{
			{"nothing new", func() {}, nil, ""},
			{"one record", func() { produceOne(c, "t", 1) }, nil, row(1, 1, size)},
			{"the caller did not move on", func() {}, nil, row(1, 1, size)},
			{"the caller moves on", func() {}, []kmsg.FetchRequestTopicPartition{from(1, 1)}, ""},
			{"an error comes every time", func() {}, []kmsg.FetchRequestTopicPartition{from(2, 9)}, "t-2 error 1 hw -1 lso -1 start -1 aborted null bytes 0"},
			{"again", func() {}, nil, "t-2 error 1 hw -1 lso -1 start -1 aborted null bytes 0"},
			{"until it ends, which is told once", func() {}, []kmsg.FetchRequestTopicPartition{from(2, 0)}, row(2, 0, 0)},
			{"and not again", func() {}, nil, ""},
			{"records of two partitions, the one that had none first", func() { produceOne(c, "t", 1); produceOne(c, "t", 2) }, nil, row(2, 1, size) + "; " + row(1, 2, size)},
			{"a start offset that moved is told", func() { deleteRecords(c, "t", 0, 1) }, []kmsg.FetchRequestTopicPartition{from(1, 2), from(2, 1)}, "t-0 error 0 hw 1 lso 1 start 1 aborted null bytes 0"},
		}
		for i, step := range steps {
			step.do()
			a := next(c, s, int32(i+1), step.upd...)
			if got := summary(a); got != step.want || a.ErrorCode != 0 || a.SessionID != s {
				t.Fatalf("%s: error %d, session %d, answer\n%s, want\n%s", step.name, a.ErrorCode, a.SessionID, got, step.want)
			}
		}
	})
	t.Run("wrong ids and epochs", func(t *testing.T) {
		s := begin(from(1, 0))
		for _, tt := range []struct {
			name           string
			session, epoch int32
			want           kafka.ErrorCode
		}{
			{"epoch too high", s, 2, kafka.ErrInvalidFetchSessionEpoch},
			{"unknown session", s ^ 1, 1, kafka.ErrFetchSessionIDNotFound},
			{"no session", 0, 1, kafka.ErrFetchSessionIDNotFound},
		} {
			a := next(c, tt.session, tt.epoch)
			if a.ErrorCode != int16(tt.want) || a.SessionID != 0 || len(a.Topics) != 0 {
				t.Errorf("%s: error %d, session %d, %d topics, want error %d alone", tt.name, a.ErrorCode, a.SessionID, len(a.Topics), tt.want)
			}
		}
		q := fetching("", from(1, 0))
		q.Version, q.Topics[0].TopicID, q.SessionID, q.SessionEpoch = 13, id, s, 1
		if a := do[*kmsg.FetchResponse](c, q); a.ErrorCode != int16(kafka.ErrFetchSessionTopicIDError) {
			t.Errorf("ids in a session of names: error %d, want 106", a.ErrorCode)
		}
		if a := next(c, s, 1); a.ErrorCode != 0 || a.SessionID != s {
			t.Errorf("the session did not survive: error %d", a.ErrorCode)
		}
	})
	t.Run("any connection may go on with it", func(t *testing.T) {
		s := begin(from(1, 0))
		if a := next(dial(t, n), s, 1); a.ErrorCode != 0 || a.SessionID != s {
			t.Errorf("error %d, session %d, want %d", a.ErrorCode, a.SessionID, s)
		}
	})
	t.Run("taking out the last partition ends it", func(t *testing.T) {
		s := begin(from(1, 0))
		q := fetching("t")
		q.Topics, q.SessionID, q.SessionEpoch = nil, s, 1
		q.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: "t", Partitions: []int32{1}}}
		if a := do[*kmsg.FetchResponse](c, q); a.ErrorCode != 0 || a.SessionID != 0 || len(a.Topics) != 0 {
			t.Errorf("error %d, session %d, %d topics, want an empty answer", a.ErrorCode, a.SessionID, len(a.Topics))
		}
		if a := next(c, s, 2); a.ErrorCode != int16(kafka.ErrFetchSessionIDNotFound) {
			t.Errorf("error %d, want 70", a.ErrorCode)
		}
	})
	t.Run("closing and replacing", func(t *testing.T) {
		s := begin(from(1, 0))
		a := next(c, s, 0, from(1, 0))
		if a.SessionID == s || a.SessionID == 0 {
			t.Errorf("epoch 0 gives session %d, want a new one", a.SessionID)
		}
		if old := next(c, s, 1); old.ErrorCode != int16(kafka.ErrFetchSessionIDNotFound) {
			t.Errorf("the old session: error %d, want 70", old.ErrorCode)
		}
		if last := next(c, a.SessionID, -1, from(1, 0)); last.SessionID != 0 || len(last.Topics) != 1 {
			t.Errorf("epoch -1 gives session %d and %d topics, want none and 1", last.SessionID, len(last.Topics))
		}
		if old := next(c, a.SessionID, 1); old.ErrorCode != int16(kafka.ErrFetchSessionIDNotFound) {
			t.Errorf("the closed session: error %d, want 70", old.ErrorCode)
		}
	})
	t.Run("without partitions", func(t *testing.T) {
		begin()
	})
	t.Run("a deleted topic is told", func(t *testing.T) {
		createTopic(c, "gone", 1)
		q := fetching("gone", from(0, 0))
		q.SessionEpoch = 0
		s := do[*kmsg.FetchResponse](c, q).SessionID
		d := kmsg.NewPtrDeleteTopicsRequest()
		d.Version, d.TopicNames = 5, []string{"gone"}
		do[*kmsg.DeleteTopicsResponse](c, d)
		if got := summary(next(c, s, 1)); got != "gone-0 error 3 hw -1 lso -1 start -1 aborted 0 bytes 0" {
			t.Errorf("answer %s, want error 3", got)
		}
	})
}

func TestTheSessionCacheHasABound(t *testing.T) {
	n := start(t, t.TempDir(), "max.incremental.fetch.session.cache.slots=2")
	c := dial(t, n)
	createTopic(c, "t", 1)
	q := fetching("t", from(0, 0))
	q.SessionEpoch = 0
	var ids []int32
	for range 4 {
		ids = append(ids, do[*kmsg.FetchResponse](c, q).SessionID)
	}
	if ids[0] == 0 || ids[1] == 0 || ids[2] != 0 || ids[3] != 0 {
		t.Errorf("sessions %v, want two and then none", ids)
	}
}

// waiting sends a fetch that may wait a minute, and returns its answer later.
func waiting(t testing.TB, c *conn, q *kmsg.FetchRequest) chan *kmsg.FetchResponse {
	q.MaxWaitMillis = 60_000
	c.send(q)
	answer := make(chan *kmsg.FetchResponse, 1)
	go func() { answer <- c.receive(q).(*kmsg.FetchResponse) }()
	return answer
}

func TestALongPollIsWokenByAnAppend(t *testing.T) {
	n := newNode(t)
	p := dial(t, n)
	createTopic(p, "t", 2)
	size := len(oneRecord(t))
	for _, session := range []bool{false, true} {
		t.Run(fmt.Sprintf("session %v", session), func(t *testing.T) {
			c := dial(t, n)
			end := produceOne(p, "t", 1) + 1
			q := fetching("t", from(0, 0), from(1, end))
			if session {
				q.SessionEpoch = 0
				q.SessionID = do[*kmsg.FetchResponse](c, q).SessionID
				q.SessionEpoch, q.Topics = 1, nil
			}
			answer := waiting(t, c, q)
			produceOne(p, "t", 1)
			got := summary(<-answer)
			if !strings.Contains(got, fmt.Sprintf("t-1 error 0 hw %d lso %d start 0 aborted null bytes %d", end+1, end+1, size)) {
				t.Errorf("answer %s, want the record", got)
			}
			if strings.Contains(got, "t-0") == session {
				t.Errorf("answer %s: an idle partition is listed outside of sessions only", got)
			}
		})
	}
}

func TestALongPollWaitsForItsMinimum(t *testing.T) {
	n := newNode(t)
	p, c := dial(t, n), dial(t, n)
	createTopic(p, "t", 2)
	size := len(oneRecord(t))
	q := fetching("t", from(0, 0), from(1, 0))
	q.MinBytes = int32(3 * size)
	answer := waiting(t, c, q)
	for i := range int32(3) {
		select {
		case a := <-answer:
			t.Fatalf("answered after %d records: %s", i, summary(a))
		default:
		}
		produceOne(p, "t", i%2)
	}
	total := 0
	for _, x := range (<-answer).Topics[0].Partitions {
		total += len(x.RecordBatches)
	}
	if total != 3*size {
		t.Errorf("%d bytes, want %d", total, 3*size)
	}
}

func TestALongPollEnds(t *testing.T) {
	n := newNode(t)
	p := dial(t, n)
	createTopic(p, "t", 1)
	t.Run("when its time is up", func(t *testing.T) {
		c := dial(t, n)
		q := fetching("t", from(0, 0))
		q.MaxWaitMillis = 30
		if got := summary(do[*kmsg.FetchResponse](c, q)); got != "t-0 error 0 hw 0 lso 0 start 0 aborted null bytes 0" {
			t.Errorf("answer %s, want nothing new", got)
		}
	})
	t.Run("at once for an error of a partition that is known", func(t *testing.T) {
		c := dial(t, n)
		if got := summary(<-waiting(t, c, fetching("t", from(0, 5)))); !strings.Contains(got, "error 1") {
			t.Errorf("answer %s, want error 1", got)
		}
	})
	t.Run("at once when nothing is known", func(t *testing.T) {
		c := dial(t, n)
		if got := summary(<-waiting(t, c, fetching("absent", from(0, 5)))); !strings.Contains(got, "error 3") {
			t.Errorf("answer %s, want error 3", got)
		}
	})
	t.Run("when its topic is deleted", func(t *testing.T) {
		createTopic(p, "gone", 1)
		answer := waiting(t, dial(t, n), fetching("gone", from(0, 0)))
		d := kmsg.NewPtrDeleteTopicsRequest()
		d.Version, d.TopicNames = 5, []string{"gone"}
		do[*kmsg.DeleteTopicsResponse](p, d)
		if got := summary(<-answer); !strings.Contains(got, "error 3") {
			t.Errorf("answer %s, want error 3", got)
		}
	})
	t.Run("when another connection wants its session", func(t *testing.T) {
		c := dial(t, n)
		q := fetching("t", from(0, 0))
		q.SessionEpoch = 0
		s := do[*kmsg.FetchResponse](c, q).SessionID
		q.SessionID, q.SessionEpoch, q.Topics = s, 1, nil
		answer := waiting(t, c, q)
		other := fetching("t", from(0, 0))
		other.SessionID, other.SessionEpoch = s, -1
		do[*kmsg.FetchResponse](dial(t, n), other)
		if a := <-answer; a.ErrorCode != 0 && a.ErrorCode != int16(kafka.ErrFetchSessionIDNotFound) {
			t.Errorf("error %d, want none or 70", a.ErrorCode)
		}
	})
}

func TestALongPollEndsWhenTheBrokerStops(t *testing.T) {
	n := newNode(t)
	c := dial(t, n)
	createTopic(c, "t", 1)
	q := fetching("t", from(0, 0))
	q.MaxWaitMillis = 60_000
	c.send(q)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is still open")
	}
}

func TestClientsProduceAndConsume(t *testing.T) {
	n := newNode(t)
	createTopic(dial(t, n), "t", 3)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	const records = 5000
	var consumers sync.WaitGroup
	for range 2 {
		c, err := kgo.NewClient(kgo.SeedBrokers(n.Addr("").String()), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		if err != nil {
			t.Fatal(err)
		}
		consumers.Go(func() {
			defer c.Close()
			next := map[int32]int64{}
			for got := 0; got < records; {
				fetches := c.PollFetches(ctx)
				if err := fetches.Err(); err != nil {
					t.Errorf("after %d records: %v", got, err)
					return
				}
				fetches.EachRecord(func(r *kgo.Record) {
					if r.Offset != next[r.Partition] {
						t.Errorf("partition %d offset %d, want %d", r.Partition, r.Offset, next[r.Partition])
					}
					next[r.Partition]++
					got++
				})
			}
		})
	}
	for _, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		c, err := kgo.NewClient(kgo.SeedBrokers(n.Addr("").String()), kgo.ProducerBatchCompression(codec))
		if err != nil {
			t.Fatal(err)
		}
		for i := range records / 5 {
			c.Produce(ctx, &kgo.Record{Topic: "t", Value: fmt.Appendf(nil, "record %d of a batch that compresses", i)}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Error(err)
				}
			})
		}
		if err := c.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	consumers.Wait()
}
