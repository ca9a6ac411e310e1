package replica

import (
	"path/filepath"
	"testing"

	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/vfs"
)

// BenchmarkLead1000 takes over the leadership of a thousand partitions in a new
// epoch, as every start does.
func BenchmarkLead1000(b *testing.B) {
	n := newNode(b, vfs.OS(), filepath.Join(b.TempDir(), "data"))
	records := []metadata.Record{topicRecord("orders"), smallIndexes("orders")}
	for i := range int32(1000) {
		records = append(records, partitionRecord("orders", i))
	}
	must(b, n.apply(records...))
	list := n.m.Partitions()
	b.ReportAllocs()
	for b.Loop() {
		forEach(len(list), func(i int) {
			role := *list[i].Role()
			role.LeaderEpoch++
			must(b, list[i].apply(role))
		})
	}
}
