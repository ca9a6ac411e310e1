package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestJudge gives the verdict series whose growth is known.
func TestJudge(t *testing.T) {
	l := limits{amount: 6, share: 0.1}
	for _, c := range []struct {
		name  string
		of    func(x float64, rnd *rand.Rand) float64
		grows bool
	}{
		{"a level with noise does not grow", func(_ float64, rnd *rand.Rand) float64 { return 100 + 10*rnd.NormFloat64() }, false},
		{"a saw tooth does not grow", func(x float64, _ *rand.Rand) float64 { return 100 + math.Mod(x, 130)/2 }, false},
		{"a single step down and up does not grow", func(x float64, _ *rand.Rand) float64 {
			if x > 300 && x < 400 {
				return 50
			}
			return 100
		}, false},
		{"less than allowed does not grow", func(x float64, _ *rand.Rand) float64 { return 100 + x*8/1800 }, false},
		{"a fall does not grow", func(x float64, _ *rand.Rand) float64 { return 200 - x/20 }, false},
		{"a slow steady rise grows", func(x float64, _ *rand.Rand) float64 { return 100 + x*15/1800 }, true},
		{"a rise within noise grows", func(x float64, rnd *rand.Rand) float64 { return 100 + x*25/1800 + 8*rnd.NormFloat64() }, true},
		{"a rise by steps grows", func(x float64, _ *rand.Rand) float64 { return 100 + 10*math.Floor(x/300) }, true},
	} {
		for seed := range uint64(20) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			var points []point
			for x := 0.0; x < 1800; x += 5 {
				points = append(points, point{x, c.of(x, rnd)})
			}
			if got := judge(points, l); got.Grows != c.grows {
				t.Errorf("%s: seed %d: %+v", c.name, seed, got)
			}
		}
	}
	if got := judge([]point{{1, 5}}, l); got.Grows {
		t.Errorf("one point: %+v", got)
	}
}

// TestLivesAreLaidOverEachOther: a leak that each restart hides shows within
// the lives, one that restarts keep shows over the run.
func TestLivesAreLaidOverEachOther(t *testing.T) {
	s := &soak{options: options{duration: 2 * time.Hour, restartEvery: 4 * time.Minute}, findings: &findings{}}
	s.pacing = s.options.pacing()
	m := measure{"descriptors", func(x sample) float64 { return x.FDs }, limits{6, 0.1}, false}
	series := func(of func(at, since float64) float64) []sample {
		var out []sample
		for at := 0.0; at < 7200; at += 5 {
			out = append(out, sample{At: at, Life: 1 + int(at)/240, Since: math.Mod(at, 240), FDs: of(at, math.Mod(at, 240))})
		}
		return out
	}
	if g := s.growth(series(func(_, since float64) float64 { return 80 + since/4 }), m); !g.Lives.Grows || g.Run.Grows {
		t.Errorf("a leak in each life: %+v", g)
	}
	if g := s.growth(series(func(at, _ float64) float64 { return 80 + at/200 }), m); g.Lives.Grows || !g.Run.Grows {
		t.Errorf("a leak across lives: %+v", g)
	}
	if g := s.growth(series(func(_, since float64) float64 { return 80 + min(since, 60)/2 }), m); g.Lives.Grows || g.Run.Grows {
		t.Errorf("warming up: %+v", g)
	}
}

func record(offset int64, id recordID) *kgo.Record {
	return &kgo.Record{Offset: offset, Value: payload(id), Timestamp: time.UnixMilli(1000 + offset)}
}

// TestModelFindsWhatIsWrong has the model see one mistake of a broker at a time.
func TestModelFindsWhatIsWrong(t *testing.T) {
	const once, plain = 0, 3 // an idempotent producer, and one that is not
	for _, c := range []struct {
		name string
		do   func(p *partition)
		want string // part of the finding; empty for none
	}{
		{"nothing is wrong", func(p *partition) {
			p.acknowledge(newID(once, 3), 4)
			p.read(record(4, newID(once, 3)))
			p.acknowledge(newID(once, 2), 2)
			p.check("x", record(2, newID(once, 2)))
			p.observe(2, 0)
		}, ""},
		{"an offset is skipped", func(p *partition) { p.read(record(5, newID(once, 3))) }, "got offset 5, expected 4"},
		{"a record is lost", func(p *partition) { p.read(record(4, newID(once, 4))) }, "comes after its record 2"},
		{"a record is there twice", func(p *partition) { p.read(record(4, newID(once, 2))) }, "there twice"},
		{"a plain producer's record is there twice", func(p *partition) { p.read(record(4, newID(plain, 0))) }, ""},
		{"a byte differs", func(p *partition) {
			r := record(4, newID(once, 3))
			r.Value[len(r.Value)-1] ^= 1
			p.read(r)
		}, "not the bytes"},
		{"another record was acknowledged, read before", func(p *partition) { p.acknowledge(newID(once, 1), 2) }, "held record 2"},
		{"another record was acknowledged, read later", func(p *partition) {
			p.acknowledge(newID(plain, 1), 4)
			p.read(record(4, newID(once, 3)))
		}, "acknowledged was 1 of 3"},
		{"another reader sees another record", func(p *partition) { p.check("cold", record(2, newID(once, 1))) }, "before it was 2 of 0"},
		{"another reader sees another time", func(p *partition) {
			r := record(2, newID(once, 2))
			r.Timestamp = time.UnixMilli(7)
			p.check("cold", r)
		}, "at 7 ms"},
		{"the log start goes back", func(p *partition) { p.observe(2, 0); p.observe(1, 0) }, "went back from 2 to 1"},
		{"retention is early", func(p *partition) {
			p.seen[1].at = time.Now().UnixMilli()
			p.observe(2, time.Hour)
		}, "retention took offset 1"},
	} {
		f := &findings{}
		p := &partition{topic: "t", findings: f, pending: map[int64]recordID{}, lanes: map[int]int64{}}
		for i := range int64(3) {
			p.read(record(i, newID(once, i)))
		}
		p.read(record(3, newID(plain, 0)))
		c.do(p)
		if got := strings.Join(f.Texts, "; "); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: found %q, want %q", c.name, got, c.want)
		}
	}
}

// TestKeyedFindsWhatIsWrong does so for a compacted partition.
func TestKeyedFindsWhatIsWrong(t *testing.T) {
	keyedRecord := func(offset, seq int64, key string) *kgo.Record {
		r := &kgo.Record{Offset: offset, Key: []byte(key), Value: payload(newID(5, seq)), Headers: []kgo.RecordHeader{{Key: "seq", Value: fmt.Append(nil, seq)}}}
		if tombstone(seq) {
			r.Value = nil
		}
		return r
	}
	// Key b was written by 2 and deleted by 3; a has 4.
	for _, c := range []struct {
		name    string
		records []*kgo.Record
		exact   bool
		want    string
	}{
		{"cleaned", []*kgo.Record{keyedRecord(4, 4, "a")}, true, ""},
		{"the tombstone is still there", []*kgo.Record{keyedRecord(3, 3, "b"), keyedRecord(4, 4, "a")}, true, ""},
		{"not cleaned", []*kgo.Record{keyedRecord(1, 1, "a"), keyedRecord(2, 2, "b"), keyedRecord(3, 3, "b"), keyedRecord(4, 4, "a")}, true, ""},
		{"a newer one came", []*kgo.Record{keyedRecord(4, 4, "a"), keyedRecord(5, 5, "a")}, false, ""},
		{"a key is gone", []*kgo.Record{keyedRecord(3, 3, "b")}, false, "a is gone"},
		{"an old value is the newest", []*kgo.Record{keyedRecord(1, 1, "a")}, false, "a is at record 1, acknowledged was 4"},
		{"a deleted key is back", []*kgo.Record{keyedRecord(2, 2, "b"), keyedRecord(4, 4, "a")}, false, "b is at record 2, acknowledged was 3"},
		{"out of order", []*kgo.Record{keyedRecord(3, 4, "a"), keyedRecord(4, 3, "b")}, false, "record 3 after record 4"},
		{"a key that nobody sent", []*kgo.Record{keyedRecord(4, 4, "a"), keyedRecord(5, 5, "c")}, true, "c was never sent"},
	} {
		f := &findings{}
		k := newKeyed("t", 0, f)
		now := time.Now().UnixMilli()
		for seq, key := range map[int64]string{1: "a", 2: "b", 3: "b", 4: "a"} {
			k.acknowledge(key, seq, now)
		}
		p := &pass{newest: map[string]int64{}}
		for _, r := range c.records {
			p.record(k, r)
		}
		k.judge(p, k.snapshot(), 0, c.exact)
		if got := strings.Join(f.Texts, "; "); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: found %q, want %q", c.name, got, c.want)
		}
	}
}
