package verify

import (
	"fmt"
	"strconv"

	"github.com/varvelog/varve/internal/kafka"
)

// snapshotID reads the name of a metadata snapshot: end offset in 20 digits,
// epoch in 10.
func snapshotID(name string) (kafka.Offset, kafka.LeaderEpoch, error) {
	if len(name) < 31 || name[20] != '-' {
		return 0, 0, fmt.Errorf("%q is not the name of a snapshot", name)
	}
	offset, err := strconv.ParseInt(name[:20], 10, 64)
	if err != nil {
		return 0, 0, err
	}
	epoch, err := strconv.ParseInt(name[21:31], 10, 32)
	return kafka.Offset(offset), kafka.LeaderEpoch(epoch), err
}
