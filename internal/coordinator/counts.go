package coordinator

import "github.com/varvelog/varve/internal/group"

// Counts adds up the groups and offsets of the partitions that are loaded.
func (g *Groups) Counts() group.Counts {
	var sum group.Counts
	for _, s := range g.all() {
		s.read(func(m *group.Machine) {
			c := m.Counts()
			sum.Groups += c.Groups
			sum.Offsets += c.Offsets
		})
	}
	return sum
}
