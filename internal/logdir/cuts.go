package logdir

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/segment"
)

// cutCheck is how often the files that recovery set aside are looked at.
const cutCheck = time.Hour

// isCut tells a `.log.cut` file, numbered or not, from others.
func isCut(name string) bool {
	base, number, ok := strings.Cut(name, commitlog.CutSuffix)
	if !ok || strings.Trim(number, ".0123456789") != "" {
		return false
	}
	n, ok := segment.ParseName(base)
	return ok && n.Ext == segment.LogExt && n.Suffix == "" && n.String() == base
}

// removeCuts unlinks what recovery set aside, once it has lain there for
// CutRetention: the time of such a file is that of its setting aside.
func (m *Manager) removeCuts() {
	m.each(func(p *partition) {
		dir := p.log.Dir()
		list, err := m.o.FS.ReadDir(dir)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) { // deleted meanwhile
				m.report(p, "set-aside files", err)
			}
			return
		}
		for _, e := range list {
			if !e.Type().IsRegular() || !isCut(e.Name()) {
				continue
			}
			path := filepath.Join(dir, e.Name())
			info, err := m.o.FS.Stat(path)
			if err != nil || m.o.Now().Sub(info.ModTime()) < m.o.CutRetention {
				continue
			}
			if err := m.o.FS.Remove(path); err != nil {
				m.report(p, "set-aside files", err)
				continue
			}
			m.o.Logger.Info("set-aside file removed", "event", "cut-removed", "topic", p.tp.Topic, "partition", p.tp.Partition,
				"file", path, "bytes", info.Size(), "since", info.ModTime().UTC().Format(time.RFC3339))
		}
	})
}
