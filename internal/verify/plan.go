package verify

import (
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"

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
	recoveryPoint map[kafka.TopicPartition]kafka.Offset
	logStart      map[kafka.TopicPartition]kafka.Offset
	highWatermark map[kafka.TopicPartition]kafka.Offset
	topics        *topics // of the cluster metadata; nil when there is none
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
func plan(fsys vfs.FS, paths []string) ([]job, []Finding, error) {
	p := planner{fs: fsys}
	var dirs []*dataDir
	for _, path := range paths {
		info, err := fsys.Stat(path)
		if err != nil {
			return nil, nil, err
		}
		name := filepath.Base(path)
		tp, suffix, isPartition := parseDir(name)
		_, metaErr := fsys.Stat(join(path, checkpoint.MetaFile))
		switch {
		case !info.IsDir():
			p.file(path)
		case isPartition && metaErr != nil:
			p.jobs = append(p.jobs, job{dir: path, partition: tp, suffix: suffix, data: p.parent(filepath.Dir(path))})
		default:
			d := p.dataDir(path)
			p.partitions(d)
			dirs = append(dirs, d)
		}
	}
	p.compareMeta(dirs)
	p.shareTopics(dirs)
	return p.jobs, p.findings, nil
}

type planner struct {
	report
	fs   vfs.FS
	jobs []job
}

// file plans a single file: one of a partition, or one of a data directory.
func (p *planner) file(path string) {
	dir, name := filepath.Split(filepath.Clean(path))
	dir = filepath.Clean(dir)
	abs, err := filepath.Abs(dir)
	if err != nil {
		abs = dir
	}
	if tp, suffix, ok := parseDir(filepath.Base(abs)); ok {
		p.jobs = append(p.jobs, job{dir: dir, partition: tp, suffix: suffix, only: name, data: p.parent(filepath.Dir(dir))})
		return
	}
	if _, ok := segment.ParseName(name); ok {
		p.jobs = append(p.jobs, job{dir: dir, only: name, data: &dataDir{}})
		return
	}
	p.rootFile(path, name)
}

// parent reads what the directory above a partition says, without findings.
func (p *planner) parent(path string) *dataDir {
	quiet := planner{fs: p.fs}
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
		p.add(Warning, CodeMeta, join(path, checkpoint.MetaFile), -1, "missing: the directory is not formatted")
	}
	_, err = p.fs.Stat(join(path, checkpoint.CleanShutdownFile))
	d.clean = err == nil
	for _, name := range []string{checkpoint.MetaFile, checkpoint.CleanShutdownFile} {
		p.rootFile(join(path, name), name)
	}
	d.recoveryPoint = p.offsets(join(path, checkpoint.RecoveryPointFile))
	d.logStart = p.offsets(join(path, checkpoint.LogStartFile))
	d.highWatermark = p.offsets(join(path, checkpoint.HighWatermarkFile))
	p.offsets(join(path, checkpoint.CleanerFile))
	return d
}

// rootFile checks a file of a data directory that is there.
func (p *planner) rootFile(path, name string) {
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
		return
	case "bootstrap.checkpoint":
		return // read with the metadata log's snapshots
	default:
		p.add(Note, CodeLeftover, path, -1, "not a file of Kafka's that can be checked")
		return
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.add(Error, code, path, -1, "%v", reason(err))
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

// partitions plans every partition directory of a data directory.
func (p *planner) partitions(d *dataDir) {
	entries, err := p.fs.ReadDir(d.path)
	if err != nil {
		p.add(Error, CodeUnreadable, d.path, -1, "%v", reason(err))
		return
	}
	here := map[kafka.TopicPartition]bool{}
	for _, e := range entries {
		if !e.IsDir() || e.Name() == "remote-log-index-cache" {
			continue
		}
		path := join(d.path, e.Name())
		tp, suffix, ok := parseDir(e.Name())
		if !ok {
			p.add(Error, CodeForeign, path, -1, "not in the form of topic-partition: Kafka does not start with it")
			continue
		}
		if suffix == "" {
			here[tp] = true
		}
		p.jobs = append(p.jobs, job{dir: path, partition: tp, suffix: suffix, data: d})
	}
	for _, name := range []string{"bootstrap.checkpoint"} {
		if _, err := p.fs.Stat(join(d.path, name)); err == nil {
			p.jobs = append(p.jobs, job{dir: d.path, only: name, data: d})
		}
	}
	for tp := range d.recoveryPoint {
		if !here[tp] {
			p.add(Note, CodeCheckpointLog, join(d.path, checkpoint.RecoveryPointFile), -1, "names %v, which is not here", tp)
		}
	}
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
