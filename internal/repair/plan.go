package repair

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/verify"
	"github.com/varvelog/varve/internal/vfs"
)

// The order in which the steps of a plan are done. A lower recovery point is
// durable before the log is cut; an index that ends early is right before and
// after its log is cut; one of a log that is put together anew comes after it.
const (
	rankCheckpoint = 0
	rankIndex      = 100
	rankCut        = 101
	rankAside      = 102
	rankIndexAfter = 103
	rankSnapshot   = 104
	rankEpochs     = 105
	rankAccept     = 200 // behind everything else: it vouches for the result
)

type segmentKey struct {
	dir  string
	base kafka.Offset
}

// planner is one Make while it runs.
type planner struct {
	o       Options
	view    *view
	plan    Plan
	at      map[string]int  // step of a file
	held    map[string]bool // files whose step is not allowed
	tried   map[string]bool // files for which nothing better can be made
	force   map[segmentKey]bool
	changes int
	cut     map[string]bool // directories whose log changes in this round
	topics  map[string]kafka.TopicID
	asked   bool // topics was read
}

// add puts a step into the plan, in the place of an earlier one for its file.
func (p *planner) add(s Step) {
	p.changes++
	if s.From == 0 && s.spans == nil {
		s.From, s.To = -1, -1
	}
	if s.spans == nil {
		s.First, s.Last = kafka.NoOffset, kafka.NoOffset
	}
	key := cmp.Or(s.key, s.File)
	if i, ok := p.at[key]; ok {
		if old := &p.plan.Steps[i]; s.spans != nil && old.spans != nil {
			s.From = old.From
			if old.First != kafka.NoOffset {
				s.First = min(old.First, s.First)
			}
			if old.Kind == MoveAside {
				s.Kind, s.rank, s.Why = MoveAside, old.rank, old.Why
			}
		}
		p.plan.Steps[i] = s
		return
	}
	p.at[key] = len(p.plan.Steps)
	p.plan.Steps = append(p.plan.Steps, s)
}

// needs are what the findings of a round ask for in one partition.
type needs struct {
	logs    map[kafka.Offset]bool
	indexes map[string]bool // file names
	aside   map[string]string
	snaps   map[string]bool
	epochs  bool // anew from the batches
	above   bool // epochs that start above the end
	topicID bool

	unreadable bool // a file that is needed may not be readable
}

// round turns findings into steps.
func (p *planner) round(findings []verify.Finding) error {
	before := p.changes
	p.cut = map[string]bool{}
	parts := map[string]*needs{}
	var roots []verify.Finding
	for _, f := range findings {
		if f.Severity == verify.Note {
			continue
		}
		dir, name := filepath.Dir(f.File), filepath.Base(f.File)
		switch name {
		case checkpoint.RecoveryPointFile, checkpoint.LogStartFile, checkpoint.HighWatermarkFile, checkpoint.CleanerFile:
			roots = append(roots, f)
			continue
		}
		if _, ok := livePartition(dir); !ok {
			continue
		}
		n := parts[dir]
		if n == nil {
			n = &needs{logs: map[kafka.Offset]bool{}, indexes: map[string]bool{}, aside: map[string]string{}, snaps: map[string]bool{}}
			parts[dir] = n
		}
		n.take(f, name)
	}
	dirs, err := p.partitions()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		err := p.partition(dir, parts[dir])
		if unreadable(err) && parts[dir] != nil && parts[dir].unreadable {
			continue // verify names it, the other partitions are mended
		}
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	if len(p.cut) > 0 {
		return nil // the checkpoints are compared with the logs as they will be
	}
	if err := p.roots(roots); err != nil || p.changes > before {
		return err
	}
	return p.accept(dirs, findings)
}

// unreadable reports an error of one file: one that cannot be read, or is none.
func unreadable(err error) bool {
	var pathErr *fs.PathError
	return errors.As(err, &pathErr)
}

func (n *needs) take(f verify.Finding, name string) {
	n.unreadable = n.unreadable || f.Code == verify.CodeUnreadable
	file, isSegment := segment.ParseName(name)
	switch f.Code {
	case verify.CodeFraming, verify.CodeChecksum, verify.CodeTail, verify.CodeOffsets, verify.CodeMagic, verify.CodeRange:
		if isSegment && file.Ext == segment.LogExt && f.Position >= 0 {
			n.logs[file.Base] = true
		}
	case verify.CodeNoLog:
		n.aside[name] = "an index without its log"
	case verify.CodeIndexSize, verify.CodeIndexOrder, verify.CodeIndexPosition, verify.CodeIndexMissing,
		verify.CodeTimeSize, verify.CodeTimeOrder, verify.CodeTimeOffset, verify.CodeTimestamp, verify.CodeTimeMissing,
		verify.CodeTxnIndex, verify.CodeTxnOrder, verify.CodeTxnMarker:
		n.indexes[name] = true
	case verify.CodeSnapshot, verify.CodeSnapshotRange, verify.CodeNoSnapshot:
		n.snaps[name] = true
	case verify.CodeUnreadable: // a directory, link or FIFO in its place
		switch {
		case !isSegment || file.Suffix != "":
		case file.Ext == segment.SnapshotExt:
			n.snaps[name] = true
		case file.Ext != segment.LogExt:
			n.indexes[name] = true
		}
	case verify.CodeCheckpoint, verify.CodeEpochFile, verify.CodeNoEpochs:
		n.epochs = n.epochs || name == checkpoint.EpochFile
	case verify.CodeEpochRange:
		n.above = true
	case verify.CodePartition:
		n.topicID = true
	}
}

// livePartition takes the name of a partition directory; one that is being
// deleted, moved or was set aside is not touched.
func livePartition(dir string) (kafka.TopicPartition, bool) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return kafka.TopicPartition{}, false
	}
	tp, err := kafka.ParseTopicPartition(filepath.Base(abs))
	return tp, err == nil
}

// formatted reports whether a directory is one of log.dirs.
func (p *planner) formatted(dir string) bool {
	_, err := p.view.Stat(filepath.Join(dir, checkpoint.MetaFile))
	return err == nil
}

// partitions lists the partition directories below the paths.
func (p *planner) partitions() ([]string, error) {
	var dirs []string
	for _, path := range p.o.Paths {
		if _, ok := livePartition(path); ok && !p.formatted(path) {
			dirs = append(dirs, filepath.Clean(path))
			continue
		}
		entries, err := p.view.ReadDir(path)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			dir := filepath.Join(path, e.Name())
			if _, ok := livePartition(dir); ok && e.IsDir() {
				dirs = append(dirs, dir)
			}
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), nil
}

// part is a partition as the view has it.
type part struct {
	dir   string
	tp    kafka.TopicPartition
	names map[string]bool
	bases []kafka.Offset // of .log files, rising
}

func (p *planner) open(dir string) (*part, error) {
	tp, _ := livePartition(dir)
	d := &part{dir: dir, tp: tp, names: map[string]bool{}}
	entries, err := p.view.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		d.names[e.Name()] = true
		if n, ok := segment.ParseName(e.Name()); ok && n.Suffix == "" && n.Ext == segment.LogExt && !e.IsDir() && n.String() == e.Name() {
			d.bases = append(d.bases, n.Base)
		}
	}
	slices.Sort(d.bases)
	return d, nil
}

func (d *part) path(base kafka.Offset, ext string) string {
	return filepath.Join(d.dir, segment.Name(base, ext))
}

func (p *planner) partition(dir string, n *needs) error {
	d, err := p.open(dir)
	if err != nil {
		return err
	}
	if n == nil {
		n = &needs{}
	}
	for _, base := range slices.Sorted(keys(n.logs)) {
		if err := p.log(d, base); err != nil {
			return err
		}
	}
	gaps, err := p.gaps(d)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(keys(n.aside)) {
		if gaps[name] {
			continue
		}
		path := filepath.Join(dir, name)
		p.view.aside(path)
		p.add(Step{Kind: MoveAside, File: path, Why: n.aside[name], rank: rankIndex})
	}
	if p.cut[dir] {
		return nil // what follows from the cut is seen in the next round
	}
	if err := p.indexes(d, n.indexes); err != nil {
		return err
	}
	for _, name := range slices.Sorted(keys(n.snaps)) {
		if err := p.snapshot(d, name); err != nil {
			return err
		}
	}
	if err := p.epochs(d, n.epochs, n.above); err != nil {
		return err
	}
	if n.topicID {
		return p.topicID(d)
	}
	return nil
}

func keys[K comparable, V any](m map[K]V) func(yield func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// log plans for a .log that holds what is no good batch.
func (p *planner) log(d *part, base kafka.Offset) error {
	path := d.path(base, segment.LogExt)
	if p.held[path] || p.tried[path] {
		return nil
	}
	upper, later := kafka.Offset(math.MaxInt64), false
	for _, b := range d.bases {
		if b > base {
			upper = min(upper, b)
			info, err := p.view.Stat(d.path(b, segment.LogExt))
			if err != nil {
				return err
			}
			later = later || info.Size() > 0
		}
	}
	f, err := p.view.OpenFile(path, 0, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	s, err := surveyLog(f, base, upper)
	if err != nil {
		return err
	}
	if len(s.bad) == 0 {
		p.tried[path] = true
		return nil
	}
	step := Step{Kind: Truncate, File: path, From: size, To: sizeOf(s.kept), First: kafka.NoOffset, Last: kafka.NoOffset, rank: rankCut, spans: s.kept}
	if step.spans == nil {
		step.spans = []span{}
	}
	first, last, open, lost := s.lostOffsets()
	if lost {
		step.First, step.Last = first, last
		if open {
			step.Last = kafka.NoOffset
		}
	}
	if !s.tail() {
		step.Kind, step.rank = MoveAside, rankAside
		step.Why = fmt.Sprintf("keeps the other %d batches in its place", s.batches)
		if d.tp.Topic == kafka.ClusterMetadataTopic {
			p.tried[path] = true // a log of changes means nothing with one left out
			return nil
		}
	}
	whole := slices.ContainsFunc(s.bad, func(h hole) bool { return h.whole })
	step.Loses = whole || lost && (later || !s.tail())
	if step.Loses && !p.o.AllowDataLoss {
		p.held[path] = true
		p.plan.Held = append(p.plan.Held, step)
		return nil
	}
	if step.Kind == MoveAside {
		p.force[segmentKey{d.dir, base}] = true
		for _, ext := range []string{segment.IndexExt, segment.TimeIndexExt, segment.TxnIndexExt} {
			if d.names[segment.Name(base, ext)] {
				p.view.remove(d.path(base, ext))
			}
		}
	}
	step.spans = p.view.splice(path, step.spans)
	p.cut[d.dir] = true
	for tried := range p.tried { // what was made of the log as it was may be wrong now
		if filepath.Dir(tried) == d.dir {
			delete(p.tried, tried)
		}
	}
	p.add(step)
	return nil
}

// indexes plans for the index files named, those of segments that are put
// together anew, and those that an earlier run had set aside when it was stopped.
func (p *planner) indexes(d *part, names map[string]bool) error {
	for _, base := range d.bases {
		want := map[string]bool{}
		for _, ext := range []string{segment.IndexExt, segment.TimeIndexExt, segment.TxnIndexExt} {
			name := segment.Name(base, ext)
			if names[name] || p.force[segmentKey{d.dir, base}] || !d.names[name] && d.names[name+cutSuffix] {
				want[ext] = !p.tried[d.path(base, ext)]
			}
		}
		if !want[segment.IndexExt] && !want[segment.TimeIndexExt] && !want[segment.TxnIndexExt] {
			continue
		}
		built, err := p.buildIndexes(d, base, want[segment.TxnIndexExt])
		if err != nil {
			return err
		}
		for ext, wanted := range want {
			if err := p.index(d, base, ext, built[ext], wanted); err != nil {
				return err
			}
		}
		p.force[segmentKey{d.dir, base}] = false
	}
	return nil
}

func (p *planner) index(d *part, base kafka.Offset, ext string, data []byte, wanted bool) error {
	path := d.path(base, ext)
	if !wanted {
		return nil
	}
	old, err := vfs.ReadFile(p.view, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, vfs.ErrTooLarge) && !errors.Is(err, vfs.ErrNotRegular) {
		return err
	}
	exists := !errors.Is(err, fs.ErrNotExist)
	p.tried[path] = true
	if exists && err == nil && bytes.Equal(old, data) || !exists && len(data) == 0 && ext == segment.TxnIndexExt {
		return nil // the evidence gives nothing better
	}
	rank := rankIndex
	if i, ok := p.at[d.path(base, segment.LogExt)]; ok && p.plan.Steps[i].Kind == MoveAside {
		rank = rankIndexAfter
	}
	return p.put(Step{Kind: RebuildIndex, File: path, rank: rank}, data)
}

// put plans a new content of a small file.
func (p *planner) put(s Step, data []byte) error {
	data, err := p.view.write(s.File, func(fsys vfs.FS) error { return checkpoint.WriteFile(fsys, s.File, data) })
	if err != nil {
		return err
	}
	s.data = data
	if s.data == nil {
		s.data = []byte{}
	}
	p.add(s)
	return nil
}

// end is the log end offset of a partition.
func (p *planner) end(d *part) (kafka.Offset, error) {
	if len(d.bases) == 0 {
		return 0, nil
	}
	base := d.bases[len(d.bases)-1]
	end := base
	err := p.scan(d.path(base, segment.LogExt), record.HeaderSize, func(s *record.Scanner) error {
		end = max(end, s.Header().NextOffset())
		return nil
	})
	return end, err
}

// scan walks over the batches of a .log, up to what is none.
func (p *planner) scan(path string, buffer int, visit func(s *record.Scanner) error) error {
	f, err := p.view.OpenFile(path, 0, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	s := record.NewScanner(f, 0, size, buffer)
	for s.Next() {
		if err := visit(s); err != nil {
			return err
		}
	}
	if err := s.Err(); err != nil && !errors.Is(err, record.ErrCorrupt) {
		return err
	}
	return nil
}

// epochs plans for the leader epochs of a partition.
func (p *planner) epochs(d *part, anew, above bool) error {
	path := filepath.Join(d.dir, checkpoint.EpochFile)
	if !anew && !above || p.tried[path] {
		return nil
	}
	p.tried[path] = true
	var list []checkpoint.Epoch
	why := "from the batches of the log"
	if anew {
		for _, base := range d.bases {
			err := p.scan(d.path(base, segment.LogExt), record.HeaderSize, func(s *record.Scanner) error {
				h := s.Header()
				if h.Magic >= record.MagicV2 && h.LeaderEpoch >= 0 && (len(list) == 0 || h.LeaderEpoch > list[len(list)-1].Epoch) {
					list = append(list, checkpoint.Epoch{Epoch: h.LeaderEpoch, Start: h.BaseOffset})
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	} else {
		end, err := p.end(d)
		if err != nil {
			return err
		}
		if list, err = checkpoint.ReadEpochs(p.view, path); err != nil {
			return err
		}
		list = slices.DeleteFunc(list, func(e checkpoint.Epoch) bool { return e.Start > end })
		why = fmt.Sprintf("without epochs that start above offset %d", end)
		p.tried[path] = false
	}
	data, err := p.view.write(path, func(fsys vfs.FS) error { return checkpoint.WriteEpochs(fsys, path, list) })
	if err != nil {
		return err
	}
	p.add(Step{Kind: RewriteCheckpoint, File: path, Why: why, data: data, rank: rankEpochs})
	return nil
}

// topicID plans a partition.metadata from the cluster metadata.
func (p *planner) topicID(d *part) error {
	path := filepath.Join(d.dir, checkpoint.PartitionFile)
	if !p.asked {
		p.topics, p.asked = verify.TopicIDs(p.view, p.o.Paths), true
	}
	id, ok := p.topics[d.tp.Topic]
	if !ok || d.tp.Topic == kafka.ClusterMetadataTopic || p.tried[path] {
		return nil
	}
	p.tried[path] = true
	data, err := p.view.write(path, func(fsys vfs.FS) error { return checkpoint.WritePartitionMetadata(fsys, path, id) })
	if err != nil {
		return err
	}
	p.add(Step{Kind: RewriteCheckpoint, File: path, Why: fmt.Sprintf("topic id %v of the cluster metadata", id), data: data, rank: rankEpochs})
	return nil
}

// roots plans for the offset checkpoints in the root of data directories.
func (p *planner) roots(findings []verify.Finding) error {
	for i, f := range findings {
		if slices.ContainsFunc(findings[:i], func(b verify.Finding) bool { return b.File == f.File }) {
			continue
		}
		offsets, err := checkpoint.ReadOffsets(p.view, f.File)
		var changed []string
		var instead *vfs.NotRegularError
		switch {
		case errors.As(err, &instead) && instead.Mode.IsDir():
			continue // under another name Kafka would not start with it
		case errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, vfs.ErrNotRegular):
			offsets = map[kafka.TopicPartition]kafka.Offset{}
			changed = append(changed, "without entries: the logs are looked at instead")
		case err != nil:
			continue
		default:
			if changed, err = p.lower(f, offsets); err != nil {
				return err
			}
		}
		if len(changed) == 0 {
			continue
		}
		data, err := p.view.write(f.File, func(fsys vfs.FS) error { return checkpoint.WriteOffsets(fsys, f.File, offsets) })
		if err != nil {
			return err
		}
		why := strings.Join(changed, ", ")
		if at, ok := p.at[f.File]; ok {
			why = p.plan.Steps[at].Why + ", " + why
		}
		p.add(Step{Kind: RewriteCheckpoint, File: f.File, Why: why, data: data, rank: rankCheckpoint})
	}
	return nil
}

// lower brings entries above the end of their logs down to it. A log start
// offset above the end would have everything deleted: such an entry goes.
func (p *planner) lower(f verify.Finding, offsets map[kafka.TopicPartition]kafka.Offset) (changed []string, err error) {
	dir, name := filepath.Dir(f.File), filepath.Base(f.File)
	byName := func(a, b kafka.TopicPartition) int { return strings.Compare(a.String(), b.String()) }
	for _, tp := range slices.SortedFunc(keys(offsets), byName) {
		d, err := p.open(filepath.Join(dir, tp.String()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		end, err := p.end(d)
		if unreadable(err) {
			continue // verify names the file
		}
		if err != nil {
			return nil, err
		}
		switch offset := offsets[tp]; {
		case offset <= end:
		case name == checkpoint.LogStartFile:
			delete(offsets, tp)
			changed = append(changed, fmt.Sprintf("%v %d -> none", tp, offset))
		default:
			offsets[tp] = end
			changed = append(changed, fmt.Sprintf("%v %d -> %d", tp, offset, end))
		}
	}
	return changed, nil
}
