package verify

import (
	"errors"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// worker checks partitions, one at a time, with one buffer.
type worker struct {
	report
	o          *Options
	fs         vfs.FS
	scanner    *record.Scanner
	dec        record.Decompressor
	it         record.Iterator
	partitions int
	segments   int
	bytes      int64
}

// readBuffer fits into the cache of a core: 9.3 GB/s with two, 7.5 with buffers of 1 MiB.
const readBuffer = 256 << 10

func newWorker(o *Options) *worker {
	buf := readBuffer
	if o.Fast {
		buf = record.HeaderSize
	}
	return &worker{o: o, fs: o.FS, scanner: record.NewScanner(nil, 0, 0, buf)}
}

// partition is the state of one partition's check.
type partition struct {
	*worker
	job
	files map[string]int64 // sizes by name
	bases []kafka.Offset   // of live .log files, rising
	// missing are the bases whose .log is gone from the middle, while other files
	// of it are there.
	missing map[kafka.Offset]bool
	epochs  []checkpoint.Epoch
	// epochsKnown: the file of leader epochs says something.
	epochsKnown bool

	end       kafka.Offset // of the log so far: the next offset
	last      lastBatch
	broken    bool // the segment before ends in damage: what follows it is not known
	damaged   bool // a part of the segment is no batch
	producers bool // a producer id was seen at or above the log start
	leaders   bool // a leader epoch was seen
	lost      bool // it is the metadata log, and that holds nothing: a broker does not start
	unlike    unlike
	lastEpoch kafka.LeaderEpoch
	txns      transactions
}

func (w *worker) partition(j job) {
	p := &partition{worker: w, job: j, lastEpoch: kafka.NoLeaderEpoch, txns: newTransactions()}
	if !p.list() {
		return
	}
	if j.only != "" {
		p.single()
		return
	}
	w.partitions++
	p.lost = p.metadataLost()
	p.readEpochs()
	for i, base := range p.bases {
		p.segment(base, i+1 == len(p.bases))
	}
	p.orphans()
	p.strangers()
	p.snapshots()
	p.missingSnapshot()
	p.checkEpochs()
	p.checkOffsets()
	p.checkTopicID()
	if p.job.partition.Topic == kafka.ClusterMetadataTopic {
		p.kraft()
	}
}

// add adds a finding. Beside a broker, a warning is what it has not finished
// yet, and a file may have gone since its name was read.
func (p *partition) add(s Severity, c Code, file string, position int64, format string, args ...any) {
	if p.data.inUse && (s == Warning || c == CodeUnreadable) {
		if _, err := p.fs.Stat(file); s == Warning || errors.Is(err, fs.ErrNotExist) {
			return
		}
	}
	p.worker.add(s, c, file, position, format, args...)
}

// list reads the names in the directory.
func (p *partition) list() bool {
	entries, err := p.fs.ReadDir(p.dir)
	if err != nil {
		p.add(Error, CodeUnreadable, p.dir, -1, "%v", reason(err))
		return false
	}
	p.files = make(map[string]int64, len(entries))
	for _, e := range entries {
		if _, known := segment.ParseName(e.Name()); e.IsDir() && !known && !ofPartition(e.Name()) {
			if p.only == "" {
				p.add(Note, CodeUnknown, join(p.dir, e.Name()), -1, "a directory, which Kafka passes over")
			}
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // gone since: a broker is at work here
		}
		p.files[e.Name()] = info.Size()
		if n, ok := segment.ParseName(e.Name()); ok && n.Suffix == "" && n.Ext == segment.LogExt && n.String() == e.Name() {
			p.bases = append(p.bases, n.Base)
		}
	}
	slices.Sort(p.bases)
	return true
}

// single checks the one file that was asked for; an index together with its log.
func (p *partition) single() {
	start := len(p.findings)
	n, ok := segment.ParseName(p.only)
	switch {
	case ok && n.Ext == segment.SnapshotExt:
		p.end = 1<<63 - 1
		p.snapshot(p.only, n.Base)
	case ok:
		if _, exists := p.files[segment.Name(n.Base, segment.LogExt)]; exists {
			p.segment(n.Base, n.Base == p.bases[len(p.bases)-1])
		}
	case p.only == checkpoint.EpochFile:
		p.readEpochs()
	case p.only == checkpoint.PartitionFile:
		p.checkTopicID()
	case p.only == checkpoint.QuorumStateFile:
		p.quorumState()
	case strings.HasSuffix(p.only, segment.KraftExt):
		p.kraftSnapshot(p.only)
	}
	kept := p.findings[:start]
	for _, f := range p.findings[start:] {
		if f.File == join(p.dir, p.only) {
			kept = append(kept, f)
		}
	}
	p.findings = kept
}

// unclean reports whether the directory was not stopped cleanly, so that a
// start recovers what follows the recovery point.
func (p *partition) unclean() bool { return !p.data.clean }

// recovered reports whether a start will scan the segment again and rebuild
// its indexes: what is wrong with those is then a warning.
func (p *partition) recovered(next kafka.Offset, active bool) bool {
	if p.job.partition.Topic == kafka.ClusterMetadataTopic {
		return true // recovered at every start
	}
	return p.unclean() && (active || next > p.data.recoveryPoint[p.job.partition])
}

// softened is an Error, or a Warning where a start puts it right.
func softened(recovered bool) Severity {
	if recovered {
		return Warning
	}
	return Error
}

// orphans reports files that no segment or loader needs.
func (p *partition) orphans() {
	names := make([]string, 0, len(p.files))
	for name := range p.files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		n, ok := segment.ParseName(name)
		if !ok {
			continue
		}
		path := join(p.dir, name)
		switch {
		case n.Suffix != "":
			p.add(Note, CodeLeftover, path, -1, "left by a deletion or compaction; a start removes it or puts it in place")
		case n.Ext == segment.SnapshotExt || n.Ext == segment.LogExt:
		default:
			if _, exists := p.files[segment.Name(n.Base, segment.LogExt)]; !exists && !p.missing[n.Base] && !p.lost {
				p.add(Warning, CodeNoLog, path, -1, "an index without its log; a start removes it")
			}
		}
	}
}

func (p *partition) readEpochs() {
	path := join(p.dir, checkpoint.EpochFile)
	epochs, err := checkpoint.ReadEpochs(p.fs, path)
	p.epochsKnown = err == nil && len(epochs) > 0
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			p.epochsKnown = true // it is broken, which is said here
			p.add(Error, CodeCheckpoint, path, -1, "%v", reason(err))
		}
		return
	}
	for i := 1; i < len(epochs); i++ {
		if epochs[i].Epoch <= epochs[i-1].Epoch || epochs[i].Start < epochs[i-1].Start {
			p.add(Error, CodeEpochFile, path, -1, "entry %d: epoch %d from offset %d comes after epoch %d from offset %d",
				i, epochs[i].Epoch, epochs[i].Start, epochs[i-1].Epoch, epochs[i-1].Start)
		}
	}
	p.epochs = epochs
}

// checkEpochs compares the epochs with the end of the log.
func (p *partition) checkEpochs() {
	if !p.epochsKnown && p.leaders && p.data.formatted && p.suffix == "" {
		p.add(Warning, CodeNoEpochs, join(p.dir, checkpoint.EpochFile), -1, "missing or empty, but the batches have leader epochs; a start of varve reads them from the log, Kafka does not")
	}
	if u := p.unlike; u.batches > 0 {
		p.add(Warning, CodeEpochBatch, u.path, u.position, "leader epoch %d, but %d in leader-epoch-checkpoint, and so in %s: when the file is wrong, a start reads the epochs from the batches",
			u.found, u.want, plural(u.batches, "batch"))
	}
	for i, e := range p.epochs {
		if e.Start > p.end {
			p.add(softened(p.unclean()), CodeEpochRange, join(p.dir, checkpoint.EpochFile), -1,
				"entry %d: epoch %d starts at offset %d, the log ends at %d", i, e.Epoch, e.Start, p.end)
		}
	}
}

// epochAt is the leader epoch that the file gives an offset.
func (p *partition) epochAt(o kafka.Offset) (kafka.LeaderEpoch, bool) {
	for i := len(p.epochs) - 1; i >= 0; i-- {
		if p.epochs[i].Start <= o {
			return p.epochs[i].Epoch, true
		}
	}
	return 0, false
}

// checkOffsets compares the data directory's checkpoints with the log.
func (p *partition) checkOffsets() {
	if p.suffix != "" || !p.data.formatted {
		return
	}
	tp := p.job.partition
	severity := softened(p.unclean())
	for _, c := range []struct {
		file     string
		offset   map[kafka.TopicPartition]kafka.Offset
		what     string
		severity Severity
	}{
		{checkpoint.RecoveryPointFile, p.data.recoveryPoint, "recovery point", Error}, // what is below it had reached the disk
		{checkpoint.HighWatermarkFile, p.data.highWatermark, "high watermark", severity},
		{checkpoint.LogStartFile, p.data.logStart, "log start offset", severity},
	} {
		if o, ok := c.offset[tp]; ok && o > p.end {
			p.add(c.severity, CodeCheckpointLog, join(p.data.path, c.file), -1, "%v: %s %d, the log ends at %d", tp, c.what, o, p.end)
		}
	}
}

// holdsNothing reports that no live segment has a byte.
func (p *partition) holdsNothing() bool {
	for _, base := range p.bases {
		if p.files[segment.Name(base, segment.LogExt)] > 0 {
			return false
		}
	}
	return true
}

// checkTopicID compares partition.metadata with the cluster metadata.
func (p *partition) checkTopicID() {
	path := join(p.dir, checkpoint.PartitionFile)
	id, err := checkpoint.ReadPartitionMetadata(p.fs, path)
	topics := p.data.topics
	if topics != nil && p.suffix == "" && topics.has(topics.byName[p.job.partition.Topic]) && !topics.hasPartition(p.job.partition) {
		p.add(Warning, CodeStray, path, -1, "the topic has no partition %d in the cluster metadata: a start sets the directory aside", p.job.partition.Partition)
		return
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		switch {
		case p.suffix != "" || topics == nil && (!p.data.formatted || p.holdsNothing()):
		case p.holdsNothing():
			p.add(Warning, CodePartition, path, -1, "missing: the partition was still being created, it holds no record")
		default:
			p.add(Error, CodePartition, path, -1, "missing: Kafka sets the partition aside as stray")
		}
		return
	case err != nil:
		p.add(Error, CodePartition, path, -1, "%v", reason(err))
		return
	case topics == nil || p.suffix != "" || p.job.partition.Topic == kafka.ClusterMetadataTopic:
		return
	}
	want, exists := topics.id(p.job.partition.Topic)
	switch {
	case !exists && !topics.has(id):
		p.add(Warning, CodeStray, path, -1, "topic %s (%v) is not in the cluster metadata", p.job.partition.Topic, id)
	case exists && want != id:
		p.add(Error, CodeTopicID, path, -1, "topic id %v, but %v in the cluster metadata", id, want)
	}
}

// allZero reports whether the bytes [from, to) of a file are zero. No log of
// Kafka's reaches beyond 2 GiB: what a sparse file has there is not looked at.
func (p *partition) allZero(f vfs.File, from, to int64) bool {
	to = min(to, max(from, math.MaxInt32))
	buf := make([]byte, 64<<10)
	for from < to {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), to-from)], from)
		if n == 0 || !zero(buf[:n]) {
			return err == nil && n == 0
		}
		from += int64(n)
	}
	return true
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
