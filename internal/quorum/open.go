package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// Open loads the metadata of a data directory whose lock the caller holds, and
// starts a new quorum epoch in it: quorum-state first, then the LeaderChange
// batch. A directory that cannot be taken over is refused (ErrRefused,
// ErrDamaged, ErrNotFormatted) before anything in it is changed.
func Open(o Options) (*Quorum, error) {
	o.withDefaults()
	dir := filepath.Join(o.Dir, DirName)
	var l *loaded
	var state checkpoint.QuorumState
	err := vfs.Twice(func() (err error) {
		if l, err = load(o.FS, o.Dir); err == nil {
			state, err = readQuorumState(o, dir)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := check(o, l, state); err != nil {
		return nil, err
	}
	if !l.data && l.snapshot.end == 0 && o.OnEmpty != nil {
		if err := o.OnEmpty(); err != nil {
			return nil, err
		}
	}
	q := &Quorum{o: o, dir: dir, kraft: l.kraft, head: l.image, starting: o.AwaitRoom}
	q.changed = sync.NewCond(&q.mu)
	q.committed.Store(l.image)
	q.maintenance.start(o.Now(), l)
	if !l.data {
		q.first = firstRecords(l)
	}
	if err := q.openLog(l); err != nil {
		return nil, err
	}
	if err := q.setAside(l); err != nil {
		return nil, errors.Join(err, q.log.Close())
	}
	if err := q.startEpoch(max(l.epoch, kafka.LeaderEpoch(state.LeaderEpoch)) + 1); err != nil {
		return nil, errors.Join(err, q.log.Close())
	}
	if l.openTxn {
		o.Logger.Warn("aborting the metadata transaction that the log ends in")
		reason := "Aborting in-progress metadata transaction"
		if _, err := q.Append([]metadata.Record{&metadata.AbortTransactionRecord{Reason: &reason}}); err != nil {
			return nil, errors.Join(err, q.log.Close())
		}
	}
	return q, nil
}

// firstRecords are what a controller begins with: what the format tool left,
// else Kafka's defaults.
func firstRecords(l *loaded) []metadata.Record {
	if len(l.first) > 0 {
		return slices.Clone(l.first)
	}
	var first []metadata.Record
	for _, f := range metadata.DefaultFeatureLevels() {
		first = append(first, &f)
	}
	return first
}

// readQuorumState reads quorum-state. With one voter a missing or unreadable
// file is no loss: the epoch is then that of the log.
func readQuorumState(o Options, dir string) (checkpoint.QuorumState, error) {
	state, err := checkpoint.ReadQuorumState(o.FS, filepath.Join(dir, checkpoint.QuorumStateFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return checkpoint.QuorumState{}, nil
	case errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, vfs.ErrNotRegular):
		o.Logger.Warn("quorum-state rebuilt from the epoch of the log", "event", "checkpoint-rebuilt",
			"file", filepath.Join(dir, checkpoint.QuorumStateFile), "reason", err)
		return checkpoint.QuorumState{}, nil
	}
	return state, err
}

type damagedFile struct {
	name string
	err  error
}

// setAside gives what cannot be used another name: damaged snapshots, which
// Kafka would take for the newest, and what is no file in place of quorum-state.
func (q *Quorum) setAside(l *loaded) error {
	var list []damagedFile
	for _, d := range l.damaged {
		list = append(list, damagedFile{d.id.name(), d.err})
	}
	if _, err := checkpoint.ReadQuorumState(q.o.FS, q.path(checkpoint.QuorumStateFile)); errors.Is(err, vfs.ErrNotRegular) {
		list = append(list, damagedFile{checkpoint.QuorumStateFile, err})
	}
	for _, d := range list {
		name := d.name
		if err := q.o.FS.Rename(q.path(name), q.path(name+commitlog.CutSuffix)); err != nil {
			if vfs.IsFull(err) {
				continue // it is passed over again at the next start
			}
			return err
		}
		q.o.Logger.Warn("metadata file set aside", "event", "set-aside", "file", q.path(name), "movedTo", q.path(name+commitlog.CutSuffix), "reason", d.err)
	}
	if len(list) == 0 {
		return nil
	}
	return q.o.FS.SyncDir(q.dir)
}

// openLog opens the log's files, cutting a torn tail.
func (q *Quorum) openLog(l *loaded) error {
	if !l.hasLog {
		if err := makeDir(q.o.FS, q.dir); err != nil {
			return err
		}
	}
	if err := q.removeLeftovers(); err != nil {
		return err
	}
	if l.cut > 0 {
		q.o.Logger.Warn("metadata log: torn tail cut", "offset", l.end, "bytes", l.cut)
	}
	config := commitlog.DefaultConfig()
	config.SegmentBytes = q.o.SegmentBytes
	config.SegmentMs = q.o.SegmentTime.Milliseconds()
	config.RetentionBytes, config.RetentionMs = -1, -1
	config.MaxMessageBytes = MaxBatchBytes
	var log *commitlog.Log
	err := vfs.Twice(func() (err error) {
		log, err = commitlog.Open(commitlog.Options{
			FS:        q.o.FS,
			Dir:       q.dir,
			Partition: kafka.TopicPartition{Topic: kafka.ClusterMetadataTopic},
			TopicID:   kafka.MetadataTopicID,
			Config:    config,
			Now:       q.o.Now,
			Logger:    q.o.Logger,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("open metadata log: %w", err)
	}
	if log.EndOffset() != l.end {
		return errors.Join(&DamagedError{Path: q.dir, Offset: min(l.end, log.EndOffset()),
			Reason: fmt.Sprintf("recovery gives end offset %d, reading gives %d", log.EndOffset(), l.end)}, log.Close())
	}
	log.UpdateHighWatermark(l.end)
	q.log = log
	return nil
}

// startEpoch makes this node the leader of a new epoch: quorum-state says so
// first, then the log.
func (q *Quorum) startEpoch(epoch kafka.LeaderEpoch) error {
	state := checkpoint.QuorumState{
		Version:     int(q.kraft.version),
		LeaderID:    q.o.NodeID,
		LeaderEpoch: int32(epoch),
		VotedID:     kafka.NoBroker,
	}
	// Version 0 without directory ids whatever kraft.version says: that is how
	// Kafka writes it, and the only form it reads (LeaderState, ControlRecordUtils).
	if q.kraft.version == 0 {
		state.CurrentVoters = []kafka.BrokerID{q.o.NodeID}
	}
	q.owedState = &state
	q.epoch = epoch
	now := kafka.TimestampOf(q.o.Now())
	batch, err := q.firstBatch(now)
	if err != nil {
		return err
	}
	if err := q.put(batch); err != nil {
		return err
	}
	q.head = metadata.NewDelta(q.head).Finish(batch.NextOffset(), epoch, now)
	q.committed.Store(q.head)
	return nil
}

// firstBatch is the control batch that an epoch begins with: who leads, in
// version 0 of the message whatever kraft.version is, and, when the log has
// never said who votes, the voters that the format tool left
// (LeaderState.appendStartOfEpochControlRecords).
func (q *Quorum) firstBatch(now kafka.Timestamp) (record.Batch, error) {
	self := []record.Voter{{ID: q.o.NodeID}}
	change := record.LeaderChange{LeaderID: q.o.NodeID, Voters: self, Granting: self}
	o := record.NewBuildOptions()
	o.BaseOffset, o.LeaderEpoch, o.Control = q.head.End, q.epoch, true
	var b record.Builder
	b.Reset(o)
	b.Append(now, record.ControlKey(record.LeaderChanged), change.Append(nil), nil)
	if q.kraft.version > 0 && !q.kraft.told {
		q.kraft.append(&b, now)
		q.kraft.told = true
	}
	return b.Finish()
}

// append adds the records that make this state.
func (k *kraftState) append(b *record.Builder, now kafka.Timestamp) {
	version := record.KRaftVersionRecord{KRaftVersion: k.version}
	voters := record.Voters{Voters: k.voters}
	b.Append(now, record.ControlKey(record.KRaftVersion), version.Append(nil), nil)
	b.Append(now, record.ControlKey(record.KRaftVoters), voters.Append(nil), nil)
}

// Close ends the log as a clean stop of 4.4.0 does: everything is synced, an
// empty producer snapshot lies at the end offset, and the indexes keep their
// full size, since the next start recovers the log in any case. Callers of
// Update are refused from now on; those that are writing are waited for.
func (q *Quorum) Close() error {
	q.mu.Lock()
	for q.writing || len(q.queue) > 0 {
		q.changed.Wait()
	}
	if errors.Is(q.failed, ErrClosed) {
		q.mu.Unlock()
		return nil
	}
	broken := q.failed
	q.failed = ErrClosed
	q.mu.Unlock()
	if broken != nil {
		return q.log.Abandon()
	}
	if err := q.settle(); err != nil {
		q.o.Logger.Warn("records of the start not written: the next start makes its own", "records", len(q.owed), "err", err)
	}
	err := q.log.Flush(q.log.EndOffset())
	if err == nil {
		err = q.log.TakeProducerSnapshot()
	}
	if vfs.IsFull(err) || errors.Is(err, commitlog.ErrFull) {
		q.o.Logger.Warn("no producer snapshot of the metadata log: the disk is full", "err", err)
		err = nil // it is empty, and the next start makes it
	}
	return errors.Join(err, q.log.Abandon(), q.o.FS.SyncDir(q.dir))
}

// idleSince is when something was last written.
func (q *Quorum) idleSince() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.maintenance.lastWrite
}
