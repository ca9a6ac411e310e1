package controller

import (
	"errors"
	"fmt"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/quorum"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// crashPoint is one moment of a life at which the power went: what the next
// start finds, and how many states were acknowledged by then.
type crashPoint struct {
	op    string
	found string // the state, "unformatted" or an error
	acked int
}

// crashes runs a life on a disk that is crashed before every operation that
// changes it, in several ways each.
type crashes struct {
	t      *testing.T
	disk   *memfs.FS
	points []crashPoint
	states []string // of every committed image, in order
	acked  int      // of states, those whose caller has its answer
	op     uint64
}

func (k *crashes) inject(op faultfs.Op) faultfs.Fault {
	if !op.Kind.Changes() {
		return faultfs.Fault{}
	}
	k.op++
	for i, choice := range []memfs.Choice{memfs.DropAll(), memfs.KeepAll(), memfs.Random(0.5, k.op)} {
		k.points = append(k.points, crashPoint{
			op:    fmt.Sprintf("%d %s %s choice %d", k.op, op.Kind, op.Name, i),
			found: found(k.t, k.disk.Crash(choice)),
			acked: k.acked,
		})
	}
	return faultfs.Fault{}
}

// found is what a start finds on a disk.
func found(t *testing.T, disk vfs.FS) string {
	c := &cluster{t: t, disk: disk, dirs: 1}
	if _, err := disk.Stat("/data/meta.properties"); err != nil {
		return "unformatted"
	}
	if err := c.open(); err != nil {
		return err.Error()
	}
	s := state(c.Image())
	if err := c.Quorum().Log().Abandon(); err != nil {
		return err.Error()
	}
	return s
}

// watch collects the states of a quorum from here on.
func (k *crashes) watch(q *quorum.Quorum) {
	k.states = append(k.states, state(q.Image()))
	k.acked = len(k.states)
	q.Subscribe(func(_, next *metadata.Image, _ *metadata.Delta) { k.states = append(k.states, state(next)) })
}

// ack says that everything up to now was answered.
func (k *crashes) ack() { k.acked = len(k.states) }

// TestNothingAcknowledgedIsLostInACrash: whenever the power goes, the next start
// finds a state that once was, at or after the last acknowledged one.
func TestNothingAcknowledgedIsLostInACrash(t *testing.T) {
	k := &crashes{t: t, disk: memfs.New()}
	c := &cluster{t: t, disk: faultfs.Wrap(k.disk, k.inject), dirs: 1}
	c.format(nil)
	run := func(previous int64) {
		t.Helper()
		if err := c.open(); err != nil {
			t.Fatal(err)
		}
		k.watch(c.Quorum())
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			k.ack()
		}
		must(c.Bootstrap())
		epoch, err := c.Register(previous)
		must(err)
		c.epoch = epoch
		must(c.Unfence())
		id := c.create(topic(fmt.Sprint("t", len(k.states)), 3, "retention.ms", "5"))[0].ID
		k.ack()
		c.create(topic(fmt.Sprint("u", len(k.states)), 1))
		k.ack()
		_, err = c.DeleteTopics([]kafka.TopicID{id})
		must(err)
		_, err = c.AllocateProducerIDs()
		must(err)
		must(c.Quorum().WriteSnapshot())
		c.create(topic(fmt.Sprint("v", len(k.states)), 1))
		k.ack()
		must(c.ControlledShutdown())
		must(c.Fence())
		must(c.Quorum().Close())
	}
	run(Unclean)
	run(c.epoch)
	if len(k.points) < 300 {
		t.Errorf("%d crashes tried, want at least 300", len(k.points))
	}
	for _, p := range k.points {
		if !k.known(p) {
			t.Errorf("crash before %s: found after %d acknowledged states:\n%s", p.op, p.acked, p.found)
		}
	}
	t.Logf("%d crashes, %d states", len(k.points), len(k.states))
}

func (k *crashes) known(p crashPoint) bool {
	if p.acked == 0 && (p.found == "unformatted" || p.found == k.states[0]) {
		return true
	}
	for i := max(0, p.acked-1); i < len(k.states); i++ {
		if k.states[i] == p.found {
			return true
		}
	}
	return false
}

// TestACrashedRunIsTakenOverAndGoesOn: after each crash a whole start works.
func TestACrashedRunIsTakenOverAndGoesOn(t *testing.T) {
	base := memfs.New()
	c := &cluster{t: t, disk: base, dirs: 1}
	c.format(nil)
	c.start(Unclean)
	c.create(topic("t", 2))
	var disks []*memfs.FS
	n := uint64(0)
	c.disk = faultfs.Wrap(base, func(op faultfs.Op) faultfs.Fault {
		if op.Kind.Changes() {
			n++
			disks = append(disks, base.Crash(memfs.Random(0.5, n)))
		}
		return faultfs.Fault{}
	})
	if err := c.Quorum().Log().Abandon(); err != nil {
		t.Fatal(err)
	}
	c.start(Unclean)
	c.stop()
	for i, disk := range disks {
		next := &cluster{t: t, disk: disk, dirs: 1, ids: 100}
		if err := next.tryStart(Unclean); err != nil {
			t.Fatalf("crash %d: %v", i, err)
		}
		p := next.Image().Partition(kafka.TopicPartition{Topic: "t", Partition: 1})
		if p == nil || p.Leader != 1 || len(p.ISR) != 1 {
			t.Errorf("crash %d: partition %+v", i, p)
		}
		next.create(topic("u", 1))
		next.stop()
	}
}

func TestAFailedOperationIsAnsweredAndNothingIsBuiltOnIt(t *testing.T) {
	disk := memfs.New()
	fail := false
	c := &cluster{t: t, disk: faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		if fail && op.Kind == faultfs.Sync {
			return faultfs.Fault{Err: errors.New("the disk is gone")}
		}
		return faultfs.Fault{}
	}), dirs: 1}
	c.format(nil)
	c.start(Unclean)
	fail = true
	if _, err := c.CreateTopics([]NewTopic{topic("t", 1)}, false); err == nil {
		t.Error("CreateTopics on a broken disk succeeded")
	}
	fail = false
	if _, err := c.CreateTopics([]NewTopic{topic("u", 1)}, false); err == nil || c.Image().Topics.Len() != 0 {
		t.Errorf("CreateTopics after a failure = %v with %d topics", err, c.Image().Topics.Len())
	}
}
