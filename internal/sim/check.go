package sim

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logdir"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/verify"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// moment is what the outside knew when the machine stopped.
type moment struct {
	now    time.Time
	dirs   []string
	topics map[string]kafka.TopicID
	parts  map[kafka.TopicPartition]*part
}

func (w *world) moment() *moment {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := &moment{now: time.Now(), dirs: w.dirs, topics: map[string]kafka.TopicID{}, parts: map[kafka.TopicPartition]*part{}}
	for name, id := range w.topics {
		m.topics[name] = id
	}
	for tp, p := range w.parts {
		c := p.snapshot()
		if w.m != nil {
			// What the log itself calls durable has to be: below it nothing is
			// checked. A log start that is being raised raises the recovery point.
			if log := w.m.Log(tp); log != nil && log.RecoveryPoint() > c.startMax {
				c.durable = max(c.durable, min(log.RecoveryPoint(), c.acked()))
			}
		}
		m.parts[tp] = c
	}
	return m
}

func (m *moment) ackedRecords() int {
	n := 0
	for _, p := range m.parts {
		n += p.ackedRecords()
	}
	return n
}

// open starts a broker's directories on what is left of the disk.
func (m *moment) open(fsys vfs.FS, w *watch) (*logdir.Manager, error) {
	o := managerOptions(fsys, func() time.Time { return m.now.Add(time.Second) }, m.dirs)
	if w != nil {
		o.Logger = w.logger()
	}
	dirs, err := logdir.Open(o)
	if err != nil {
		return nil, err
	}
	err = dirs.Load(logdir.LoadOptions{
		Image:  imageOf(m.topics, m.parts),
		Config: func(topic string) commitlog.Config { return configOf(m.parts, topic) },
	})
	if err != nil {
		_ = dirs.Close(1)
		return nil, err
	}
	return dirs, nil
}

// judge holds the partitions of an opened broker against the model. whole says
// that the process alone had died, so that all that was acknowledged is there.
func (m *moment) judge(dirs *logdir.Manager, whole bool, rng *rand.Rand) error {
	for _, tp := range sortedParts(m.parts) {
		p := m.parts[tp]
		log := dirs.Log(tp)
		if log == nil {
			if err := dirs.Failure(tp); err != nil {
				return fmt.Errorf("%s is refused: %w", tp, err)
			}
			if p.created {
				return fmt.Errorf("%s is gone", tp)
			}
			if _, err := dirs.Create(logdir.NewPartition{Partition: tp, TopicID: p.id, Config: p.cfg}); err != nil {
				return fmt.Errorf("create %s: %w", tp, err)
			}
			continue
		}
		if log.TopicID() != p.id {
			return fmt.Errorf("%s has the topic id %s, want %s", tp, log.TopicID(), p.id)
		}
		if err := p.judge(log, whole, rng); err != nil {
			return fmt.Errorf("%s: %w", tp, err)
		}
	}
	for _, tp := range dirs.Partitions() {
		if m.parts[tp] == nil {
			return fmt.Errorf("%s was deleted and is back", tp)
		}
	}
	return nil
}

func (p *part) judge(log *commitlog.Log, whole bool, rng *rand.Rand) error {
	start, end := log.StartOffset(), log.EndOffset()
	log.MaybeIncrementHighWatermark(end)
	need := p.durable
	if whole {
		need = p.acked()
	}
	switch {
	case start < p.start:
		return fmt.Errorf("the log starts at %d, below %d: removed records are back", start, p.start)
	case start > p.startMax:
		return fmt.Errorf("the log starts at %d, above %d: records are gone that nothing removed", start, p.startMax)
	case end < need:
		return fmt.Errorf("the log ends at %d, durable was %d", end, need)
	}
	var found []int
	var err error
	if p.compacted {
		found, err = p.judgeCompacted(log, need)
	} else {
		found, err = p.judgePlain(log, need)
	}
	if err != nil {
		return err
	}
	if err := p.judgeCommitted(log, found); err != nil {
		return err
	}
	if err := p.judgeLookups(log, found, rng); err != nil {
		return err
	}
	return p.judgeProducers(log, found)
}

// read gives the batches of [start, end) to visit, as a consumer gets them.
func read(log *commitlog.Log, bound commitlog.Bound, size int64, visit func(b []byte, h *record.Header, aborted []commitlog.AbortedTxn) error) (next kafka.Offset, err error) {
	next = log.StartOffset()
	end := log.EndOffset()
	if bound == commitlog.LastStable {
		end = log.LastStable()
	}
	for next < end {
		info, err := log.Read(next, commitlog.ReadOptions{MaxBytes: size, MinOneBatch: true, Bound: bound, Aborted: true})
		if err != nil {
			return next, fmt.Errorf("read %d: %w", next, err)
		}
		buf := make([]byte, info.Region.Length)
		if len(buf) > 0 {
			_, err = info.Region.File.ReadAt(buf, info.Region.Offset)
		}
		if info.Region.Release != nil {
			info.Region.Release()
		}
		if err != nil {
			return next, fmt.Errorf("read %d: %w", next, err)
		}
		if len(buf) == 0 {
			return next, nil
		}
		before := next
		for len(buf) > 0 {
			n, ok, err := record.NextBatch(buf)
			if err != nil {
				return next, fmt.Errorf("read %d: %w", next, err)
			}
			if !ok {
				break
			}
			b := buf[:n]
			buf = buf[n:]
			h, err := record.ParseHeader(b)
			if err != nil {
				return next, fmt.Errorf("read %d: %w", next, err)
			}
			if h.LastOffset < next {
				return next, fmt.Errorf("read %d: answered with the batch %d to %d", next, h.BaseOffset, h.LastOffset)
			}
			if err := visit(b, &h, info.Aborted); err != nil {
				return next, err
			}
			next = h.LastOffset + 1
		}
		if next == before {
			return next, fmt.Errorf("read %d: no whole batch in the answer", next)
		}
	}
	return next, nil
}

const covered = 21 // a batch's checksum is of the bytes from here on

// judgePlain wants the batches one after the other as they were sent, up to some
// point at or above need, and no other.
func (p *part) judgePlain(log *commitlog.Log, need kafka.Offset) (found []int, err error) {
	start := log.StartOffset()
	i := 0
	for i < len(p.batches) && p.batches[i].last < start {
		i++
	}
	next, err := read(log, commitlog.LogEnd, 1<<20, func(b []byte, h *record.Header, _ []commitlog.AbortedTxn) error {
		same := func() bool {
			want := &p.batches[i]
			return h.BaseOffset == want.base && h.LeaderEpoch == want.epoch && bytes.Equal(b[covered:], want.raw[covered:])
		}
		for i < len(p.batches) && (p.batches[i].last < start || !p.batches[i].acked && !same()) {
			i++ // its append was answered with an error, and it is not there
		}
		if i == len(p.batches) {
			return fmt.Errorf("the batch %d to %d was never sent, or was cut", h.BaseOffset, h.LastOffset)
		}
		want := &p.batches[i]
		if !same() || record.Check(b) != nil {
			return fmt.Errorf("the batch %d to %d of epoch %d is not the one that was sent (%d to %d of epoch %d)",
				h.BaseOffset, h.LastOffset, h.LeaderEpoch, want.base, want.last, want.epoch)
		}
		found = append(found, i)
		i++
		return nil
	})
	if err != nil {
		return found, err
	}
	if next < need {
		return found, fmt.Errorf("the batches end at %d, durable was %d", next, need)
	}
	return found, nil
}

// rec is one record of a batch that was sent.
type rec struct {
	offset     kafka.Offset
	ts         kafka.Timestamp
	key, value []byte
}

func (b *batch) records() []rec {
	return recordsOf(b.raw, b.base)
}

func recordsOf(raw []byte, base kafka.Offset) []rec {
	copied := bytes.Clone(raw)
	record.Batch(copied).SetBaseOffset(base)
	var it record.Iterator
	if it.Reset(copied, new(record.Decompressor)) != nil {
		return nil
	}
	var out []rec
	for it.Next() {
		r := it.Record()
		out = append(out, rec{r.Offset, r.Timestamp, bytes.Clone(r.Key), bytes.Clone(r.Value)})
	}
	return out
}

// judgeCompacted wants only records that were sent, and of each key the newest
// that is not a tombstone.
func (p *part) judgeCompacted(log *commitlog.Log, need kafka.Offset) (found []int, err error) {
	sent := map[kafka.Offset]rec{}
	byBase := map[kafka.Offset]int{}
	for i := range p.batches {
		b := &p.batches[i]
		byBase[b.base] = i
		for _, r := range b.records() {
			sent[r.offset] = r
		}
	}
	there := map[kafka.Offset]bool{}
	next, err := read(log, commitlog.LogEnd, 1<<20, func(b []byte, h *record.Header, _ []commitlog.AbortedTxn) error {
		if err := record.Check(b); err != nil {
			return err
		}
		var it record.Iterator
		if err := it.Reset(b, new(record.Decompressor)); err != nil {
			return err
		}
		for it.Next() {
			r := it.Record()
			want, ok := sent[r.Offset]
			if !ok || want.ts != r.Timestamp || !bytes.Equal(want.key, r.Key) || !bytes.Equal(want.value, r.Value) {
				return fmt.Errorf("the record at %d is not the one that was sent", r.Offset)
			}
			there[r.Offset] = true
		}
		if i, ok := byBase[h.BaseOffset]; ok {
			found = append(found, i)
		}
		return it.Err()
	})
	if err != nil {
		return found, err
	}
	end := max(next, need)
	newest := map[string]rec{}
	committed := map[kafka.Offset]bool{} // by the first offset of the transaction
	for i := range p.batches {
		if b := &p.batches[i]; b.control && b.last < end {
			committed[b.first] = !b.aborted
		}
	}
	for i := range p.batches {
		b := &p.batches[i]
		if b.control || b.txn && !committed[b.first] || b.last >= end || b.last < log.StartOffset() {
			continue
		}
		for _, r := range b.records() {
			newest[string(r.key)] = r
		}
	}
	for key, r := range newest {
		if len(r.value) > 0 && !there[r.offset] {
			return found, fmt.Errorf("the newest record of key %q, at %d, is gone (the log ends at %d, durable was %d)", key, r.offset, next, need)
		}
	}
	return found, nil
}

// judgeCommitted wants a reader of committed transactions to see each one whole
// or not at all.
func (p *part) judgeCommitted(log *commitlog.Log, found []int) error {
	type txn struct {
		pid   kafka.ProducerID
		first kafka.Offset
	}
	aborted := map[txn]bool{}
	begun := map[txn]bool{}
	for _, i := range found {
		b := &p.batches[i]
		if !b.txn {
			continue
		}
		t := txn{b.pid, b.first}
		if b.control {
			aborted[t] = b.aborted
		} else {
			begun[t] = true
		}
	}
	if len(begun) == 0 {
		return nil
	}
	stable := log.LastStable()
	for t := range begun {
		if _, decided := aborted[t]; !decided && t.first < stable && t.first >= log.StartOffset() {
			return fmt.Errorf("last stable offset %d, the transaction from %d is not decided", stable, t.first)
		}
	}
	if p.compacted {
		return nil // an aborted transaction's markers may be gone with its records
	}
	at := map[kafka.Offset]int{}
	for _, i := range found {
		at[p.batches[i].base] = i
	}
	dead := map[kafka.ProducerID]kafka.Offset{}
	listed := map[kafka.Offset]bool{}
	_, err := read(log, commitlog.LastStable, 300, func(_ []byte, h *record.Header, list []commitlog.AbortedTxn) error {
		for _, a := range list {
			if a.FirstOffset <= h.LastOffset && !listed[a.LastOffset] {
				listed[a.LastOffset] = true
				dead[a.ProducerID] = a.FirstOffset
			}
		}
		b := &p.batches[at[h.BaseOffset]]
		if !b.txn {
			return nil
		}
		if b.control {
			if b.aborted {
				delete(dead, b.pid)
			}
			return nil
		}
		_, hidden := dead[b.pid]
		if want := aborted[txn{b.pid, b.first}]; hidden != want {
			return fmt.Errorf("a reader of committed transactions takes the batch at %d for aborted = %v, want %v", b.base, hidden, want)
		}
		return nil
	})
	return err
}

// judgeLookups asks for an offset and a time, which go through the indexes.
func (p *part) judgeLookups(log *commitlog.Log, found []int, rng *rand.Rand) error {
	if len(found) == 0 || p.compacted {
		return nil
	}
	b := &p.batches[found[rng.IntN(len(found))]]
	if b.base < log.StartOffset() {
		return nil
	}
	info, err := log.Read(b.last, commitlog.ReadOptions{MaxBytes: 1, MinOneBatch: true, Bound: commitlog.LogEnd})
	if err != nil {
		return fmt.Errorf("read %d: %w", b.last, err)
	}
	got := make([]byte, info.Region.Length)
	_, err = info.Region.File.ReadAt(got, info.Region.Offset)
	if info.Region.Release != nil {
		info.Region.Release()
	}
	if err != nil || len(got) != len(b.raw) || !bytes.Equal(got[covered:], b.raw[covered:]) {
		return fmt.Errorf("read %d: not the batch that holds it (%v)", b.last, err)
	}
	if b.control {
		return nil
	}
	want := b.records()[0] // times rise strictly within a partition
	at, err := log.OffsetForTimestamp(want.ts, log.EndOffset())
	if err != nil || at.Offset != want.offset {
		return fmt.Errorf("lookup of the time of offset %d: %+v, %v", want.offset, at, err)
	}
	for _, i := range found {
		b := &p.batches[i]
		if e, ok := log.EpochForOffset(b.base); b.base >= log.StartOffset() && (!ok || e != b.epoch) {
			return fmt.Errorf("the leader epoch of offset %d is %d (%v), want %d", b.base, e, ok, b.epoch)
		}
	}
	return nil
}

// judgeProducers sends the newest batch of each producer again: it must be
// known for the duplicate that it is.
func (p *part) judgeProducers(log *commitlog.Log, found []int) error {
	newest := map[kafka.ProducerID]*batch{}
	for _, i := range found {
		if b := &p.batches[i]; b.pid >= 0 && !b.control {
			newest[b.pid] = b
		}
	}
	for pid, b := range newest {
		info, err := log.AppendAsLeader(bytes.Clone(b.raw), b.epoch, commitlog.AppendOptions{})
		if err != nil || !info.Duplicate || info.FirstOffset != b.base || info.LastOffset != b.last {
			return fmt.Errorf("the batch at %d of producer %d sent again: %+v, %v; want a duplicate", b.base, pid, info, err)
		}
	}
	return nil
}

// goesOn appends to each partition, stops cleanly, and opens again: what was
// written after the recovery is there, and verify finds no error.
func (m *moment) goesOn(disk *memfs.FS, dirs *logdir.Manager) error {
	ends := map[kafka.TopicPartition]kafka.Offset{}
	for tp := range m.parts {
		log := dirs.Log(tp)
		o := record.NewBuildOptions()
		var b record.Builder
		b.Reset(o)
		b.Append(kafka.TimestampOf(m.now), []byte("after"), []byte("the crash"), nil)
		raw, err := b.Finish()
		if err != nil {
			return err
		}
		epoch := kafka.LeaderEpoch(1000)
		if _, err := log.AppendAsLeader(bytes.Clone(raw), epoch, commitlog.AppendOptions{}); err != nil {
			return fmt.Errorf("%s: append after the crash: %w", tp, err)
		}
		ends[tp] = log.EndOffset()
	}
	if err := dirs.Close(9); err != nil {
		return fmt.Errorf("stop after the crash: %w", err)
	}
	r, err := verify.Check(context.Background(), verify.Options{FS: disk, Paths: m.dirs, Parallel: 1})
	if err != nil {
		return fmt.Errorf("verify after the crash: %w", err)
	}
	for _, f := range r.Findings {
		if f.Severity == verify.Error && !strings.Contains(f.File, "-delete/") && !strings.Contains(f.File, "-stray/") {
			return fmt.Errorf("verify after recovery and a clean stop: %v", f)
		}
	}
	if err := m.leftovers(disk); err != nil {
		return err
	}
	again, err := m.open(disk, nil)
	if err != nil {
		return fmt.Errorf("open after a clean stop: %w", err)
	}
	defer again.Close(10)
	for tp, end := range ends {
		log := again.Log(tp)
		if log == nil || log.EndOffset() != end {
			return fmt.Errorf("%s: not as the clean stop left it (%v)", tp, again.Failure(tp))
		}
	}
	return nil
}

// leftovers wants no temporary file after a start and a clean stop.
func (m *moment) leftovers(disk *memfs.FS) error {
	for _, dir := range m.dirs {
		for name := range tree(disk, dir) {
			for _, suffix := range []string{".tmp", ".cleaned", ".swap"} {
				if strings.HasSuffix(name, suffix) && !strings.Contains(name, "-delete") && !strings.Contains(name, "-stray") {
					return fmt.Errorf("%s is left after a start and a clean stop", name)
				}
			}
		}
	}
	return nil
}

// tree reads all files below a directory.
func tree(fsys vfs.FS, dir string) map[string][]byte {
	out := map[string][]byte{}
	list, err := fsys.ReadDir(dir)
	if err != nil {
		return out
	}
	for _, e := range list {
		path := dir + "/" + e.Name()
		if e.IsDir() {
			for name, data := range tree(fsys, path) {
				out[name] = data
			}
			continue
		}
		if data, err := vfs.ReadFile(fsys, path); err == nil {
			out[path] = data
		}
	}
	return out
}
