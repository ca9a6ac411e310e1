package index

import (
	"path/filepath"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// TestIndexesOfKafkaHoldWhatKafkaSays reads every index of every golden
// directory and compares it entry by entry with Kafka's own reader.
func TestIndexesOfKafkaHoldWhatKafkaSays(t *testing.T) {
	files := 0
	for _, name := range golden.Names(t) {
		c := golden.Load(t, name)
		for i := range c.Stages {
			stage := &c.Stages[i]
			t.Run(name+"/"+stage.Name, func(t *testing.T) {
				fsys := memfs.New()
				stage.UnpackTo(t, fsys, "/data")
				for _, p := range stage.Partitions {
					for _, s := range p.Segments {
						at := func(ext string) Options {
							file := filepath.Join("/data", p.Dir, kafkaName(s.Base)+ext+s.Suffix)
							return Options{FS: fsys, Path: file, Base: kafka.Offset(s.Base), ReadOnly: true}
						}
						if s.Index != nil {
							checkOffsets(t, at(".index"), s.Index)
							files++
						}
						if s.TimeIndex != nil {
							checkTimes(t, at(".timeindex"), s.TimeIndex)
							files++
						}
						if s.TxnIndex != nil {
							checkTxns(t, at(".txnindex"), s.TxnIndex)
							files++
						}
					}
				}
			})
		}
	}
	if files < 500 {
		t.Errorf("only %d index files were compared", files)
	}
}

func kafkaName(base int64) string {
	s := []byte("00000000000000000000")
	for i := len(s) - 1; base > 0; i-- {
		s[i] += byte(base % 10)
		base /= 10
	}
	return string(s)
}

func checkOffsets(t *testing.T, o Options, want *golden.Index) {
	t.Helper()
	x := NewOffset(o)
	defer x.Close()
	n, err := x.Len()
	check(t, err)
	if n != len(want.Entries)+int(want.ZeroTail) {
		t.Errorf("%s: %d slots, want %d entries and %d zeros", o.Path, n, len(want.Entries), want.ZeroTail)
		return
	}
	for i := range n {
		p, err := x.Entry(i)
		check(t, err)
		e := Position{o.Base, 0}
		if i < len(want.Entries) {
			e = Position{kafka.Offset(want.Entries[i][0]), want.Entries[i][1]}
		}
		if p != e {
			t.Errorf("%s: entry %d is %+v, want %+v", o.Path, i, p, e)
		}
		if i > len(want.Entries)+10 {
			break
		}
	}
	if want.ZeroTail == 0 {
		for i, e := range want.Entries {
			if p, err := x.Lookup(kafka.Offset(e[0])); err != nil || p.Byte != e[1] {
				t.Errorf("%s: Lookup(%d) = %+v, %v, want entry %d", o.Path, e[0], p, err, i)
			}
		}
	}
}

func checkTimes(t *testing.T, o Options, want *golden.Index) {
	t.Helper()
	x := NewTime(o)
	defer x.Close()
	n, err := x.Len()
	check(t, err)
	if n != len(want.Entries)+int(want.ZeroTail) {
		t.Errorf("%s: %d slots, want %d entries and %d zeros", o.Path, n, len(want.Entries), want.ZeroTail)
		return
	}
	for i, e := range want.Entries {
		p, err := x.Entry(i)
		check(t, err)
		if p != (TimePosition{kafka.Timestamp(e[0]), kafka.Offset(e[1])}) {
			t.Errorf("%s: entry %d is %+v, want %v", o.Path, i, p, e)
		}
	}
}

func checkTxns(t *testing.T, o Options, want *golden.TxnIndex) {
	t.Helper()
	x := NewTxn(o)
	defer x.Close()
	var got [][4]int64
	check(t, x.Each(func(_ int64, a AbortedTxn) bool {
		got = append(got, [4]int64{int64(a.ProducerID), int64(a.FirstOffset), int64(a.LastOffset), int64(a.LastStable)})
		return true
	}))
	if len(got) != len(want.Entries) {
		t.Fatalf("%s: entries %v, want %v", o.Path, got, want.Entries)
	}
	for i := range got {
		if got[i] != want.Entries[i] {
			t.Errorf("%s: entry %d is %v, want %v", o.Path, i, got[i], want.Entries[i])
		}
	}
}
