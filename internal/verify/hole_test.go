package verify

import (
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/vfs/memfs"
)

// A hole between segments says what a start makes of it, and what was set aside
// which records are in it.
func TestAHoleSaysWhatAStartDoes(t *testing.T) {
	whole := faultDisk(t)
	const point = "recovery-point-offset-checkpoint"
	tests := []struct {
		name   string
		damage func(r room)
		file   string
		code   Code
		want   string
		status Severity
	}{
		{"above the recovery point", unclean(func(r room) {
			r.remove(seg22+".log", seg22+".index", seg22+".timeindex", seg22+".txnindex")
			r.write(point, []byte("0\n0\n"))
		}), seg48 + ".log", CodeHole, "a start ends the log here", Error},
		{"above the recovery point, with its indexes left", unclean(func(r room) { r.remove(seg22 + ".log"); r.write(point, []byte("0\n0\n")) }),
			seg48 + ".log", CodeHole, "a start ends the log here", Error},
		{"below the recovery point", func(r room) { r.remove(seg22 + ".log") }, seg22 + ".log", CodeHole, "a broker does not serve the partition", Error},
		{"whole batches that were set aside", func(r room) { r.write(seg22+".log.cut", append([]byte("damage"), r.read(seg22+".log")...)) },
			seg22 + ".log.cut", CodeKept, "whole batches with offsets in 22..47", Note},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := room{t, whole.Crash(memfs.KeepAll())}
			tt.damage(r)
			got, err := Check(t.Context(), Options{FS: r.disk, Paths: []string{"/data"}, Node: true, Parallel: 1})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(got.Findings, func(f Finding) bool {
				return f.File == r.path(tt.file) && f.Code == tt.code && f.Severity == tt.status && strings.Contains(f.Message, tt.want)
			}) {
				t.Errorf("want %v %s of %s, %q: found %v", tt.status, tt.code, tt.file, tt.want, got.Findings)
			}
			if slices.ContainsFunc(got.Findings, func(f Finding) bool { return f.Code == CodeNoLog }) {
				t.Errorf("an index of the missing log is told to be removed: %v", got.Findings)
			}
		})
	}
}

// What has directories with names as partitions have, and nothing of Kafka's, is
// no data directory, and not damaged in fifty ways.
func TestAnyOtherDirectoryIsNotKafkas(t *testing.T) {
	disk := memfs.New()
	r := room{t, disk}
	for _, dir := range []string{"/data/apt", "/data/rc-0", "/data/openssh-9"} {
		if err := disk.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.write("rc-0/notes.conf", nil)
	var out, errs strings.Builder
	if status := Run(t.Context(), Options{FS: disk, Paths: []string{"/data"}, Node: true}, &out, &errs); status != ExitMissing || out.Len() > 0 {
		t.Errorf("status %d, want %d: %s%s", status, ExitMissing, out.String(), errs.String())
	}
}
