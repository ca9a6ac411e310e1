package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/node"
	"github.com/varvelog/varve/internal/verify"
	"github.com/varvelog/varve/internal/vfs"
)

// roundsOf is a log handler that passes on the topics of compaction's rounds.
type roundsOf chan string

func (roundsOf) Enabled(context.Context, slog.Level) bool { return true }
func (h roundsOf) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h roundsOf) WithGroup(string) slog.Handler          { return h }

func (h roundsOf) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "log compacted" {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key != "topic" {
				return true
			}
			select {
			case h <- a.Value.String():
			default: // nobody waits for that many
			}
			return false
		})
	}
	return nil
}

// await waits for a round over a topic.
func (h roundsOf) await(ctx context.Context, t *testing.T, topic string) {
	t.Helper()
	for {
		select {
		case got := <-h:
			if got == topic {
				return
			}
		case <-ctx.Done():
			t.Fatalf("no round over %s", topic)
		}
	}
}

func startCompacting(t *testing.T, dir string, rounds roundsOf) *node.Node {
	t.Helper()
	var flags []config.Setting
	for _, s := range []string{
		"listeners=PLAINTEXT://127.0.0.1:0", "group.initial.rebalance.delay.ms=0", "log.cleaner.backoff.ms=0", "log.cleaner.threads=2",
		"log.cleaner.min.cleanable.ratio=0.2", "offsets.topic.num.partitions=1",
	} {
		key, value, _ := strings.Cut(s, "=")
		flags = append(flags, config.Setting{Key: key, Value: value})
	}
	cfg, _, err := config.Load(config.Sources{Flags: flags, DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(context.Background(), cfg, node.Options{Logger: slog.New(rounds)})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCompactionLeavesTheNewestOfEachKeyAndGroupOffsets(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	rounds := make(roundsOf, 1000)
	n := startCompacting(t, dir, rounds)
	c := client(t, n)
	adm := kadm.NewClient(c)
	policy, segment := "compact", "3000"
	if _, err := adm.CreateTopic(ctx, 1, 1, map[string]*string{"cleanup.policy": &policy, "internal.segment.bytes": &segment}, "table"); err != nil {
		t.Fatal(err)
	}
	commit := func(group string, at int64) {
		t.Helper()
		offsets := kadm.Offsets{}
		offsets.Add(kadm.Offset{Topic: "table", Partition: 0, At: at, LeaderEpoch: -1})
		if err := adm.CommitAllOffsets(ctx, group, offsets); err != nil {
			t.Fatal(err)
		}
	}
	commit("group-0", 0) // makes __consumer_offsets
	small := []kadm.AlterConfig{{Name: "internal.segment.bytes", Value: &segment}}
	if _, err := adm.AlterTopicConfigs(ctx, small, "__consumer_offsets"); err != nil {
		t.Fatal(err)
	}
	newest := map[string]string{}
	for i := range 300 {
		key, value := fmt.Sprint("k", i%7), fmt.Sprintf("%d.%s", i, strings.Repeat("x", 40))
		newest[key] = value
		if err := c.ProduceSync(ctx, &kgo.Record{Topic: "table", Key: []byte(key), Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		commit(fmt.Sprint("group-", i%3), int64(i+1))
	}
	rounds.await(ctx, t, "table")
	rounds.await(ctx, t, "__consumer_offsets")
	for range 2 {
		checkTable(ctx, t, n, newest)
		checkGroups(ctx, t, n)
		c.Close()
		stop(t, n)
		found, err := verify.Check(ctx, verify.Options{FS: vfs.OS(), Paths: []string{dir}, Deep: true, Node: true})
		if err != nil || found.Count(verify.Error)+found.Count(verify.Warning) > 0 {
			t.Errorf("verify of the directory: %v, %v", found.Findings, err)
		}
		n = startCompacting(t, dir, rounds)
		c = client(t, n)
	}
	c.Close()
	stop(t, n)
}

// checkTable reads the topic from its start.
func checkTable(ctx context.Context, t *testing.T, n *node.Node, newest map[string]string) {
	t.Helper()
	c := client(t, n, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"table": {0: kgo.NewOffset().AtStart()}}))
	defer c.Close()
	got := map[string]string{}
	read, last := 0, int64(-1)
	for last < 299 {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) {
			if r.Offset <= last {
				t.Errorf("offset %d after %d", r.Offset, last)
			}
			if !strings.HasPrefix(string(r.Value), fmt.Sprintf("%d.", r.Offset)) {
				t.Errorf("offset %d has %.10q", r.Offset, r.Value)
			}
			got[string(r.Key)], last = string(r.Value), r.Offset
			read++
		})
	}
	for key, want := range newest {
		if got[key] != want {
			t.Errorf("%s is %.10q, want %.10q", key, got[key], want)
		}
	}
	if read >= 300 {
		t.Errorf("%d records are left of 300", read)
	}
}

func checkGroups(ctx context.Context, t *testing.T, n *node.Node) {
	t.Helper()
	c := client(t, n)
	defer c.Close()
	var at []int64
	for i := range 3 {
		got, err := kadm.NewClient(c).FetchOffsets(ctx, fmt.Sprint("group-", i))
		if err != nil {
			t.Fatal(err)
		}
		o, _ := got.Lookup("table", 0)
		at = append(at, o.At)
	}
	if want := []int64{298, 299, 300}; !slices.Equal(at, want) {
		t.Errorf("committed offsets %v, want %v", at, want)
	}
}
