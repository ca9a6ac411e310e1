package repair

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
)

// gap plans for the files of a segment whose .log is gone from the middle of the
// log. A start refuses the partition because of them: its offsets are gone. With
// them aside it is served as it is, so this accepts the gap, and needs to be
// allowed. It reports whether the file is one of those.
func (p *planner) gap(d *part, n segment.FileName) (bool, error) {
	i, there := slices.BinarySearch(d.bases, n.Base)
	if there || i == 0 || i == len(d.bases) || n.Suffix != "" || n.Ext == segment.LogExt {
		return false, nil
	}
	next := d.bases[i-1]
	err := p.scan(d.path(next, segment.LogExt), record.HeaderSize, func(s *record.Scanner) error {
		next = max(next, s.Header().NextOffset())
		return nil
	})
	if err != nil || next >= d.bases[i] || n.Base < next {
		return false, err
	}
	path := filepath.Join(d.dir, n.String())
	if _, planned := p.at[path]; planned || p.held[path] {
		return true, nil
	}
	step := Step{
		Kind: MoveAside, File: path, From: -1, To: -1, First: kafka.NoOffset, Last: kafka.NoOffset, Loses: true, rank: rankIndex,
		Why: fmt.Sprintf("its .log is missing, the offsets %d..%d are gone and the log goes on without them", next, d.bases[i]-1),
	}
	if !p.o.AllowDataLoss {
		p.held[path], p.held[d.path(n.Base, segment.LogExt)] = true, true
		p.plan.Held = append(p.plan.Held, step)
		return true, nil
	}
	p.view.aside(path)
	delete(d.names, n.String())
	p.add(step)
	return true, nil
}

// gaps looks at every file that a .log of its own number is missing for.
func (p *planner) gaps(d *part) (taken map[string]bool, err error) {
	taken = map[string]bool{}
	for _, name := range slices.Sorted(keys(d.names)) {
		if n, ok := segment.ParseName(name); ok {
			if taken[name], err = p.gap(d, n); err != nil {
				return nil, err
			}
		}
	}
	return taken, nil
}
