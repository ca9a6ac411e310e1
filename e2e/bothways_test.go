package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/e2e/harness"
)

// fill writes topics of every kind and returns their names: each codec, small
// segments, no timestamps of its own, keys of a compacted topic, deleted
// records, an idempotent producer, and a committed group.
func fill(t *testing.T, addr, prefix string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var topics []string
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	settings := map[string]map[string]string{
		"none":   {"segment.bytes": "1048576", "index.interval.bytes": "1000"},
		"gzip":   {"message.timestamp.type": "LogAppendTime"},
		"snappy": {"cleanup.policy": "compact"},
		"lz4":    {"compression.type": "zstd"},
		"zstd":   {"index.interval.bytes": "0"},
	}
	for name, codec := range codecs {
		topic := prefix + "." + name
		topics = append(topics, topic)
		c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(20000))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		adm := kadm.NewClient(c)
		configs := map[string]*string{}
		for k, v := range settings[name] {
			configs[k] = &v
		}
		if _, err := adm.CreateTopic(ctx, 2, 1, configs, topic); err != nil {
			t.Fatalf("create %s: %v", topic, err)
		}
		more(t, addr, topic, codec, 0, 1500)
		if name == "none" {
			offsets := kadm.Offsets{}
			offsets.Add(kadm.Offset{Topic: topic, Partition: 1, At: 10})
			if res, err := adm.DeleteRecords(ctx, offsets); err != nil || res.Error() != nil {
				t.Fatalf("delete records: %v %v", err, res.Error())
			}
			commit := kadm.Offsets{}
			commit.Add(kadm.Offset{Topic: topic, Partition: 0, At: 123, LeaderEpoch: -1, Metadata: "by fill"})
			if err := adm.CommitAllOffsets(ctx, prefix+".group", commit); err != nil {
				t.Fatalf("commit: %v", err)
			}
		}
	}
	return topics
}

// more appends count records to each of the topic's two partitions.
func more(t *testing.T, addr, topic string, codec kgo.CompressionCodec, from, count int) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ProducerBatchCompression(codec), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(20000))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	// An hour ago: older than that, and retention may take them while the test runs.
	base := time.Now().Add(-time.Hour).UnixMilli()
	var recs []*kgo.Record
	for i := from; i < from+count; i++ {
		for p := range int32(2) {
			recs = append(recs, &kgo.Record{Topic: topic, Partition: p, Key: fmt.Appendf(nil, "key-%d", i%101), Value: bytes.Repeat(fmt.Appendf(nil, "%d ", i), 1+i%200),
				Timestamp: time.UnixMilli(base + int64(i)*7), Headers: []kgo.RecordHeader{{Key: "n", Value: fmt.Append(nil, i)}}})
		}
	}
	if err := c.ProduceSync(ctx, recs...).FirstErr(); err != nil {
		t.Fatalf("produce to %s: %v", topic, err)
	}
}

// readAll renders every record of the topics, one line a record.
func readAll(t *testing.T, addr string, topics []string) map[string][]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ends, err := kadm.NewClient(c).ListEndOffsets(ctx, topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatalf("end offsets: %v", err)
	}
	next := map[string]int64{}
	out := map[string][]string{}
	behind := func() bool {
		late := false
		ends.Each(func(o kadm.ListedOffset) { late = late || next[fmt.Sprintf("%s-%d", o.Topic, o.Partition)] < o.Offset })
		return late
	}
	for behind() {
		fetches := c.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("reading stopped at %v", next)
		}
		for _, e := range fetches.Errors() {
			t.Fatalf("read %s-%d: %v", e.Topic, e.Partition, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			tp := fmt.Sprintf("%s-%d", r.Topic, r.Partition)
			next[tp] = r.Offset + 1
			out[tp] = append(out[tp], fmt.Sprintf("%d %d %d %s %s %v", r.Offset, r.Timestamp.UnixMilli(), r.Attrs.TimestampType(), r.Key, r.Value, r.Headers))
		})
	}
	return out
}

// sameRecords compares all partitions but those in except.
func sameRecords(t *testing.T, what string, got, want map[string][]string, except ...string) {
	t.Helper()
	got, want = maps.Clone(got), maps.Clone(want)
	for _, tp := range except {
		delete(got, tp)
		delete(want, tp)
	}
	if len(got) != len(want) || len(want) == 0 {
		t.Errorf("%s: %d partitions, want %d", what, len(got), len(want))
	}
	for tp, lines := range want {
		if len(got[tp]) != len(lines) {
			t.Errorf("%s: %s has %d records, want %d", what, tp, len(got[tp]), len(lines))
			continue
		}
		for i := range lines {
			if got[tp][i] != lines[i] {
				t.Errorf("%s: %s record %d is\n%.200s\nwant\n%.200s", what, tp, i, got[tp][i], lines[i])
				break
			}
		}
	}
}

func groupOffset(t *testing.T, addr, group, topic string) int64 {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	offsets, err := kadm.NewClient(c).FetchOffsets(ctx, group)
	if err != nil {
		t.Fatalf("offsets of %s: %v", group, err)
	}
	o, _ := offsets.Lookup(topic, 0)
	return o.At
}

// useDir points a formatted node's server.properties at another data directory.
func useDir(t *testing.T, k *harness.Kafka, dir string) {
	t.Helper()
	file := filepath.Join(k.Dir, "server.properties")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b = regexp.MustCompile(`(?m)^log\.dirs=.*$`).ReplaceAll(b, []byte("log.dirs="+dir))
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// dumpAll has Apache Kafka's dump-log read every file of the directory.
func dumpAll(t *testing.T, dir string) {
	t.Helper()
	for _, kind := range []struct {
		ext   string
		flags []string
	}{
		{"log", []string{"--deep-iteration"}}, {"index", nil}, {"index", []string{"--index-sanity-check"}},
		{"timeindex", nil}, {"timeindex", []string{"--index-sanity-check"}}, {"snapshot", nil},
	} {
		files, err := filepath.Glob(filepath.Join(dir, "*-[0-9]*", "*."+kind.ext))
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for _, f := range files {
			if kind.ext == "timeindex" && strings.Contains(f, "__cluster_metadata") || kind.ext == "index" && strings.Contains(f, "__cluster_metadata") {
				continue // preallocated for ever, as Kafka's own: dump-log reads their zeros as entries
			}
			info, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() == 0 && kind.ext != "log" {
				continue // dump-log cannot map an empty file
			}
			list = append(list, f)
		}
		if len(list) == 0 {
			t.Errorf("no .%s files below %s", kind.ext, dir)
			continue
		}
		out, errs, code := harness.Tool(t, "", append([]string{"dump-log", "--files", strings.Join(list, ",")}, kind.flags...)...)
		complaint := regexp.MustCompile(`(?i)isvalid: false|exception|mismatch|not found in the log|out of order|invalid bytes|corrupt`).FindString(out + errs)
		if code != 0 || complaint != "" {
			t.Errorf("Apache Kafka's dump-log %v on .%s files: exit %d, %q\n%.3000s", kind.flags, kind.ext, code, complaint, errs)
		}
	}
}

// TestHandOver has varve format and fill a directory, Apache Kafka serve and
// extend it, and varve take it back, after clean stops and after kills.
func TestHandOver(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"clean stop", "kill"} {
		t.Run(how, func(t *testing.T) {
			b := harness.Start(t)
			topics := fill(t, b.Addr, "varve")
			want := readAll(t, b.Addr, topics)
			if how == "kill" {
				b.Kill()
			} else {
				b.Stop(t)
				dumpAll(t, b.Dir)
			}
			k := harness.FormatKafka(t, "4.4.0")
			useDir(t, k, b.Dir)
			k.Up(t)
			sameRecords(t, "served by Apache Kafka", readAll(t, k.Addr, topics), want)
			if at := groupOffset(t, k.Addr, "varve.group", "varve.none"); at != 123 {
				t.Errorf("Apache Kafka answers group offset %d, want 123", at)
			}
			more(t, k.Addr, "varve.none", kgo.Lz4Compression(), 5000, 300)
			topics = append(topics, fill(t, k.Addr, "kafka")...)
			want = readAll(t, k.Addr, topics)
			if how == "kill" {
				k.Kill(t)
			} else {
				k.Down(t)
			}
			b.Restart(t)
			var except []string
			if how == "kill" {
				// Kafka had not yet checkpointed the log start of its own DeleteRecords:
				// those records are back, there as well as here.
				except = append(except, "kafka.none-1")
			}
			sameRecords(t, "taken back", readAll(t, b.Addr, topics), want, except...)
			if at := groupOffset(t, b.Addr, "kafka.group", "kafka.none"); at != 123 {
				t.Errorf("varve answers group offset %d, want 123", at)
			}
			more(t, b.Addr, "kafka.zstd", kgo.NoCompression(), 9000, 100)
			want = readAll(t, b.Addr, topics)
			b.Stop(t)
			if out, errs, code := harness.Varve(t, "verify", b.Dir); code != 0 {
				t.Errorf("varve verify: exit %d\n%s%s", code, out, errs)
			}
			k.Up(t)
			sameRecords(t, "served by Apache Kafka again", readAll(t, k.Addr, topics), want)
			complain(t, k)
			k.Down(t)
		})
	}
}

// complain fails on WARN and ERROR lines of Apache Kafka's log that speak of
// what lies in the directory.
func complain(t *testing.T, k *harness.Kafka) {
	t.Helper()
	about := regexp.MustCompile(`(?i)LogManager|UnifiedLog|LogLoader|LocalLog|ProducerState|LeaderEpoch|checkpoint|stray|corrupt|truncat|index|segment|snapshot|quorum-state|meta\.properties|deserialize`)
	for _, line := range strings.Split(k.Log(), "\n") {
		if (strings.Contains(line, " WARN ") || strings.Contains(line, " ERROR ")) && about.MatchString(line) {
			t.Errorf("Apache Kafka complains: %s", line)
		}
	}
}

// TestTopicDirectory moves the files of one partition, not a whole node: from
// varve into a Kafka node, and from Kafka into varve.
func TestTopicDirectory(t *testing.T) {
	t.Parallel()
	b := harness.Start(t)
	fromVarve := fill(t, b.Addr, "moved")
	wantVarve := readAll(t, b.Addr, fromVarve)
	k := harness.FormatKafka(t, "4.4.0")
	k.Up(t)
	fromKafka := fill(t, k.Addr, "kmoved")
	wantKafka := readAll(t, k.Addr, fromKafka)
	// Each side gets empty topics of the other's names, with the same settings.
	emptyTopics(t, b.Addr, fromKafka)
	emptyTopics(t, k.Addr, fromVarve)
	b.Stop(t)
	k.Down(t)
	kdata := filepath.Join(k.Dir, "data")
	for _, topic := range fromVarve {
		for p := range 2 {
			transplant(t, filepath.Join(b.Dir, fmt.Sprintf("%s-%d", topic, p)), filepath.Join(kdata, fmt.Sprintf("%s-%d", topic, p)))
		}
	}
	for _, topic := range fromKafka {
		for p := range 2 {
			transplant(t, filepath.Join(kdata, fmt.Sprintf("%s-%d", topic, p)), filepath.Join(b.Dir, fmt.Sprintf("%s-%d", topic, p)))
		}
	}
	// log-start-offset-checkpoint is a file of the node and not of the partition:
	// deleted records of the first segment come back when a directory moves alone.
	for _, dir := range []string{b.Dir, kdata} { // recovery finds the ends of the logs
		if err := os.Remove(filepath.Join(dir, ".kafka_cleanshutdown")); err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"recovery-point-offset-checkpoint", "replication-offset-checkpoint"} {
			if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.Restart(t)
	sameRecords(t, "Kafka's partitions served by varve", readAll(t, b.Addr, fromKafka), wantKafka, "kmoved.none-1")
	b.Stop(t)
	k.Up(t)
	sameRecords(t, "varve's partitions served by Kafka", readAll(t, k.Addr, fromVarve), wantVarve, "moved.none-1")
}

func emptyTopics(t *testing.T, addr string, topics []string) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	res, err := kadm.NewClient(c).CreateTopics(context.Background(), 2, 1, nil, topics...)
	if err == nil {
		err = res.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// transplant replaces the files of partition directory to by those of from,
// all but partition.metadata, which names the topic id of the node.
func transplant(t *testing.T, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "partition.metadata" {
			if err := os.Remove(filepath.Join(to, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if entries, err = os.ReadDir(from); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "partition.metadata" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, e.Name()), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
