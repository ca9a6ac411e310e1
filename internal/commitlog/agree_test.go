package commitlog

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/segment"
)

// What a start makes anew out of the batches it says in one line, after a clean
// stop and after a kill, and the leader epochs are those of the batches then.
func TestWhatAStartReadsFromTheBatchesIsTold(t *testing.T) {
	epochs := path.Join(testDir, checkpoint.EpochFile)
	wrong := func(d *damaged, content string) {
		d.remove(epochs)
		writeFile(d.t, d.disk, epochs, []byte(content))
	}
	tests := []struct {
		name   string
		damage func(d *damaged)
		event  string // "" is none
		detail string
		clean  bool // after a clean stop alone
	}{
		{"no leader epochs", func(d *damaged) { d.remove(epochs) }, "checkpoint-rebuilt", "missing", false},
		{"an empty file of leader epochs", func(d *damaged) { wrong(d, "") }, "checkpoint-rebuilt", "", false},
		{"a leader epoch above those of the batches", func(d *damaged) { wrong(d, "0\n1\n9 0\n") }, "checkpoint-rebuilt", "epoch 9 from offset 0 on, but the batch at offset 0 has 0", false},
		{"a leader epoch above those of the last batches", func(d *damaged) { wrong(d, "0\n2\n0 0\n9 20\n") }, "checkpoint-rebuilt", "epoch 9 from offset 20 on", false},
		{"a leader epoch that no batch has yet", func(d *damaged) { wrong(d, "0\n2\n0 0\n9 24\n") }, "", "", false},
		{"no producer snapshot", func(d *damaged) {
			for _, name := range strings.Fields(d.files()) {
				if strings.HasSuffix(name, segment.SnapshotExt) {
					d.remove(path.Join(testDir, name))
				}
			}
		}, "snapshot-rebuilt", "no snapshot", true},
	}
	for _, tt := range tests {
		for _, clean := range []bool{true, false} {
			name := tt.name + map[bool]string{true: " after a clean stop", false: " after a kill"}[clean]
			t.Run(name, func(t *testing.T) {
				d := newDamaged(t, clean)
				tt.damage(d)
				var told []Event
				d.opts.OnEvent = func(e Event) { told = append(told, e) }
				d.open(clean)
				want := tt.event
				if tt.clean && !clean {
					want = ""
				}
				if found := len(told) == 1 && told[0].Name == want && strings.Contains(told[0].Detail, tt.detail); !found && (want != "" || len(told) > 0) {
					t.Errorf("told %+v, want %q: %q", told, want, tt.detail)
				}
				if got := d.log.epochs.load(); !slices.Equal(got, []checkpoint.Epoch{{Epoch: 0, Start: 0}}) {
					t.Errorf("leader epochs %v, want 0 from 0 on", got)
				}
			})
		}
	}
}
