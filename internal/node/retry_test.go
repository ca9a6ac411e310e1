package node_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"go.uber.org/goleak"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/node"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
)

// logText collects what is logged, and tells of each line.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
	line chan struct{} // capacity 1
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.line <- struct{}{}:
	default:
	}
	return l.text.Write(b)
}

func (l *logText) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), s)
}

// The internal topic of the group offsets is made while the disk is full. Once
// there is room groups work, without a restart and without another change of the
// metadata; and a stop does not wait while it is full.
func TestTheOffsetsTopicIsServedOnceThereIsRoom(t *testing.T) {
	for _, room := range []bool{true, false} {
		t.Run(map[bool]string{true: "there is room", false: "stopped before"}[room], func(t *testing.T) {
			defer goleak.VerifyNone(t)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			var full atomic.Bool
			full.Store(true)
			disk := faultfs.Wrap(vfs.OS(), func(op faultfs.Op) faultfs.Fault {
				if full.Load() && op.Kind == faultfs.Mkdir && strings.Contains(op.Name, "__consumer_offsets-") {
					return faultfs.Fault{Err: syscall.ENOSPC}
				}
				return faultfs.Fault{}
			})
			log := &logText{line: make(chan struct{}, 1)}
			cfg, _, err := config.Load(config.Sources{DataDir: t.TempDir(), Flags: []config.Setting{
				{Key: "listeners", Value: "PLAINTEXT://127.0.0.1:0"}, {Key: "offsets.topic.num.partitions", Value: "2"},
			}})
			if err != nil {
				t.Fatal(err)
			}
			n, err := node.Start(ctx, cfg, node.Options{FS: disk, Logger: slog.New(slog.NewTextHandler(log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			c := client(t, n)
			adm := kadm.NewClient(c)
			if _, err := adm.CreateTopic(ctx, 1, 1, nil, "orders"); err != nil {
				t.Fatal(err)
			}
			offsets := kadm.Offsets{}
			offsets.Add(kadm.Offset{Topic: "orders", At: 7, LeaderEpoch: -1})
			done := make(chan error, 1)
			committing, stopCommit := context.WithCancel(ctx)
			go func() { done <- adm.CommitAllOffsets(committing, "readers", offsets) }()
			for log.count("partition cannot be served") < 2 {
				select {
				case <-log.line:
				case <-ctx.Done():
					t.Fatal("the offsets topic was not made")
				}
			}
			if room {
				full.Store(false)
				for log.count("partition is served") < 2 {
					select {
					case <-log.line:
					case <-ctx.Done():
						t.Fatal("the partitions are not served although there is room")
					}
				}
				if err := adm.CommitAllOffsets(ctx, "readers", offsets); err != nil {
					t.Errorf("commit once there is room: %v", err)
				}
			}
			stopCommit()
			<-done
			c.Close()
			stop(t, n)
			if got := log.count("level=ERROR"); got != 2 {
				t.Errorf("%d errors in the log, want one for each partition:\n%s", got, log.text.String())
			}
		})
	}
}
