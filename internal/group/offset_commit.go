package group

import (
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

// OffsetCommit records offsets. Topics carry both their name and their id; the
// caller has looked up what the request left out and has dropped unknown ones.
// A commit to a group that does not exist, from outside any generation, makes a
// simple group.
func (m *Machine) OffsetCommit(c Context, r *kmsg.OffsetCommitRequest) Effects {
	fx := Effects{Replay: true}
	if code := m.checkCommit(r); code != kafka.None {
		fx.reply(c.Waiter, CommitError(r, code))
		return fx
	}
	// A commit counts as a sign of life.
	if g := m.classic[r.Group]; g != nil && (g.state == Stable || g.state == PreparingRebalance) {
		if mb := g.member(r.MemberID); mb != nil {
			m.heartbeat(&fx, g, mb)
		}
	}
	expires := kafka.NoTimestamp
	if r.RetentionTimeMillis != -1 {
		expires = c.Now + kafka.Timestamp(r.RetentionTimeMillis)
	}
	a := CommitError(r, kafka.None)
	for i, t := range r.Topics {
		for j, p := range t.Partitions {
			if p.Metadata != nil && utf16Len(*p.Metadata) > m.cfg.OffsetMetadataMaxSize {
				a.Topics[i].Partitions[j].ErrorCode = int16(kafka.ErrOffsetMetadataTooLarge)
				continue
			}
			fx.record(offsetRecord(r.Group, t.Topic, p.Partition, Offset{
				Offset:      kafka.Offset(p.Offset),
				LeaderEpoch: kafka.LeaderEpoch(p.LeaderEpoch),
				Metadata:    deref(p.Metadata),
				Committed:   c.Now,
				Expires:     expires,
				TopicID:     t.TopicID,
			}))
		}
	}
	if len(fx.Records) == 0 {
		fx.reply(c.Waiter, a)
		return fx
	}
	fx.then(func(o Outcome) Effects {
		var fx Effects
		if o.Err != kafka.None {
			a = CommitError(r, coordinatorError(o.Err))
		}
		fx.reply(c.Waiter, a)
		return fx
	})
	return fx
}

func (m *Machine) checkCommit(r *kmsg.OffsetCommitRequest) kafka.ErrorCode {
	if g := m.modern[r.Group]; g != nil {
		return g.checkCommit(r.MemberID, r.Generation, r.Version)
	}
	g := m.classic[r.Group]
	switch {
	case g == nil && r.Generation < 0:
		return kafka.None
	case g == nil && r.Version >= 9:
		return kafka.ErrGroupIDNotFound
	case g == nil:
		return kafka.ErrIllegalGeneration
	case r.Generation < 0 && g.state == Empty:
		return kafka.None
	}
	if r.Generation >= 0 || r.MemberID != "" || r.InstanceID != nil {
		if code := g.validate(r.MemberID, r.InstanceID); code != kafka.None {
			return code
		}
		if r.Generation != g.generation {
			return kafka.ErrIllegalGeneration
		}
	} else if g.state != Empty {
		return kafka.ErrUnknownMemberID
	}
	if g.state == CompletingRebalance {
		return kafka.ErrRebalanceInProgress
	}
	return kafka.None
}

// CommitError answers every partition of the request with the code.
func CommitError(r *kmsg.OffsetCommitRequest, code kafka.ErrorCode) *kmsg.OffsetCommitResponse {
	a := kmsg.NewPtrOffsetCommitResponse()
	for _, t := range r.Topics {
		row := kmsg.NewOffsetCommitResponseTopic()
		row.Topic, row.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			cell := kmsg.NewOffsetCommitResponseTopicPartition()
			cell.Partition, cell.ErrorCode = p.Partition, int16(code)
			row.Partitions = append(row.Partitions, cell)
		}
		a.Topics = append(a.Topics, row)
	}
	return a
}

// utf16Len is the length of s as Java counts it.
func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xffff && r <= utf8.MaxRune {
			n++
		}
	}
	return n
}
