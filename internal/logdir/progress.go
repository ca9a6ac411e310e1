package logdir

import (
	"maps"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/segment"
)

// Progress is how far Load has come.
type Progress struct {
	Partitions, TotalPartitions int
	// Segments were checked batch by batch, Bytes were read for it; TotalSegments
	// and TotalBytes are what had to be checked by the checkpoints. More is
	// checked where a file is found to be damaged, less where a log is cut.
	Segments, TotalSegments int
	Bytes, TotalBytes       int64
}

// progress is Progress while it changes.
type progress struct {
	partitions, totalPartitions atomic.Int64
	segments, totalSegments     atomic.Int64
	bytes, totalBytes           atomic.Int64
}

// Progress may be asked for at any time, also before Load and after it.
func (m *Manager) Progress() Progress {
	p := &m.progress
	return Progress{
		Partitions: int(p.partitions.Load()), TotalPartitions: int(p.totalPartitions.Load()),
		Segments: int(p.segments.Load()), TotalSegments: int(p.totalSegments.Load()),
		Bytes: p.bytes.Load(), TotalBytes: p.totalBytes.Load(),
	}
}

const (
	// tellEvery and tellShare are how often a long recovery says how far it is:
	// when both have passed (CLI-27).
	tellEvery = 10 * time.Second
	tellShare = 10 // one in so many of the bytes
	showEvery = 100 * time.Millisecond

	// keepEvery is how often the recovery points of a long recovery are written,
	// and owedBytes how much may be checked and not yet flushed: a start that is
	// killed again and again comes so much farther each time. Most starts check
	// less, and sync nothing.
	keepEvery = 2 * time.Second
	owedBytes = 256 << 20
)

// pace is what a Load has told and kept of its progress so far.
type pace struct {
	mu        sync.Mutex
	began     time.Time
	told      time.Time
	shown     time.Time
	toldBytes int64
	kept      map[*dir]time.Time
	points    map[*dir]offsets // recovery points of logs that are being recovered
	owed      []*commitlog.Log // recovered, but not flushed
	bytes     int64            // of those
	recovered int              // partitions of which segments were checked
}

// survey counts what the checkpoints say has to be checked, and tells of it.
func (l *loading) survey() {
	m := l.m
	m.progress.totalPartitions.Store(int64(len(l.found)))
	type extent struct{ partitions, segments, bytes atomic.Int64 }
	of := map[*dir]*extent{}
	for _, d := range m.dirs {
		of[d] = &extent{}
	}
	l.each(func(f found) {
		if f.dir.clean {
			return
		}
		segments, bytes := l.extent(f)
		e := of[f.dir]
		e.partitions.Add(1)
		e.segments.Add(segments)
		e.bytes.Add(bytes)
		m.progress.totalSegments.Add(segments)
		m.progress.totalBytes.Add(bytes)
	})
	for _, d := range m.dirs {
		if e := of[d]; e.partitions.Load() > 0 {
			m.o.Logger.Info("last stop was not clean, recovering", "event", "unclean-start", "dir", d.path,
				"partitions", e.partitions.Load(), "segments", e.segments.Load(), "bytes", e.bytes.Load())
		}
	}
}

// extent is the segments from the recovery point on. What cannot be read is met
// again when the partition is opened.
func (l *loading) extent(f found) (segments, bytes int64) {
	path := filepath.Join(f.dir.path, f.name)
	list, err := l.m.o.FS.ReadDir(path)
	if err != nil {
		return 0, 0
	}
	point := f.dir.checkpoints[recoveryPoints].unopened[f.tp]
	var bases []kafka.Offset
	for _, e := range list { // sorted by name, so by base
		if n, ok := segment.ParseName(e.Name()); ok && n.Ext == segment.LogExt && n.Suffix == "" && e.Type().IsRegular() {
			if n.Base <= point {
				bases = bases[:0]
			}
			bases = append(bases, n.Base)
		}
	}
	for _, base := range bases {
		if info, err := l.m.o.FS.Stat(filepath.Join(path, segment.Name(base, segment.LogExt))); err == nil {
			segments, bytes = segments+1, bytes+info.Size()
		}
	}
	return segments, bytes
}

// watch has a log that is being opened tell of its progress. checked is how many
// bytes of it were.
func (l *loading) watch(f found, o *commitlog.Options) (checked *atomic.Int64) {
	checked = new(atomic.Int64)
	o.OnScan = func(segments int, bytes int64) {
		l.m.progress.segments.Add(int64(segments))
		l.m.progress.bytes.Add(bytes)
		checked.Add(bytes)
		l.tell()
	}
	o.OnRecovered = func(point kafka.Offset) {
		l.pace.mu.Lock()
		if l.pace.points[f.dir] == nil {
			l.pace.points[f.dir] = offsets{}
		}
		l.pace.points[f.dir][f.tp] = point
		l.pace.mu.Unlock()
		l.keep(f.dir)
	}
	return checked
}

// opened counts a partition, and flushes what was checked when that is much.
func (l *loading) opened(f found, log *commitlog.Log, checked int64) {
	l.m.progress.partitions.Add(1)
	p := &l.pace
	p.mu.Lock()
	delete(p.points[f.dir], f.tp) // the log says it itself from now on
	var due []*commitlog.Log
	if checked > 0 {
		p.recovered++
	}
	if log != nil && checked > 0 {
		p.owed, p.bytes = append(p.owed, log), p.bytes+checked
		if p.bytes >= owedBytes {
			due, p.owed, p.bytes = p.owed, nil, 0
		}
	}
	p.mu.Unlock()
	for _, log := range due {
		_ = log.Flush(log.EndOffset()) // an error has taken the directory offline
	}
	l.keep(f.dir)
	l.tell()
}

// keep writes the recovery points, when they have not been for a while.
func (l *loading) keep(d *dir) {
	p, now := &l.pace, l.m.o.Now()
	p.mu.Lock()
	due := now.Sub(p.kept[d]) >= keepEvery
	points := maps.Clone(p.points[d])
	if due {
		p.kept[d] = now
	}
	p.mu.Unlock()
	if due {
		_ = l.m.writeCheckpoint(d, recoveryPoints, points) // an error has taken the directory offline
	}
}

// tell logs how far a recovery is that takes long.
func (l *loading) tell() {
	p := &l.pace
	if !p.mu.TryLock() {
		return // somebody else looks
	}
	defer p.mu.Unlock()
	now, at := l.m.o.Now(), l.m.Progress()
	if l.o.Recovering != nil && now.Sub(p.shown) >= showEvery {
		p.shown = now
		l.o.Recovering(at)
	}
	if now.Sub(p.told) < tellEvery || (at.Bytes-p.toldBytes)*tellShare < at.TotalBytes {
		return
	}
	p.told, p.toldBytes = now, at.Bytes
	l.m.o.Logger.Info("recovering", "event", "recovering", "partitions", at.Partitions, "ofPartitions", at.TotalPartitions,
		"segments", at.Segments, "ofSegments", at.TotalSegments, "bytes", at.Bytes, "ofBytes", at.TotalBytes,
		"durationMs", now.Sub(p.began).Milliseconds())
}

func (l *loading) begin() {
	now := l.m.o.Now()
	l.pace.began, l.pace.told = now, now
	l.pace.kept, l.pace.points = map[*dir]time.Time{}, map[*dir]offsets{}
	for _, d := range l.m.dirs {
		l.pace.kept[d] = now
	}
}

// summary is the one line about the logs at a start (LOG-5).
func (l *loading) summary() {
	clean := true
	for _, d := range l.m.dirs {
		clean = clean && (d.clean || d.err() != nil)
	}
	if len(l.found) == 0 {
		return
	}
	at := l.m.Progress()
	l.m.o.Logger.Info("logs recovered", "event", "recovered", "partitions", l.pace.recovered, "ofPartitions", at.TotalPartitions,
		"segments", at.Segments, "bytes", at.Bytes, "durationMs", l.m.o.Now().Sub(l.pace.began).Milliseconds(), "clean", clean)
}
