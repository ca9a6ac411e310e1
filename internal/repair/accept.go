package repair

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/verify"
	"github.com/varvelog/varve/internal/vfs"
)

// accept plans, when nothing else is left to plan, the recovery points of the
// partitions in which offsets are missing above them. A start after a kill ends
// a log there and sets aside what lies behind, because it takes a hole for what
// a lost power leaves. What repair has checked, and syncs with this step, is no
// such thing: with its end as the recovery point it stays as it is. A hole that
// no repair has made is accepted only when that is allowed.
func (p *planner) accept(dirs []string, findings []verify.Finding) error {
	for _, root := range p.dataDirs(dirs) {
		if _, found, err := checkpoint.ReadCleanShutdown(p.view, root); found || err != nil {
			continue // a start believes the logs of a clean stop, or verify names the marker
		}
		path := filepath.Join(root, checkpoint.RecoveryPointFile)
		points, err := checkpoint.ReadOffsets(p.view, path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if points == nil {
			points = map[kafka.TopicPartition]kafka.Offset{}
		}
		step := Step{Kind: RewriteCheckpoint, File: path, From: -1, To: -1, First: kafka.NoOffset, Last: kafka.NoOffset, rank: rankAccept, key: path + " at last"}
		held := step
		held.Loses = true
		for _, dir := range dirs {
			if filepath.Dir(dir) != root {
				continue
			}
			if err := p.acceptOne(dir, points, findings, &step, &held); err != nil {
				return err
			}
		}
		if held.Why != "" && !p.held[path] {
			p.held[path] = true
			p.plan.Held = append(p.plan.Held, held)
		}
		if step.Why == "" {
			continue
		}
		step.data, err = p.view.write(path, func(fsys vfs.FS) error { return checkpoint.WriteOffsets(fsys, path, points) })
		if err != nil {
			return err
		}
		p.add(step)
	}
	return nil
}

// dataDirs are the formatted directories that the partitions are in.
func (p *planner) dataDirs(dirs []string) (roots []string) {
	for _, dir := range dirs {
		if root := filepath.Dir(dir); !slices.Contains(roots, root) && p.formatted(root) {
			roots = append(roots, root)
		}
	}
	return roots
}

func (p *planner) acceptOne(dir string, points map[kafka.TopicPartition]kafka.Offset, findings []verify.Finding, step, held *Step) error {
	var holes []string // files behind a hole
	for _, f := range findings {
		if f.Code == verify.CodeHole && f.Severity > verify.Note && filepath.Dir(f.File) == dir {
			holes = append(holes, f.File)
		}
	}
	d, err := p.open(dir)
	if err != nil {
		return err
	}
	made := d.mended()
	if len(d.bases) == 0 || d.tp.Topic == kafka.ClusterMetadataTopic || len(holes) == 0 && !made {
		return nil
	}
	from, to, end, err := p.gapAbove(d, points[d.tp])
	if unreadable(err) {
		return nil // verify names the file
	}
	if err != nil || from == kafka.NoOffset {
		return err
	}
	why := fmt.Sprintf("%v %d -> %d, so that a start keeps the log behind the offsets %d..%d, which are gone", d.tp, points[d.tp], end, from, to-1)
	into := step
	if !made && !p.o.AllowDataLoss {
		into = held
		for _, name := range holes {
			p.held[name] = true
		}
	} else {
		points[d.tp] = end
		step.syncs = append(step.syncs, dir)
	}
	if into.Why != "" {
		why = ", " + why
	}
	into.Why += why
	return nil
}

// mended reports whether something of a segment was set aside here.
func (d *part) mended() bool {
	for name := range d.names {
		whole, _, cut := strings.Cut(name, cutSuffix)
		if n, ok := segment.ParseName(whole); ok && cut && n.Ext != segment.SnapshotExt {
			return true
		}
	}
	return false
}

// gapAbove finds the first offsets, [from, to), that no batch has and that a start
// misses, because it goes through the log from the recovery point on.
func (p *planner) gapAbove(d *part, point kafka.Offset) (from, to, end kafka.Offset, err error) {
	from, end = kafka.NoOffset, d.bases[0]
	gap := func(next kafka.Offset) {
		if next > end && next > point && from == kafka.NoOffset {
			from, to = end, next
		}
	}
	for _, base := range d.bases {
		gap(base)
		end = max(end, base)
		err := p.scan(d.path(base, segment.LogExt), record.HeaderSize, func(s *record.Scanner) error {
			h := s.Header()
			if h.Magic >= record.MagicV2 {
				gap(h.BaseOffset)
			}
			end = max(end, h.NextOffset())
			return nil
		})
		if err != nil {
			return from, to, end, err
		}
	}
	return from, to, end, nil
}

// syncAll makes everything in partition directories durable: what lies below a
// recovery point is believed.
func syncAll(fsys vfs.FS, dirs []string) error {
	for _, dir := range dirs {
		entries, err := fsys.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() {
				continue
			}
			if err := syncFile(fsys, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
		if err := fsys.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}
