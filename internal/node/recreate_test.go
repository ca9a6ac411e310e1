package node_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/varvelog/varve/internal/node"
)

// A topic is deleted and made again under the same name, over and over, while
// others produce to it and read it: it gets another id each time, and nothing that
// was acknowledged in an earlier life is ever served in a later one, nor after a
// restart.
func TestATopicMadeAnewUnderLoadServesNothingOld(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, delay := range []string{"0", "60000"} {
		t.Run("file.delete.delay.ms="+delay, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			dir := t.TempDir()
			n := start(t, dir, "auto.create.topics.enable=false", "log.segment.delete.delay.ms="+delay)
			load, endLoad := context.WithCancel(ctx)
			var others sync.WaitGroup
			for range 2 {
				noise := client(t, n, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.RecordRetries(1), kgo.ConsumeTopics("again"),
					kgo.UnknownTopicRetries(1), kgo.MetadataMinAge(10*time.Millisecond), kgo.MetadataMaxAge(20*time.Millisecond))
				others.Go(func() {
					for load.Err() == nil { // what fails here is between two lives
						_ = noise.ProduceSync(load, &kgo.Record{Topic: "again", Value: []byte("noise")})
					}
				})
				others.Go(func() {
					defer noise.Close()
					for load.Err() == nil {
						noise.PollFetches(load)
					}
				})
			}
			ids := map[kadm.TopicID]bool{}
			for life := range 6 {
				c := client(t, n)
				adm := kadm.NewClient(c)
				size := "2000"
				made, err := adm.CreateTopic(ctx, 2, 1, map[string]*string{"internal.segment.bytes": &size}, "again")
				if err != nil {
					t.Fatal(err)
				}
				if ids[made.ID] {
					t.Errorf("life %d has the id %v of an earlier one", life, made.ID)
				}
				ids[made.ID] = true
				for i := range 60 {
					value := fmt.Sprintf("life %d record %d %s", life, i, strings.Repeat("x", 100))
					if err := c.ProduceSync(ctx, &kgo.Record{Topic: "again", Value: []byte(value)}).FirstErr(); err != nil {
						t.Fatalf("life %d: %v", life, err)
					}
				}
				wantLife(ctx, t, n, life, 60)
				if life < 5 {
					if _, err := adm.DeleteTopic(ctx, "again"); err != nil {
						t.Fatal(err)
					}
				}
				c.Close()
			}
			endLoad()
			others.Wait()
			stop(t, n)
			n = start(t, dir, "auto.create.topics.enable=false")
			wantLife(ctx, t, n, 5, 60)
			stop(t, n)
		})
	}
}

// wantLife reads the topic from its start until all records of a life were
// there; none may be of another.
func wantLife(ctx context.Context, t *testing.T, n *node.Node, life, want int) {
	t.Helper()
	c := client(t, n, kgo.ConsumeTopics("again"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer c.Close()
	mine, next := fmt.Sprintf("life %d ", life), map[int32]int64{}
	for got := 0; got < want; {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("life %d, %d of %d records read: %v", life, got, want, err)
		}
		f.EachRecord(func(r *kgo.Record) {
			if r.Offset != next[r.Partition] {
				t.Errorf("life %d: offset %d of partition %d, want %d", life, r.Offset, r.Partition, next[r.Partition])
			}
			next[r.Partition]++
			switch value := string(r.Value); {
			case strings.HasPrefix(value, mine):
				got++
			case value != "noise":
				t.Errorf("life %d: offset %d is of another: %.30s", life, r.Offset, value)
			}
		})
	}
}
