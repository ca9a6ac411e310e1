package sim

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

var (
	faultsScale = flag.String("faults.scale", "test", "test, short or long")
	faultsSeed  = flag.Uint64("faults.seed", 1, "seed of everything random")
	faultsOut   = flag.String("faults.out", "", "file that the line of each row is appended to")
	faultsCase  = flag.String("faults.case", "", "one case again, as a violation named it")
	faultsKeep  = flag.String("faults.keep", "", "directory for the disks that a violation was seen on")
)

// rows are the rows of the scoreboard that run in this process.
var rows = []struct {
	name string
	run  func(t *testing.T, r *Row, s Scale, seed uint64)
}{
	{"states", func(t *testing.T, r *Row, s Scale, seed uint64) {
		States(t, r, StatesOptions{Seed: seed, States: s.Of(1500/fewer(), 20_000, 500_000), Case: *faultsCase, Keep: *faultsKeep, Stride: s.Of(7*fewer(), 1, 1)})
	}},
	{"tails", func(t *testing.T, r *Row, s Scale, seed uint64) {
		if err := Tails(t, r, TailsOptions{Seed: seed, Bytes: s.Of(4<<10, 16<<10, 1<<20), Stride: s.Of(7*fewer(), 1, 1), Case: *faultsCase}); err != nil {
			t.Fatal(err)
		}
	}},
	{"damage", func(t *testing.T, r *Row, s Scale, seed uint64) {
		if err := Damage(t, r, DamageOptions{Seed: seed, Count: s.Of(400/fewer(), 2000, 100_000), Case: *faultsCase}); err != nil {
			t.Fatal(err)
		}
	}},
	{"flips", func(t *testing.T, r *Row, s Scale, seed uint64) {
		if err := Flips(t, r, FlipsOptions{Seed: seed, Rounds: s.Of(1, 1, 40), Stride: s.Of(37*fewer(), 1, 1), Case: *faultsCase}); err != nil {
			t.Fatal(err)
		}
	}},
	// A stride that is no multiple of the number of faults takes each of them in turn.
	{"sweep-in-process", func(t *testing.T, r *Row, s Scale, seed uint64) {
		Sweep(t, r, SweepOptions{Seed: seed, Stride: s.Of(1+100*fewer(), 4, 1), Case: *faultsCase})
	}},
	{"fsync", func(t *testing.T, r *Row, s Scale, seed uint64) {
		Sweep(t, r, SweepOptions{Seed: seed, Stride: s.Of(1+16*fewer(), 3, 1), Syncs: true, Case: *faultsCase})
	}},
	{"clock", func(_ *testing.T, r *Row, s Scale, seed uint64) {
		Clock(r, ClockOptions{Seed: seed, Jumps: s.Of(200/fewer(), 500, 5000), JumpMax: time.Hour, Case: *faultsCase})
	}},
}

// fewer divides the counts of plain `go test` under -short, which the race detector runs.
func fewer() int {
	if testing.Short() {
		return 6
	}
	return 1
}

// TestRow runs each row at the scale that the flags say.
func TestRow(t *testing.T) {
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := NewRow(row.name, *faultsSeed, time.Now())
			row.run(t, r, Scale(*faultsScale), *faultsSeed)
			line, err := r.Finish(time.Now(), *faultsOut)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.Failures() {
				t.Error(f)
			}
			t.Logf("%+v", line)
			if line.Violations > 0 || line.Done != line.Planned || line.Done == 0 {
				t.Errorf("row %s, seed %d: %d violations, %d of %d done", line.Row, line.Seed, line.Violations, line.Done, line.Planned)
			}
		})
	}
}

// TestStatesFindPlantedBugs: the row goes red when syncs are not done.
func TestStatesFindPlantedBugs(t *testing.T) {
	tests := []struct {
		name   string
		plant  func(vfs.FS) vfs.FS
		script string // in which it can show soon
	}{
		{"directories are not synced", noDirSync, "append"},
		{"logs are not synced before they are acknowledged", noLogSync, "append"},
		{"small files are not synced before they are renamed", noSmallSync, "retention and DeleteRecords"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewRow("states", 1, time.Now())
			States(t, r, StatesOptions{Seed: 1, States: 3000, Plant: tt.plant, Enough: 1, Script: tt.script})
			if r.Violations() == 0 {
				t.Fatal("the planted bug was not found")
			}
			t.Log(r.Failures()[0])
		})
	}
}

// TestFsyncFindsARetriedSync: the row goes red when a failed sync is tried again.
func TestFsyncFindsARetriedSync(t *testing.T) {
	r := NewRow("fsync", 1, time.Now())
	Sweep(t, r, SweepOptions{Seed: 1, Stride: 29, Syncs: true, Plant: retrySync})
	if r.Violations() == 0 {
		t.Error("the planted bug was not found")
	}
}

// TestJudgesFindWrongAndLostRecords: what the rows hold a damaged directory
// against is not blind to a changed, a moved, a missing and an extra record.
func TestJudgesFindWrongAndLostRecords(t *testing.T) {
	f, err := makeFixture(t, 1, smallPartition(1))
	if err != nil {
		t.Fatal(err)
	}
	tp := sortedParts(f.m.parts)[0]
	tests := []struct {
		name  string
		wrong func(p *part)
	}{
		{"a value is another one", func(p *part) { p.batches[4].raw[len(p.batches[4].raw)-3] ^= 1 }},
		{"a batch is at another offset", func(p *part) { p.batches[5].base++; p.batches[5].last++ }},
		{"a batch is not there", func(p *part) {
			last := p.batches[len(p.batches)-1]
			last.base, last.last, last.acked = last.last+1, last.last+1, true
			p.batches, p.durable = append(p.batches, last), last.last+1
		}},
		{"a batch is there that was not sent", func(p *part) { p.batches = p.batches[:len(p.batches)-1] }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := *f.m
			p := f.m.parts[tp].snapshot()
			for i := range p.batches {
				p.batches[i].raw = bytes.Clone(p.batches[i].raw)
			}
			m.parts = map[kafka.TopicPartition]*part{tp: p}
			if _, err := m.judgeDamaged(copyOf(f.killed)); err != nil {
				t.Fatalf("undamaged: %v", err)
			}
			tt.wrong(p)
			_, err := m.judgeDamaged(copyOf(f.killed))
			again, oerr := m.open(copyOf(f.killed), nil)
			if oerr != nil {
				t.Fatal(oerr)
			}
			defer again.Close(1)
			if jerr := m.judge(again, true, rand.New(rand.NewPCG(1, 1))); err == nil || jerr == nil {
				t.Errorf("of a damaged directory: %v; of a crash: %v; want both to tell", err, jerr)
			}
		})
	}
}

// TestClockFindsAClockThatIsBelieved: the row goes red when every time is believed.
func TestClockFindsAClockThatIsBelieved(t *testing.T) {
	r := NewRow("clock", 1, time.Now())
	Clock(r, ClockOptions{Seed: 1, Jumps: 100})
	if r.Violations() == 0 {
		t.Error("the planted bug was not found")
	}
}
