package logdir

import (
	"testing"

	"github.com/varvelog/varve/internal/checkpoint"
)

// A checkpoint that is gone from a directory with partitions is told once; in a
// new directory there is none to miss.
func TestACheckpointThatIsGoneIsTold(t *testing.T) {
	for _, file := range []string{checkpoint.RecoveryPointFile, checkpoint.LogStartFile, checkpoint.HighWatermarkFile, checkpoint.CleanerFile} {
		for _, topics := range [][]string{nil, {"orders"}} {
			disk := withTopics(t, topics...)
			must(t, disk.Remove("/data/"+file))
			var lines logLines
			load(t, logTo(options(disk, "/data"), &lines), nil)
			if got := lines.contains("checkpoint-rebuilt") && lines.contains("/data/"+file) && lines.contains("missing"); got != (len(topics) > 0) {
				t.Errorf("%s is gone, topics %v: told = %v", file, topics, got)
			}
		}
	}
}
