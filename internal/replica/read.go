package replica

import (
	"fmt"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/sendfile"
	"github.com/varvelog/varve/internal/vfs"
)

// ReadOptions go with Read.
type ReadOptions struct {
	commitlog.ReadOptions
	Offset kafka.Offset
	// CurrentEpoch is the leader epoch that the client knows, kafka.NoLeaderEpoch for none.
	CurrentEpoch kafka.LeaderEpoch
	// LastFetchedEpoch is the epoch of the client's last record,
	// kafka.NoLeaderEpoch for none: asks whether its log has parted from this one.
	LastFetchedEpoch kafka.LeaderEpoch
}

// ReadInfo is the answer to a read. The caller sends Region and calls its
// Release, when not nil, exactly once.
type ReadInfo struct {
	commitlog.ReadInfo
	// Mark goes with Watch: where the partition stood before the read.
	Mark Mark
	// Diverging, when it is set, is where the client's log has parted from this
	// one: the epoch and its end offset. There are no records then.
	Diverging      bool
	DivergingEpoch kafka.LeaderEpoch
	DivergingEnd   kafka.Offset
}

// Read finds the bytes that answer a fetch of one partition. The errors are
// Lead's and the log's. It allocates nothing.
func (p *Partition) Read(o ReadOptions) (ReadInfo, error) {
	var info ReadInfo
	if _, err := p.lead(o.CurrentEpoch); err != nil {
		return info, err
	}
	info.Mark = p.mark()
	if o.LastFetchedEpoch != kafka.NoLeaderEpoch {
		epoch, end := p.log.EndOffsetForEpoch(o.LastFetchedEpoch)
		if epoch == kafka.NoLeaderEpoch || end == kafka.NoOffset {
			return info, &commitlog.OffsetOutOfRangeError{
				Offset: o.Offset, Start: p.log.StartOffset(), End: p.log.EndOffset(), Partition: p.tp,
			}
		}
		if epoch < o.LastFetchedEpoch || end < o.Offset {
			info.Diverging, info.DivergingEpoch, info.DivergingEnd = true, epoch, end
			info.StartOffset, info.HighWatermark = p.log.StartOffset(), p.log.HighWatermark()
			info.LastStable, info.EndOffset = p.log.LastStable(), p.log.EndOffset()
			return info, nil
		}
	}
	var err error
	info.ReadInfo, err = p.readLog(o.Offset, o.ReadOptions)
	return info, err
}

// readLog reads once more when the disk fails, and tells when it fails again
// (faults E3). The partition answers with the error; others are served.
func (p *Partition) readLog(start kafka.Offset, o commitlog.ReadOptions) (commitlog.ReadInfo, error) {
	info, err := p.log.Read(start, o)
	if err == nil || !vfs.IsReadError(err) {
		return info, err
	}
	info, err = p.log.Read(start, o)
	if err != nil {
		p.health.ReadFailed("fetch", err)
	}
	return info, err
}

// CoordinatorLog is an internal partition as a coordinator uses it: appended to
// in one leader epoch, read from the start. It satisfies coordinator.Log.
type CoordinatorLog struct {
	*commitlog.Log
	p     *Partition
	epoch kafka.LeaderEpoch
}

// CoordinatorLog returns the log for the leadership that is current now.
func (p *Partition) CoordinatorLog() (*CoordinatorLog, error) {
	role, err := p.lead(kafka.NoLeaderEpoch)
	if err != nil {
		return nil, err
	}
	return &CoordinatorLog{p.log, p, role.LeaderEpoch}, nil
}

// Append appends one batch with acks=all and returns its base offset. After the
// leadership has moved on it is ErrNotLeader.
func (l *CoordinatorLog) Append(batch []byte) (kafka.Offset, error) {
	info, err := l.p.Append(batch, AppendOptions{Origin: commitlog.Coordinator, Acks: acksAll, InEpoch: l.epoch, Fenced: true})
	if err != nil {
		return kafka.NoOffset, err
	}
	if info.Wake {
		l.p.Wake()
	}
	return info.FirstOffset, nil
}

// HighWatermark is how far the coordinator may answer: as far as the log is
// committed, but with flush.messages=N no record that leaves N or more to a power
// cut. For those Append has asked for a sync, and Watch is told after it.
func (l *CoordinatorLog) HighWatermark() kafka.Offset {
	hw, synced, n := l.Log.HighWatermark(), l.SyncedOffset(), l.Config().FlushMessages
	if int64(hw-synced) < max(n, 1) {
		return hw
	}
	l.RequestSync() // N may have become less since
	return min(hw, max(synced, l.SyncedOffset())+kafka.Offset(max(n, 1)-1))
}

// Read returns batches from the one that holds from on, put into buf when it is
// large enough: whole ones as far as maxBytes go, at least one.
func (l *CoordinatorLog) Read(from kafka.Offset, maxBytes int, buf []byte) ([]byte, error) {
	info, err := l.p.readLog(from, commitlog.ReadOptions{MaxBytes: int64(maxBytes), Bound: commitlog.LogEnd, MinOneBatch: true})
	if err != nil {
		return nil, err
	}
	if info.Region.Release != nil {
		defer info.Region.Release()
	}
	b, err := readRegion(buf[:0], info.Region)
	if err != nil {
		l.p.health.ReadFailed("load group", err)
	}
	return b, err
}

func readRegion(buf []byte, r vfs.Region) ([]byte, error) {
	if r.Length == 0 {
		return buf, nil
	}
	b, err := sendfile.AppendRegion(buf, r)
	if err != nil {
		return nil, fmt.Errorf("read batches: %w", err)
	}
	return b, nil
}

// Watch has f called when HighWatermark has moved.
func (l *CoordinatorLog) Watch(f func()) (stop func()) { return l.p.OnCommit(f) }
