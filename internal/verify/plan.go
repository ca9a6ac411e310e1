package verify

import (
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// job is one partition directory to check.
type job struct {
	dir       string // path
	partition kafka.TopicPartition
	suffix    string // delete, future, stray
	only      string // check this file alone; "" is all
	data      *dataDir
}

// dataDir is what a data directory says about its partitions.
type dataDir struct {
	path          string
	formatted     bool // has meta.properties
	clean         bool // has the clean-shutdown marker
	inUse         bool // a broker is at work here
	recoveryPoint map[kafka.TopicPartition]kafka.Offset
	logStart      map[kafka.TopicPartition]kafka.Offset
	highWatermark map[kafka.TopicPartition]kafka.Offset
	cleaned       map[kafka.TopicPartition]kafka.Offset
	topics        *topics  // of the cluster metadata; nil when there is none
	node          []string // paths of all that were named; nil when only a part of it was
}

// suffixed matches a directory that is being deleted, moved, or was set aside.
var suffixed = regexp.MustCompile(`^(\S+-\S+)\.[^.]+-(delete|future|stray)$`)

// parseDir takes the name of a partition directory apart.
func parseDir(name string) (tp kafka.TopicPartition, suffix string, ok bool) {
	if m := suffixed.FindStringSubmatch(name); m != nil {
		name, suffix = m[1], m[2]
	}
	tp, err := kafka.ParseTopicPartition(name)
	return tp, suffix, err == nil
}

// plan turns paths into partitions and checks what is beside them.
func plan(o *Options) ([]job, []Finding, error) {
	p := planner{fs: o.FS, inUse: o.InUse}
	var dirs []*dataDir
	for _, path := range o.Paths {
		info, err := p.fs.Stat(path)
		if err != nil {
			return nil, nil, err
		}
		name := filepath.Base(path)
		tp, suffix, isPartition := parseDir(name)
		_, metaErr := p.fs.Stat(join(path, checkpoint.MetaFile))
		switch {
		case !info.IsDir():
			if !p.file(path) {
				return nil, nil, &NotKafkaError{path}
			}
		case isPartition && metaErr != nil:
			p.jobs = append(p.jobs, job{dir: path, partition: tp, suffix: suffix, data: p.parent(filepath.Dir(path))})
		default:
			d := p.dataDir(path)
			if !p.partitions(d) && !d.formatted {
				return nil, nil, &NotKafkaError{path}
			}
			d.node = o.Paths
			dirs = append(dirs, d)
		}
	}
	p.compareMeta(dirs)
	p.twice()
	if o.Node {
		p.metadata(dirs)
	}
	p.shareTopics(dirs)
	return p.jobs, p.findings, nil
}

type planner struct {
	report
	fs    vfs.FS
	inUse func(dir string) bool
	jobs  []job
}

// file plans a single file: one of a partition, or one of a data directory. It
// returns false for a file that is neither.
func (p *planner) file(path string) bool {
	dir, name := filepath.Split(filepath.Clean(path))
	dir = filepath.Clean(dir)
	abs, err := filepath.Abs(dir)
	if err != nil {
		abs = dir
	}
	_, ofSegment := segment.ParseName(name)
	if tp, suffix, ok := parseDir(filepath.Base(abs)); ok && (ofSegment || ofPartition(name)) {
		p.jobs = append(p.jobs, job{dir: dir, partition: tp, suffix: suffix, only: name, data: p.parent(filepath.Dir(dir))})
		return true
	}
	if ofSegment {
		p.jobs = append(p.jobs, job{dir: dir, only: name, data: &dataDir{}})
		return true
	}
	return p.rootFile(path, name)
}

// ofPartition reports whether a file of a partition directory that belongs to
// no segment is one that can be checked.
func ofPartition(name string) bool {
	switch name {
	case checkpoint.EpochFile, checkpoint.PartitionFile, checkpoint.QuorumStateFile:
		return true
	}
	return strings.HasSuffix(name, segment.KraftExt)
}

// parent reads what the directory above a partition says, without findings.
func (p *planner) parent(path string) *dataDir {
	quiet := planner{fs: p.fs, inUse: p.inUse}
	if _, err := p.fs.Stat(join(path, checkpoint.MetaFile)); err != nil {
		return &dataDir{path: path}
	}
	return quiet.dataDir(path)
}

// dataDir reads the files in the root of a data directory.
func (p *planner) dataDir(path string) *dataDir {
	d := &dataDir{path: path}
	_, err := p.fs.Stat(join(path, checkpoint.MetaFile))
	d.formatted = err == nil
	if errors.Is(err, fs.ErrNotExist) {
		p.add(Error, CodeMeta, join(path, checkpoint.MetaFile), -1, "missing: a broker does not start on the directory, because nothing else says whose it is")
	}
	if p.inUse != nil && p.inUse(path) {
		d.inUse = true
		p.add(Note, CodeInUse, path, -1, "a broker is at work here: what it is writing at this moment may not be whole, and is not reported")
	}
	info, err := p.fs.Stat(join(path, checkpoint.CleanShutdownFile))
	d.clean = err == nil && info.Mode().IsRegular()
	if errors.Is(err, fs.ErrNotExist) && d.formatted && !d.inUse {
		p.add(Note, CodeCleanMarker, join(path, checkpoint.CleanShutdownFile), -1, "missing: not stopped cleanly, a start recovers what lies above the recovery points")
	}
	for _, name := range []string{checkpoint.MetaFile, checkpoint.CleanShutdownFile} {
		p.rootFile(join(path, name), name)
	}
	d.recoveryPoint = p.offsets(join(path, checkpoint.RecoveryPointFile))
	d.logStart = p.offsets(join(path, checkpoint.LogStartFile))
	d.highWatermark = p.offsets(join(path, checkpoint.HighWatermarkFile))
	d.cleaned = p.offsets(join(path, checkpoint.CleanerFile))
	return d
}

// rootFile checks a file of a data directory that is there. It returns false
// for a name that is not one of them.
func (p *planner) rootFile(path, name string) bool {
	var err error
	var code Code
	switch name {
	case checkpoint.MetaFile:
		_, err = checkpoint.ReadMeta(p.fs, path)
		code = CodeMeta
	case checkpoint.CleanShutdownFile:
		code = CodeCleanMarker
		epoch, found, readErr := checkpoint.ReadCleanShutdown(p.fs, filepath.Dir(path))
		if err = readErr; err == nil && found && epoch == checkpoint.NoBrokerEpoch {
			p.add(Warning, code, path, -1, "no broker epoch in it: the controller takes the stop for an unclean one")
		}
	case checkpoint.RecoveryPointFile, checkpoint.LogStartFile, checkpoint.HighWatermarkFile, checkpoint.CleanerFile:
		p.offsets(path)
		return true
	case bootstrapFile, checkpoint.LockFile:
		return true // the former is read with the metadata log's snapshots
	default:
		return false
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.add(Error, code, path, -1, "%v", reason(err))
	}
	return true
}

// bootstrapFile is what Kafka's format tool up to 3.9 left in place of a metadata log.
const bootstrapFile = "bootstrap.checkpoint"

// metadata checks that one of the directories of a node has its metadata log.
func (p *planner) metadata(dirs []*dataDir) {
	name := kafka.TopicPartition{Topic: kafka.ClusterMetadataTopic}.String()
	formatted := ""
	for _, d := range dirs {
		if !d.formatted {
			continue
		}
		formatted = d.path
		if _, err := p.fs.Stat(join(d.path, bootstrapFile)); err == nil {
			return
		}
		entries, err := p.fs.ReadDir(join(d.path, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return // reported where the partition is checked
		}
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); ext == segment.LogExt || ext == segment.KraftExt {
				return
			}
		}
	}
	if formatted != "" {
		p.add(Error, CodeNoMetadata, join(formatted, name), -1, "missing: a broker does not start without the metadata log (if it lies in another directory, see metadata.log.dir, name that one too)")
	}
}

func (p *planner) offsets(path string) map[kafka.TopicPartition]kafka.Offset {
	m, err := checkpoint.ReadOffsets(p.fs, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.add(Error, CodeCheckpoint, path, -1, "%v", reason(err))
	}
	return m
}

// reason leaves the path out of an error that is printed behind the path.
func reason(err error) error {
	var corrupt *checkpoint.CorruptError
	if errors.As(err, &corrupt) {
		if corrupt.Line > 0 {
			return errors.New("line " + itoa(int64(corrupt.Line)) + ": " + corrupt.Reason)
		}
		return errors.New(corrupt.Reason)
	}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// partitions plans every partition directory of a data directory. It returns
// false when nothing in it is Kafka's.
func (p *planner) partitions(d *dataDir) (any bool) {
	entries, err := p.fs.ReadDir(d.path)
	if err != nil {
		p.add(Error, CodeUnreadable, d.path, -1, "%v", reason(err))
		return true
	}
	here := map[kafka.TopicPartition]bool{}
	for _, e := range entries {
		if !e.IsDir() {
			any = any || checkpointName(e.Name())
			if d.formatted {
				p.rootEntry(join(d.path, e.Name()), e.Name(), e.Type().IsRegular())
			}
			continue
		}
		if e.Name() == "remote-log-index-cache" {
			continue
		}
		path := join(d.path, e.Name())
		tp, suffix, ok := parseDir(e.Name())
		if !ok {
			p.add(Error, CodeForeign, path, -1, "not in the form of topic-partition: Kafka does not start with it")
			continue
		}
		any = any || d.formatted || p.holdsPartition(path)
		if suffix == "" {
			here[tp] = true
		}
		p.jobs = append(p.jobs, job{dir: path, partition: tp, suffix: suffix, data: d})
	}
	if _, err := p.fs.Stat(join(d.path, bootstrapFile)); err == nil {
		p.jobs = append(p.jobs, job{dir: d.path, only: bootstrapFile, data: d})
	}
	if d.clean && len(here) > 0 {
		p.noCheckpoints(d)
	}
	for tp := range d.recoveryPoint {
		if !here[tp] {
			p.add(Note, CodeCheckpointLog, join(d.path, checkpoint.RecoveryPointFile), -1, "names %v, which is not here", tp)
		}
	}
	return any
}

// holdsPartition reports whether something in a directory is a partition's: the
// name alone is that of many a directory.
func (p *planner) holdsPartition(path string) bool {
	entries, err := p.fs.ReadDir(path)
	return err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		_, ok := segment.ParseName(e.Name())
		return ok || ofPartition(e.Name())
	})
}

// noCheckpoints misses the checkpoints that a clean stop writes. Without them a
// start does more, and knows less: deleted records inside a first segment come back.
func (p *planner) noCheckpoints(d *dataDir) {
	for _, c := range []struct{ name, without string }{
		{checkpoint.RecoveryPointFile, "a start reads every log from its beginning"},
		{checkpoint.LogStartFile, "records that were deleted inside a first segment come back"},
		{checkpoint.HighWatermarkFile, "the high watermark of a log with one replica is its end, of others it is found anew"},
	} {
		path := join(d.path, c.name)
		info, err := p.fs.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			p.add(Warning, CodeNoCheckpoint, path, -1, "missing after a clean stop: %s", c.without)
		case err == nil && info.Size() == 0 && info.Mode().IsRegular() && c.name != checkpoint.HighWatermarkFile:
			p.add(Warning, CodeNoCheckpoint, path, -1, "empty after a clean stop: %s", c.without)
		}
	}
	path := join(d.path, checkpoint.CleanerFile)
	if _, err := p.fs.Stat(path); errors.Is(err, fs.ErrNotExist) {
		p.add(Note, CodeNoCheckpoint, path, -1, "missing: compacted logs are compacted from their beginning")
	}
}

// checkpointName reports whether the root of a data directory alone has a file
// of the name.
func checkpointName(name string) bool {
	switch name {
	case checkpoint.RecoveryPointFile, checkpoint.LogStartFile, checkpoint.HighWatermarkFile, checkpoint.CleanerFile,
		checkpoint.CleanShutdownFile, bootstrapFile:
		return true
	}
	return false
}

// compareMeta checks that the directories belong to one node.
func (p *planner) compareMeta(dirs []*dataDir) {
	var first checkpoint.MetaProperties
	var firstPath string
	seen := map[kafka.UUID]string{}
	for _, d := range dirs {
		path := join(d.path, checkpoint.MetaFile)
		m, err := checkpoint.ReadMeta(p.fs, path)
		if err != nil {
			continue
		}
		if other, twice := seen[m.DirectoryID]; twice && !m.DirectoryID.IsZero() {
			p.add(Error, CodeMetaDisagree, path, -1, "directory.id %v is also that of %s", m.DirectoryID, other)
		}
		seen[m.DirectoryID] = d.path
		switch {
		case firstPath == "":
			first, firstPath = m, d.path
		case m.ClusterID != first.ClusterID:
			p.add(Error, CodeMetaDisagree, path, -1, "cluster.id %s, but %s in %s", m.ClusterID, first.ClusterID, firstPath)
		case m.NodeID != first.NodeID:
			p.add(Error, CodeMetaDisagree, path, -1, "node.id %d, but %d in %s", m.NodeID, first.NodeID, firstPath)
		}
	}
}

// twice names a partition that two data directories hold: a broker is refused
// them, because nothing says which of the two is right.
func (p *planner) twice() {
	seen := map[kafka.TopicPartition]string{}
	for _, j := range p.jobs {
		if j.only != "" || j.suffix != "" || !j.data.formatted || j.partition.Topic == kafka.ClusterMetadataTopic {
			continue
		}
		if other, found := seen[j.partition]; found && other != j.dir {
			p.add(Error, CodeMetaDisagree, j.dir, -1, "is also in %s: a broker does not start with both", other)
		}
		seen[j.partition] = j.dir
	}
}

// shareTopics gives every directory the cluster metadata that one of them has.
func (p *planner) shareTopics(dirs []*dataDir) {
	for _, d := range dirs {
		t := loadTopics(p.fs, d.path)
		if t == nil {
			continue
		}
		for _, other := range dirs {
			if other.topics == nil {
				other.topics = t
			}
		}
	}
}
