package commitlog

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// recordedRead is one read that Kafka answered.
type recordedRead struct {
	API           string
	Topic         string
	Partition     int32
	Offset        int64
	MaxBytes      int64 `json:"max_bytes"`
	TotalMaxBytes int64 `json:"total_max_bytes"`
	Isolation     int
	Timestamp     int64
	Epoch         int32
	Answer        struct {
		Error       int16
		HW          int64
		LSO         int64
		LogStart    int64 `json:"log_start"`
		Aborted     [][2]int64
		Size        int64
		FirstBase   *int64 `json:"first_base"`
		SHA256      string
		Timestamp   int64
		Offset      int64
		LeaderEpoch int32 `json:"leader_epoch"`
		Epoch       int32
		EndOffset   int64 `json:"end_offset"`
	}
}

// TestGoldenReads asks what a started Kafka was asked about its golden
// directories, and wants the same bytes and offsets.
func TestGoldenReads(t *testing.T) {
	total := 0
	for _, n := range []string{"02", "05", "06", "08"} {
		t.Run(n, func(t *testing.T) { total += checkReads(t, n) })
	}
	if total != 2274 {
		t.Errorf("%d reads compared, want 2274", total)
	}
}

func checkReads(t *testing.T, n string) int {
	var file struct {
		Case, Stage string
		Reads       []recordedRead
	}
	golden.JSON(t, filepath.Join(golden.Root(t), "13-reads-4.4.0", n+".json"), &file)
	stage := golden.Load(t, file.Case).Stage(t, file.Stage)
	disk := memfs.New()
	stage.UnpackTo(t, disk, "/d")
	logs := map[string]*Log{}
	for i := range file.Reads {
		r := &file.Reads[i]
		tp := kafka.TopicPartition{Topic: r.Topic, Partition: r.Partition}
		l := logs[tp.String()]
		if l == nil {
			l = openStarted(t, disk, stage, tp)
			logs[tp.String()] = l
		}
		name := fmt.Sprintf("%s %d: %s %+v", n, i, tp, *r)
		switch r.API {
		case "fetch":
			checkFetch(t, name, l, r)
		case "list_offsets":
			checkListOffsets(t, name, l, r)
		case "epoch_end":
			epoch, end := l.EndOffsetForEpoch(kafka.LeaderEpoch(r.Epoch))
			if int32(epoch) != r.Answer.Epoch || int64(end) != r.Answer.EndOffset {
				t.Errorf("%s: got (%d, %d)", name, epoch, end)
			}
		default:
			t.Fatalf("api %s", r.API)
		}
	}
	return len(file.Reads)
}

// openStarted opens a partition of a stage as a broker that starts on it does.
func openStarted(t *testing.T, disk vfs.FS, stage *golden.Stage, tp kafka.TopicPartition) *Log {
	t.Helper()
	p := stage.Partition(t, tp.String())
	l := openStage(t, disk, "/d", stage, p)
	last := kafka.LeaderEpoch(p.LeaderEpochs[len(p.LeaderEpochs)-1][0])
	if err := l.AssignEpoch(last+2, l.EndOffset()); err != nil {
		t.Fatal(err)
	}
	l.MaybeIncrementHighWatermark(l.EndOffset())
	return l
}

// openStage opens the log of a partition below root with what the stage's
// checkpoints say of it.
func openStage(t *testing.T, disk vfs.FS, root string, stage *golden.Stage, p *golden.Partition) *Log {
	t.Helper()
	tp := kafka.TopicPartition{Topic: p.Topic, Partition: p.Partition}
	at := func(file string) kafka.Offset {
		for _, e := range stage.Checkpoints[file] {
			if e.Topic == tp.Topic && e.Partition == tp.Partition {
				return kafka.Offset(e.Offset)
			}
		}
		return 0
	}
	c := DefaultConfig()
	switch p.Topic { // the topics with another index.interval.bytes
	case "idxfull", "interval0":
		c.IndexInterval = 0
	case "wide":
		c.IndexInterval = 100
	}
	if strings.Contains(stage.Name, "cleaned") || strings.Contains(stage.Name, "unlinked") || strings.Contains(stage.Name, "follower") {
		c.CleanupCompact = true // offsets are missing, and no checkpoint of the cleaner says so
	}
	now := newest(stage).Add(time.Second)
	l, err := Open(Options{
		FS: disk, Dir: root + "/" + p.Dir, Partition: tp, Config: c,
		// Stages of Kafka's log code alone have no marker; their names tell.
		CleanShutdown:  stage.CleanShutdown != nil || strings.HasSuffix(stage.Name, "closed"),
		RecoveryPoint:  at("recovery-point-offset-checkpoint"),
		LogStartOffset: at("log-start-offset-checkpoint"),
		HighWatermark:  at("replication-offset-checkpoint"),
		Now:            func() time.Time { return now },
		AfterDelay:     func(time.Duration, func()) {},
		OnFailure:      func(err error) { t.Errorf("log failed: %v", err) },
	})
	if err != nil {
		t.Fatalf("%s: %v", p.Dir, err)
	}
	return l
}

// newest is the largest timestamp of a stage: the broker's clock when it
// stopped, more or less, because its own records are stamped by it.
func newest(stage *golden.Stage) time.Time {
	ts := int64(1750000010000)
	for _, p := range stage.Partitions {
		for _, s := range p.Segments {
			if s.Log == nil {
				continue
			}
			for _, b := range s.Log.Batches {
				if b.MaxTs < 1900000000000 { // some records are from the far future
					ts = max(ts, b.MaxTs)
				}
			}
		}
	}
	return time.UnixMilli(ts)
}

func checkFetch(t *testing.T, name string, l *Log, r *recordedRead) {
	t.Helper()
	o := ReadOptions{MaxBytes: min(r.MaxBytes, r.TotalMaxBytes), MinOneBatch: true}
	if r.Isolation == 1 {
		o.Bound, o.Aborted = LastStable, true
	}
	info, err := l.Read(kafka.Offset(r.Offset), o)
	w := &r.Answer
	if errors.Is(err, ErrOffsetOutOfRange) {
		if w.Error != int16(kafka.ErrOffsetOutOfRange) {
			t.Errorf("%s: %v", name, err)
		}
		return
	}
	if err != nil || w.Error != 0 {
		t.Errorf("%s: error %v", name, err)
		return
	}
	if int64(info.HighWatermark) != w.HW || int64(info.LastStable) != w.LSO || int64(info.StartOffset) != w.LogStart {
		t.Errorf("%s: high watermark %d, last stable %d, start %d", name, info.HighWatermark, info.LastStable, info.StartOffset)
	}
	var aborted [][2]int64
	if info.Aborted != nil {
		aborted = [][2]int64{}
	}
	for _, a := range info.Aborted {
		aborted = append(aborted, [2]int64{int64(a.ProducerID), int64(a.FirstOffset)})
	}
	if diff := cmp.Diff(w.Aborted, aborted); diff != "" {
		t.Errorf("%s: aborted (-want +got):\n%s", name, diff)
	}
	if info.Region.Length != w.Size {
		t.Errorf("%s: %d bytes", name, info.Region.Length)
	}
	if info.Region.Length > 0 {
		b := make([]byte, info.Region.Length)
		if _, err := info.Region.File.ReadAt(b, info.Region.Offset); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		sum := sha256.Sum256(b)
		if hex.EncodeToString(sum[:]) != w.SHA256 {
			t.Errorf("%s: other bytes, from base offset %d", name, record.Batch(b).BaseOffset())
		}
	}
	if info.Region.Release != nil {
		info.Region.Release()
	}
}

func checkListOffsets(t *testing.T, name string, l *Log, r *recordedRead) {
	t.Helper()
	bound := l.HighWatermark()
	if r.Isolation == 1 {
		bound = l.LastStable()
	}
	got := notFound()
	var err error
	switch r.Timestamp {
	case -1:
		got.Offset = bound
		got.Epoch, _ = l.LatestEpoch()
	case -2:
		got.Offset = l.StartOffset()
		if e, start, ok := l.EarliestEpoch(); ok && start <= got.Offset {
			got.Epoch = e
		}
	case -3:
		got, err = l.MaxTimestampOffset(bound)
	default:
		got, err = l.OffsetForTimestamp(kafka.Timestamp(r.Timestamp), bound)
	}
	if err != nil || int64(got.Timestamp) != r.Answer.Timestamp || int64(got.Offset) != r.Answer.Offset || int32(got.Epoch) != r.Answer.LeaderEpoch {
		t.Errorf("%s: got %+v (%v)", name, got, err)
	}
}
