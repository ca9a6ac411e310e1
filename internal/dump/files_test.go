package dump

import (
	"bytes"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// FuzzFiles: no content of a file makes the tool panic, hang or report anything
// but an exit status of 0 or 1.
func FuzzFiles(f *testing.F) {
	names := []string{".log", ".index", ".timeindex", ".txnindex", ".snapshot", "-0000000000.checkpoint"}
	inputs := filepath.Join(golden.CLIRoot(f), "inputs")
	for _, dir := range []string{"indexed-0", "txn-0", "magic1-0", "orders-0"} {
		for i, ext := range names {
			found, err := filepath.Glob(filepath.Join(inputs, dir, "*"+ext))
			if err != nil {
				f.Fatal(err)
			}
			for _, file := range found {
				data, err := vfs.ReadFile(vfs.OS(), file)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(byte(i), data)
			}
		}
	}
	log, err := vfs.ReadFile(vfs.OS(), filepath.Join(inputs, "indexed-0", "00000000000000000000.log"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		disk := memfs.New()
		write := func(name string, b []byte) {
			w, err := disk.OpenFile("/"+name, 0x42, fs.FileMode(0o644)) // read-write, create
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if _, err := w.WriteAt(b, 0); err != nil {
				t.Fatal(err)
			}
		}
		name := "00000000000000000000" + names[int(kind)%len(names)]
		if filepath.Ext(name) != ".log" {
			write("00000000000000000000.log", log)
		}
		if filepath.Ext(name) == ".timeindex" {
			write("00000000000000000000.index", data)
		}
		write(name, data)
		for _, flags := range [][]string{{"--print-data-log"}, {"--offsets-decoder"}, {"--index-sanity-check"}} {
			var stdout, stderr bytes.Buffer
			tool := Tool{FS: disk, Dir: "/", Stdout: &stdout, Stderr: &stderr}
			if code := tool.Run(append(flags, "--files", name)); code != 0 && code != 1 {
				t.Fatalf("exit %d", code)
			}
		}
	})
}
