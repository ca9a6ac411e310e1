package verify

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// snapshots checks the producer snapshots of the partition.
func (p *partition) snapshots() {
	names := p.sorted(func(name string) bool {
		n, ok := segment.ParseName(name)
		return ok && n.Suffix == "" && n.Ext == segment.SnapshotExt
	})
	for _, name := range names {
		n, _ := segment.ParseName(name)
		p.snapshot(name, n.Base)
	}
}

// sorted are the names that pass, in order.
func (p *partition) sorted(pass func(string) bool) []string {
	var names []string
	for name := range p.files {
		if pass(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (p *partition) snapshot(name string, offset kafka.Offset) {
	path := join(p.dir, name)
	data, err := vfs.ReadFile(p.fs, path)
	if errors.Is(err, vfs.ErrTooLarge) {
		p.add(Error, CodeSnapshot, path, -1, "%v", err)
		return
	}
	if err != nil {
		p.add(Error, CodeUnreadable, path, -1, "%v", reason(err))
		return
	}
	severity := softened(p.recovered(offset, false))
	entries, err := producer.DecodeSnapshot(data)
	if err != nil {
		p.add(severity, CodeSnapshot, path, 0, "%v", err)
		return
	}
	if offset > p.end && !p.lost {
		p.add(softened(p.recovered(p.end, true)), CodeSnapshotRange, path, -1, "the log ends at %d", p.end)
	}
	for i, e := range entries {
		if e.LastOffset >= offset || e.TxnFirstOffset >= offset {
			p.add(Error, CodeSnapshotRange, path, -1, "entry %d: producer %d has offset %d and open transaction %d, not below the snapshot's offset",
				i, e.ProducerID, e.LastOffset, e.TxnFirstOffset)
		}
	}
}

// kraft checks what only the metadata log has.
func (p *partition) kraft() {
	p.quorumState()
	newest := kafka.Offset(-1)
	for _, name := range p.sorted(func(name string) bool { return strings.HasSuffix(name, segment.KraftExt) }) {
		p.kraftSnapshot(name)
		if end, _, err := snapshotID(name); err == nil {
			newest = max(newest, end)
		}
	}
	if len(p.bases) > 0 && p.bases[0] > max(newest, 0) {
		p.add(Error, CodeKRaftSnapshot, p.dir, -1, "the log starts at offset %d and no snapshot reaches it: a broker does not start", p.bases[0])
	}
	if p.lost {
		base, what := kafka.Offset(0), "missing"
		if len(p.bases) > 0 {
			base, what = p.bases[len(p.bases)-1], "empty"
		}
		why := "topics are known there alone, a broker does not start"
		if newest > 0 {
			why = "there are snapshots up to offset " + itoa(int64(newest)) + " alone, and what was changed behind it is not known"
		}
		p.add(Error, CodeNoMetadata, join(p.dir, segment.Name(base, segment.LogExt)), -1, "%s: %s; restore it from a copy", what, why)
	}
}

// metadataLost reports whether this is the metadata log, and what was in it is
// gone: it holds nothing, although partitions or snapshots say that it did.
func (p *partition) metadataLost() bool {
	if p.job.partition.Topic != kafka.ClusterMetadataTopic || p.suffix != "" || !p.holdsNothing() {
		return false
	}
	newest := kafka.Offset(-1)
	for name := range p.files {
		if !strings.HasSuffix(name, segment.KraftExt) {
			continue
		}
		if end, _, err := snapshotID(name); err == nil {
			newest = max(newest, end)
		}
	}
	if n := len(p.bases); n > 0 && newest > 0 && p.bases[n-1] >= newest {
		return false // a new segment behind the snapshot
	}
	return newest > 0 || p.used()
}

// used reports whether there are partitions besides the metadata log, in this
// data directory or in another one of the node: it is more than formatted.
func (p *partition) used() bool {
	roots := p.data.node
	if len(roots) == 0 {
		roots = []string{filepath.Dir(p.dir)}
	}
	for _, root := range roots {
		dirs, err := p.fs.ReadDir(root)
		if err != nil {
			continue
		}
		for _, d := range dirs {
			if tp, suffix, ok := parseDir(d.Name()); !ok || !d.IsDir() || suffix == "stray" || suffix == "delete" || tp.Topic == kafka.ClusterMetadataTopic {
				continue
			}
			if _, err := p.fs.Stat(join(join(root, d.Name()), checkpoint.PartitionFile)); err == nil {
				return true
			}
		}
	}
	return false
}

func (p *partition) quorumState() {
	path := join(p.dir, checkpoint.QuorumStateFile)
	if _, ok := p.files[checkpoint.QuorumStateFile]; !ok {
		if p.end > 0 && !p.holdsNothing() {
			p.add(Warning, CodeQuorumState, path, -1, "missing: a start takes the epoch of the log, which is right for one voter only")
		}
		return
	}
	if _, err := checkpoint.ReadQuorumState(p.fs, path); err != nil {
		if errors.Is(err, vfs.ErrNotRegular) {
			p.add(Error, CodeQuorumState, path, -1, "%v", reason(err))
			return
		}
		p.add(Warning, CodeQuorumState, path, -1, "%v: a start takes the epoch of the log, which is right for one voter only", reason(err))
	}
}

// kraftSnapshot checks a snapshot of the metadata log: batches that follow each
// other without a gap, between a header and a footer.
func (p *partition) kraftSnapshot(name string) {
	path := join(p.dir, name)
	f, err := p.fs.OpenFile(path, 0, 0)
	if err != nil {
		p.add(Error, CodeUnreadable, path, -1, "%v", reason(err))
		return
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		p.add(Error, CodeUnreadable, path, -1, "%v", reason(err))
		return
	}
	p.bytes += size
	s := record.NewScanner(f, 0, size, record.ScanBuffer)
	var next kafka.Offset
	first, last := record.UnknownControl, record.UnknownControl
	for s.Next() {
		h := s.Header()
		if h.BaseOffset != next {
			p.add(Error, CodeKRaftSnapshot, path, s.Position(), "batch at offset %d, want %d", h.BaseOffset, next)
		}
		next = h.NextOffset()
		p.content(path, s)
		last = record.UnknownControl
		b, err := s.Batch()
		if err == nil && h.IsControl() && record.Check(b) == nil {
			last = p.controlType(b)
		}
		if s.Position() == 0 {
			first = last
		}
	}
	switch {
	case s.Err() != nil || s.ValidEnd() != size:
		p.add(Error, CodeKRaftSnapshot, path, s.ValidEnd(), "%d bytes that are no batch", size-s.ValidEnd())
	case first != record.SnapshotStart || last != record.SnapshotEnd:
		p.add(Error, CodeKRaftSnapshot, path, -1, "begins with %v and ends with %v, want SNAPSHOT_HEADER and SNAPSHOT_FOOTER", first, last)
	}
}

func (p *partition) controlType(b []byte) record.ControlType {
	if p.it.Reset(b, &p.dec) != nil || !p.it.Next() {
		return record.UnknownControl
	}
	t, err := record.ParseControl(p.it.Record().Key)
	if err != nil {
		return record.UnknownControl
	}
	return t
}

// topics are the topics of the cluster metadata.
type topics struct {
	byName  map[string]kafka.TopicID
	byID    map[kafka.TopicID]bool
	compact map[string]bool // by topic; "" is the default of the brokers
	// partitions are how many a topic has: they are numbered from 0.
	partitions map[kafka.TopicID]int32
}

// hasPartition reports whether the topic of that name has the partition.
func (t *topics) hasPartition(tp kafka.TopicPartition) bool {
	return tp.Partition < t.partitions[t.byName[tp.Topic]]
}

// compacts reports whether the topic, or every one, may be compacted.
func (t *topics) compacts(name string) bool {
	own, set := t.compact[name]
	return own || !set && t.compact[""]
}

func (t *topics) id(name string) (kafka.TopicID, bool) {
	id, ok := t.byName[name]
	return id, ok
}

func (t *topics) has(id kafka.TopicID) bool { return t.byID[id] }

// loadTopics replays the metadata log of a data directory: newest snapshot,
// then the records behind it. It returns nil when there is no such log or it
// cannot be replayed, which the check of its partition reports.
func loadTopics(fsys vfs.FS, dir string) *topics {
	dir = join(dir, kafka.TopicPartition{Topic: kafka.ClusterMetadataTopic}.String())
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return nil
	}
	var snapshot string
	var logs []string
	for _, e := range entries { // sorted by name
		n, ok := segment.ParseName(e.Name())
		switch {
		case ok && n.Ext == segment.LogExt && n.Suffix == "":
			logs = append(logs, e.Name())
		case strings.HasSuffix(e.Name(), segment.KraftExt):
			snapshot = e.Name()
		}
	}
	t := &topics{byName: map[string]kafka.TopicID{}, byID: map[kafka.TopicID]bool{}, compact: map[string]bool{}, partitions: map[kafka.TopicID]int32{}}
	var end kafka.Offset
	if snapshot != "" {
		if end, _, err = snapshotID(snapshot); err != nil || !t.replay(fsys, join(dir, snapshot), 0) {
			return nil
		}
	}
	for _, name := range logs {
		if !t.replay(fsys, join(dir, name), end) {
			return nil
		}
	}
	if len(logs) == 0 || end == 0 && len(t.byID) == 0 && !holdsBytes(fsys, dir, logs) {
		return nil
	}
	return t
}

func holdsBytes(fsys vfs.FS, dir string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		info, err := fsys.Stat(join(dir, name))
		return err != nil || info.Size() > 0
	})
}

// replay applies the topic records of a file from an offset on.
func (t *topics) replay(fsys vfs.FS, path string, from kafka.Offset) bool {
	data, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return false
	}
	var it record.Iterator
	var dec record.Decompressor
	for {
		n, ok, err := record.NextBatch(data)
		if err != nil || !ok {
			return true // a torn tail: what is before it counts
		}
		b := data[:n]
		data = data[n:]
		if record.Check(b) != nil || it.Reset(b, &dec) != nil {
			return false
		}
		if record.Batch(b).IsControl() {
			continue
		}
		for it.Next() {
			if it.Record().Offset >= from && !t.apply(it.Record().Value) {
				return false
			}
		}
	}
}

func (t *topics) apply(value []byte) bool {
	r, _, err := metadata.DecodeRecord(value)
	if err != nil {
		return false
	}
	switch r := r.(type) {
	case *metadata.TopicRecord:
		t.byName[r.Name] = r.TopicID
		t.byID[r.TopicID] = true
	case *metadata.PartitionRecord:
		t.partitions[r.TopicID] = max(t.partitions[r.TopicID], r.PartitionID+1)
	case *metadata.ConfigRecord:
		t.policy(r)
	case *metadata.RemoveTopicRecord:
		delete(t.byID, r.TopicID)
		delete(t.partitions, r.TopicID)
		for name, id := range t.byName {
			if id == r.TopicID {
				delete(t.byName, name)
				delete(t.compact, name)
			}
		}
	}
	return true
}

// policy notes what is compacted.
func (t *topics) policy(r *metadata.ConfigRecord) {
	name := ""
	switch {
	case r.ResourceType == metadata.ResourceTopic && r.Name == "cleanup.policy":
		name = r.ResourceName
	case r.ResourceType == metadata.ResourceBroker && r.Name == "log.cleanup.policy":
	default:
		return
	}
	if r.Value == nil {
		delete(t.compact, name)
		return
	}
	t.compact[name] = strings.Contains(*r.Value, "compact")
}

// metadataRecords decodes the records of a batch of the metadata log, or of a
// snapshot of it: a controller does not start on one that it cannot read.
func (p *partition) metadataRecords(path string, position int64, b []byte) {
	err := p.it.Reset(b, &p.dec)
	for err == nil && p.it.Next() {
		r := p.it.Record()
		if _, _, err := metadata.DecodeRecord(r.Value); err != nil {
			p.add(Error, CodeMetadata, path, position, "offset %d: %v", r.Offset, err)
		}
	}
	if err == nil {
		err = p.it.Err()
	}
	if err != nil {
		p.add(Error, CodeMetadata, path, position, "%v", err)
	}
}
