package node_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/node"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
)

// Records of two topics are in two data directories. One partition's directory, or
// the whole of one data directory, is gone at the next start: clients are told that
// the partition is offline, new topics can be made, and once what was gone is back
// all is served.
func TestWhatIsGoneAtAStartIsNotServedEmpty(t *testing.T) {
	for _, disk := range []bool{false, true} {
		t.Run(map[bool]string{true: "a data directory", false: "a partition"}[disk], func(t *testing.T) {
			defer goleak.VerifyNone(t)
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			root := t.TempDir()
			first, second := filepath.Join(root, "first"), filepath.Join(root, "second")
			log := &logText{}
			begin := func() (*node.Node, *kgo.Client) {
				cfg, _, err := config.Load(config.Sources{DataDir: first, Flags: []config.Setting{
					{Key: "listeners", Value: "PLAINTEXT://127.0.0.1:0"}, {Key: "log.dirs", Value: first + "," + second},
				}})
				if err != nil {
					t.Fatal(err)
				}
				n, err := node.Start(ctx, cfg, node.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				return n, client(t, n)
			}
			end := func(n *node.Node, c *kgo.Client) {
				c.Close()
				stop(t, n)
			}
			offsets := func(c *kgo.Client, topic string) (int64, error) {
				list, err := kadm.NewClient(c).ListEndOffsets(ctx, topic)
				if err != nil {
					return 0, err
				}
				o, _ := list.Lookup(topic, 0)
				return o.Offset, o.Err
			}
			n, c := begin()
			for _, topic := range []string{"one", "two"} {
				if _, err := kadm.NewClient(c).CreateTopic(ctx, 1, 1, nil, topic); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if err := c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
			}
			end(n, c)
			gone, lost := second, "two"
			if _, err := os.Stat(filepath.Join(second, "two-0")); err != nil {
				lost = "one"
			}
			if !disk {
				gone = filepath.Join(second, lost+"-0")
			}
			if err := os.Rename(gone, filepath.Join(root, "away")); err != nil {
				t.Fatal(err)
			}
			for start := range 2 {
				n, c = begin()
				if _, err := offsets(c, lost); !errors.Is(err, kerr.KafkaStorageError) {
					t.Errorf("start %d: end offset of %s = %v, want KAFKA_STORAGE_ERROR", start, lost, err)
				}
				if start == 0 {
					if _, err := kadm.NewClient(c).CreateTopic(ctx, 2, 1, nil, "new"); err != nil {
						t.Error(err)
					}
				}
				if end, err := offsets(c, "new"); end != 0 || err != nil {
					t.Errorf("start %d: end offset of a new topic = %d, %v", start, end, err)
				}
				end(n, c)
				if got := log.count("event=partition-missing"); got != start+1 {
					t.Errorf("%d lines partition-missing after %d starts", got, start+1)
				}
			}
			if disk {
				if err := os.RemoveAll(gone); err != nil { // what was made in its place
					t.Fatal(err)
				}
			}
			if err := os.Rename(filepath.Join(root, "away"), gone); err != nil {
				t.Fatal(err)
			}
			n, c = begin()
			defer end(n, c)
			for topic, want := range map[string]int64{"one": 3, "two": 3, "new": 0} {
				if got, err := offsets(c, topic); got != want || err != nil {
					t.Errorf("all is back: end offset of %s = %d, %v, want %d", topic, got, err, want)
				}
			}
		})
	}
}

// A partition that found no room when its topic was made, and was made later, is
// known to lie in its data directory from then on, not from the next start on.
func TestWhereAPartitionLiesThatWasMadeLaterIsRecordedAtOnce(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	root := t.TempDir()
	first, second := filepath.Join(root, "first"), filepath.Join(root, "second")
	var full atomic.Bool
	full.Store(true)
	disk := faultfs.Wrap(vfs.OS(), func(op faultfs.Op) faultfs.Fault {
		if full.Load() && op.Kind == faultfs.Mkdir && filepath.Base(op.Name) == "late-0" {
			return faultfs.Fault{Err: syscall.ENOSPC}
		}
		return faultfs.Fault{}
	})
	log := &logText{line: make(chan struct{}, 1)}
	begin := func() *node.Node {
		cfg, _, err := config.Load(config.Sources{DataDir: first, Flags: []config.Setting{
			{Key: "listeners", Value: "PLAINTEXT://127.0.0.1:0"}, {Key: "log.dirs", Value: first + "," + second},
		}})
		if err != nil {
			t.Fatal(err)
		}
		n, err := node.Start(ctx, cfg, node.Options{FS: disk, Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	await := func(line string) {
		for log.count(line) == 0 {
			select {
			case <-log.line:
			case <-ctx.Done():
				t.Fatalf("no line %q in\n%s", line, log.text.String())
			}
		}
	}
	n := begin()
	c := client(t, n)
	for _, topic := range []string{"one", "late"} { // the second one goes to the second directory
		if _, err := kadm.NewClient(c).CreateTopic(ctx, 1, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	await("partition cannot be served")
	full.Store(false)
	await("partition is served")
	c.Close()
	stop(t, n)
	if _, err := os.Stat(filepath.Join(second, "late-0")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(second); err != nil {
		t.Fatal(err)
	}
	n = begin()
	defer stop(t, n)
	if got := log.count("event=partition-missing"); got != 1 {
		t.Errorf("%d lines partition-missing, want 1:\n%s", got, log.text.String())
	}
}
