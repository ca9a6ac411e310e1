package commitlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
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

// configOf reads topic settings as the golden scripts write them.
func configOf(t testing.TB, m map[string]any) Config {
	t.Helper()
	c := DefaultConfig()
	for k, v := range m {
		n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
		text := fmt.Sprint(v)
		switch k {
		case "cleanup.policy":
			c.CleanupDelete, c.CleanupCompact = strings.Contains(text, "delete"), strings.Contains(text, "compact")
			err = nil
		case "compression.type":
			err = nil
			if c.CompressProducer = text == "producer"; !c.CompressProducer {
				codec, ok := record.ParseCodec(text)
				if !ok {
					t.Fatalf("compression.type %q", text)
				}
				c.Codec = codec
			}
		case "message.timestamp.type":
			err = nil
			c.TimestampType = kafka.CreateTime
			if text == "LogAppendTime" {
				c.TimestampType = kafka.LogAppendTime
			}
		case "segment.bytes", "internal.segment.bytes":
			c.SegmentBytes = int32(n)
		case "segment.ms":
			c.SegmentMs = n
		case "segment.index.bytes":
			c.SegmentIndexBytes = int32(n)
		case "index.interval.bytes":
			c.IndexInterval = int32(n)
		case "max.message.bytes":
			c.MaxMessageBytes = int32(n)
		case "retention.bytes":
			c.RetentionBytes = n
		case "retention.ms":
			c.RetentionMs = n
		case "min.compaction.lag.ms":
			c.MinCompactionLagMs = n
		case "message.timestamp.after.max.ms":
			c.TimestampAfterMax = n
		case "message.timestamp.before.max.ms":
			c.TimestampBeforeMax = n
		default:
			t.Fatalf("topic setting %s is not known here", k)
		}
		if err != nil {
			t.Fatalf("topic setting %s: %v", k, err)
		}
	}
	return c
}

// script is a golden script: operations on one log under a fixed clock.
type script struct {
	Topic     string
	Partition int32
	TopicID   string `json:"topic_id"`
	StartMs   int64  `json:"start_ms"`
	Config    map[string]any
	AutoHW    *bool             `json:"auto_hw"`
	Files     map[string][]byte // base64
	Ops       []op
}

type op struct {
	Op            string
	As            string
	Records       []byte // base64
	Epoch         int32
	TV            *int16
	Ms            int64
	Offset        int64
	Set           map[string]any
	ForceActive   bool `json:"force_active"`
	Clean         *bool
	LogStart      int64 `json:"log_start"`
	RecoveryPoint int64 `json:"recovery_point"`
	Name          string
	File          string
	Size          int64
}

type result struct {
	Op            string  `json:"op"`
	FirstOffset   *int64  `json:"first_offset,omitempty"`
	LastOffset    *int64  `json:"last_offset,omitempty"`
	MaxTS         *int64  `json:"max_ts,omitempty"`
	LogAppendTime *int64  `json:"log_append_time,omitempty"`
	Error         string  `json:"error,omitempty"`
	Message       string  `json:"message,omitempty"`
	Raised        *bool   `json:"raised,omitempty"`
	Deleted       *int    `json:"deleted,omitempty"`
	Truncated     *bool   `json:"truncated,omitempty"`
	RecoveryPoint *int64  `json:"recovery_point,omitempty"`
	LEO           *int64  `json:"leo,omitempty"`
	HW            *int64  `json:"hw,omitempty"`
	LSO           *int64  `json:"lso,omitempty"`
	LogStart      *int64  `json:"log_start,omitempty"`
	Segments      []int64 `json:"segments,omitempty"`
}

// player runs a script.
type player struct {
	t    *testing.T
	s    *script
	disk *memfs.FS
	dir  string
	now  int64
	cfg  Config
	log  *Log
	due  []due
	// stage is called with the name of each stage.
	stage func(name string)
}

type due struct {
	at int64
	f  func()
}

func newPlayer(t *testing.T, s *script) *player {
	t.Helper()
	p := &player{t: t, s: s, disk: memfs.New(), now: s.StartMs, cfg: configOf(t, s.Config)}
	p.disk.SetNow(func() time.Time { return time.UnixMilli(p.now) })
	p.dir = "/d/" + kafka.TopicPartition{Topic: s.Topic, Partition: s.Partition}.String()
	if err := p.disk.MkdirAll(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range s.Files {
		writeFile(t, p.disk, path.Join(p.dir, name), data)
	}
	if err := p.open(false, 0, 0); err != nil {
		t.Fatal(err)
	}
	return p
}

func writeFile(t testing.TB, fsys vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func (p *player) open(clean bool, logStart, recoveryPoint int64) error {
	id, err := kafka.ParseUUID(p.s.TopicID)
	if err != nil {
		return err
	}
	p.log, err = Open(Options{
		FS: p.disk, Dir: p.dir, Partition: kafka.TopicPartition{Topic: p.s.Topic, Partition: p.s.Partition}, TopicID: id,
		Config: p.cfg, CleanShutdown: clean, LogStartOffset: kafka.Offset(logStart), RecoveryPoint: kafka.Offset(recoveryPoint),
		Now: func() time.Time { return time.UnixMilli(p.now) },
		AfterDelay: func(d time.Duration, f func()) {
			p.due = append(p.due, due{p.now + d.Milliseconds(), f})
		},
		OnFailure: func(err error) { p.t.Errorf("log failed: %v", err) },
		OnEvent:   func(e Event) { p.t.Logf("event %+v", e) },
	})
	return err
}

func (p *player) tick(ms int64) {
	p.now += ms
	var later []due
	for _, d := range p.due {
		if d.at <= p.now {
			d.f()
		} else {
			later = append(later, d)
		}
	}
	p.due = later
}

func ptr[T any](v T) *T { return &v }

func (p *player) run() []result {
	var out []result
	for _, o := range p.s.Ops {
		r := result{Op: o.Op}
		if err := p.apply(o, &r); err != nil {
			r.Error, r.Message = javaError(err), javaMessage(err)
		}
		if l := p.log; l != nil {
			r.LEO, r.HW = ptr(int64(l.EndOffset())), ptr(int64(l.HighWatermark()))
			r.LSO, r.LogStart = ptr(int64(l.LastStable())), ptr(int64(l.StartOffset()))
			for _, s := range l.Segments() {
				r.Segments = append(r.Segments, int64(s.BaseOffset()))
			}
		}
		out = append(out, r)
	}
	return out
}

func (p *player) apply(o op, r *result) error {
	switch o.Op {
	case "append":
		return p.append(o, r)
	case "epoch":
		return p.log.AssignEpoch(kafka.LeaderEpoch(o.Epoch), p.log.EndOffset())
	case "roll":
		return p.log.Roll()
	case "tick":
		p.tick(o.Ms)
	case "hw":
		p.log.UpdateHighWatermark(kafka.Offset(o.Offset))
	case "delete_records":
		raised, err := p.log.MaybeIncrementStartOffset(kafka.Offset(o.Offset))
		r.Raised = ptr(raised)
		return err
	case "retention":
		n, err := p.log.DeleteOldSegments()
		r.Deleted = ptr(n)
		return err
	case "truncate":
		cut, err := p.log.TruncateTo(kafka.Offset(o.Offset))
		r.Truncated = ptr(cut)
		return err
	case "truncate_fully":
		return p.log.TruncateFullyAndStartAt(kafka.Offset(o.Offset))
	case "flush":
		return p.log.Flush(p.log.EndOffset())
	case "config":
		p.cfg = configOf(p.t, o.Set)
		p.log.SetConfig(p.cfg)
	case "close":
		err := p.log.Close()
		r.RecoveryPoint = ptr(int64(p.log.RecoveryPoint()))
		p.log = nil
		return err
	case "crash":
		p.log, p.due = nil, nil
		p.disk = p.disk.Crash(memfs.KeepAll())
		p.disk.SetNow(func() time.Time { return time.UnixMilli(p.now) })
	case "open":
		return p.open(o.Clean == nil || *o.Clean, o.LogStart, o.RecoveryPoint)
	case "snapshot":
		return p.log.TakeProducerSnapshot()
	case "stage":
		if p.stage != nil {
			p.stage(o.Name)
		}
	case "cut":
		f, err := p.disk.OpenFile(path.Join(p.dir, o.File), os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return errors.Join(f.Truncate(o.Size), f.Close())
	case "remove":
		return p.disk.Remove(path.Join(p.dir, o.File))
	default:
		p.t.Fatalf("operation %q is not known here", o.Op)
	}
	return nil
}

func (p *player) append(o op, r *result) error {
	buf := bytes.Clone(o.Records)
	var info AppendInfo
	var err error
	switch o.As {
	case "follower":
		info, err = p.log.AppendAsFollower(buf, kafka.LeaderEpoch(o.Epoch))
	case "coordinator":
		tv := int16(1)
		if o.TV != nil {
			tv = *o.TV
		}
		info, err = p.log.AppendAsLeader(buf, kafka.LeaderEpoch(o.Epoch), AppendOptions{Origin: Coordinator, TxnVersion: tv})
	case "raft":
		info, err = p.log.AppendAsLeader(buf, kafka.LeaderEpoch(o.Epoch), AppendOptions{Origin: RaftLeader})
	default:
		info, err = p.log.AppendAsLeader(buf, kafka.LeaderEpoch(o.Epoch), AppendOptions{})
	}
	if err != nil {
		return err
	}
	r.FirstOffset, r.LastOffset = ptr(int64(info.FirstOffset)), ptr(int64(info.LastOffset))
	r.MaxTS, r.LogAppendTime = ptr(int64(info.MaxTimestamp)), ptr(int64(info.LogAppendTime))
	if p.s.AutoHW == nil || *p.s.AutoHW {
		p.log.MaybeIncrementHighWatermark(p.log.EndOffset())
	}
	return nil
}

// javaError is Kafka's exception class for an error.
func javaError(err error) string {
	for class, target := range map[string]error{
		"OutOfOrderSequenceException":           ErrOutOfOrderSequence,
		"InvalidProducerEpochException":         ErrInvalidProducerEpoch,
		"InvalidTxnStateException":              ErrInvalidTxnState,
		"TransactionCoordinatorFencedException": ErrCoordinatorFenced,
		"CorruptRecordException":                ErrCorrupt,
		"RecordTooLargeException":               ErrMessageTooLarge,
		"RecordBatchTooLargeException":          ErrRecordBatchTooLarge,
		"UnexpectedAppendOffsetException":       ErrUnexpectedAppendOffset,
		"OffsetsOutOfOrderException":            ErrOffsetsOutOfOrder,
		"OffsetOutOfRangeException":             ErrOffsetOutOfRange,
	} {
		if errors.Is(err, target) {
			return class
		}
	}
	var refused *AppendError
	if errors.As(err, &refused) {
		if refused.RecordErrors != nil {
			return "RecordValidationException"
		}
		if errors.Is(err, ErrInvalidRecord) {
			return "InvalidRecordException"
		}
	}
	return fmt.Sprintf("%T", err)
}

func javaMessage(err error) string {
	msg := strings.TrimPrefix(err.Error(), ErrOffsetOutOfRange.Error()+": ")
	if strings.Contains(msg, "/") {
		return ""
	}
	return msg
}

// listFiles reads a directory; large zero tails are kept as they are.
func listFiles(t testing.TB, fsys vfs.FS, dir string) map[string][]byte {
	t.Helper()
	names, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, d := range names {
		data, err := vfs.ReadFile(fsys, path.Join(dir, d.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[d.Name()] = data
	}
	return files
}

// diffFiles reports files that differ and returns how many are equal.
func diffFiles(t testing.TB, stage string, want, got map[string][]byte) (equal int) {
	t.Helper()
	for name, w := range want {
		g, ok := got[name]
		switch {
		case !ok:
			t.Errorf("%s: no %s, want %d bytes", stage, name, len(w))
		case !bytes.Equal(w, g):
			at := 0
			for at < min(len(w), len(g)) && w[at] == g[at] {
				at++
			}
			t.Errorf("%s: %s has %d bytes, want %d; they differ from byte %d on: %x, want %x", stage, name, len(g), len(w), at,
				g[at:min(at+24, len(g))], w[at:min(at+24, len(w))])
		default:
			equal++
		}
	}
	for name, g := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s of %d bytes, want no such file", stage, name, len(g))
		}
	}
	return equal
}

// TestGoldenDirect replays the scripts that Apache Kafka's own log code ran
// under a fixed clock, and wants the same answers and the same files.
func TestGoldenDirect(t *testing.T) {
	replayScripts(t, "12-direct-4.4.0", 12, 480)
}

// TestGoldenOldFormats opens logs of the message formats 0 and 1 and appends to them.
func TestGoldenOldFormats(t *testing.T) {
	replayScripts(t, "10-old-recovered-4.4.0", 11, 140)
}

func replayScripts(t *testing.T, name string, wantScripts, wantFiles int) {
	c := golden.Load(t, name)
	scripts, err := filepath.Glob(filepath.Join(c.Dir, "*.script.json"))
	if err != nil || len(scripts) != wantScripts {
		t.Fatalf("%d scripts, want %d (%v)", len(scripts), wantScripts, err)
	}
	equal := 0
	for _, file := range scripts {
		base := strings.TrimSuffix(filepath.Base(file), ".script.json")
		t.Run(base, func(t *testing.T) {
			var s script
			golden.JSON(t, file, &s)
			var want []json.RawMessage
			golden.JSON(t, filepath.Join(c.Dir, base+".results.json"), &want)
			p := newPlayer(t, &s)
			p.stage = func(stage string) {
				full := base + "." + stage
				c.Stage(t, full).UnpackTo(t, p.disk, "/golden/"+full)
				equal += diffFiles(t, full, listFiles(t, p.disk, "/golden/"+full+"/"+path.Base(p.dir)), listFiles(t, p.disk, p.dir))
			}
			got := p.run()
			for i, raw := range want {
				var w result
				if err := json.Unmarshal(raw, &w); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(w, got[i]); diff != "" {
					t.Errorf("operation %d, %s (-want +got):\n%s", i, w.Op, diff)
				}
			}
		})
	}
	if equal < wantFiles && !t.Failed() {
		t.Errorf("%d files compared equal, want at least %d", equal, wantFiles)
	}
}
