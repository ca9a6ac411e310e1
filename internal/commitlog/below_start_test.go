package commitlog

import (
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// TestWhatLiesBelowTheLogStartDoesNotEndTheLog: the renames of deleted segments
// are durable in any order, and a recovery point is raised with the log start.
func TestWhatLiesBelowTheLogStartDoesNotEndTheLog(t *testing.T) {
	tests := []struct {
		name         string
		clean        bool
		start, point kafka.Offset
		damage       func(d *damaged)
		ends         kafka.Offset // 24 unless said
		kept         []string
	}{
		{name: "a segment between others is gone", start: 12, damage: func(d *damaged) { d.remove(d.file(6, ".log"), d.file(6, ".index")) }},
		{name: "a segment between others is gone, after a clean stop", clean: true, start: 12, point: 24,
			damage: func(d *damaged) { d.remove(d.file(6, ".log")) }},
		{name: "one has lost its end and another is damaged", start: 14, point: 2, damage: func(d *damaged) {
			d.truncate(d.file(0, ".log"), d.size)
			d.write(d.file(6, ".log"), d.size+70, 0xff)
		}},
		{name: "the first segment has lost what lies above too, and had not been synced", start: 2, point: 2, ends: 2, kept: []string{cut(6)},
			damage: func(d *damaged) { d.truncate(d.file(0, ".log"), d.size) }},
		{name: "the first segment has lost all, and had not been synced", start: 2, point: 2, ends: 2, kept: []string{cut(6)},
			damage: func(d *damaged) { d.truncate(d.file(0, ".log"), 0) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDamaged(t, tt.clean)
			tt.damage(d)
			d.opts.LogStartOffset, d.opts.RecoveryPoint = tt.start, tt.point
			d.open(tt.clean)
			if tt.ends == 0 {
				tt.ends = 24
			}
			if d.log.StartOffset() != tt.start || d.log.EndOffset() != tt.ends {
				t.Fatalf("the log is of %d to %d, want %d to %d", d.log.StartOffset(), d.log.EndOffset(), tt.start, tt.ends)
			}
			for _, name := range tt.kept {
				if !slices.Contains(strings.Fields(d.files()), name) {
					t.Errorf("%s is not there: %s", name, d.files())
				}
			}
			d.append(1)
			for at := tt.start; at < tt.ends; at += 2 {
				info, err := d.log.Read(at, ReadOptions{MaxBytes: 1, MinOneBatch: true, Bound: LogEnd})
				if err != nil {
					t.Fatal(err)
				}
				b := make(record.Batch, info.Region.Length)
				_, err = info.Region.File.ReadAt(b, info.Region.Offset)
				info.Region.Release()
				if err != nil || record.Check(b) != nil || b.BaseOffset() != at {
					t.Errorf("offset %d: %v, %d bytes", at, err, len(b))
				}
			}
		})
	}
}
