package cleaner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// script is a recorded sequence of operations on one log under a fixed clock.
type script struct {
	Topic     string
	Partition int32
	TopicID   string `json:"topic_id"`
	StartMs   int64  `json:"start_ms"`
	Config    map[string]any
	Ops       []struct {
		Op         string
		As         string
		Records    []byte // base64
		Ms         int64
		Name       string
		TV         *int16
		Epoch      int32
		FirstDirty int64 `json:"first_dirty"`
	}
}

// result is what Kafka answered to an operation.
type result struct {
	Op              string  `json:"op"`
	FirstDirty      *int64  `json:"first_dirty,omitempty"`
	Uncleanable     *int64  `json:"uncleanable,omitempty"`
	NextDirty       *int64  `json:"next_dirty,omitempty"`
	MessagesRead    *int64  `json:"messages_read,omitempty"`
	MessagesWritten *int64  `json:"messages_written,omitempty"`
	LEO             *int64  `json:"leo,omitempty"`
	LSO             *int64  `json:"lso,omitempty"`
	LogStart        *int64  `json:"log_start,omitempty"`
	Segments        []int64 `json:"segments,omitempty"`
}

func ptr(v int64) *int64 { return &v }

// player runs a script.
type player struct {
	t    *testing.T
	s    *script
	disk *memfs.FS
	dir  string
	now  int64
	log  *commitlog.Log
	due  []dueJob
}

type dueJob struct {
	at int64
	f  func()
}

func newPlayer(t *testing.T, s *script) *player {
	p := &player{t: t, s: s, disk: memfs.New(), now: s.StartMs}
	p.disk.SetNow(p.clock)
	tp := kafka.TopicPartition{Topic: s.Topic, Partition: s.Partition}
	p.dir = "/d/" + tp.String()
	if err := p.disk.MkdirAll(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	id, err := kafka.ParseUUID(s.TopicID)
	if err != nil {
		t.Fatal(err)
	}
	p.log, err = commitlog.Open(commitlog.Options{
		FS: p.disk, Dir: p.dir, Partition: tp, TopicID: id, Config: scriptConfig(t, s.Config), Now: p.clock,
		AfterDelay: func(d time.Duration, f func()) { p.due = append(p.due, dueJob{p.now + d.Milliseconds(), f}) },
		OnFailure:  func(err error) { t.Errorf("log failed: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *player) clock() time.Time { return time.UnixMilli(p.now) }

func scriptConfig(t *testing.T, m map[string]any) commitlog.Config {
	c := commitlog.DefaultConfig()
	for k, v := range m {
		n, _ := strconv.ParseInt(fmt.Sprint(v), 10, 64)
		switch k {
		case "cleanup.policy":
			c.CleanupCompact, c.CleanupDelete = v == "compact", false
		case "internal.segment.bytes":
			c.SegmentBytes = int32(n)
		case "segment.ms":
			c.SegmentMs = n
		case "index.interval.bytes":
			c.IndexInterval = int32(n)
		case "delete.retention.ms":
			c.DeleteRetentionMs = n
		default:
			t.Fatalf("topic setting %s is not known here", k)
		}
	}
	return c
}

func (p *player) run(stage func(name string)) []result {
	var out []result
	for _, o := range p.s.Ops {
		r := result{Op: o.Op}
		var err error
		switch o.Op {
		case "append":
			opts := commitlog.AppendOptions{TxnVersion: 1}
			if o.As == "coordinator" {
				opts.Origin = commitlog.Coordinator
			}
			if o.TV != nil {
				opts.TxnVersion = *o.TV
			}
			_, err = p.log.AppendAsLeader(bytes.Clone(o.Records), kafka.LeaderEpoch(o.Epoch), opts)
			p.log.MaybeIncrementHighWatermark(p.log.EndOffset())
		case "roll":
			err = p.log.Roll()
		case "tick":
			p.tick(o.Ms)
		case "clean":
			err = p.clean(kafka.Offset(o.FirstDirty), &r)
		case "close":
			err = p.log.Close()
		case "stage":
			stage(o.Name)
		default:
			p.t.Fatalf("operation %q is not known here", o.Op)
		}
		if err != nil {
			p.t.Fatalf("operation %d, %s: %v", len(out), o.Op, err)
		}
		r.LEO, r.LSO, r.LogStart = ptr(int64(p.log.EndOffset())), ptr(int64(p.log.LastStable())), ptr(int64(p.log.StartOffset()))
		for _, s := range p.log.Segments() {
			r.Segments = append(r.Segments, int64(s.BaseOffset()))
		}
		out = append(out, r)
	}
	return out
}

func (p *player) tick(ms int64) {
	p.now += ms
	var later []dueJob
	for _, d := range p.due {
		if d.at <= p.now {
			d.f()
		} else {
			later = append(later, d)
		}
	}
	p.due = later
}

func (p *player) clean(firstDirty kafka.Offset, r *result) error {
	generation := p.log.Generation()
	v, segs, err := look(p.log, firstDirty)
	if err != nil {
		return err
	}
	now := kafka.Timestamp(p.now)
	round := newRound(p.log, generation, segs, v.extentOf(firstDirty, now), now, testMemory())
	err = round.run()
	s := &round.stats
	r.FirstDirty, r.Uncleanable, r.NextDirty = ptr(int64(s.FirstDirty)), ptr(int64(s.Uncleanable)), ptr(int64(s.NextDirty))
	r.MessagesRead, r.MessagesWritten = ptr(s.RecordsBefore), ptr(s.RecordsAfter)
	return err
}

func testMemory() *memory { return &memory{mapBytes: 1 << 20, load: 0.9, bufferBytes: 64 << 10} }

// TestGoldenDirect replays rounds of Kafka's own Cleaner under a fixed clock and
// wants the same files, byte for byte, after each of them.
func TestGoldenDirect(t *testing.T) {
	c := golden.Load(t, "06-compaction-direct-4.4.0")
	scripts, err := filepath.Glob(filepath.Join(c.Dir, "*.script.json"))
	if err != nil || len(scripts) != 3 {
		t.Fatalf("%d scripts, want 3 (%v)", len(scripts), err)
	}
	for _, file := range scripts {
		base := filepath.Base(file[:len(file)-len(".script.json")])
		t.Run(base, func(t *testing.T) {
			var s script
			golden.JSON(t, file, &s)
			var want []json.RawMessage
			golden.JSON(t, filepath.Join(c.Dir, base+".results.json"), &want)
			p := newPlayer(t, &s)
			equal := 0
			got := p.run(func(stage string) {
				full := base + "." + stage
				c.Stage(t, full).UnpackTo(t, p.disk, "/golden/"+full)
				equal += diffFiles(t, full, readFiles(t, p.disk, "/golden/"+full+"/"+path.Base(p.dir)), readFiles(t, p.disk, p.dir))
			})
			for i, raw := range want {
				var w result
				if err := json.Unmarshal(raw, &w); err != nil {
					t.Fatal(err)
				}
				if w.LEO == nil { // after a close Kafka's log is not asked
					got[i].LEO, got[i].LSO, got[i].LogStart, got[i].Segments = nil, nil, nil, nil
				}
				if diff := cmp.Diff(w, got[i]); diff != "" {
					t.Errorf("operation %d, %s (-want +got):\n%s", i, w.Op, diff)
				}
			}
			if equal < 40 && !t.Failed() {
				t.Errorf("%d files compared equal, want at least 40", equal)
			}
		})
	}
}

func readFiles(t testing.TB, fsys vfs.FS, dir string) map[string][]byte {
	t.Helper()
	names, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, d := range names {
		if files[d.Name()], err = vfs.ReadFile(fsys, path.Join(dir, d.Name())); err != nil {
			t.Fatal(err)
		}
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
