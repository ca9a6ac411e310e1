package cli

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A broker that knows of a damaged batch answers CORRUPT_MESSAGE again and
// again: to wait for it to be whole is to hang.
func TestADamagedBatchEndsTheReading(t *testing.T) {
	fetched := func(err error) kgo.Fetches {
		return kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: "t", Partitions: []kgo.FetchPartition{{Partition: 3, Err: err}}}}}}
	}
	var f *failure
	if err := fetchProblem(fetched(kerr.CorruptMessage)); !errors.As(err, &f) || f.code != exitFailed || f.what != "read t-3" || f.hint == "" {
		t.Errorf("CORRUPT_MESSAGE: %+v, want a failure with a hint", err)
	}
	for _, passing := range []error{kerr.NotLeaderForPartition, kerr.OffsetNotAvailable, kerr.KafkaStorageError} {
		if err := fetchProblem(fetched(passing)); err != nil {
			t.Errorf("%v: %v, want to go on", passing, err)
		}
	}
}
