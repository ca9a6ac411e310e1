package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/logdir"
	"github.com/varvelog/varve/internal/node"
)

func start(t *testing.T, dir string, settings ...string) *node.Node {
	t.Helper()
	n, err := tryStart(t, dir, settings...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func tryStart(t *testing.T, dir string, settings ...string) (*node.Node, error) {
	t.Helper()
	var flags []config.Setting
	for _, s := range append([]string{"listeners=PLAINTEXT://127.0.0.1:0", "group.initial.rebalance.delay.ms=0"}, settings...) {
		key, value, _ := strings.Cut(s, "=")
		flags = append(flags, config.Setting{Key: key, Value: value})
	}
	cfg, _, err := config.Load(config.Sources{Flags: flags, DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return node.Start(context.Background(), cfg, node.Options{})
}

func stop(t *testing.T, n *node.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}

func client(t *testing.T, n *node.Node, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.Addr("").String())}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRecordsGroupsAndSettingsSurviveARestart(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	n := start(t, dir)
	c := client(t, n)
	adm := kadm.NewClient(c)
	retention := "123456"
	if _, err := adm.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &retention}, "orders"); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := c.ProduceSync(ctx, &kgo.Record{Topic: "orders", Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, "v%d", i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "orders", Partition: 1, At: 7, LeaderEpoch: -1})
	if err := adm.CommitAllOffsets(ctx, "readers", offsets); err != nil {
		t.Fatal(err)
	}
	c.Close()
	id := n.ClusterID()
	stop(t, n)
	if _, err := os.Stat(filepath.Join(dir, ".kafka_cleanshutdown")); err != nil {
		t.Errorf("after a clean stop: %v", err)
	}

	n = start(t, dir)
	if n.ClusterID() != id {
		t.Errorf("cluster id %s became %s", id, n.ClusterID())
	}
	c = client(t, n, kgo.ConsumeTopics("orders"))
	adm = kadm.NewClient(c)
	seen := map[string]bool{}
	for len(seen) < 100 {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) { seen[string(r.Value)] = true })
	}
	got, err := adm.FetchOffsets(ctx, "readers")
	if err != nil {
		t.Fatal(err)
	}
	if o, _ := got.Lookup("orders", 1); o.At != 7 {
		t.Errorf("group offset = %d, want 7", o.At)
	}
	configs, err := adm.DescribeTopicConfigs(ctx, "orders")
	if err != nil {
		t.Fatal(err)
	}
	rc, err := configs.On("orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range rc.Configs {
		if k.Key == "retention.ms" && k.MaybeValue() != "123456" {
			t.Errorf("retention.ms = %s, want 123456", k.MaybeValue())
		}
	}
	c.Close()
	stop(t, n)
}

func TestASecondNodeOnTheDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir)
	defer stop(t, n)
	_, err := tryStart(t, dir)
	var inUse *logdir.InUseError
	if !errors.As(err, &inUse) {
		t.Errorf("second start = %v, want InUseError", err)
	}
}

func TestAnAddressInUseLeavesTheDirectoryAlone(t *testing.T) {
	first := start(t, t.TempDir())
	defer stop(t, first)
	dir := t.TempDir()
	n := start(t, dir)
	stop(t, n)
	before := listing(t, dir)
	_, err := tryStart(t, dir, "listeners=PLAINTEXT://"+first.Addr("").String())
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Fatalf("start = %v, want address already in use", err)
	}
	if after := listing(t, dir); after != before {
		t.Errorf("the directory changed from\n%s\nto\n%s", before, after)
	}
}

// listing is the names and sizes of all files, with the clean marker's content.
func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		fmt.Fprintf(&b, "%s %d\n", strings.TrimPrefix(p, dir), info.Size())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPartitionsWithoutMetadataAreRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for name, lose := range map[string]func(string) error{
		"empty": func(dir string) error {
			return os.Truncate(filepath.Join(dir, "00000000000000000000.log"), 0)
		},
		"zeros": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "00000000000000000000.log"), make([]byte, 4096), 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			n := start(t, dir)
			c := client(t, n)
			if _, err := kadm.NewClient(c).CreateTopic(ctx, 1, 1, nil, "orders"); err != nil {
				t.Fatal(err)
			}
			c.Close()
			stop(t, n)
			if err := lose(filepath.Join(dir, "__cluster_metadata-0")); err != nil {
				t.Fatal(err)
			}
			var refused *logdir.RefusedError
			if n, err := tryStart(t, dir); !errors.As(err, &refused) {
				if err == nil {
					stop(t, n)
				}
				t.Fatalf("start: %v, want a refusal", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "orders-0", "partition.metadata")); err != nil {
				t.Errorf("the partition was touched: %v", err)
			}
		})
	}
}
