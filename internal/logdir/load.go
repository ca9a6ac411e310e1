package logdir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/vfs"
)

// LoadOptions give Load what the metadata log says.
type LoadOptions struct {
	// Image decides which partition directories are this broker's. Nil: all are,
	// for tools and tests without a metadata log.
	Image *metadata.Image
	// Config is the settings of a topic; nil: commitlog.DefaultConfig for all.
	Config func(topic string) commitlog.Config
	// Recovering, when not nil, is told from time to time how far the recovery is,
	// one call at a time, ten times a second at most.
	Recovering func(p Progress)
	// Progress, when not nil, is called after each partition, one call at a time.
	Progress func(loaded, of int)
}

// Load removes the clean-shutdown markers, opens every partition and starts the
// background tasks. A directory that fails goes offline, a partition that fails
// is left as it is (see Failure); the error is for what has to stop the start.
func (m *Manager) Load(o LoadOptions) error {
	if o.Config == nil {
		o.Config = func(string) commitlog.Config { return commitlog.DefaultConfig() }
	}
	m.assignFlushers()
	l := &loading{m: m, o: o, entries: map[*dir][]fs.DirEntry{}, present: map[kafka.TopicPartition]bool{}, deleted: map[string][]deletion{}}
	if err := l.list(); err != nil {
		return err
	}
	for _, d := range m.dirs {
		if d.err() != nil {
			continue
		}
		if err := l.scan(d); Transient(err) {
			return err // of descriptors or memory: no word about the disk
		} else if err != nil {
			m.goOffline(d, "load", err)
		}
	}
	l.missing()
	l.begin()
	l.survey()
	l.each(l.openOne)
	if m.online() == 0 {
		return fmt.Errorf("load data directories: %w", m.dirs[0].err())
	}
	for k := range checkpointKinds {
		for _, d := range m.dirs {
			file := &d.checkpoints[k]
			file.mu.Lock()
			file.unopened = nil
			file.mu.Unlock()
		}
		m.checkpointAll(k)
	}
	l.summary()
	l.removeDeleted()
	m.schedule()
	m.startCleaner()
	m.loaded.Store(true) // last: what looks at the scrubs asks for it
	return nil
}

// loading is one Load while it runs.
type loading struct {
	m       *Manager
	o       LoadOptions
	entries map[*dir][]fs.DirEntry
	aside   map[string]bool // paths of partitions that are of an earlier topic, see leftover
	found   []found
	present map[kafka.TopicPartition]bool // whose name is in a data directory
	deleted map[string][]deletion         // by deletedKey

	mu   sync.Mutex
	done int
	pace pace
}

// found is a partition directory that is to be opened.
type found struct {
	dir  *dir
	name string
	tp   kafka.TopicPartition
	id   kafka.TopicID
}

// list reads the names in all directories, before anything is changed. One
// partition in two places is refused: nothing says which of them is right.
func (l *loading) list() error {
	seen := map[string]*dir{}
	for _, d := range l.m.dirs {
		if d.err() != nil {
			continue
		}
		var entries []fs.DirEntry
		err := vfs.Twice(func() (err error) {
			entries, err = l.m.o.FS.ReadDir(d.path)
			return err
		})
		if Transient(err) {
			return err
		}
		if err != nil {
			l.m.goOffline(d, "load", err)
			continue
		}
		l.entries[d] = entries
		for _, e := range entries {
			what, tp := classify(e.Name())
			if what == livePartition {
				l.present[tp] = true // also what is no directory, which Create refuses
			}
			if what != livePartition || !e.IsDir() {
				continue
			}
			if other := seen[e.Name()]; other != nil {
				if l.leftover(d, e.Name()) {
					continue
				}
				if l.leftover(other, e.Name()) {
					seen[e.Name()] = d
					continue
				}
				return &RefusedError{d.path, fmt.Sprintf("holds %s, and so does %s", e.Name(), other.path), "move one of the two out of the data directories"}
			}
			seen[e.Name()] = d
		}
	}
	return nil
}

// leftover notes a partition directory that another data directory holds too and
// that is of an earlier topic of the name: deleted, and made anew elsewhere, while
// this directory was offline. Without an id it is one when no record is in it.
func (l *loading) leftover(d *dir, name string) bool {
	tp, err := kafka.ParseTopicPartition(name)
	if err != nil || l.o.Image == nil || l.o.Image.Topic(tp.Topic) == nil {
		return false
	}
	path := filepath.Join(d.path, name)
	id, err := checkpoint.ReadPartitionMetadata(l.m.o.FS, filepath.Join(path, checkpoint.PartitionFile))
	switch {
	case err == nil && l.o.Image.TopicByID(id) != nil:
		return false
	case err != nil && (!errors.Is(err, fs.ErrNotExist) && !errors.Is(err, checkpoint.ErrCorrupt) || !l.recordless(path)):
		return false
	}
	if l.aside == nil {
		l.aside = map[string]bool{}
	}
	l.aside[path] = true
	return true
}

// recordless reports whether no .log of a directory has a byte.
func (l *loading) recordless(path string) bool {
	list, err := l.m.o.FS.ReadDir(path)
	if err != nil {
		return false
	}
	for _, e := range list {
		if filepath.Ext(e.Name()) != ".log" {
			continue
		}
		if info, err := e.Info(); err != nil || info.Size() > 0 {
			return false
		}
	}
	return true
}

// scan prepares a directory: marker gone for good, checkpoints read, names
// sorted into what is opened and what is not. The error is the disk's.
func (l *loading) scan(d *dir) error {
	m := l.m
	if err := checkpoint.RemoveCleanShutdown(m.o.FS, d.path); err != nil {
		return err
	}
	if err := m.readCheckpoints(d); err != nil {
		return err
	}
	d.complete = true
	for _, e := range l.entries[d] {
		if err := l.entry(d, e); err != nil {
			return err
		}
	}
	return nil
}

func (l *loading) entry(d *dir, e fs.DirEntry) error {
	m, path := l.m, filepath.Join(d.path, e.Name())
	if !e.IsDir() {
		if isTemporary(e.Name()) && e.Type().IsRegular() {
			err := m.o.FS.Remove(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a checkpoint was written meanwhile, see disown
			}
			return err
		}
		if !e.Type().IsRegular() {
			m.o.Logger.Warn("entry left alone", "event", "left-alone", "path", path, "kind", e.Type())
		}
		return nil
	}
	what, tp := classify(e.Name())
	switch what {
	case unknownDir:
		m.o.Logger.Warn("entry left alone", "event", "left-alone", "path", path, "kind", "directory with an unknown name")
	case deletedPartition:
		key := deletedKey(e.Name())
		l.deleted[key] = append(l.deleted[key], deletion{dir: d, path: path})
	case livePartition:
		if l.aside[path] {
			return m.setAside(d, e.Name(), tp, "of an earlier topic of the name, which another directory holds")
		}
		id, ok, err := m.identity(d, e.Name(), tp, l.o.Image)
		if vfs.IsReadError(err) {
			id, ok, err = m.identity(d, e.Name(), tp, l.o.Image)
		}
		switch {
		case isDiskError(err) && !onlyThisPartition(err):
			return err
		case err != nil:
			l.refuse(d, tp, err)
		case ok:
			l.found = append(l.found, found{d, e.Name(), tp, id})
		}
	}
	return nil
}

// refuse notes a partition that stays on disk unopened. Its checkpoint entries
// are kept, and the directory will not be called clean.
func (l *loading) refuse(d *dir, tp kafka.TopicPartition, err error) {
	m := l.m
	m.mu.Lock()
	m.failed[tp] = failure{d, err}
	m.mu.Unlock()
	l.mu.Lock()
	d.complete = false
	for k := range checkpointKinds {
		d.checkpoints[k].carry(tp)
	}
	l.mu.Unlock()
	m.o.Logger.Error("partition not opened", append([]any{"dir", d.path, "topic", tp.Topic, "partition", tp.Partition, "err", err},
		adviceOn(err, "what is in it was left as it is; restart when the cause is gone")...)...)
	if vfs.IsReadError(err) {
		m.readFailed(d, "", "load", err)
	}
}

// onlyThisPartition tells an error that is no reason to take its whole directory
// offline: bytes that cannot be read (faults E3), unless there are more of them,
// and files that this user may not open (F6).
func onlyThisPartition(err error) bool {
	return vfs.IsReadError(err) || errors.Is(err, fs.ErrPermission)
}

// each calls do for all that was found, each directory with its own workers.
func (l *loading) each(do func(f found)) {
	workers := l.m.o.RecoveryThreads
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	var wg sync.WaitGroup
	for _, d := range l.m.dirs {
		queue := make(chan found)
		for range workers {
			wg.Go(func() {
				for f := range queue {
					do(f)
				}
			})
		}
		wg.Go(func() {
			defer close(queue)
			for _, f := range l.found {
				if f.dir == d && d.err() == nil {
					queue <- f
				}
			}
		})
	}
	wg.Wait()
}

func (l *loading) openOne(f found) {
	m, d := l.m, f.dir
	if d.err() != nil {
		return
	}
	p := &partition{tp: f.tp, dir: d}
	o := m.logOptions(p, filepath.Join(d.path, f.name), f.id, l.o.Config(f.tp.Topic))
	o.CleanShutdown = d.clean
	checkpointed := func(k checkpointKind) (kafka.Offset, bool) {
		offset, ok := d.checkpoints[k].unopened[f.tp]
		return offset, ok
	}
	dirty := &d.checkpoints[firstDirties]
	o.FirstDirty, o.FirstDirtyKnown = dirty.unopened[f.tp], len(dirty.unopened) > 0
	checked := l.watch(f, &o)
	log, err := m.openAt(p, o, checkpointed)
	if vfs.IsReadError(err) { // what was cut or made meanwhile is done already
		log, err = m.openAt(p, o, checkpointed)
	}
	switch {
	case err == nil:
		p.log = log
		m.mu.Lock()
		m.logs[f.tp] = p
		m.mu.Unlock()
	case isDiskError(err) && !onlyThisPartition(err):
		m.goOffline(d, "load", err)
	default:
		l.refuse(d, f.tp, err)
	}
	l.opened(f, log, checked.Load())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done++
	if l.o.Progress != nil {
		l.o.Progress(l.done, len(l.found))
	}
}

// openAt opens a log with what the checkpoints say of it.
func (m *Manager) openAt(p *partition, o commitlog.Options, checkpointed func(checkpointKind) (kafka.Offset, bool)) (*commitlog.Log, error) {
	at := func(k checkpointKind) kafka.Offset {
		offset, _ := checkpointed(k)
		return max(0, offset)
	}
	o.RecoveryPoint, o.LogStartOffset, o.HighWatermark = at(recoveryPoints), at(logStarts), at(highWatermarks)
	log, err := commitlog.Open(o)
	if err != nil {
		return nil, err
	}
	if first, ok := checkpointed(firstDirties); ok && first <= log.EndOffset() {
		p.cleaned, p.isCleaned = first, true
	}
	return log, nil
}

// logOptions are the options of a log, for opening and for creating it. The
// callbacks look at p.dir, so that nothing is done in a directory that is offline.
func (m *Manager) logOptions(p *partition, path string, id kafka.TopicID, c commitlog.Config) commitlog.Options {
	d := p.dir
	return commitlog.Options{
		FS:                 m.o.FS,
		Dir:                path,
		Partition:          p.tp,
		TopicID:            id,
		Config:             c,
		ProducerExpiration: m.o.ProducerExpiration,
		VerifyTransactions: m.o.VerifyTransactions,
		Scratch:            m.o.Scratch,
		Files:              m.files,
		Flusher:            d.flusher,
		Offline:            &d.broken,
		Now:                m.o.Now,
		Expiry:             m.o.Expiry,
		Logger:             m.o.Logger,
		Jitter:             m.o.Jitter,
		AfterDelay:         func(delay time.Duration, f func()) { m.jobs.after(delay, d.unlessOffline(f)) },
		Background:         func(f func()) { m.jobs.background(d.unlessOffline(f)) },
		PersistLogStart:    func(o kafka.Offset) error { return m.persistLogStart(p, o) },
		PersistRecoveryPoint: func(o kafka.Offset) error {
			return m.persistRecoveryPoint(p, o)
		},
		OnTruncate: func(o kafka.Offset) { m.cutCleaned(p, o) },
		OnFailure:  func(err error) { m.logFailed(d, p.tp, err) },
		OnFull:     func(what string, err error) { m.noteFull(d, what, err) },
		Full:       &d.full.now,
		OnRoom:     func() { m.noteRoom(d) },
	}
}

func (d *dir) unlessOffline(f func()) func() {
	return func() {
		if d.err() == nil {
			f()
		}
	}
}
