package replica

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

func TestAPartitionThatCouldNotBeMadeIsServedOnceTheCauseIsGone(t *testing.T) {
	for _, tt := range []struct {
		name  string
		kind  faultfs.Kind
		cause error
		again func(n *node) error
	}{
		{"by a retry, after a full disk at mkdir", faultfs.Mkdir, syscall.ENOSPC, (*node).retry},
		{"by a retry, after a lack of descriptors", faultfs.Create, syscall.EMFILE, (*node).retry},
		{"by the next change of the metadata", faultfs.Create, syscall.ENOSPC, func(n *node) error {
			return n.apply(topicRecord("users"), partitionRecord("users", 0), smallIndexes("users"))
		}},
		{"by a change of its own leadership", faultfs.Mkdir, syscall.EMFILE, func(n *node) error {
			return n.apply(leaderRecord("orders", 1))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			failing := true
			n := newNode(t, faultfs.Wrap(memfs.New(), func(op faultfs.Op) faultfs.Fault {
				if failing && op.Kind == tt.kind && strings.Contains(op.Name, "orders-0") {
					return faultfs.Fault{Err: tt.cause}
				}
				return faultfs.Fault{}
			}))
			n.m.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			if err := n.apply(smallIndexes("orders"), topicRecord("orders"), partitionRecord("orders", 0)); !errors.Is(err, tt.cause) {
				t.Fatalf("Apply: %v, want %v", err, tt.cause)
			}
			select {
			case <-n.m.Failed():
			default:
				t.Error("nobody is told that there is something to try again")
			}
			for range 3 {
				if changed, left := n.m.Retry(n.image); changed || left != 1 {
					t.Errorf("Retry while it fails = %v, %d", changed, left)
				}
			}
			old := n.get("orders")
			if !errors.Is(old.Err(), ErrStorage) {
				t.Errorf("meanwhile it answers %v", old.Err())
			}
			failing = false
			must(t, tt.again(n))
			p := n.get("orders")
			produce(t, p, 3)
			if !errors.Is(old.Err(), ErrUnknownPartition) {
				t.Errorf("the failed one answers %v: who holds it does not look for the new one", old.Err())
			}
			if changed, left := n.m.Retry(n.image); changed || left != 0 || n.get("orders") != p {
				t.Errorf("Retry when all is served = %v, %d", changed, left)
			}
			if e, i := strings.Count(log.String(), "level=ERROR"), strings.Count(log.String(), "partition is served"); e != 1 || i != 1 {
				t.Errorf("%d errors and %d times served in the log, want one each:\n%s", e, i, log.String())
			}
		})
	}
}

func (n *node) retry() error {
	n.m.Retry(n.image)
	return nil
}

func TestAPartitionThatWasRefusedOrDeletedIsNotTriedAgain(t *testing.T) {
	failing, cause := true, syscall.ENOSPC
	made := 0
	n := newNode(t, faultfs.Wrap(memfs.New(), func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.Mkdir && strings.Contains(op.Name, "orders-0") {
			made++
			if failing {
				return faultfs.Fault{Err: cause}
			}
		}
		return faultfs.Fault{}
	}))
	create := func() error {
		return n.apply(smallIndexes("orders"), topicRecord("orders"), partitionRecord("orders", 0))
	}
	if err := create(); !errors.Is(err, cause) {
		t.Fatalf("Apply: %v", err)
	}
	failing = false
	must(t, n.apply(&metadata.RemoveTopicRecord{TopicID: topicID("orders")}))
	if changed, left := n.m.Retry(n.image); left != 0 || n.m.Get(kafka.TopicPartition{Topic: "orders"}) != nil || made != 1 {
		t.Errorf("after the deletion: Retry = %v, %d, tried %d times", changed, left, made)
	}
	failing, cause = true, syscall.EINVAL
	if err := create(); !errors.Is(err, cause) {
		t.Fatalf("Apply: %v", err)
	}
	if changed, left := n.m.Retry(n.image); changed || left != 0 || made != 2 {
		t.Errorf("after a refusal: Retry = %v, %d, tried %d times", changed, left, made)
	}
}
