package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// seed adds Kafka's files of that name and some broken ones to the corpus.
func seed(f *testing.F, name string, more ...string) {
	f.Helper()
	found, err := filepath.Glob(filepath.Join("testdata", "kafka", "*", name))
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range found {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, s := range more {
		f.Add([]byte(s))
	}
}

func FuzzOffsets(f *testing.F) {
	seed(f, "*-offset-checkpoint", "0\n1\na 0 -1\n", "0\n2\na 0 1\na 0 2\n", "0\n99999999\n")
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decodeOffsets("file", data)
		if err != nil {
			return
		}
		again, err := decodeOffsets("file", encodeOffsets(got))
		if err != nil || !cmp.Equal(got, again) {
			t.Errorf("encoded again: %v, %v; first %v", again, err, got)
		}
	})
}

func FuzzEpochs(f *testing.F) {
	seed(f, EpochFile, "0\n2\n3 4\n1 2\n", "0\n1\n-1 0\n")
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decodeEpochs("file", data)
		if err != nil {
			return
		}
		again, err := decodeEpochs("file", encodeEpochs(got))
		if err != nil || !cmp.Equal(got, again) {
			t.Errorf("encoded again: %v, %v; first %v", again, err, got)
		}
	})
}

func FuzzMeta(f *testing.F) {
	seed(f, MetaFile, "version=1\nnode.id=1\ncluster.id=\\u00e4\\\n b\n\\ k\\=ey = v\\\\\n", "version=0\nbroker.id=1\n")
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decodeMeta("file", data)
		if err != nil {
			return
		}
		again, err := decodeMeta("file", encodeMeta(got, time.Unix(0, 0)))
		if err != nil || !cmp.Equal(got, again) {
			t.Errorf("encoded again: %+v, %v; first %+v", again, err, got)
		}
	})
}

func FuzzPartitionMetadata(f *testing.F) {
	seed(f, PartitionFile, "version: 1\ntopic_id: \n")
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decodePartitionMetadata("file", data)
		if err != nil {
			return
		}
		again, err := decodePartitionMetadata("file", encodePartitionMetadata(got))
		if err != nil || got != again {
			t.Errorf("encoded again: %v, %v; first %v", again, err, got)
		}
	})
}

func FuzzQuorumState(f *testing.F) {
	seed(f, QuorumStateFile, `{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}`)
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := decodeQuorumState("file", data)
		if err != nil {
			return
		}
		b, err := encodeQuorumState(got)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeQuorumState("file", b)
		if err != nil || !cmp.Equal(got, again) {
			t.Errorf("encoded again: %+v, %v; first %+v", again, err, got)
		}
	})
}

func FuzzCleanShutdown(f *testing.F) {
	seed(f, CleanShutdownFile, `{"version":0}`, `{"brokerEpoch":1}`, "[]")
	f.Fuzz(func(t *testing.T, data []byte) {
		epoch := decodeCleanShutdown(data)
		if again := decodeCleanShutdown(encodeCleanShutdown(epoch)); again != epoch {
			t.Errorf("encoded again: %d; first %d", again, epoch)
		}
	})
}
