package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/e2e/harness"
)

// groups of records lie an hour apart, by more than segment.ms: each begins a
// segment.
const groups = 5

// fillSegments writes topics of one partition for each damage, with five
// segments each, and returns their names and a few timestamps to look up.
// restart, when there is one, begins a leader epoch: within the log, and with
// its last batch.
func fillSegments(t *testing.T, addr string, transactions bool, restart func(topic string)) (topics []string, times []int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	now := time.Now()
	group := func(topic string, g, i int) int64 {
		if topic == "txn" {
			// Markers carry the time of day: records of yesterday beside them would
			// roll at each. These segments are full when their index is.
			return now.Add(time.Duration(g*30+i-300) * time.Second).UnixMilli()
		}
		return now.Add(time.Duration(g-20)*time.Hour + time.Duration(i)*time.Second).UnixMilli()
	}
	for g := range groups {
		times = append(times, group("", g, 0)-5, group("", g, 7), group("", g, 29), group("txn", g, 15))
	}
	kinds := []struct {
		topic   string
		configs map[string]string
		opts    []kgo.Opt
	}{
		{"plain", nil, []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1), kgo.ProducerBatchCompression(kgo.NoCompression())}},
		{"mixed", nil, []kgo.Opt{kgo.ProducerBatchCompression(kgo.Lz4Compression())}},
		{"compact", map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}, []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())}},
		{"txn", map[string]string{"index.interval.bytes": "0", "segment.index.bytes": "48"}, []kgo.Opt{kgo.TransactionalID("like"), kgo.TransactionTimeout(14 * time.Minute), kgo.ProducerBatchCompression(kgo.NoCompression())}},
	}
	for _, kind := range kinds {
		if kind.topic == "txn" && !transactions {
			continue
		}
		topics = append(topics, kind.topic)
		c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(50 * time.Millisecond)}, kind.opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		configs := map[string]*string{}
		for k, v := range map[string]string{"segment.ms": "1800000", "retention.ms": "-1", "index.interval.bytes": "300", "segment.index.bytes": "4096"} {
			configs[k] = &v
		}
		for k, v := range kind.configs {
			configs[k] = &v
		}
		if _, err := kadm.NewClient(c).CreateTopic(ctx, int32(len(damages)), 1, configs, kind.topic); err != nil {
			t.Fatalf("create %s: %v", kind.topic, err)
		}
		for g := range groups {
			for round := range 3 {
				if restart != nil && (g == 2 && round == 1 || g == groups-1 && round == 2) {
					restart(kind.topic)
				}
				var recs []*kgo.Record
				for p := range damages {
					for i := range 10 {
						n := 10*round + i
						r := &kgo.Record{Topic: kind.topic, Partition: int32(p), Key: fmt.Appendf(nil, "key-%d", (g*7+n)%23), Value: fmt.Appendf(nil, "%d %d %s", g, n, strings.Repeat("v", 10+n*3)), Timestamp: time.UnixMilli(group(kind.topic, g, n)),
							Headers: []kgo.RecordHeader{{Key: "p", Value: fmt.Append(nil, p)}}}
						if kind.topic == "compact" && n%9 == 4 {
							r.Value = nil
						}
						recs = append(recs, r)
					}
				}
				if kind.topic == "txn" {
					if err := c.BeginTransaction(); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.ProduceSync(ctx, recs...).FirstErr(); err != nil {
					t.Fatalf("produce to %s: %v", kind.topic, err)
				}
				if kind.topic == "txn" && !(g == groups-1 && round == 2) { // the last one stays open
					if err := c.EndTransaction(ctx, kgo.TransactionEndTry(round != 1)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	return topics, times
}

// stopCleaning waits until the cleaner has done what it can, and has it do no
// more: the two brokers shall recover the same, not clean at different times.
func stopCleaning(t *testing.T, addr, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		done := true
		if lines, err := os.ReadFile(filepath.Join(dir, "cleaner-offset-checkpoint")); err != nil {
			done = false
		} else {
			for n := range damages {
				bases := segments(t, filepath.Join(dir, fmt.Sprintf("compact-%d", n)))
				done = done && strings.Contains(string(lines), fmt.Sprintf("\ncompact %d %d\n", n, bases[len(bases)-1]))
			}
		}
		if done {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("compaction did not come to its end")
		}
		time.Sleep(100 * time.Millisecond)
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	one := "1.0"
	if _, err := kadm.NewClient(c).AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "min.cleanable.dirty.ratio", Value: &one}}, "compact"); err != nil {
		t.Fatal(err)
	}
}

// awaitRecoveryPoints waits until each partition is known to be on the disk up
// to its active segment.
func awaitRecoveryPoints(t *testing.T, dir string, topics []string) {
	t.Helper()
	var late []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		late = nil
		points := readCheckpoint(t, filepath.Join(dir, "recovery-point-offset-checkpoint"))
		for _, topic := range topics {
			for n := range damages {
				tp := fmt.Sprintf("%s-%d", topic, n)
				if bases := segments(t, filepath.Join(dir, tp)); points[tp] != fmt.Sprint(bases[len(bases)-1]) {
					late = append(late, tp)
				}
			}
		}
		if late == nil {
			return
		}
	}
	t.Fatalf("no recovery point at the active segment of %v", late)
}

// quietly are settings under which nothing happens by itself but checkpoints.
var quietly = []string{"log.initial.task.delay.ms=100", "log.flush.offset.checkpoint.interval.ms=500", "log.retention.check.interval.ms=3600000", "log.cleaner.backoff.ms=300", "log.index.size.max.bytes=65536", "offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1"}

// still has retention wait, which takes what lies below the log start.
const still = "log.initial.task.delay.ms=3600000"

// set appends a setting to a node's server.properties; the last one of a key counts.
func set(t *testing.T, k *harness.Kafka, setting string) {
	t.Helper()
	file := filepath.Join(k.Dir, "server.properties")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, string(b)+setting+"\n")
}

// TestRecoveredLikeKafka kills a broker, damages the partitions it left, each
// in another way, has Apache Kafka start on one copy and varve on another, and
// compares what they serve and what they leave on the disk.
func TestRecoveredLikeKafka(t *testing.T) {
	t.Parallel()
	k := harness.FormatKafka(t, "4.4.0", quietly...)
	t.Run("a directory of Apache Kafka", func(t *testing.T) {
		step := stopwatch(t)
		k.Up(t)
		step("Apache Kafka is up")
		topics, times := fillSegments(t, k.Addr, true, nil)
		step("filled")
		stopCleaning(t, k.Addr, filepath.Join(k.Dir, "data"))
		awaitRecoveryPoints(t, filepath.Join(k.Dir, "data"), topics)
		k.Kill(t)
		step("compacted and killed")
		recoverBoth(t, k, filepath.Join(k.Dir, "data"), topics, times)
	})
	t.Run("a directory of varve", func(t *testing.T) {
		b := harness.Start(t, append(quietly[:len(quietly):len(quietly)], "log.flush.offset.checkpoint.interval.ms=100")...)
		topics, times := fillSegments(t, b.Addr, false, func(topic string) {
			awaitRecoveryPoints(t, b.Dir, []string{topic})
			b.Kill()
			b.Restart(t)
		})
		stopCleaning(t, b.Addr, b.Dir)
		awaitRecoveryPoints(t, b.Dir, topics)
		b.Kill()
		recoverBoth(t, k, b.Dir, topics, times)
	})
}

func recoverBoth(t *testing.T, k *harness.Kafka, killed string, topics []string, times []int64) {
	t.Helper()
	step := stopwatch(t)
	root := t.TempDir()
	keep := os.Getenv("E2E_KEEP")
	if keep != "" {
		root = filepath.Join(keep, strings.ReplaceAll(filepath.Base(t.Name()), " ", "-"))
	}
	theirs, ours := filepath.Join(root, "kafka"), filepath.Join(root, "varve")
	copyTree(t, killed, theirs)
	damageAll(t, theirs, topics)
	if keep != "" {
		copyTree(t, theirs, filepath.Join(root, "damaged"))
	}
	copyTree(t, theirs, ours)
	step("copied and damaged")

	useDir(t, k, theirs)
	set(t, k, still)
	k.Up(t)
	want := map[string]served{}
	r := newRawReader(t, k.Addr)
	for _, topic := range topics {
		maps.Copy(want, r.read(topic, int32(len(damages)), times))
	}
	r.c.Close()
	k.Down(t)
	step("Apache Kafka has recovered and served it")

	b := harness.StartOn(t, ours, harness.FreePort(t), append(quietly[:len(quietly):len(quietly)], still, "varve.scrub.rate=0")...)
	got := map[string]served{}
	r = newRawReader(t, b.Addr)
	for _, topic := range topics {
		maps.Copy(got, r.read(topic, int32(len(damages)), times))
	}
	r.c.Close()
	b.Stop(t)
	step("varve has recovered and served it")
	for _, topic := range topics {
		for n, c := range damages {
			tp := fmt.Sprintf("%s-%d", topic, n)
			diff := append(compareServed(got[tp], want[tp]), compareFiles(t, filepath.Join(ours, tp), filepath.Join(theirs, tp), nil)...)
			if diff = unexplained(diff, topic, c.name); len(diff) > 0 {
				t.Errorf("%s, %s:\n\t%s", tp, c.name, strings.Join(diff, "\n\t"))
			}
		}
	}
}

// meant are the differences that are meant. Most are of what Apache Kafka loses,
// hides or breaks and varve does not.
var meant = []struct{ topic, damage, difference, reason string }{
	{"", "", `^\d{20}\.log\.cut \(\d+ bytes\), Apache Kafka has none$`, "whole batches behind a cut are set aside and not deleted"},
	{"", "a sealed time index is missing", `^offsets by time: |^\d{20}\.timeindex differs: \d+ bytes, Apache Kafka's has 0$`, "it is rebuilt; Apache Kafka goes on with an empty one, and finds nothing by a time within that segment or behind it"},
	{"", "a sealed offset index has an odd length", `^\d{20}\.index differs`, "it is rebuilt at once; Apache Kafka rebuilds it when it is first used"},
	{"", "a sealed time index has an odd length", `^\d{20}\.timeindex differs`, "it is rebuilt at once; Apache Kafka rebuilds it when it is first used"},
	{"", "two segments become one", `^offsets by time: |^\d{20}\.timeindex differs`, "a time index that ends before its segment is rebuilt; Apache Kafka passes over the second half when it looks for a time"},
	{"", "a log start within a segment", `^offsets by time: `, "a time before the log start finds the first record; Apache Kafka looks into the segment of the log start alone, and answers that there is none"},
	{"", "leader epochs are missing", `^leader-epoch-checkpoint differs`, "they are read from the whole log; Apache Kafka has those of the part that it recovers"},
	{"", "the log of a segment in the middle is missing", `.`, "the partition is not served until somebody accepts the gap, and nothing of it is removed; Apache Kafka passes over what is gone"},
	{"", "a segment in the middle is missing", `.`, "above the recovery point the log ends at a hole, and what lies behind is set aside; Apache Kafka serves it as if nothing were missing before it"},
	{"compact.lz4", "", `\.index differs`, "positions: the library compresses otherwise than that of Apache Kafka"},
	{"compact.nulls", "", `\.index differs`, "as in compact.lz4"},
}

// unexplained is what meant has no reason for.
func unexplained(diff []string, topic, damage string) []string {
	return slices.DeleteFunc(diff, func(d string) bool {
		for _, k := range meant {
			if (k.topic == "" || k.topic == topic) && (k.damage == "" || k.damage == damage) && regexp.MustCompile(k.difference).MatchString(d) {
				return true
			}
		}
		return false
	})
}

// stopwatch logs how long the steps of a slow test took.
func stopwatch(t *testing.T) func(step string) {
	last := time.Now()
	return func(step string) {
		t.Logf("%5.1f s: %s", time.Since(last).Seconds(), step)
		last = time.Now()
	}
}

// compareServed names what differs.
func compareServed(got, want served) []string {
	var out []string
	if got.Start != want.Start || got.End != want.End || got.Stable != want.Stable {
		out = append(out, fmt.Sprintf("log start, end, last stable offset: %d %d %d, Apache Kafka has %d %d %d", got.Start, got.End, got.Stable, want.Start, want.End, want.Stable))
	}
	if got.Err != want.Err {
		out = append(out, fmt.Sprintf("reading ends with %q, Apache Kafka's with %q", got.Err, want.Err))
	}
	if got.Aborted != want.Aborted {
		out = append(out, fmt.Sprintf("aborted transactions: %q, Apache Kafka names %q", got.Aborted, want.Aborted))
	}
	if got.Times != want.Times {
		out = append(out, fmt.Sprintf("offsets by time: %q, Apache Kafka finds %q", got.Times, want.Times))
	}
	for i := range max(len(got.Batches), len(want.Batches)) {
		if i >= len(got.Batches) || i >= len(want.Batches) || got.Batches[i] != want.Batches[i] {
			out = append(out, fmt.Sprintf("%d batches, Apache Kafka serves %d; they differ from the %d-th on", len(got.Batches), len(want.Batches), i+1))
			break
		}
	}
	return out
}

// compareFiles compares two partition directories file by file. same, if there
// is one, has the last word on two files that differ.
func compareFiles(t *testing.T, ours, theirs string, same func(name, ours, theirs string) bool) []string {
	t.Helper()
	list := func(dir string) map[string]string {
		out := map[string]string{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			if e.Name() == "partition.metadata" || strings.HasSuffix(e.Name(), ".deleted") {
				continue
			}
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Error(err)
			}
			out[e.Name()] = string(b)
		}
		return out
	}
	a, b := list(ours), list(theirs)
	names := map[string]bool{}
	for n := range a {
		names[n] = true
	}
	for n := range b {
		names[n] = true
	}
	var out []string
	for _, n := range slices.Sorted(maps.Keys(names)) {
		x, inA := a[n]
		y, inB := b[n]
		switch {
		case !inB:
			out = append(out, fmt.Sprintf("%s (%d bytes), Apache Kafka has none", n, len(x)))
		case !inA:
			out = append(out, fmt.Sprintf("no %s, Apache Kafka has %d bytes", n, len(y)))
		case x != y && (same == nil || !same(n, x, y)):
			out = append(out, fmt.Sprintf("%s differs: %d bytes, Apache Kafka's has %d", n, len(x), len(y)))
		}
	}
	return out
}
