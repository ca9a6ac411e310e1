package cleaner

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"maps"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// TestOldFormatsAreRewrittenInTheNewOne compacts logs of the message formats 0
// and 1. What stays becomes format 2 with the same offsets, times, keys and values.
func TestOldFormatsAreRewrittenInTheNewOne(t *testing.T) {
	stage := golden.Load(t, "10-old-formats").Stage(t, "handmade")
	for _, p := range stage.Partitions {
		t.Run(p.Dir, func(t *testing.T) {
			w := &world{cfg: worldConfig(), now: 1_750_000_000_000, mem: testMemory(), checkpoint: kafka.NoOffset, limit: -1, seen: map[kafka.Offset]int64{}}
			w.mount(memfs.New())
			stage.UnpackTo(t, w.disk, "/d")
			must(t, w.disk.Rename("/d/"+p.Dir, worldDir))
			must(t, w.open(false))
			defer w.log.Close()
			w.recs = records(t, w.log)
			if len(w.recs) == 0 {
				t.Fatal("no records")
			}
			must(t, w.log.Roll())
			for round := range 2 {
				w.checkpoint = kafka.NoOffset
				cleanNow(t, w)
				for _, s := range w.log.Segments() {
					_, err := s.Scan(0, s.Size(), func(h *record.Header, _ []byte, _ int64) error {
						if h.Magic != record.MagicV2 {
							t.Errorf("round %d: batch at %d has format %d", round+1, h.BaseOffset, h.Magic)
						}
						return nil
					})
					must(t, err)
				}
				w.now += 2 * w.cfg.DeleteRetentionMs
			}
			if have := fold(records(t, w.log)); !maps.Equal(have, fold(w.recs)) {
				t.Errorf("a reader builds %v, want %v", have, fold(w.recs))
			}
		})
	}
}

// records lists all records of a log, of any format.
func records(t *testing.T, l *commitlog.Log) (list []appended) {
	t.Helper()
	var it record.Iterator
	var dec record.Decompressor
	for _, s := range l.Segments() {
		_, err := s.Scan(0, s.Size(), func(_ *record.Header, b []byte, _ int64) error {
			if err := it.Reset(b, &dec); err != nil {
				return err
			}
			for it.Next() {
				r := it.Record()
				list = append(list, appended{offset: r.Offset, ts: r.Timestamp, key: bytes.Clone(r.Key), value: bytes.Clone(r.Value)})
			}
			return it.Err()
		})
		must(t, err)
	}
	return list
}

func TestTombstonesOfOldFormatsGoByTheTimesOfTheirFiles(t *testing.T) {
	for _, tt := range []struct {
		name string
		pass int64 // between the segment with the tombstone and the newest clean one
		want []kafka.Offset
	}{
		{"a tombstone stays while the clean part is younger than delete.retention.ms", worldConfig().DeleteRetentionMs - 1, []kafka.Offset{0, 1, 2}},
		{"it goes once the clean part is that old", worldConfig().DeleteRetentionMs, []kafka.Offset{1, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := testWorld(t)
			old := func(offset kafka.Offset, key string, value []byte) {
				_, err := w.log.AppendAsFollower(legacyMessage(offset, key, value), 0)
				must(t, err)
				w.log.MaybeIncrementHighWatermark(w.log.EndOffset())
				must(t, w.log.Roll())
			}
			old(0, "a", nil)
			w.now += tt.pass
			old(1, "b", []byte("1"))
			w.now += time.Hour.Milliseconds()
			old(2, "c", []byte("1"))
			w.checkpoint = 2
			_, err := w.clean()
			must(t, err)
			want(t, "records", offsetsOf(records(t, w.log)), tt.want)
		})
	}
}

// legacyMessage is one message of format 1.
func legacyMessage(offset kafka.Offset, key string, value []byte) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(offset))
	b = append(b, make([]byte, 8)...) // size and checksum
	b = append(b, 1, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(1000+offset))
	b = binary.BigEndian.AppendUint32(b, uint32(len(key)))
	b = append(b, key...)
	if value == nil {
		b = binary.BigEndian.AppendUint32(b, 0xffffffff)
	} else {
		b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
		b = append(b, value...)
	}
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-record.LogOverhead))
	binary.BigEndian.PutUint32(b[12:], crc32.ChecksumIEEE(b[16:]))
	return b
}
