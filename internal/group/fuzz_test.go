package group_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/varvelog/varve/internal/group"
	"github.com/varvelog/varve/internal/kafka"
)

func FuzzDecodeKey(f *testing.F) {
	for _, records := range offsetsPartitions(f) {
		for _, r := range records {
			if !r.marker {
				f.Add(r.Key)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := group.DecodeKey(b)
		if err != nil {
			if !errors.Is(err, group.ErrCorrupt) && !errors.Is(err, group.ErrUnknownRecord) {
				t.Errorf("DecodeKey(%x) = %v, want a known error", b, err)
			}
			return
		}
		if got := k.AppendTo(nil); !bytes.Equal(got, b) {
			t.Errorf("DecodeKey(%x) encodes to %x", b, got)
		}
	})
}

func FuzzReplay(f *testing.F) {
	for _, records := range offsetsPartitions(f) {
		for _, r := range records {
			if !r.marker {
				f.Add(r.Key, r.Value, int64(r.Producer))
			}
		}
	}
	f.Fuzz(func(t *testing.T, key, value []byte, producer int64) {
		m := group.New(group.DefaultConfig())
		m.Replay(group.Logged{Record: group.Record{Key: key, Value: value}, Producer: kafka.ProducerID(producer)})
		m.ReplayEndTransaction(kafka.ProducerID(producer), true)
		m.Loaded(1000)
		for _, g := range m.ListGroups(nil, nil) {
			m.DescribeGroup(g.Group, 6)
		}
		m.Expire(1 << 50)
		if err := m.Replay(group.Logged{Record: group.Record{Key: key}, Producer: kafka.NoProducerID}); err != nil {
			return
		}
		if k, err := group.DecodeKey(key); err == nil && k.Type <= group.OffsetCommitKey && m.Counts().Offsets != 0 {
			t.Errorf("%d offsets after the tombstone of the only one", m.Counts().Offsets)
		}
	})
}

func FuzzDecodeValues(f *testing.F) {
	for _, records := range offsetsPartitions(f) {
		for _, r := range records {
			if r.Value != nil {
				f.Add(r.Value)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// Trailing bytes are accepted, so what decodes must decode the same again.
		if v, err := group.DecodeOffset(b); err == nil {
			if again, err := group.DecodeOffset(v.AppendTo(nil)); err != nil || !bytes.Equal(again.AppendTo(nil), v.AppendTo(nil)) {
				t.Errorf("offset value %x does not decode again: %v", b, err)
			}
		}
		if v, err := group.DecodeGroup(b); err == nil {
			if again, err := group.DecodeGroup(v.AppendTo(nil)); err != nil || !bytes.Equal(again.AppendTo(nil), v.AppendTo(nil)) {
				t.Errorf("group value %x does not decode again: %v", b, err)
			}
		}
	})
}
