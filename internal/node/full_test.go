package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
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

// fullDisk is the real disk, which can be told to have no free block.
type fullDisk struct {
	vfs.FS
	full atomic.Bool
}

func newFullDisk() *fullDisk {
	d := &fullDisk{}
	d.FS = faultfs.Wrap(vfs.OS(), func(op faultfs.Op) faultfs.Fault {
		if d.full.Load() {
			switch op.Kind {
			case faultfs.Write, faultfs.Reserve, faultfs.Mkdir, faultfs.Create:
				return faultfs.Fault{Err: syscall.ENOSPC}
			}
		}
		return faultfs.Fault{}
	})
	return d
}

func (d *fullDisk) OpenFile(name string, flag int, perm os.FileMode) (vfs.File, error) {
	if d.full.Load() && flag&os.O_CREATE != 0 {
		if f, err := d.FS.OpenFile(name, flag&^(os.O_CREATE|os.O_EXCL), perm); err == nil && flag&os.O_EXCL == 0 {
			return f, nil // it was there: no block is needed to open it
		} else if err == nil {
			f.Close()
		}
	}
	return d.FS.OpenFile(name, flag, perm)
}

func startOn(ctx context.Context, t *testing.T, disk vfs.FS, log *logText, dir string, settings ...string) (*node.Node, error) {
	t.Helper()
	flags := []config.Setting{
		{Key: "listeners", Value: "PLAINTEXT://127.0.0.1:0"}, {Key: "group.initial.rebalance.delay.ms", Value: "0"},
		{Key: "offsets.topic.num.partitions", Value: "2"}, {Key: "log.initial.task.delay.ms", Value: "100"},
	}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		flags = append(flags, config.Setting{Key: key, Value: value})
	}
	cfg, _, err := config.Load(config.Sources{DataDir: dir, Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	return node.Start(ctx, cfg, node.Options{FS: disk, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))})
}

// readAll reads the n records of a topic and compares them with what was sent.
func readAll(ctx context.Context, t *testing.T, n *node.Node, topic string, want int) {
	t.Helper()
	c := client(t, n, kgo.ConsumeTopics(topic))
	defer c.Close()
	next := map[int32]int64{}
	for got := 0; got < want; {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("%d of %d records read: %v", got, want, err)
		}
		f.EachRecord(func(r *kgo.Record) {
			if r.Offset != next[r.Partition] {
				t.Errorf("offset %d of partition %d, want %d", r.Offset, r.Partition, next[r.Partition])
			}
			next[r.Partition]++
			got++
		})
	}
}

func tryProduce(ctx context.Context, t *testing.T, n *node.Node, topic string) error {
	t.Helper()
	c := client(t, n, kgo.DisableIdempotentWrite(), kgo.RecordRetries(0), kgo.RequiredAcks(kgo.LeaderAck()))
	defer c.Close()
	return c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr()
}

// copyLive copies a directory as the death of the process would leave it.
func copyLive(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// Faults S5: a start on a full disk, after a clean stop and after the death of
// the process: consumers are served, producers refused, a stop works; and when
// there is room writing resumes by itself.
func TestAStartOnAFullDiskServesReaders(t *testing.T) {
	for _, after := range []string{"a clean stop", "the death of the process"} {
		for _, room := range []bool{true, false} {
			t.Run(fmt.Sprintf("after %s room %v", after, room), func(t *testing.T) {
				defer goleak.VerifyNone(t)
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				dir := t.TempDir()
				n := start(t, dir, "offsets.topic.num.partitions=2")
				c := client(t, n)
				adm := kadm.NewClient(c)
				if _, err := adm.CreateTopic(ctx, 2, 1, nil, "orders"); err != nil {
					t.Fatal(err)
				}
				for i := range 100 {
					if err := c.ProduceSync(ctx, &kgo.Record{Topic: "orders", Key: fmt.Append(nil, i), Value: bytes.Repeat([]byte("v"), 1000)}).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
				offsets := kadm.Offsets{}
				offsets.Add(kadm.Offset{Topic: "orders", Partition: 1, At: 7, LeaderEpoch: -1})
				if err := adm.CommitAllOffsets(ctx, "readers", offsets); err != nil {
					t.Fatal(err)
				}
				c.Close()
				if after == "a clean stop" {
					stop(t, n)
				} else {
					live := dir
					dir = copyLive(t, live)
					stop(t, n)
				}

				disk := newFullDisk()
				disk.full.Store(true)
				log := &logText{line: make(chan struct{}, 1)}
				n, err := startOn(ctx, t, disk, log, dir)
				if err != nil {
					t.Fatalf("start on a full disk: %v\n%s", err, log.text.String())
				}
				readAll(ctx, t, n, "orders", 100)
				if err := tryProduce(ctx, t, n, "orders"); !errors.Is(err, kerr.KafkaStorageError) {
					t.Errorf("produce on a full disk: %v, want KAFKA_STORAGE_ERROR", err)
				}
				want := 100
				if room {
					disk.full.Store(false)
					for log.count("event=disk-room") == 0 {
						select {
						case <-log.line:
						case <-ctx.Done():
							t.Fatalf("writes do not resume:\n%s", log.text.String())
						}
					}
					if err := tryProduce(ctx, t, n, "orders"); err != nil {
						t.Errorf("produce once there is room: %v", err)
					}
					want++
				}
				stop(t, n)

				n = start(t, dir, "offsets.topic.num.partitions=2")
				readAll(ctx, t, n, "orders", want)
				c = client(t, n)
				got, err := kadm.NewClient(c).FetchOffsets(ctx, "readers")
				if err != nil {
					t.Fatal(err)
				}
				if o, _ := got.Lookup("orders", 1); o.At != 7 {
					t.Errorf("group offset = %d, want 7", o.At)
				}
				if err := tryProduce(ctx, t, n, "orders"); err != nil {
					t.Error(err)
				}
				c.Close()
				stop(t, n)
				if bad := log.count("event=dir-offline"); bad > 0 {
					t.Errorf("a full disk took the directory offline:\n%s", log.text.String())
				}
			})
		}
	}
}

// Faults S8, end to end: below the reserve producers are refused, and commits,
// new topics, deletions and readers are not.
func TestBelowTheReserveOnlyProducersAreRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	n := start(t, dir)
	if err := tryProduceNew(ctx, t, n, "orders"); err != nil {
		t.Fatal(err)
	}
	stop(t, n)
	log := &logText{line: make(chan struct{}, 1)}
	n, err := startOn(ctx, t, vfs.OS(), log, dir, "varve.disk.reserve=100%")
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, n)
	if err := tryProduce(ctx, t, n, "orders"); !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("produce below the reserve: %v, want KAFKA_STORAGE_ERROR", err)
	}
	readAll(ctx, t, n, "orders", 1)
	c := client(t, n)
	defer c.Close()
	adm := kadm.NewClient(c)
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "orders", Partition: 0, At: 1, LeaderEpoch: -1})
	if err := adm.CommitAllOffsets(ctx, "readers", offsets); err != nil {
		t.Errorf("commit below the reserve: %v", err)
	}
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, "more"); err != nil {
		t.Errorf("create a topic below the reserve: %v", err)
	}
	if _, err := adm.DeleteTopic(ctx, "more"); err != nil {
		t.Errorf("delete a topic below the reserve: %v", err)
	}
	if log.count("event=disk-low") != 1 {
		t.Errorf("not one disk-low:\n%s", log.text.String())
	}
	if _, err := os.Stat(filepath.Join(dir, "orders-0")); err != nil {
		t.Error(err)
	}
}

func tryProduceNew(ctx context.Context, t *testing.T, n *node.Node, topic string) error {
	t.Helper()
	c := client(t, n)
	defer c.Close()
	if _, err := kadm.NewClient(c).CreateTopic(ctx, 1, 1, nil, topic); err != nil {
		return err
	}
	return c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr()
}
