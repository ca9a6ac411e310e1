package logdir

// DirState is how a data directory is doing, for health checks and metrics.
type DirState struct {
	Path        string
	Err         error // not nil: offline
	ReadOnly    bool  // writes are refused for want of room
	Free        int64 // bytes that may still be written; -1 when not known
	Used        int64 // bytes of the .log files
	Uncleanable int   // partitions that compaction has given up
}

// States lists the directories in the order of Options.Dirs.
func (m *Manager) States() []DirState {
	list := make([]DirState, len(m.dirs))
	at := make(map[*dir]int, len(m.dirs))
	for i, d := range m.dirs {
		at[d] = i
		list[i] = DirState{Path: d.path, Err: d.err(), ReadOnly: d.full.now.Load() || d.space.refuses.Load(), Free: -1}
		if list[i].Err == nil {
			if _, free, err := m.o.FS.Usage(d.path); err == nil {
				list[i].Free = free
			}
		}
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, p := range m.logs {
		list[at[p.dir]].Used += p.log.Size()
	}
	if m.cleaner != nil {
		for tp := range m.cleaner.Uncleanable() {
			if p := m.logs[tp]; p != nil {
				list[at[p.dir]].Uncleanable++
			}
		}
	}
	return list
}

// OpenSegments is how many sealed segments have their files open, and how many
// may have.
func (m *Manager) OpenSegments() (open, limit int) { return m.files.Open() }
