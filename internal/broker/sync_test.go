package broker_test

import (
	"context"
	"encoding/binary"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/node"
	"github.com/varvelog/varve/internal/vfs"
)

// gatedFS is the real disk, but for the `.log` files of one topic: their writes
// are counted, and their syncs wait for the test and can fail.
type gatedFS struct {
	vfs.FS
	topic   string
	written chan struct{}
	closed  atomic.Bool
	open    chan struct{} // closed to let all syncs go
	fail    atomic.Bool
	syncs   atomic.Int32
}

func newGatedFS(topic string) *gatedFS {
	g := &gatedFS{FS: vfs.OS(), topic: "/" + topic + "-", written: make(chan struct{}, 1000), open: make(chan struct{})}
	g.closed.Store(true)
	return g
}

type gatedFile struct {
	vfs.File
	g *gatedFS
}

func (g *gatedFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := g.FS.OpenFile(name, flag, perm)
	if err != nil || !strings.Contains(name, g.topic) || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return &gatedFile{f, g}, nil
}

func (f *gatedFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	f.g.written <- struct{}{}
	return n, err
}

func (f *gatedFile) SyncData() error {
	f.g.syncs.Add(1)
	if f.g.closed.Load() {
		<-f.g.open
	}
	if f.g.fail.Load() {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: syscall.EIO}
	}
	return f.File.SyncData()
}

// startOn is start on a disk of the test's, which may fail: the node is stopped
// by the test.
func startOn(t testing.TB, disk vfs.FS, dir string, settings ...string) *node.Node {
	t.Helper()
	flags := []config.Setting{{Key: "listeners", Value: "PLAINTEXT://127.0.0.1:0"}, {Key: "node.id", Value: "1"}, {Key: "offsets.topic.num.partitions", Value: "1"}}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		flags = append(flags, config.Setting{Key: key, Value: value})
	}
	cfg, _, err := config.Load(config.Sources{Flags: flags, DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(context.Background(), cfg, node.Options{FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = n.Stop(ctx)
	})
	return n
}

// TestConnectionsShareSyncs: 32 connections produce to four partitions, twice
// each without waiting for the first answer. While the disk is at its first sync
// all of them append; two rounds answer them.
func TestConnectionsShareSyncs(t *testing.T) {
	one := oneRecord(t)
	for _, mode := range []string{"varve.sync=group", "log.flush.interval.messages=1"} {
		t.Run(mode, func(t *testing.T) {
			const connections, partitions = 32, 4
			disk := newGatedFS("t")
			n := startOn(t, disk, t.TempDir(), mode)
			createTopic(dial(t, n), "t", partitions)
			conns := make([]*conn, connections)
			for i := range conns {
				conns[i] = dial(t, n)
				q := produceRequest(9, to("t", int32(i%partitions), one))
				q.Acks = []int16{1, -1}[i/2%2]
				q.TimeoutMillis = 1 // of the replicas, and not of the disk
				conns[i].send(q)
				conns[i].send(q)
			}
			for range connections {
				<-disk.written
			}
			disk.closed.Store(false)
			close(disk.open)
			var order sync.WaitGroup
			for _, c := range conns {
				order.Go(func() {
					for id := int32(1); id <= 2; id++ {
						b := c.read()
						if got := int32(binary.BigEndian.Uint32(b)); got != id {
							t.Errorf("answer to %d, want the one to %d", got, id)
						}
						a := decode(t, 0, 9, b).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
						if a.ErrorCode != 0 || a.BaseOffset < 0 {
							t.Errorf("error %v at offset %d", kafka.ErrorCode(a.ErrorCode), a.BaseOffset)
						}
					}
				})
			}
			order.Wait()
			// Of the first 32 answers all but those of the sync that waited are one
			// round; the second 32 may come one by one.
			if got, limit := disk.syncs.Load(), int32(1+partitions+connections); got > limit {
				t.Errorf("%d fdatasync for %d answers, want %d at most", got, 2*connections, limit)
			}
		})
	}
}

// TestProducersOfAFailedSyncGetAStorageError, all of them, and the broker, which
// has no other directory, ends.
func TestProducersOfAFailedSyncGetAStorageError(t *testing.T) {
	one := oneRecord(t)
	disk := newGatedFS("t")
	n := startOn(t, disk, t.TempDir(), "varve.sync=group")
	createTopic(dial(t, n), "t", 2)
	conns := make([]*conn, 8)
	for i := range conns {
		conns[i] = dial(t, n)
		q := produceRequest(9, to("t", int32(i%2), one))
		q.Acks = []int16{1, -1}[i/2%2]
		conns[i].send(q)
	}
	for range conns {
		<-disk.written
	}
	disk.fail.Store(true)
	close(disk.open)
	for i, c := range conns {
		a := decode(t, 0, 9, c.read()).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if kafka.ErrorCode(a.ErrorCode) != kafka.ErrKafkaStorageError || a.BaseOffset != -1 {
			t.Errorf("connection %d: error %v at offset %d, want KAFKA_STORAGE_ERROR", i, kafka.ErrorCode(a.ErrorCode), a.BaseOffset)
		}
	}
	<-n.Failed()
	if got := disk.syncs.Load(); got != 1 {
		t.Errorf("%d syncs, want the one that failed", got)
	}
	if err := n.Err(); err == nil || !strings.Contains(err.Error(), "no data directory is left") {
		t.Errorf("the node ended with %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := n.Stop(ctx); err == nil || !strings.Contains(err.Error(), "no data directory is left") {
		t.Errorf("Stop = %v: the process would end with status 0", err)
	}
}

// TestAcksNoneDoesNotWaitForTheDisk: the next request is handled while the sync
// is under way.
func TestAcksNoneDoesNotWaitForTheDisk(t *testing.T) {
	disk := newGatedFS("t")
	n := startOn(t, disk, t.TempDir(), "varve.sync=always")
	c := dial(t, n)
	createTopic(c, "t", 1)
	q := produceRequest(9, to("t", 0, oneRecord(t)))
	q.Acks = 0
	c.send(q)
	if a := do[*kmsg.ApiVersionsResponse](c, kmsg.NewPtrApiVersionsRequest()); a.ErrorCode != 0 {
		t.Errorf("error %d", a.ErrorCode)
	}
	disk.closed.Store(false)
	close(disk.open)
}
