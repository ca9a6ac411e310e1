// Package explain walks one lookup of a partition step by step and says what it
// looks at: the segment, the index pages and entries, the batch headers of the
// .log, and what a fetch there would send. It reads the files of a data
// directory and changes nothing.
//
// Before it on the path: internal/cli (`varve explain`). After it: vfs and
// record. What it describes is done by segment and index.
package explain

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"sort"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// Sizes that a lookup depends on.
const (
	pageSize    = 4096
	warmSize    = 8192 // of the end of an index, which is searched first
	offsetEntry = 8
	timeEntry   = 12
	// sendfileFrom is from where a region is sent without a copy.
	sendfileFrom = 32 << 10
	// fetchBytes is the default of a consumer's max.partition.fetch.bytes.
	fetchBytes = 1 << 20
)

// Kind names a step.
type Kind string

// The steps of a walk, in their order.
const (
	SegmentStep Kind = "segment"
	IndexStep   Kind = "index"
	ProbeStep   Kind = "probe"
	EntryStep   Kind = "entry"
	BatchStep   Kind = "batch"
	DoubtStep   Kind = "doubt"  // an index contradicts the .log and is not followed
	DamageStep  Kind = "damage" // bytes of the .log that are no good batch
	FoundStep   Kind = "found"
	FetchStep   Kind = "fetch"
)

// Step is one line of the walk. Values that a kind does not have are -1.
type Step struct {
	Kind     Kind
	Text     string
	File     string
	Page     int64 // of an index
	Entry    int64 // of an index
	Position int64 // byte of the .log
	Offset   kafka.Offset
	Bytes    int64
}

// Options say which lookup is walked.
type Options struct {
	FS        vfs.FS
	Dir       string // data directory
	Partition kafka.TopicPartition
	// Offset is looked up, or, with ByTime, the first record at or after Timestamp.
	Offset    kafka.Offset
	Timestamp kafka.Timestamp
	ByTime    bool
}

// Result is the walk.
type Result struct {
	Steps      []Step
	Start, End kafka.Offset // of the log
	// Offset is where a fetch starts: what was asked for, or what the time led to.
	Offset kafka.Offset
}

// ErrNoPartition is wrapped when the data directory does not hold the partition.
var ErrNoPartition = errors.New("no such partition")

// RangeError says that the log does not hold what was asked for.
type RangeError struct {
	What       string
	Start, End kafka.Offset
}

// Error names the offsets that there are.
func (e *RangeError) Error() string {
	return fmt.Sprintf("%s is out of range: the log starts at offset %d and ends at %d", e.What, e.Start, e.End)
}

// Explain walks. The error is a *RangeError or a *DamageError with the steps up to
// it, one that wraps ErrNoPartition, or one of the disk.
func Explain(o Options) (Result, error) {
	w := &walk{o: o, dir: filepath.Join(o.Dir, o.Partition.String())}
	err := w.run()
	return w.r, err
}

type walk struct {
	o     Options
	dir   string
	r     Result
	bases []kafka.Offset
}

func (w *walk) step(s Step, format string, args ...any) {
	s.Text = fmt.Sprintf(format, args...)
	w.r.Steps = append(w.r.Steps, s)
}

// none is a step without values.
func none(k Kind) Step {
	return Step{Kind: k, Page: -1, Entry: -1, Position: -1, Offset: -1, Bytes: -1}
}

func (w *walk) run() error {
	if err := w.open(); err != nil {
		return err
	}
	if w.o.ByTime {
		return w.byTime()
	}
	if w.o.Offset < w.r.Start || w.o.Offset > w.r.End {
		return &RangeError{fmt.Sprintf("offset %d", w.o.Offset), w.r.Start, w.r.End}
	}
	w.r.Offset = w.o.Offset
	i := w.floor(w.o.Offset)
	w.segment(i, fmt.Sprintf("offset %d", w.o.Offset))
	if w.o.Offset == w.r.End {
		w.step(none(FetchStep), "offset %d is the end of the log: a fetch waits there for the next record", w.o.Offset)
		return nil
	}
	return w.find(i, w.o.Offset)
}

// open lists the segments and finds where the log starts and ends.
func (w *walk) open() error {
	entries, err := w.o.FS.ReadDir(w.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s", ErrNoPartition, w.dir)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if n, ok := segment.ParseName(e.Name()); ok && n.Suffix == "" && n.Ext == segment.LogExt {
			w.bases = append(w.bases, n.Base)
		}
	}
	slices.Sort(w.bases)
	if len(w.bases) == 0 {
		return fmt.Errorf("%w: %s holds no .log", ErrNoPartition, w.dir)
	}
	w.r.Start = w.bases[0]
	starts, err := checkpoint.ReadOffsets(w.o.FS, filepath.Join(w.o.Dir, checkpoint.LogStartFile))
	if err == nil {
		w.r.Start = max(w.r.Start, starts[w.o.Partition])
	}
	last := w.bases[len(w.bases)-1]
	w.r.End = last
	return w.past(last, 0, func(s *record.Scanner) bool {
		w.r.End = max(w.r.End, s.Header().NextOffset())
		return true
	}, nil)
}

func (w *walk) path(base kafka.Offset, ext string) string {
	return filepath.Join(w.dir, segment.Name(base, ext))
}

// scan reads batch headers of a segment from a byte on.
func (w *walk) scan(base kafka.Offset, from int64, visit func(s *record.Scanner) bool) error {
	f, err := w.o.FS.OpenFile(w.path(base, segment.LogExt), 0, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	s := record.NewScanner(f, from, size, record.HeaderSize)
	for s.Next() {
		if !visit(s) {
			return nil
		}
	}
	if err := s.Err(); err != nil && !errors.Is(err, record.ErrCorrupt) {
		return err
	}
	return nil
}

// floor is the segment whose base is the greatest one not above an offset.
func (w *walk) floor(o kafka.Offset) int {
	return max(0, sort.Search(len(w.bases), func(i int) bool { return w.bases[i] > o })-1)
}

// segment shows the one chosen between its neighbours.
func (w *walk) segment(i int, what string) {
	s := none(SegmentStep)
	s.File, s.Offset = w.path(w.bases[i], segment.LogExt), w.bases[i]
	before, after := "it is the first", "it is the last"
	if i > 0 {
		before = fmt.Sprintf("before it %d", w.bases[i-1])
	}
	if i+1 < len(w.bases) {
		after = fmt.Sprintf("behind it %d", w.bases[i+1])
	}
	w.step(s, "segment %d of %d: base %d is the greatest not above %s (%s, %s)", i+1, len(w.bases), w.bases[i], what, before, after)
}

// indexFile is one index read as a whole.
type indexFile struct {
	path  string
	data  []byte
	entry int
	base  kafka.Offset
}

func (x *indexFile) len() int { return len(x.data) / x.entry }

// at is the key of an entry and what it points at.
func (x *indexFile) at(i int) (key, value int64) {
	b := x.data[i*x.entry:]
	if x.entry == offsetEntry {
		return int64(x.base) + int64(int32(binary.BigEndian.Uint32(b))), int64(int32(binary.BigEndian.Uint32(b[4:])))
	}
	return int64(binary.BigEndian.Uint64(b)), int64(x.base) + int64(int32(binary.BigEndian.Uint32(b[8:])))
}

// read reads an index without the zeros that were preallocated behind its entries.
func (w *walk) read(base kafka.Offset, ext string, entry int) (*indexFile, error) {
	x := &indexFile{path: w.path(base, ext), entry: entry, base: base}
	data, err := vfs.ReadFile(w.o.FS, x.path)
	if errors.Is(err, fs.ErrNotExist) {
		s := none(IndexStep)
		s.File = x.path
		w.step(s, "index %s is missing: the .log is walked from its start", filepath.Base(x.path))
		return x, nil
	}
	if err != nil {
		s := none(DoubtStep)
		s.File = x.path
		w.step(s, "index %s cannot be read: %v: the .log is walked from its start", filepath.Base(x.path), err)
		return x, nil
	}
	n := len(data) / entry
	if len(data)%entry != 0 {
		s := none(DoubtStep)
		s.File, s.Bytes = x.path, int64(len(data))
		w.step(s, "index %s has %d bytes, no whole number of entries of %d: the rest is not used", filepath.Base(x.path), len(data), entry)
	}
	for n > 0 && zero(data[(n-1)*entry:n*entry]) {
		n--
	}
	x.data = data[:n*entry]
	s := none(IndexStep)
	s.File, s.Bytes = x.path, int64(len(data))
	warm := min(n, warmSize/entry+1)
	w.step(s, "index %s: %d bytes, %d entries on %d pages; the warm section is entries %d to %d", filepath.Base(x.path), len(data), n,
		(n*entry+pageSize-1)/pageSize, n-warm, n-1)
	return x, nil
}

func zero(b []byte) bool {
	return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 })
}

// lookup searches the greatest entry whose key is not above target, in Kafka's
// order: the warm section at the end first, then what lies before it.
func (w *walk) lookup(x *indexFile, target int64) (slot int) {
	n, probes := x.len(), 0
	what := "offset"
	if x.entry == timeEntry {
		what = "timestamp"
	}
	probe := func(i int) int64 {
		probes++
		key, _ := x.at(i)
		sign := "<="
		if key > target {
			sign = ">"
		}
		s := none(ProbeStep)
		s.File, s.Page, s.Entry = x.path, int64(i*x.entry/pageSize), int64(i)
		w.step(s, "probe %d: page %d entry %d -> %s %d (%s target)", probes, s.Page, i, what, key, sign)
		return key
	}
	if n == 0 {
		return -1
	}
	lo, hi := 0, n-1
	if hot := max(0, n-1-warmSize/x.entry); probe(hot) < target {
		lo = hot
	} else if hot > 0 && probe(0) > target || hot == 0 && func() bool { key, _ := x.at(0); return key > target }() {
		return -1
	} else {
		hi = hot
	}
	for lo < hi {
		mid := (lo + hi + 1) / 2
		switch key := probe(mid); {
		case key > target:
			hi = mid - 1
		case key == target:
			return mid
		default:
			lo = mid
		}
	}
	return lo
}

// find walks from the offset index to the batch that holds an offset.
func (w *walk) find(i int, offset kafka.Offset) error {
	from, err := w.entry(i, offset)
	if err != nil {
		return err
	}
	return w.walkLog(i, from, offset)
}

// entry looks an offset up in the offset index and returns the byte from which
// the .log is walked.
func (w *walk) entry(i int, offset kafka.Offset) (int64, error) {
	base := w.bases[i]
	x, err := w.read(base, segment.IndexExt, offsetEntry)
	if err != nil {
		return 0, err
	}
	s := none(EntryStep)
	s.File, s.Position, s.Offset = x.path, 0, base
	slot := w.lookup(x, int64(offset))
	if slot < 0 {
		w.step(s, "no entry at or below offset %d: the .log is walked from its start", offset)
		return 0, nil
	}
	key, at := x.at(slot)
	s.Entry, s.Page, s.Position, s.Offset = int64(slot), int64(slot*offsetEntry/pageSize), at, kafka.Offset(key)
	w.step(s, "entry %d: offset %d is at byte %d of the .log", slot, key, at)
	why, err := w.doubt(base, kafka.Offset(key), at, offset)
	if err != nil || why == "" {
		return at, err
	}
	s.Kind = DoubtStep
	w.step(s, "entry %d contradicts the .log: %s; the index is not followed, the .log is walked from its start, and a broker makes the index anew", slot, why)
	return 0, nil
}

// walkLog reads batch headers until the one that holds the offset.
func (w *walk) walkLog(i int, from int64, offset kafka.Offset) error {
	base := w.bases[i]
	file := w.path(base, segment.LogExt)
	headers, found := 0, false
	var at int64
	var h record.Header
	var lost *DamageError
	err := w.past(base, from, func(s *record.Scanner) bool {
		headers++
		h, at = *s.Header(), s.Position()
		if lost != nil && h.BaseOffset > offset {
			return false // the offset lay in what is damaged
		}
		lost = nil
		found = h.LastOffset >= offset
		step := none(BatchStep)
		step.File, step.Position, step.Offset, step.Bytes = file, at, h.BaseOffset, int64(h.Size)
		verdict := "goes on"
		if found {
			verdict = "holds it"
			if h.BaseOffset > offset {
				verdict = "is the first behind it"
			}
		}
		w.step(step, "batch at byte %d: offsets %d to %d, %d bytes: %s", at, h.BaseOffset, h.LastOffset, h.Size, verdict)
		return !found
	}, func(d *DamageError) {
		lost = d
		w.damage(d)
	})
	if err != nil {
		return err
	}
	if lost != nil && !found {
		lost.What = fmt.Sprintf("offset %d", offset)
		return lost
	}
	if !found {
		if i+1 < len(w.bases) {
			w.segment(i+1, "what is not in the one before")
			return w.find(i+1, offset)
		}
		return &RangeError{fmt.Sprintf("offset %d", offset), w.r.Start, w.r.End}
	}
	s := none(FoundStep)
	s.File, s.Position, s.Offset, s.Bytes = file, at, h.BaseOffset, int64(headers*record.HeaderSize)
	if err := w.check(base, at, &h); err != nil {
		return err
	}
	w.step(s, "found after %d headers, %d bytes read between bytes %d and %d: %d pages of the .log", headers, headers*record.HeaderSize, from, at+record.HeaderSize,
		(at+record.HeaderSize-1)/pageSize-from/pageSize+1)
	return w.fetch(base, at, offset)
}

// fetch says what an answer would hold.
func (w *walk) fetch(base kafka.Offset, from int64, offset kafka.Offset) error {
	file := w.path(base, segment.LogExt)
	end, batches := from, 0
	var last kafka.Offset
	partial := false
	err := w.scan(base, from, func(s *record.Scanner) bool {
		next := s.Position() + int64(s.Header().Size)
		if batches > 0 && next-from > fetchBytes {
			partial = true
			return false
		}
		batches, end, last = batches+1, next, s.Header().LastOffset
		return true
	})
	if err != nil {
		return err
	}
	if partial {
		end = from + fetchBytes
	}
	how := fmt.Sprintf("by sendfile, for it is at least %d bytes: no record byte enters the process", sendfileFrom)
	if end-from < sendfileFrom {
		how = fmt.Sprintf("by a copy, for it is less than %d bytes: one read and one write are cheaper", sendfileFrom)
	}
	s := none(FetchStep)
	s.File, s.Position, s.Offset, s.Bytes = file, from, offset, end-from
	cut := ""
	if partial {
		cut = " and the start of the next one, which clients drop"
	}
	w.step(s, "a fetch of at most %d bytes sends bytes %d to %d, %d in all: %d batches up to offset %d%s", fetchBytes, from, end, end-from, batches, last, cut)
	w.step(s, "it is sent %s; over TLS always by a copy", how)
	return nil
}

// byTime finds the first record at or after a time, as ListOffsets does.
func (w *walk) byTime() error {
	target := w.o.Timestamp
	for i, base := range w.bases {
		var most kafka.Timestamp = math.MinInt64
		if err := w.past(base, 0, func(s *record.Scanner) bool { most = max(most, s.Header().MaxTimestamp); return true }, nil); err != nil {
			return err
		}
		if most < target || i+1 < len(w.bases) && w.bases[i+1] <= w.r.Start {
			continue
		}
		s := none(SegmentStep)
		s.File, s.Offset = w.path(base, segment.LogExt), base
		w.step(s, "segment %d of %d: base %d is the first whose largest timestamp, %d, is not below %d", i+1, len(w.bases), base, most, target)
		x, err := w.read(base, segment.TimeIndexExt, timeEntry)
		if err != nil {
			return err
		}
		from := base
		s = none(EntryStep)
		s.File = x.path
		if slot := w.lookup(x, int64(target)); slot >= 0 {
			key, offset := x.at(slot)
			s.Entry, s.Page, s.Offset, from = int64(slot), int64(slot*timeEntry/pageSize), kafka.Offset(offset), max(base, kafka.Offset(offset))
			w.step(s, "entry %d: timestamp %d is at offset %d", slot, key, offset)
			why, err := w.doubtTime(base, kafka.Timestamp(key), kafka.Offset(offset))
			if err != nil {
				return err
			}
			if why != "" {
				s.Kind, from = DoubtStep, base
				w.step(s, "entry %d contradicts the .log: %s; the time index is not followed, and a broker makes it anew", slot, why)
			}
		} else {
			w.step(s, "no entry at or below timestamp %d: it is looked for from offset %d on", target, base)
		}
		return w.findTime(i, max(from, w.r.Start))
	}
	return &RangeError{fmt.Sprintf("timestamp %d", target), w.r.Start, w.r.End}
}

// findTime walks batches from an offset on to the first record that is not older.
func (w *walk) findTime(i int, from kafka.Offset) error {
	base := w.bases[i]
	at, err := w.entry(i, from)
	if err != nil {
		return err
	}
	file := w.path(base, segment.LogExt)
	found := kafka.NoOffset
	var position int64
	var failed error
	err = w.past(base, at, func(s *record.Scanner) bool {
		h := s.Header()
		step := none(BatchStep)
		step.File, step.Position, step.Offset, step.Bytes = file, s.Position(), h.BaseOffset, int64(h.Size)
		if h.MaxTimestamp < w.o.Timestamp || h.LastOffset < w.r.Start {
			w.step(step, "batch at byte %d: offsets %d to %d, largest timestamp %d: goes on", s.Position(), h.BaseOffset, h.LastOffset, h.MaxTimestamp)
			return true
		}
		w.step(step, "batch at byte %d: offsets %d to %d, largest timestamp %d: its records are read", s.Position(), h.BaseOffset, h.LastOffset, h.MaxTimestamp)
		position = s.Position()
		if failed = w.check(base, s.Position(), h); failed == nil {
			found, failed = w.firstRecord(s)
		}
		return found == kafka.NoOffset && failed == nil
	}, w.damage)
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if found == kafka.NoOffset {
		return &RangeError{fmt.Sprintf("timestamp %d", w.o.Timestamp), w.r.Start, w.r.End}
	}
	w.r.Offset = found
	s := none(FoundStep)
	s.File, s.Position, s.Offset = file, position, found
	w.step(s, "offset %d is the first record that is not older than timestamp %d", found, w.o.Timestamp)
	return w.fetch(base, position, found)
}

func (w *walk) firstRecord(s *record.Scanner) (kafka.Offset, error) {
	b, err := s.Batch()
	if err != nil {
		return kafka.NoOffset, err
	}
	var it record.Iterator
	var dec record.Decompressor
	if err := it.Reset(b, &dec); err != nil {
		return kafka.NoOffset, err
	}
	for it.Next() {
		if r := it.Record(); r.Timestamp >= w.o.Timestamp && r.Offset >= w.r.Start {
			return r.Offset, nil
		}
	}
	if err := it.Err(); err != nil && !errors.Is(err, io.EOF) {
		return kafka.NoOffset, err
	}
	return kafka.NoOffset, nil
}
