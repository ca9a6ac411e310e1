package e2e

import (
	"context"
	"encoding/binary"
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

// agedTopic is a topic whose segments lie an hour apart, from twenty hours ago
// on. Its settings take effect when it has been filled.
type agedTopic struct {
	name    string
	opts    []kgo.Opt
	created map[string]string
	then    map[string]string
	nulls   bool // some records have no key
	late    bool // the first segment is the newest
}

var (
	unsent = []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1), kgo.ProducerBatchCompression(kgo.NoCompression())}
	once   = []kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())}
	lz4    = []kgo.Opt{kgo.ProducerBatchCompression(kgo.Lz4Compression())}
)

const halfPast = "63000000" // 17.5 hours: three of five segments are older

func compacting(more ...string) map[string]string {
	out := map[string]string{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
	for i := 0; i < len(more); i += 2 {
		out[more[i]] = more[i+1]
	}
	return out
}

func agedTopics() []agedTopic {
	txn := []kgo.Opt{kgo.TransactionalID("aged"), kgo.ProducerBatchCompression(kgo.NoCompression())}
	return []agedTopic{
		{name: "size.none", opts: unsent, then: map[string]string{"retention.bytes": "0"}},
		{name: "size.exact", opts: unsent, then: map[string]string{"retention.bytes": "all but the first segment"}},
		{name: "size.oneless", opts: unsent, then: map[string]string{"retention.bytes": "one byte more"}},
		{name: "size.two", opts: lz4, then: map[string]string{"retention.bytes": "2000"}},
		{name: "size.plenty", opts: unsent, then: map[string]string{"retention.bytes": "1000000000"}},
		{name: "time.half", opts: once, then: map[string]string{"retention.ms": halfPast}},
		{name: "time.all", opts: once, then: map[string]string{"retention.ms": "3600000"}},
		{name: "time.week", opts: once, then: map[string]string{"retention.ms": "604800000"}},
		{name: "time.pinned", opts: once, then: map[string]string{"retention.ms": halfPast}, late: true},
		{name: "time.appended", opts: lz4, created: map[string]string{"message.timestamp.type": "LogAppendTime"}, then: map[string]string{"retention.ms": halfPast}},
		{name: "start.moved", opts: once},
		// With both policies it is chance which comes first; so one of them has nothing to do.
		{name: "both.deleted", opts: once, then: compacting("cleanup.policy", "compact,delete", "retention.ms", halfPast, "min.cleanable.dirty.ratio", "1.0")},
		{name: "both.compacted", opts: once, then: compacting("cleanup.policy", "compact,delete", "retention.ms", "604800000")},
		{name: "compact.plain", opts: unsent, then: compacting()},
		{name: "compact.once", opts: once, then: compacting()},
		{name: "compact.lz4", opts: lz4, then: compacting()},
		{name: "compact.groups", opts: once, created: map[string]string{"segment.index.bytes": "80", "index.interval.bytes": "0"}, then: compacting()},
		{name: "compact.lag", opts: once, then: compacting("min.compaction.lag.ms", halfPast)},
		{name: "compact.late", opts: once, then: compacting("min.cleanable.dirty.ratio", "1.0", "max.compaction.lag.ms", "3600000")},
		{name: "compact.clean", opts: once, then: compacting("min.cleanable.dirty.ratio", "1.0")},
		{name: "compact.nulls", opts: lz4, then: compacting(), nulls: true},
		{name: "compact.txn", opts: txn, then: compacting()},
		{name: "compact.twice", opts: once, created: compacting("delete.retention.ms", "0"), then: compacting("delete.retention.ms", "0")},
	}
}

// TestCompactionLikeKafka lets Apache Kafka and varve work on copies of one
// directory under the same settings, of retention and of compaction, until
// neither has anything left to do, and compares what survives.
func TestCompactionLikeKafka(t *testing.T) {
	t.Parallel()
	step := stopwatch(t)
	eager := []string{"log.initial.task.delay.ms=100", "log.retention.check.interval.ms=300", "log.cleaner.backoff.ms=200", "log.segment.delete.delay.ms=100",
		"log.index.size.max.bytes=65536", "offsets.topic.num.partitions=1", "transaction.state.log.num.partitions=1", "log.cleaner.dedupe.buffer.size=4194304"}
	k := harness.FormatKafka(t, "4.4.0", eager...)
	k.Up(t)
	step("Apache Kafka is up")
	data := filepath.Join(k.Dir, "data")
	topics := agedTopics()
	fillAged(t, k.Addr, data, topics)
	k.Kill(t)
	step("filled and killed")
	root := t.TempDir()
	if keep := os.Getenv("E2E_KEEP"); keep != "" {
		root = filepath.Join(keep, t.Name())
	}
	theirs, ours := filepath.Join(root, "kafka"), filepath.Join(root, "varve")
	copyTree(t, data, theirs)
	copyTree(t, data, ours)

	var names []string
	for _, a := range topics {
		names = append(names, a.name)
	}
	type result struct {
		raw     map[string]served
		records map[string][]string
	}
	read := func(addr string) result {
		r := newRawReader(t, addr)
		out := result{raw: map[string]served{}}
		for _, name := range names {
			maps.Copy(out.raw, r.read(name, 1, nil))
		}
		r.c.Close()
		out.records = recordsOf(t, addr, out.raw)
		return out
	}
	b := harness.StartOn(t, ours, harness.FreePort(t), eager...)
	apply(t, b.Addr, data, topics)
	want := settle(t, ours, names, nil)
	step("varve has settled")
	got := read(b.Addr)
	b.Stop(t)
	useDir(t, k, theirs)
	k.Up(t)
	apply(t, k.Addr, data, topics)
	settle(t, theirs, names, want)
	step("Apache Kafka has settled")
	wanted := read(k.Addr)
	k.Down(t)
	step("Apache Kafka is down")
	for _, name := range names {
		tp := name + "-0"
		mine, other := got.raw[tp], wanted.raw[tp]
		blank(mine.Batches)
		blank(other.Batches)
		diff := compareServed(mine, other)
		if a, b := strings.Join(got.records[tp], "\n"), strings.Join(wanted.records[tp], "\n"); a != b {
			diff = append(diff, fmt.Sprintf("records differ: %d, Apache Kafka has %d\n%.400s\n---\n%.400s", len(got.records[tp]), len(wanted.records[tp]), a, b))
		}
		if mine.End == 0 || other.Err != "" {
			t.Errorf("%s is %v, Apache Kafka's %v", tp, mine, other)
		}
		diff = append(diff, compareFiles(t, filepath.Join(ours, tp), filepath.Join(theirs, tp), sameButForTheRound)...)
		if diff = unexplained(diff, name, ""); len(diff) > 0 {
			t.Errorf("%s:\n\t%s", tp, strings.Join(diff, "\n\t"))
		}
		t.Logf("%s: %v", tp, other)
	}
}

// fillAged writes the topics, which keep everything until apply.
func fillAged(t *testing.T, addr, dir string, topics []agedTopic) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	admin, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	adm := kadm.NewClient(admin)
	now := time.Now()
	send := func(a agedTopic, c *kgo.Client, from, to int) {
		for g := from; g < to; g++ {
			for round := range 3 {
				if a.name == "compact.txn" {
					if err := c.BeginTransaction(); err != nil {
						t.Fatal(err)
					}
				}
				var recs []*kgo.Record
				for i := range 10 {
					n := 10*round + i
					at := now.Add(time.Duration(g-20)*time.Hour + time.Duration(n)*time.Second)
					switch {
					case a.late && g == 0:
						at = now
					case a.name == "compact.txn": // markers carry the time of day
						at = now.Add(time.Duration(g*30+n-300) * time.Second)
					}
					r := &kgo.Record{Topic: a.name, Key: fmt.Appendf(nil, "key-%d", (g*7+n)%23), Value: fmt.Appendf(nil, "%d %d %s", g, n, strings.Repeat("v", 10+n*3)), Timestamp: at,
						Headers: []kgo.RecordHeader{{Key: "n", Value: fmt.Append(nil, n)}}}
					if n%9 == 4 {
						r.Value = nil
					}
					if a.nulls && n%4 == 1 {
						r.Key = nil
					}
					recs = append(recs, r)
				}
				if err := c.ProduceSync(ctx, recs...).FirstErr(); err != nil {
					t.Fatalf("produce to %s: %v", a.name, err)
				}
				if a.name == "compact.txn" {
					if err := c.EndTransaction(ctx, kgo.TransactionEndTry(round != 1)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	var twice *kgo.Client
	for _, a := range topics {
		configs := map[string]*string{}
		for _, m := range []map[string]string{{"segment.ms": "1800000", "retention.ms": "-1", "index.interval.bytes": "300", "segment.index.bytes": "4096", "message.timestamp.after.max.ms": "9000000000"}, a.created} {
			for k, v := range m {
				configs[k] = &v
			}
		}
		if a.name == "compact.txn" || a.name == "time.appended" { // these roll by a full index
			small, none := "48", "0"
			configs["segment.index.bytes"], configs["index.interval.bytes"] = &small, &none
		}
		if _, err := adm.CreateTopic(ctx, 1, 1, configs, a.name); err != nil {
			t.Fatalf("create %s: %v", a.name, err)
		}
		c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner())}, a.opts...)...)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		send(a, c, 0, groups)
		if a.name == "compact.twice" {
			twice = c
		}
	}
	// One topic has been cleaned before, and has tombstones whose time has come.
	cleaned := regexp.MustCompile(`\ncompact\.twice 0 [1-9]`)
	for {
		if b, err := os.ReadFile(filepath.Join(dir, "cleaner-offset-checkpoint")); err == nil && cleaned.Match(b) {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("compact.twice was not cleaned")
		}
		time.Sleep(50 * time.Millisecond)
	}
	send(topics[len(topics)-1], twice, groups, groups+3)
}

// apply gives the topics their settings, and moves a log start. The sizes that
// settings name are those of the filled directory.
func apply(t *testing.T, addr, filled string, topics []agedTopic) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	adm := kadm.NewClient(c)
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "start.moved", Partition: 0, At: 73})
	if res, err := adm.DeleteRecords(ctx, offsets); err != nil || res.Error() != nil {
		t.Fatalf("delete records: %v %v", err, res.Error())
	}
	for _, a := range topics {
		var alter []kadm.AlterConfig
		for k, v := range a.then {
			switch v {
			case "all but the first segment", "one byte more":
				total, first := logBytes(t, filepath.Join(filled, a.name+"-0"))
				if v = fmt.Sprint(total - first); a.name == "size.oneless" {
					v = fmt.Sprint(total - first + 1)
				}
			}
			alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: &v})
		}
		if len(alter) == 0 {
			continue
		}
		res, err := adm.AlterTopicConfigs(ctx, alter, a.name)
		if err == nil {
			for _, x := range res {
				if x.Err != nil {
					err = x.Err
				}
			}
		}
		if err != nil {
			t.Fatalf("settings of %s: %v", a.name, err)
		}
	}
}

// logBytes are the bytes of all segments, and of the first.
func logBytes(t *testing.T, dir string) (total, first int64) {
	t.Helper()
	for i, base := range segments(t, dir) {
		info, err := os.Stat(filepath.Join(dir, fmt.Sprintf("%020d.log", base)))
		if err != nil {
			t.Fatal(err)
		}
		if total += info.Size(); i == 0 {
			first = info.Size()
		}
	}
	return total, first
}

// settle waits until the segments of the topics and the cleaner's checkpoint
// have not changed for three seconds, and returns them; with a state to reach,
// it gives the broker half a minute more to reach it.
func settle(t *testing.T, dir string, topics []string, reach map[string]string) map[string]string {
	t.Helper()
	var last map[string]string
	since, deadline := time.Now(), time.Now().Add(30*time.Second)
	for stop := time.Now().Add(time.Minute); time.Now().Before(stop); time.Sleep(100 * time.Millisecond) {
		now := map[string]string{}
		for _, name := range topics {
			now[name] = fmt.Sprint(segments(t, filepath.Join(dir, name+"-0")))
		}
		for tp, at := range readCheckpoint(t, filepath.Join(dir, "cleaner-offset-checkpoint")) {
			now["cleaned to "+tp] = at
		}
		if !maps.Equal(now, last) {
			last, since = now, time.Now()
		}
		if time.Since(since) > 3*time.Second && (reach == nil || maps.Equal(now, reach) || time.Now().After(deadline)) {
			break
		}
	}
	if reach != nil && !maps.Equal(last, reach) {
		for _, name := range slices.Sorted(maps.Keys(reach)) {
			if last[name] != reach[name] {
				t.Errorf("%s: %s, Apache Kafka's %s", name, reach[name], last[name])
			}
		}
	}
	return last
}

// recordsOf reads what a client sees of the partitions, committed records only.
func recordsOf(t *testing.T, addr string, raw map[string]served) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for tp, s := range raw {
		if len(s.Batches) == 0 {
			continue
		}
		topic := strings.TrimSuffix(tp, "-0")
		c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}), kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// The last batch that holds a record: empty ones give a client nothing.
		end := int64(-1)
		for _, b := range s.Batches {
			if binary.BigEndian.Uint32([]byte(b.Bytes[57:])) > 0 {
				end = b.First
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		for next := int64(-1); next < end && ctx.Err() == nil; {
			c.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				next = r.Offset
				out[tp] = append(out[tp], fmt.Sprintf("%d %d %d %s %s %v", r.Offset, r.Timestamp.UnixMilli(), r.Attrs.TimestampType(), r.Key, r.Value, r.Headers))
			})
		}
		cancel()
	}
	return out
}

// blank takes out what depends on the moment of cleaning, the delete horizon in
// a batch's base timestamp, and what depends on the library that compresses.
// Records of such batches are compared as a client reads them.
func blank(batches []batch) {
	for i, b := range batches {
		h := []byte(b.Bytes[:61])
		horizon, compressed := h[22]&0x40 != 0, h[22]&7 != 0
		if !horizon && !compressed {
			continue
		}
		clear(h[8:12])  // length
		clear(h[17:21]) // checksum
		if horizon {
			clear(h[27:35]) // base timestamp
		}
		batches[i].Bytes = string(h)
	}
}

// sameButForTheRound compares logs without what blank takes out.
func sameButForTheRound(name, ours, theirs string) bool {
	if strings.HasSuffix(name, ".log") {
		a, b := split([]byte(ours)), split([]byte(theirs))
		blank(a)
		blank(b)
		return slices.Equal(a, b)
	}
	return false
}
