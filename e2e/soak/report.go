package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// measure is one of the values that must not grow.
type measure struct {
	name   string
	of     func(sample) float64
	limits limits
	mib    bool
}

// The limits are what restarts, the collector's rhythm and retention's steps
// move a value by, seen in runs that do not grow.
var measures = []measure{
	{"anonymous memory", func(s sample) float64 { return s.Anon }, limits{6 << 20, 0.15}, true},
	{"file memory", func(s sample) float64 { return s.File }, limits{8 << 20, 0.2}, true},
	{"descriptors", func(s sample) float64 { return s.FDs }, limits{6, 0.1}, false},
	{"memory maps", func(s sample) float64 { return s.Maps }, limits{10, 0.1}, false},
	{"threads", func(s sample) float64 { return s.Threads }, limits{4, 0.15}, false},
	{"files", func(s sample) float64 { return s.Files }, limits{15, 0.1}, false},
	{"disk", func(s sample) float64 { return s.Disk }, limits{6 << 20, 0.15}, true},
}

const diskLimit = 400 << 20

// growth is what became of one measure.
type growth struct {
	Name     string  `json:"name"`
	Min      float64 `json:"min"`
	Max      float64 `json:"max"`
	Lives    trend   `json:"withinLives"` // all lives laid over each other, each from its own level
	LongLife trend   `json:"longLife"`    // the life of the quarter without restarts
	Run      trend   `json:"overRun"`     // lives at the same time after their start
	mib      bool
}

// report is the result of a run.
type report struct {
	Passed      bool     `json:"passed"`
	Interrupted bool     `json:"interrupted"`
	Seconds     float64  `json:"seconds"`
	Seed        uint64   `json:"seed"`
	Rate        int      `json:"rate"`
	Acked       int64    `json:"acknowledged"`
	TailRead    int64    `json:"tailRead"`
	ColdRead    int64    `json:"coldRead"`
	GroupRead   int64    `json:"groupRead"`
	Commits     int64    `json:"commits"`
	Kills       int64    `json:"kills"`
	Stops       int64    `json:"stops"`
	Passes      int64    `json:"compactedPasses"`
	Reborn      int64    `json:"topicsDeleted"`
	Trims       int64    `json:"deleteRecords"`
	Connections int64    `json:"rawConnections"`
	Again       int64    `json:"plainDuplicates"`
	Compacted   string   `json:"compacted"`
	CPUPercent  float64  `json:"cpuPercent"`
	BrokerCPU   float64  `json:"brokerCpuPercent"`
	Growth      []growth `json:"growth"`
	Found       int      `json:"findings"`
	Texts       []string `json:"findingTexts"`
	Samples     []sample `json:"samples"`
}

func (s *soak) report(samples []sample) *report {
	r := &report{Seconds: time.Since(s.started).Seconds(), Seed: s.seed, Rate: s.rate, Samples: samples,
		Acked: s.model.acked.Load(), TailRead: s.counts.tail.Load(), ColdRead: s.counts.cold.Load(), GroupRead: s.counts.group.Load(), Commits: s.counts.commits.Load(),
		Kills: s.counts.kills.Load(), Stops: s.counts.stops.Load(), Passes: s.counts.passes.Load(), Reborn: s.counts.reborn.Load(), Trims: s.counts.trims.Load(), Connections: s.counts.connections.Load()}
	s.model.each(func(p *partition) { r.Again += p.again })
	for _, k := range s.keyed {
		r.Compacted += fmt.Sprintf("%v held %d records at most; ", k, k.most)
		s.checkCompacted(k)
	}
	if n := len(samples); n > 0 {
		r.BrokerCPU = 100 * samples[n-1].BrokerCPU / samples[n-1].At
		r.CPUPercent = r.BrokerCPU + 100*samples[n-1].LoadCPU/samples[n-1].At
	}
	for name, n := range map[string]int64{"record acknowledged": r.Acked, "record of the group": r.GroupRead, "commit": r.Commits, "cold read": r.ColdRead, "pass over a compacted topic": r.Passes, "topic deleted": r.Reborn, "connection": r.Connections, "DeleteRecords": r.Trims, "restart": r.Kills + r.Stops} {
		if n == 0 {
			s.findings.add("not a single %s", name)
		}
	}
	for _, m := range measures {
		g := s.growth(samples, m)
		r.Growth = append(r.Growth, g)
		for what, t := range map[string]trend{"within the lives of a process": g.Lives, "within its long life": g.LongLife, "over the run": g.Run} {
			if t.Grows {
				s.findings.add("%s grows %s: by %.0f at a level of %.0f, allowed are %.0f", m.name, what, t.Growth, t.Level, t.Allowed)
			}
		}
		if m.name == "disk" && g.Max > diskLimit {
			s.findings.add("the data directory took %.0f bytes, more than %d", g.Max, diskLimit)
		}
	}
	r.Found, r.Texts = s.findings.count(), s.findings.Texts
	r.Passed = r.Found == 0 && len(samples) > 0
	return r
}

// checkCompacted has compaction keep a partition small: the newest record of a
// key, and what came while a segment was not yet rolled, looked at or cleaned.
func (s *soak) checkCompacted(k *keyed) {
	perSecond := float64(s.rate) / float64(len(producerKinds)) // more than any of them has in a partition
	waits := 4*s.segment + 6*s.check + s.retention + time.Minute
	if limit := 100 + int(perSecond*waits.Seconds()); k.most > limit {
		s.findings.add("%v held %d records in one pass, compaction should keep it below %d", k, k.most, limit)
	}
}

// growth lays the samples of one measure out in three ways. What comes before
// retention has reached its level is left out, as is the beginning of a life.
func (s *soak) growth(samples []sample, m measure) growth {
	g := growth{Name: m.name, mib: m.mib}
	byLife := map[int][]sample{}
	for _, x := range samples {
		v := m.of(x)
		if g.Min == 0 || v < g.Min {
			g.Min = v
		}
		g.Max = max(g.Max, v)
		if x.At > s.warm.Seconds() {
			byLife[x.Life] = append(byLife[x.Life], x)
		}
	}
	settle := s.settle().Seconds()
	if s.short() {
		m.limits.share = max(m.limits.share, 0.3) // a few lives of seconds tell no more
	}
	var lives, run, long []point
	var levels []float64
	for _, life := range byLife {
		var ys, equal []float64
		var points []point
		for _, x := range life {
			if x.Since > settle {
				points = append(points, point{x.Since, m.of(x)})
				ys = append(ys, m.of(x))
			}
			if e := s.restartEvery.Seconds(); x.Since > 0.4*e && x.Since < 0.75*e {
				equal = append(equal, m.of(x))
			}
		}
		if len(equal) > 0 {
			run = append(run, point{life[len(life)-1].At, median(equal)})
		}
		if len(ys) == 0 {
			continue
		}
		if last := life[len(life)-1]; last.Since > 2*s.restartEvery.Seconds() {
			for _, p := range points {
				if p.x > 3*settle {
					long = append(long, p)
				}
			}
			continue
		}
		level := median(ys)
		levels = append(levels, level)
		for _, p := range points {
			lives = append(lives, point{p.x, p.y - level})
		}
	}
	g.LongLife, g.Run = judge(long, m.limits), judge(run, m.limits)
	if len(levels) > 0 {
		level := median(levels)
		for i := range lives {
			lives[i].y += level
		}
	}
	g.Lives = judge(lives, m.limits)
	return g
}

// print writes the table.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "\n%v, seed %d: %d records acknowledged, %d read at the end, %d cold, %d by the group with %d commits; %d kills, %d clean stops; %d passes over compacted topics; %d topics deleted, %d DeleteRecords, %d raw connections; %d duplicates of plain producers\n",
		(time.Duration(r.Seconds) * time.Second), r.Seed, r.Acked, r.TailRead, r.ColdRead, r.GroupRead, r.Commits, r.Kills, r.Stops, r.Passes, r.Reborn, r.Trims, r.Connections, r.Again)
	fmt.Fprintf(w, "%s\nCPU: %.1f %% of one, the broker's share is %.1f %%\n\n", r.Compacted, r.CPUPercent, r.BrokerCPU)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "measure\tmin\tlevel\tmax\twithin lives\tlong life\tover the run\tallowed\tper hour\tverdict\t")
	for _, g := range r.Growth {
		unit, format := 1.0, "%.1f"
		if g.mib {
			unit, format = 1<<20, "%.1f MiB"
		}
		f := func(v float64) string { return fmt.Sprintf(format, v/unit) }
		verdict := "steady"
		if g.Lives.Grows || g.LongLife.Grows || g.Run.Grows {
			verdict = "GROWS"
		}
		long := "-"
		if g.LongLife.Points > 0 {
			long = f(g.LongLife.Growth)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", g.Name, f(g.Min), f(g.Lives.Level), f(g.Max), f(g.Lives.Growth), long, f(g.Run.Growth), f(g.Lives.Allowed), f(g.Run.PerHour), verdict)
	}
	t.Flush()
	fmt.Fprintln(w)
	for _, text := range r.Texts {
		fmt.Fprintln(w, "FINDING", text)
	}
	switch {
	case r.Interrupted:
		fmt.Fprintln(w, "interrupted")
	case r.Passed:
		fmt.Fprintln(w, "passed: nothing lost, nothing grows")
	default:
		fmt.Fprintf(w, "FAILED: %d findings\n", r.Found)
	}
}
