package verify

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// FuzzPartition: whatever a file of a directory holds, the check ends with
// findings and not with a panic.
func FuzzPartition(f *testing.F) {
	stage := golden.Load(f, "05-transactions-4.4.0").Stage(f, "clean")
	files := []string{
		"txn-0/00000000000000000000.log", "txn-0/00000000000000000000.index", "txn-0/00000000000000000000.timeindex",
		"txn-0/00000000000000000000.txnindex", "txn-0/00000000000000000019.snapshot", "txn-0/leader-epoch-checkpoint",
		"txn-0/partition.metadata", "meta.properties", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown",
		"__cluster_metadata-0/quorum-state", "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
	}
	base := memfs.New()
	stage.UnpackTo(f, base, "/data")
	for i, name := range files {
		w, err := base.OpenFile(filepath.Join("/data", name), 0, 0)
		if err != nil {
			f.Fatal(err)
		}
		size, err := w.Size()
		if err != nil {
			f.Fatal(err)
		}
		data := make([]byte, min(size, 2000))
		if _, err := w.ReadAt(data, 0); err != nil {
			f.Fatal(err)
		}
		w.Close()
		f.Add(byte(i), uint16(0), data)
	}
	f.Fuzz(func(t *testing.T, file byte, at uint16, data []byte) {
		disk := base.Crash(memfs.KeepAll()) // a copy
		w, err := disk.OpenFile(filepath.Join("/data", files[int(file)%len(files)]), 2, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteAt(data, int64(at)); err != nil {
			t.Fatal(err)
		}
		w.Close()
		for _, o := range []Options{{Deep: true}, {Fast: true}} {
			o.FS, o.Paths, o.Parallel = disk, []string{"/data/txn-0", "/data"}, 1
			if _, err := Check(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A sparse index or snapshot of a TiB takes no block: it is named, not read.
func TestAHugeSparseFileIsNotRead(t *testing.T) {
	disk := memfs.New()
	for name, size := range map[string]int64{
		"00000000000000000000.log": 0, "00000000000000000000.index": 1 << 40, "00000000000000000000.timeindex": 1 << 40,
		"00000000000000000000.snapshot": 1 << 40,
	} {
		if err := disk.MkdirAll("/data/orders-0", 0o755); err != nil {
			t.Fatal(err)
		}
		f, err := disk.OpenFile("/data/orders-0/"+name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(size); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Check(t.Context(), Options{FS: disk, Paths: []string{"/data/orders-0"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []Code{CodeIndexSize, CodeTimeSize, CodeSnapshot} {
		if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == code && f.Severity == Error }) {
			t.Errorf("no %s in %v", code, r.Findings)
		}
	}
}
