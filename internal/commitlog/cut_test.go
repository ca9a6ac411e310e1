package commitlog

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// Whole batches that a recovery takes out of service are told as an error, with
// where they are; a torn end, as every kill leaves it, is not.
func TestWholeBatchesSetAsideAreAnError(t *testing.T) {
	tests := []struct {
		name   string
		damage func(d *damaged)
		want   []string
	}{
		{"a flipped bit above the recovery point", func(d *damaged) { d.write(d.file(6, ".log"), d.size+70, 0xff) },
			[]string{"level=ERROR", "event=tail-cut", "cut the log at damage; 7 whole batches, offsets 10..23, set aside in ", cut(6), cut(12), cut(18)}},
		{"a torn end", func(d *damaged) { d.truncate(d.file(18, ".log"), 3*d.size-1) }, []string{"level=WARN", "event=tail-cut"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDamaged(t, false)
			tt.damage(d)
			var out bytes.Buffer
			d.opts.Logger = slog.New(slog.NewTextHandler(&out, nil))
			d.open(false)
			for _, want := range tt.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("the log has no %s: %s", want, out.String())
				}
			}
		})
	}
}
