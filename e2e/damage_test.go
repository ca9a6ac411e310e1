package e2e

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// damaged is a partition directory of a killed broker that a case damages.
type damaged struct {
	t    *testing.T
	dir  string
	tp   string
	base []int64           // base offsets of the segments
	node map[string]string // the node's checkpoints by file: this partition's line
}

// at is the base offset of a segment: from 0, or from the end with a negative
// number. Compaction leaves one sealed segment, which then stands for all.
func (d *damaged) at(segment int) int64 {
	switch {
	case segment < 0:
		return d.base[len(d.base)+segment]
	case segment >= len(d.base)-1:
		return d.base[0]
	}
	return d.base[segment]
}

func (d *damaged) path(segment int, ext string) string {
	return filepath.Join(d.dir, fmt.Sprintf("%020d.%s", d.at(segment), ext))
}

func (d *damaged) bytes(path string) []byte {
	d.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		d.t.Fatalf("%s: %v", d.tp, err)
	}
	return b
}

func (d *damaged) write(path string, b []byte) {
	d.t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		d.t.Fatal(err)
	}
}

func (d *damaged) remove(pattern string) {
	d.t.Helper()
	files, err := filepath.Glob(filepath.Join(d.dir, pattern))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *damaged) copy(from, to string) { d.t.Helper(); d.write(to, d.bytes(from)) }

func (d *damaged) rename(from, to string) {
	d.t.Helper()
	if err := os.Rename(from, to); err != nil {
		d.t.Fatal(err)
	}
}

// batches are the positions of the batches in a segment.
func (d *damaged) batches(segment int) []int {
	d.t.Helper()
	b := d.bytes(d.path(segment, "log"))
	var out []int
	for at := 0; at+61 <= len(b); {
		size := int(binary.BigEndian.Uint32(b[at+8:]))
		if size <= 0 || at+12+size > len(b) {
			break
		}
		out = append(out, at)
		at += 12 + size
	}
	if len(out) < 2 {
		d.t.Fatalf("%s has %d batches in segment %d, 2 are needed", d.tp, len(out), segment)
	}
	return out
}

// flip turns one bit of a batch of a segment; which counts from 0, or from the end.
func (d *damaged) flip(segment, which, at int) {
	d.t.Helper()
	starts := d.batches(segment)
	if which < 0 {
		which += len(starts)
	}
	path := d.path(segment, "log")
	b := d.bytes(path)
	b[starts[which]+at] ^= 4
	d.write(path, b)
}

func (d *damaged) append(path string, more []byte) { d.write(path, append(d.bytes(path), more...)) }

// recoverFrom sets the recovery point to the base of a segment.
func (d *damaged) recoverFrom(segment int) {
	d.node["recovery-point-offset-checkpoint"] = fmt.Sprint(d.at(segment))
}

// damage is one way to find a partition after a kill.
type damage struct {
	name string
	do   func(d *damaged)
}

// middle is the segment that is damaged below the active one.
const middle = 2

var damages = []damage{
	{"as killed", func(*damaged) {}},
	{"as killed, nothing known to be on the disk", func(d *damaged) { d.recoverFrom(0) }},
	{"the last batch is torn", func(d *damaged) { p := d.path(-1, "log"); b := d.bytes(p); d.write(p, b[:len(b)-7]) }},
	{"the last header is torn", func(d *damaged) {
		s := d.batches(-1)
		p := d.path(-1, "log")
		d.write(p, d.bytes(p)[:s[len(s)-1]+30])
	}},
	{"zeros behind the end", func(d *damaged) { d.append(d.path(-1, "log"), make([]byte, 5000)) }},
	{"rubbish behind the end", func(d *damaged) { d.append(d.path(-1, "log"), bytes.Repeat([]byte{0xa5, 7}, 400)) }},
	{"zeros in place of the last batch", func(d *damaged) {
		s := d.batches(-1)
		p := d.path(-1, "log")
		b := d.bytes(p)
		clear(b[s[len(s)-1]:])
		d.write(p, b)
	}},
	{"a bit of the last batch", func(d *damaged) { d.flip(-1, -1, 65) }},
	{"a bit of the last checksum", func(d *damaged) { d.flip(-1, -1, 18) }},
	{"a bit of the last length", func(d *damaged) { d.flip(-1, -1, 11) }},
	{"a bit of the first active batch", func(d *damaged) { d.flip(-1, 0, 66) }},
	{"a bit in the middle, above the recovery point", func(d *damaged) { d.flip(middle, 1, 66); d.recoverFrom(0) }},
	{"a length in the middle, above the recovery point", func(d *damaged) { d.flip(middle, 1, 10); d.recoverFrom(1) }},
	{"a torn segment in the middle, above the recovery point", func(d *damaged) {
		p := d.path(middle, "log")
		b := d.bytes(p)
		d.write(p, b[:len(b)-9])
		d.recoverFrom(0)
	}},
	{"a bit in the middle, below the recovery point", func(d *damaged) { d.flip(1, 1, 66) }},
	{"the active offset index is missing", func(d *damaged) { d.remove(filepath.Base(d.path(-1, "index"))) }},
	{"the active time index is missing", func(d *damaged) { d.remove(filepath.Base(d.path(-1, "timeindex"))) }},
	{"a sealed offset index is missing", func(d *damaged) { d.remove(filepath.Base(d.path(1, "index"))) }},
	{"a sealed time index is missing", func(d *damaged) { d.remove(filepath.Base(d.path(1, "timeindex"))) }},
	{"all indexes are missing", func(d *damaged) { d.remove("*.index"); d.remove("*.timeindex") }},
	{"all transaction indexes are missing, nothing known to be on the disk", func(d *damaged) { d.remove("*.txnindex"); d.recoverFrom(0) }},
	{"the active indexes are rubbish", func(d *damaged) {
		d.write(d.path(-1, "index"), bytes.Repeat([]byte{0, 0, 1, 9}, 64))
		d.write(d.path(-1, "timeindex"), bytes.Repeat([]byte{0, 7, 1, 9}, 66))
	}},
	{"a sealed offset index has an odd length", func(d *damaged) { d.append(d.path(1, "index"), []byte{1, 2, 3}) }},
	{"a sealed time index has an odd length", func(d *damaged) { d.append(d.path(1, "timeindex"), []byte{1, 2, 3}) }},
	{"a sealed offset index is empty", func(d *damaged) { d.write(d.path(1, "index"), nil) }},
	{"all snapshots are missing", func(d *damaged) { d.remove("*.snapshot") }},
	{"the newest snapshot is missing", func(d *damaged) { d.remove(d.newest("snapshot")) }},
	{"the newest snapshot has a wrong checksum", func(d *damaged) {
		p := filepath.Join(d.dir, d.newest("snapshot"))
		b := d.bytes(p)
		b[len(b)-1] ^= 1
		d.write(p, b)
	}},
	{"the newest snapshot is empty", func(d *damaged) { d.write(filepath.Join(d.dir, d.newest("snapshot")), nil) }},
	{"a snapshot of no segment", func(d *damaged) {
		d.copy(filepath.Join(d.dir, d.newest("snapshot")), filepath.Join(d.dir, fmt.Sprintf("%020d.snapshot", d.at(1)+1)))
	}},
	{"deleted files are left", func(d *damaged) {
		for _, ext := range []string{"log", "index", "timeindex"} {
			d.copy(d.path(0, ext), d.path(0, ext)+".deleted")
		}
	}},
	{"a cleaned segment is left", func(d *damaged) {
		for _, ext := range []string{"log", "index", "timeindex"} {
			d.copy(d.path(1, ext), d.path(1, ext)+".cleaned")
		}
	}},
	{"a segment is half swapped in", func(d *damaged) {
		for _, ext := range []string{"log", "index", "timeindex"} {
			d.rename(d.path(1, ext), d.path(1, ext)+".swap")
		}
	}},
	{"a segment is swapped in beside the old one", func(d *damaged) {
		for _, ext := range []string{"log", "index", "timeindex"} {
			d.copy(d.path(1, ext), d.path(1, ext)+".swap")
		}
	}},
	{"two segments become one", func(d *damaged) {
		joined := d.bytes(d.path(1, "log"))
		if d.at(2) > d.at(1) {
			joined = append(joined, d.bytes(d.path(2, "log"))...)
		}
		d.write(d.path(1, "log")+".swap", joined)
		d.write(d.path(1, "index")+".swap", d.bytes(d.path(1, "index")))
		d.write(d.path(1, "timeindex")+".swap", d.bytes(d.path(1, "timeindex")))
	}},
	{"a swap behind a cleaned segment", func(d *damaged) {
		for _, ext := range []string{"log", "index", "timeindex"} {
			d.copy(d.path(1, ext), d.path(1, ext)+".cleaned")
			d.copy(d.path(2, ext), d.path(2, ext)+".swap")
		}
	}},
	{"leader epochs are missing", func(d *damaged) { d.remove("leader-epoch-checkpoint") }},
	{"leader epochs are missing, nothing known to be on the disk", func(d *damaged) { d.remove("leader-epoch-checkpoint"); d.recoverFrom(0) }},
	{"no recovery point", func(d *damaged) { delete(d.node, "recovery-point-offset-checkpoint") }},
	{"a recovery point of the future", func(d *damaged) { d.node["recovery-point-offset-checkpoint"] = "100000" }},
	{"no high watermark", func(d *damaged) { delete(d.node, "replication-offset-checkpoint") }},
	{"a high watermark of the future", func(d *damaged) { d.node["replication-offset-checkpoint"] = "100000" }},
	{"a log start within a segment", func(d *damaged) { d.node["log-start-offset-checkpoint"] = fmt.Sprint(d.at(1) + 3) }},
	{"a log start of the future", func(d *damaged) { d.node["log-start-offset-checkpoint"] = "100000" }},
	{"the active segment is empty", func(d *damaged) { d.write(d.path(-1, "log"), nil) }},
	{"the active segment is missing", func(d *damaged) { d.remove(filepath.Base(d.path(-1, "log"))) }},
	{"the first segment is missing", func(d *damaged) { d.remove(fmt.Sprintf("%020d.*", d.at(0))) }},
	{"the log of a segment in the middle is missing", func(d *damaged) { d.remove(filepath.Base(d.path(1, "log"))) }},
	{"a segment in the middle is missing", func(d *damaged) { d.remove(fmt.Sprintf("%020d.*", d.at(middle))); d.recoverFrom(0) }},
}

func (d *damaged) newest(ext string) string {
	d.t.Helper()
	files, err := filepath.Glob(filepath.Join(d.dir, "*."+ext))
	if err != nil || len(files) == 0 {
		d.t.Fatalf("%s has no .%s: %v", d.tp, ext, err)
	}
	return filepath.Base(slices.Max(files))
}

// damageAll gives partition n of each topic the n-th damage.
func damageAll(t *testing.T, dir string, topics []string) {
	t.Helper()
	files := []string{"recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"}
	lines := map[string]map[string]string{}
	for _, f := range files {
		lines[f] = readCheckpoint(t, filepath.Join(dir, f))
	}
	for _, topic := range topics {
		for n, c := range damages {
			d := &damaged{t: t, tp: fmt.Sprintf("%s-%d", topic, n), node: map[string]string{}}
			d.dir = filepath.Join(dir, d.tp)
			d.base = segments(t, d.dir)
			if len(d.base) < 2 {
				t.Fatalf("%s has segments %v, 2 at least are needed", d.tp, d.base)
			}
			for _, f := range files {
				if v, ok := lines[f][d.tp]; ok {
					d.node[f] = v
				}
			}
			c.do(d)
			for _, f := range files {
				delete(lines[f], d.tp)
				if v, ok := d.node[f]; ok {
					lines[f][d.tp] = v
				}
			}
		}
	}
	for _, f := range files {
		writeCheckpoint(t, filepath.Join(dir, f), lines[f])
	}
}

// segments are the base offsets of a partition's segments.
func segments(t *testing.T, dir string) []int64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	var out []int64
	for _, f := range files {
		n, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(f), ".log"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

func readCheckpoint(t *testing.T, path string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, line := range strings.Split(string(b), "\n") { // version and count are lines of one field
		if f := strings.Fields(line); len(f) == 3 {
			out[f[0]+"-"+f[1]] = f[2]
		}
	}
	return out
}

func writeCheckpoint(t *testing.T, path string, lines map[string]string) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "0\n%d\n", len(lines))
	for tp, v := range lines {
		i := strings.LastIndex(tp, "-")
		fmt.Fprintf(&b, "%s %s %s\n", tp[:i], tp[i+1:], v)
	}
	write(t, path, b.String())
}

// copyTree copies a data directory.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(to, ".lock"))
}
