package segment

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// model is a segment as a list of batches, with the index entries that the
// rules of Kafka give it.
type model struct {
	batches  []*batch
	offsets  []index.Position
	times    []index.TimePosition
	since    int64
	max      index.TimePosition
	interval int64
}

func (m *model) bytes() []byte {
	var all []byte
	for _, b := range m.batches {
		all = append(all, b.bytes...)
	}
	return all
}

func (m *model) next() kafka.Offset {
	if n := len(m.batches); n > 0 {
		return m.batches[n-1].last + 1
	}
	return base
}

func (m *model) append(b *batch, pos int64) {
	if ts := b.max(); ts > m.max.Timestamp {
		m.max = index.TimePosition{Timestamp: ts, Offset: b.last}
	}
	if m.since > m.interval {
		m.offsets = append(m.offsets, index.Position{Offset: b.last, Byte: pos})
		m.finalTime()
		m.since = 0
	}
	m.batches = append(m.batches, b)
	m.since += int64(len(b.bytes))
}

// finalTime is one attempt at a time index entry.
func (m *model) finalTime() {
	last := index.TimePosition{Timestamp: -1, Offset: base}
	if n := len(m.times); n > 0 {
		last = m.times[n-1]
	}
	if m.max.Timestamp > last.Timestamp {
		m.times = append(m.times, m.max)
	}
}

// truncate drops the batch that holds offset and all behind it.
func (m *model) truncate(offset kafka.Offset) (cut int64) {
	if i := slices.IndexFunc(m.batches, func(b *batch) bool { return b.last >= offset }); i >= 0 {
		for _, b := range m.batches[i:] {
			cut += int64(len(b.bytes))
		}
		m.batches = m.batches[:i]
	}
	if i := slices.IndexFunc(m.offsets, func(p index.Position) bool { return p.Offset >= offset }); i >= 0 {
		m.offsets = m.offsets[:i]
	}
	if i := slices.IndexFunc(m.times, func(p index.TimePosition) bool { return p.Offset >= offset }); i >= 0 {
		m.times = m.times[:i]
	}
	m.since = 0
	m.max = index.TimePosition{Timestamp: -1, Offset: base}
	if n := len(m.times); n > 0 {
		m.max = m.times[n-1]
	}
	for _, b := range m.batches {
		if ts := b.max(); ts > m.max.Timestamp {
			m.max = index.TimePosition{Timestamp: ts, Offset: b.last}
		}
	}
	return cut
}

// recover is what a recovery makes of the same batches.
func (m *model) recover() {
	old := m.batches
	*m = model{interval: m.interval, max: index.TimePosition{Timestamp: -1, Offset: base}}
	pos := int64(0)
	for _, b := range old {
		m.append(b, pos)
		pos += int64(len(b.bytes))
	}
	m.finalTime()
	m.since = 0
}

// TestSegmentAgreesWithAList runs random operations on a segment and on a list
// of batches.
func TestSegmentAgreesWithAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fsys := memfs.New()
		o := options()
		o.IndexInterval = rapid.SampledFrom([]int64{0, 200, 4096}).Draw(t, "interval")
		s := create(t, fsys, o)
		defer func() { check(t, s.Close()) }()
		m := &model{interval: o.IndexInterval, max: index.TimePosition{Timestamp: -1, Offset: base}}
		dec := &record.Decompressor{}
		draw := func(t *rapid.T) *batch {
			n := rapid.IntRange(1, 5).Draw(t, "records")
			times := make([]kafka.Timestamp, n)
			for i := range times {
				times[i] = kafka.Timestamp(rapid.Int64Range(-1, 5000).Draw(t, "ts"))
			}
			gap := kafka.Offset(rapid.SampledFrom([]int{0, 0, 0, 3}).Draw(t, "gap"))
			return newBatch(t, m.next()+gap, rapid.IntRange(0, 400).Draw(t, "pad"), times...)
		}
		t.Repeat(map[string]func(*rapid.T){
			"append one": func(t *rapid.T) {
				b := draw(t)
				pos := s.Size()
				check(t, s.Append(b.last, b.bytes))
				m.append(b, pos)
			},
			"append several": func(t *rapid.T) {
				pos := s.Size()
				var bufs [][]byte
				var last kafka.Offset
				for range rapid.IntRange(2, 6).Draw(t, "batches") {
					b := draw(t)
					m.append(b, pos)
					pos += int64(len(b.bytes))
					if rapid.Bool().Draw(t, "one buffer") && len(bufs) > 0 {
						bufs[len(bufs)-1] = append(slices.Clone(bufs[len(bufs)-1]), b.bytes...)
					} else {
						bufs = append(bufs, b.bytes)
					}
					last = b.last
				}
				check(t, s.Append(last, bufs...))
			},
			"read": func(t *rapid.T) {
				start := base + kafka.Offset(rapid.IntRange(-1, int(m.next()-base)+1).Draw(t, "start"))
				all := m.bytes()
				o := ReadOptions{
					MaxBytes:    rapid.Int64Range(0, 3000).Draw(t, "max"),
					Limit:       rapid.Int64Range(0, int64(len(all))+10).Draw(t, "limit"),
					MinOneBatch: rapid.Bool().Draw(t, "min one"),
				}
				info, ok, err := s.Read(start, o)
				check(t, err)
				i := slices.IndexFunc(m.batches, func(b *batch) bool { return b.last >= start })
				if ok != (i >= 0) {
					t.Fatalf("Read(%d): ok %v, want batch %d", start, ok, i)
				}
				if !ok {
					return
				}
				pos := int64(0)
				for _, b := range m.batches[:i] {
					pos += int64(len(b.bytes))
				}
				first := int64(len(m.batches[i].bytes))
				allowed := o.MaxBytes
				if o.MinOneBatch {
					allowed = max(allowed, first)
				}
				n := max(0, min(allowed, min(o.Limit, int64(len(all)))-pos))
				if info.Position != pos || info.FirstBatch != first || info.FirstBatchIncomplete != (allowed < first) {
					t.Fatalf("Read(%d, %+v) = %+v, want position %d, first batch %d", start, o, info, pos, first)
				}
				if got := readRegion(t, info.Region); !bytes.Equal(got, all[pos:pos+n]) {
					t.Fatalf("Read(%d, %+v) gives %d bytes, want those from %d to %d", start, o, len(got), pos, pos+n)
				}
			},
			"find by timestamp": func(t *rapid.T) {
				ts := kafka.Timestamp(rapid.Int64Range(0, 5001).Draw(t, "ts"))
				from := base + kafka.Offset(rapid.IntRange(0, 30).Draw(t, "from"))
				got, ok, err := s.FindByTimestamp(ts, from, dec)
				check(t, err)
				for _, b := range m.batches {
					for i, have := range b.times {
						if o := b.first + kafka.Offset(i); have >= ts && o >= from {
							if want := (TimeMatch{have, o, 3}); !ok || got != want {
								t.Fatalf("FindByTimestamp(%d, %d) = %+v, %v, want %+v", ts, from, got, ok, want)
							}
							return
						}
					}
				}
				if ok {
					t.Fatalf("FindByTimestamp(%d, %d) = %+v, want none", ts, from, got)
				}
			},
			"find the largest timestamp": func(t *rapid.T) {
				got, ok, err := s.FindMaxTimestamp(dec)
				check(t, err)
				for _, b := range m.batches {
					if i := slices.Index(b.times, m.max.Timestamp); i >= 0 && m.max.Timestamp >= 0 {
						if want := (TimeMatch{m.max.Timestamp, b.first + kafka.Offset(i), 3}); !ok || got != want {
							t.Fatalf("FindMaxTimestamp() = %+v, %v, want %+v", got, ok, want)
						}
						return
					}
				}
			},
			"truncate": func(t *rapid.T) {
				offset := base + kafka.Offset(rapid.IntRange(0, int(m.next()-base)+2).Draw(t, "offset"))
				cut, err := s.TruncateTo(offset, 7)
				check(t, err)
				if want := m.truncate(offset); cut != want {
					t.Fatalf("TruncateTo(%d) cuts %d bytes, want %d", offset, cut, want)
				}
			},
			"recover": func(t *rapid.T) {
				var seen []byte
				cut, err := s.Recover(func(_ *record.Header, b []byte, pos int64) error {
					if pos != int64(len(seen)) {
						t.Fatalf("visit at %d, want %d", pos, len(seen))
					}
					seen = append(seen, b...)
					return nil
				})
				check(t, err)
				if cut != 0 || !bytes.Equal(seen, m.bytes()) {
					t.Fatalf("Recover cut %d bytes and visited %d", cut, len(seen))
				}
				m.recover()
				check(t, s.Activate())
			},
			"flush": func(t *rapid.T) { check(t, s.Flush()) },
			"close and open": func(t *rapid.T) {
				check(t, s.Close())
				m.finalTime()
				m.since = 0
				var err error
				s, err = Open(fsys, dir, base, o)
				check(t, err)
				if n, err := s.ReadNextOffset(); n != m.next() || err != nil {
					t.Fatalf("ReadNextOffset() = %d, %v, want %d", n, err, m.next())
				}
				check(t, s.Activate())
			},
			"": func(t *rapid.T) {
				if s.Size() != int64(len(m.bytes())) {
					t.Fatalf("Size() = %d, want %d", s.Size(), len(m.bytes()))
				}
				got := readEntries(t, s)
				if !slices.Equal(got.offsets, m.offsets) {
					t.Fatalf("offset index %v, want %v", got.offsets, m.offsets)
				}
				if !slices.Equal(got.times, m.times) {
					t.Fatalf("time index %v, want %v", got.times, m.times)
				}
			},
		})
	})
}
