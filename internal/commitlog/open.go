package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/record"
)

// Open loads the log in o.Dir, recovers what a crash left, and makes a first
// segment if there is none.
func Open(o Options) (*Log, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Scratch == nil {
		o.Scratch = NewScratch(0)
	}
	l := &Log{opts: o, fs: o.FS, partition: o.Partition, logger: o.Logger, scratch: o.Scratch}
	l.dir.Store(&o.Dir)
	l.config.Store(&o.Config)
	l.firstUnstable.set(kafka.NoOffset)
	l.lastFlush = o.Now()
	l.synced.init()
	named, err := l.openTopicID()
	if err != nil {
		return nil, err
	}
	if l.producers, err = producer.Open(l.producerConfig()); err != nil {
		return nil, err
	}
	ld := &loader{l: l, clean: o.CleanShutdown, recoveryPoint: o.RecoveryPoint, logStart: o.LogStartOffset, changed: named}
	if err := ld.load(); err != nil {
		for _, s := range ld.segs {
			err = errors.Join(err, s.Abandon())
		}
		return nil, fmt.Errorf("open log %s: %w", o.Dir, err)
	}
	if end := l.end.get(); end < o.HighWatermark || end < o.RecoveryPoint {
		l.event("records-missing", o.Dir, fmt.Sprintf("the log ends at %d; the checkpoints know of %d (recovery point) and %d (high watermark)",
			end, o.RecoveryPoint, o.HighWatermark))
	}
	l.mu.Lock()
	l.after = append(l.after, ld.after...)
	l.publishUnstableLocked()
	l.setHighWatermarkLocked(o.HighWatermark)
	l.synced.raise(l.recoveryPoint.get())
	l.startKept.set(l.start.get())
	l.unlock()
	return l, nil
}

func (l *Log) producerConfig() producer.Config {
	return producer.Config{
		FS: l.fs, Dir: l.Dir(), Partition: l.partition, Expiration: l.opts.ProducerExpiration,
		VerifyTransactions: l.opts.VerifyTransactions, Logger: l.logger,
	}
}

// openTopicID reads partition.metadata and writes it when it is missing or
// damaged and the caller knows the id; written says that the directory has to be
// synced. It is there before any record is.
func (l *Log) openTopicID() (written bool, err error) {
	path := l.path(checkpoint.PartitionFile)
	id, err := checkpoint.ReadPartitionMetadata(l.fs, path)
	switch {
	case err == nil && (l.opts.TopicID.IsZero() || l.opts.TopicID == id):
		l.topicID.Store(&id)
		return false, nil
	case err == nil:
		return false, &TopicIDError{Partition: l.partition, Found: id, Want: l.opts.TopicID}
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, checkpoint.ErrCorrupt):
		return false, err
	}
	if l.opts.TopicID.IsZero() {
		return false, nil
	}
	if errors.Is(err, checkpoint.ErrCorrupt) {
		l.report(slog.LevelWarn, "metadata-restored", "partition.metadata restored", path, "topicId", l.opts.TopicID, "reason", err)
	}
	id = l.opts.TopicID
	if err := checkpoint.ReplacePartitionMetadata(l.fs, path, id); err != nil {
		return false, err
	}
	l.topicID.Store(&id)
	return true, nil
}

func (l *Log) writeTopicID(id kafka.TopicID) error {
	if err := checkpoint.WritePartitionMetadata(l.fs, l.path(checkpoint.PartitionFile), id); err != nil {
		return err
	}
	l.topicID.Store(&id)
	return nil
}

// AssignTopicID writes partition.metadata for a log that has none.
func (l *Log) AssignTopicID(id kafka.TopicID) error {
	l.mu.Lock()
	defer l.unlock()
	if have := l.TopicID(); have == id {
		return nil
	} else if !have.IsZero() {
		return &TopicIDError{Partition: l.partition, Found: have, Want: id}
	}
	return l.writeErrorLocked("partition.metadata", l.writeTopicID(id))
}

// loadEpochs reads leader-epoch-checkpoint and makes it, empty, when it is not
// there. rebuild is true when it says nothing, or, with why, what cannot be believed.
func (l *Log) loadEpochs() (rebuild bool, why string, err error) {
	path := l.path(checkpoint.EpochFile)
	entries, err := checkpoint.ReadEpochs(l.fs, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f, err := l.fs.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return false, "", err
		}
		return true, "", f.Close()
	case errors.Is(err, checkpoint.ErrCorrupt):
		return true, err.Error(), nil
	case err != nil:
		return false, "", err
	}
	for i := range entries {
		e := entries[i]
		if e.Epoch < 0 || e.Start < 0 || i > 0 && (e.Epoch <= entries[i-1].Epoch || e.Start < entries[i-1].Start) {
			return true, fmt.Sprintf("entry %d, %d %d, does not follow", i, e.Epoch, e.Start), nil
		}
	}
	l.epochs.store(entries)
	return false, "", nil
}

// rebuildEpochs reads the epochs out of the batches. Epochs without a record
// are lost, and nothing is stored in those.
func (l *Log) rebuildEpochs(list *segmentList) error {
	for _, s := range list.segs {
		_, err := s.Scan(0, s.Size(), func(h *record.Header, _ []byte, _ int64) error {
			if h.Magic >= record.MagicV2 && h.LeaderEpoch >= 0 {
				if latest, ok := l.epochs.latest(); !ok || h.LeaderEpoch > latest.Epoch {
					l.epochs.assign(h.LeaderEpoch, h.BaseOffset)
				}
			}
			return nil
		})
		if err != nil && !errors.Is(err, record.ErrCorrupt) {
			return err
		}
	}
	if len(l.epochs.load()) == 0 {
		return nil
	}
	return l.writeEpochs()
}

// TopicIDError is a directory whose partition.metadata names another topic.
type TopicIDError struct {
	Partition   kafka.TopicPartition
	Found, Want kafka.TopicID
}

func (e *TopicIDError) Error() string {
	return fmt.Sprintf("%s: partition.metadata has topic id %s, the metadata log %s", e.Partition, e.Found, e.Want)
}

// MisnamedError is a segment whose name and content contradict each other: its
// first batch lies below its base offset, or the segment before it reaches above
// that. Nothing is cut or removed for it; the partition is not served.
type MisnamedError struct {
	Path  string
	Base  kafka.Offset // by its name
	Found kafka.Offset // base of its first batch, or end of the segment before it
	Below string       // path of the segment before it, when that overlaps
}

func (e *MisnamedError) Error() string {
	if e.Below != "" {
		return fmt.Sprintf("%s: base offset %d lies below the end, %d, of %s", e.Path, e.Base, e.Found, e.Below)
	}
	return fmt.Sprintf("%s: the first batch is at offset %d, below the base offset %d", e.Path, e.Found, e.Base)
}
