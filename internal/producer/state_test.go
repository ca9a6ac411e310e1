package producer

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

func newState(t testing.TB) *State {
	t.Helper()
	disk := memfs.New()
	if err := disk.MkdirAll("/p-0", 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := Open(Config{FS: disk, Dir: "/p-0", Partition: kafka.TopicPartition{Topic: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// batch is a data batch of n records.
type batch struct {
	pid   kafka.ProducerID
	epoch kafka.ProducerEpoch
	seq   kafka.Sequence
	n     int32
	base  kafka.Offset
	ts    kafka.Timestamp
	txn   bool
}

func (b batch) header() *record.Header {
	h := &record.Header{
		BaseOffset: b.base, LastOffset: b.base + kafka.Offset(b.n) - 1, LastOffsetDelta: b.n - 1, Magic: 2,
		MaxTimestamp: b.ts, ProducerID: b.pid, ProducerEpoch: b.epoch, BaseSequence: b.seq, Count: b.n,
	}
	if b.txn {
		h.Attributes |= record.AttrTransactional
	}
	return h
}

func markerHeader(pid kafka.ProducerID, epoch kafka.ProducerEpoch, base kafka.Offset) *record.Header {
	return &record.Header{
		BaseOffset: base, LastOffset: base, Magic: 2, ProducerID: pid, ProducerEpoch: epoch,
		BaseSequence: kafka.NoSequence, Count: 1, Attributes: record.AttrTransactional | record.AttrControl,
	}
}

// add appends one batch as a whole append and completes what it completes.
func add(s *State, h *record.Header, m *Marker, origin Origin, txnVersion int16) error {
	s.Begin()
	if err := s.Add(h, m, origin, txnVersion, 0); err != nil {
		return err
	}
	s.Commit()
	for _, c := range s.Completed() {
		s.Complete(c)
	}
	s.SetMapEnd(h.LastOffset + 1)
	return nil
}

func mustAdd(t testing.TB, s *State, b batch) {
	t.Helper()
	if err := add(s, b.header(), nil, Client, UnknownTxnVersion); err != nil {
		t.Fatalf("batch %+v: %v", b, err)
	}
}

func TestSequencesOfClients(t *testing.T) {
	const last = 1<<31 - 1
	tests := []struct {
		name string
		have []batch
		give batch
		want error
	}{
		{"an unknown producer may start anywhere", nil, batch{pid: 1, epoch: 3, seq: 17, n: 1}, nil},
		{"the next sequence follows", []batch{{pid: 1, n: 3}}, batch{pid: 1, seq: 3, n: 1, base: 3}, nil},
		{"a gap is refused", []batch{{pid: 1, n: 3}}, batch{pid: 1, seq: 4, n: 1, base: 3}, ErrOutOfOrderSequence},
		{"going back is refused", []batch{{pid: 1, n: 3}, {pid: 1, seq: 3, n: 2, base: 3}}, batch{pid: 1, seq: 1, n: 1, base: 5}, ErrOutOfOrderSequence},
		{"sequences wrap to 0 after the largest", []batch{{pid: 1, seq: last - 1, n: 2}}, batch{pid: 1, seq: 0, n: 1, base: 2}, nil},
		{"a batch may itself wrap", []batch{{pid: 1, seq: last - 1, n: 4}}, batch{pid: 1, seq: 2, n: 1, base: 4}, nil},
		{"an older epoch is refused", []batch{{pid: 1, epoch: 2, n: 1}}, batch{pid: 1, epoch: 1, seq: 1, n: 1, base: 1}, ErrInvalidEpoch},
		{"epoch -1 of a known producer is refused", []batch{{pid: 1, epoch: 0, n: 1}}, batch{pid: 1, epoch: -1, seq: 1, n: 1, base: 1}, ErrInvalidEpoch},
		{"epoch -1 of an unknown producer is taken, as by Kafka", nil, batch{pid: 1, epoch: -1, seq: 5, n: 1}, nil},
		{"epoch -1 checks no sequence", []batch{{pid: 1, epoch: -1, seq: 5, n: 1}}, batch{pid: 1, epoch: -1, seq: 9, n: 1, base: 1}, nil},
		{"a new epoch starts at 0", []batch{{pid: 1, epoch: 2, n: 1}}, batch{pid: 1, epoch: 3, seq: 0, n: 1, base: 1}, nil},
		{"a new epoch does not start elsewhere", []batch{{pid: 1, epoch: 2, n: 1}}, batch{pid: 1, epoch: 3, seq: 1, n: 1, base: 1}, ErrOutOfOrderSequence},
		{"plain records in an open transaction are refused", []batch{{pid: 1, n: 1, txn: true}}, batch{pid: 1, seq: 1, n: 1, base: 1}, ErrInvalidTxnState},
		{"another producer is not concerned", []batch{{pid: 1, n: 1}}, batch{pid: 2, seq: 9, n: 1, base: 1}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newState(t)
			for _, b := range tt.have {
				mustAdd(t, s, b)
			}
			before := s.Entries()
			err := add(s, tt.give.header(), nil, Client, UnknownTxnVersion)
			if !errors.Is(err, tt.want) {
				t.Fatalf("Add = %v, want %v", err, tt.want)
			}
			if diff := cmp.Diff(before, s.Entries()); err != nil && diff != "" {
				t.Errorf("a refused batch changed the state:\n%s", diff)
			}
			if err := add(s, tt.give.header(), nil, Replication, UnknownTxnVersion); err != nil && tt.want != ErrInvalidTxnState {
				t.Errorf("as a follower: %v, want no refusal", err)
			}
		})
	}
}

func TestDuplicatesAreFoundInAWindowOfFive(t *testing.T) {
	s := newState(t)
	var sent []batch
	for i := range 7 {
		b := batch{pid: 5, seq: kafka.Sequence(i * 2), n: 2, base: kafka.Offset(i * 2), ts: kafka.Timestamp(100 + i)}
		mustAdd(t, s, b)
		sent = append(sent, b)
	}
	for i, b := range sent {
		got, dup := s.Duplicate(b.header())
		if want := i >= 2; dup != want {
			t.Errorf("Duplicate(batch %d of 7) = %v, want %v", i, dup, want)
		}
		if dup && (got.FirstOffset() != b.base || got.Timestamp != b.ts) {
			t.Errorf("Duplicate(batch %d) = %+v, want base %d and timestamp %d", i, got, b.base, b.ts)
		}
	}
	short := sent[6]
	short.n = 1
	if _, dup := s.Duplicate(short.header()); dup {
		t.Error("a batch that begins alike and ends elsewhere is no duplicate")
	}
	other := sent[6]
	other.epoch = 1
	if _, dup := s.Duplicate(other.header()); dup {
		t.Error("a batch of another epoch is no duplicate")
	}
}

func TestMarkers(t *testing.T) {
	open := []batch{{pid: 1, epoch: 4, n: 2, txn: true}}
	tests := []struct {
		name      string
		have      []batch
		epoch     kafka.ProducerEpoch
		coord     int32
		version   int16
		completed int
		want      error
	}{
		{"version 1 accepts the transaction's own epoch", open, 4, 0, 1, 1, nil},
		{"version 1 refuses an older epoch", open, 3, 0, 1, 0, ErrInvalidEpoch},
		{"version 2 wants the epoch after the bump", open, 5, 0, 2, 1, nil},
		{"version 2 refuses the same epoch while a transaction is open", open, 4, 0, 2, 0, ErrInvalidEpoch},
		{"version 2 accepts the same epoch as a retry when none is open", []batch{{pid: 1, epoch: 4, n: 2}}, 4, 0, 2, 0, nil},
		{"version 2 accepts the last epoch there is", []batch{{pid: 1, epoch: 1<<15 - 1, n: 2, txn: true}}, 1<<15 - 1, 0, 2, 1, nil},
		{"a marker for an unknown producer is accepted and completes nothing", nil, 7, 0, 2, 0, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newState(t)
			for _, b := range tt.have {
				mustAdd(t, s, b)
			}
			err := add(s, markerHeader(1, tt.epoch, 2), &Marker{Commit: true, CoordinatorEpoch: tt.coord}, Coordinator, tt.version)
			if !errors.Is(err, tt.want) {
				t.Fatalf("Add = %v, want %v", err, tt.want)
			}
			if got := len(s.Completed()); got != tt.completed {
				t.Errorf("completed %d transactions, want %d", got, tt.completed)
			}
			if err != nil {
				return
			}
			if p, _ := s.Producer(1); p.Epoch != tt.epoch || p.TxnFirstOffset != kafka.NoOffset {
				t.Errorf("producer after the marker = %+v, want epoch %d and no transaction", p, tt.epoch)
			}
		})
	}
}

func TestMarkerOfAnOlderCoordinatorIsFenced(t *testing.T) {
	s := newState(t)
	mustAdd(t, s, batch{pid: 1, n: 1, txn: true})
	if err := add(s, markerHeader(1, 0, 1), &Marker{Commit: true, CoordinatorEpoch: 3}, Coordinator, 1); err != nil {
		t.Fatal(err)
	}
	err := add(s, markerHeader(1, 0, 2), &Marker{CoordinatorEpoch: 2}, Coordinator, 1)
	if !errors.Is(err, ErrCoordinatorFenced) {
		t.Errorf("Add = %v, want ErrCoordinatorFenced", err)
	}
	if err := add(s, markerHeader(1, 0, 2), &Marker{CoordinatorEpoch: 2}, Replication, 1); err != nil {
		t.Errorf("as a follower: %v, want no refusal", err)
	}
}

func TestSequencesAfterAMarker(t *testing.T) {
	s := newState(t)
	mustAdd(t, s, batch{pid: 1, n: 2, txn: true})
	if err := add(s, markerHeader(1, 0, 2), &Marker{Commit: true}, Coordinator, 1); err != nil {
		t.Fatal(err)
	}
	mustAdd(t, s, batch{pid: 1, seq: 2, n: 1, base: 3, txn: true})
	if err := add(s, markerHeader(1, 1, 4), &Marker{Commit: true}, Coordinator, 2); err != nil {
		t.Fatal(err)
	}
	if err := add(s, batch{pid: 1, epoch: 1, seq: 3, n: 1, base: 5}.header(), nil, Client, 0); !errors.Is(err, ErrOutOfOrderSequence) {
		t.Errorf("a new epoch goes on with the old sequence: %v, want ErrOutOfOrderSequence", err)
	}
	mustAdd(t, s, batch{pid: 1, epoch: 1, seq: 0, n: 1, base: 5})
}

func TestFirstUnstable(t *testing.T) {
	s := newState(t)
	check := func(what string, want kafka.Offset) {
		t.Helper()
		got, ok := s.FirstUnstable()
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%s: FirstUnstable = %d, want %d", what, got, want)
		}
	}
	check("no transaction", -1)
	mustAdd(t, s, batch{pid: 1, n: 2, base: 0, txn: true})
	mustAdd(t, s, batch{pid: 2, n: 2, base: 2, txn: true})
	check("two open", 0)
	if err := add(s, markerHeader(1, 0, 4), &Marker{}, Coordinator, 1); err != nil {
		t.Fatal(err)
	}
	check("the first completed, not below the high watermark", 0)
	s.HighWatermarkPassed(4)
	check("the high watermark is at the marker", 0)
	s.HighWatermarkPassed(5)
	check("the high watermark passed the marker", 2)
}

func TestLastStableAfterACompletedTransaction(t *testing.T) {
	s := newState(t)
	mustAdd(t, s, batch{pid: 1, n: 2, base: 0, txn: true})
	mustAdd(t, s, batch{pid: 2, n: 2, base: 2, txn: true})
	if got := s.LastStableAfter(CompletedTxn{ProducerID: 1, FirstOffset: 0, LastOffset: 4}); got != 2 {
		t.Errorf("LastStableAfter with another one open = %d, want 2", got)
	}
	if got := s.LastStableAfter(CompletedTxn{ProducerID: 2, FirstOffset: 2, LastOffset: 4}); got != 0 {
		t.Errorf("LastStableAfter of the later one = %d, want 0", got)
	}
	alone := newState(t)
	mustAdd(t, alone, batch{pid: 1, n: 2, base: 0, txn: true})
	if got := alone.LastStableAfter(CompletedTxn{ProducerID: 1, FirstOffset: 0, LastOffset: 4}); got != 5 {
		t.Errorf("LastStableAfter of the only one = %d, want 5", got)
	}
}

func TestOneAppendOfManyProducers(t *testing.T) {
	s := newState(t)
	const producers, batches = 40, 3
	s.Begin()
	var base kafka.Offset
	for i := range batches {
		for p := range producers {
			b := batch{pid: kafka.ProducerID(p), seq: kafka.Sequence(i), n: 1, base: base, ts: kafka.Timestamp(base)}
			if err := s.Add(b.header(), nil, Replication, UnknownTxnVersion, 0); err != nil {
				t.Fatal(err)
			}
			base++
		}
	}
	if s.Len() != 0 {
		t.Errorf("%d producers before Commit, want 0", s.Len())
	}
	s.Commit()
	if s.Len() != producers {
		t.Fatalf("%d producers, want %d", s.Len(), producers)
	}
	for p := range producers {
		if e, _ := s.Producer(kafka.ProducerID(p)); e.LastSequence != batches-1 {
			t.Errorf("producer %d: last sequence %d, want %d", p, e.LastSequence, batches-1)
		}
	}
}

func TestExpiry(t *testing.T) {
	s := newState(t)
	mustAdd(t, s, batch{pid: 1, n: 1, base: 0, ts: 1000})
	mustAdd(t, s, batch{pid: 2, n: 1, base: 1, ts: 1001})
	mustAdd(t, s, batch{pid: 3, n: 1, base: 2, ts: 0, txn: true})
	if n := s.Expire(kafka.Timestamp(1000 + DefaultExpiration.Milliseconds())); n != 1 {
		t.Errorf("Expire = %d, want 1", n)
	}
	for pid, want := range map[kafka.ProducerID]bool{1: false, 2: true, 3: true} {
		if _, ok := s.Producer(pid); ok != want {
			t.Errorf("producer %d known = %v, want %v", pid, ok, want)
		}
	}
}

func TestVerification(t *testing.T) {
	s := newState(t)
	s.SetVerifyTransactions(true)
	b := batch{pid: 1, n: 1, txn: true}.header()
	if err := add(s, b, nil, Client, 0); !errors.Is(err, ErrInvalidTxnState) {
		t.Fatalf("without a guard: %v, want ErrInvalidTxnState", err)
	}
	guard := s.StartVerification(1, 0, 0, true, 0, 77)
	if again := s.StartVerification(1, 0, 5, true, 0, 78); again != guard {
		t.Errorf("second guard %d, want the first, %d", again, guard)
	}
	s.Begin()
	if err := s.Add(batch{pid: 1, seq: 1, n: 1, txn: true}.header(), nil, Client, 0, guard); !errors.Is(err, ErrOutOfOrderSequence) {
		t.Errorf("first sequence 1 of an unknown producer that bumps epochs: %v, want ErrOutOfOrderSequence", err)
	}
	s.Begin()
	if err := s.Add(b, nil, Client, 0, guard); err != nil {
		t.Fatal(err)
	}
	s.Commit()
	if g := s.StartVerification(1, 0, 1, true, 0, 79); g != 0 {
		t.Errorf("guard for an open transaction = %d, want 0", g)
	}
	if err := add(s, batch{pid: 1, seq: 1, n: 1, base: 1, txn: true}.header(), nil, Client, 0); err != nil {
		t.Errorf("second batch of the transaction: %v", err)
	}
}

func TestAppendsOfKnownProducersDoNotAllocate(t *testing.T) {
	s := newState(t)
	mustAdd(t, s, batch{pid: 1, n: 1})
	h := batch{pid: 1, n: 1}.header()
	seq := kafka.Sequence(0)
	allocs := testing.AllocsPerRun(1000, func() {
		seq++
		h.BaseSequence, h.BaseOffset, h.LastOffset = seq, kafka.Offset(seq), kafka.Offset(seq)
		if _, dup := s.Duplicate(h); dup {
			t.Fatal("no duplicate")
		}
		s.Begin()
		if err := s.Add(h, nil, Client, UnknownTxnVersion, 0); err != nil {
			t.Fatal(err)
		}
		s.Commit()
		s.SetMapEnd(h.LastOffset + 1)
	})
	if allocs != 0 {
		t.Errorf("%v allocations an append, want 0", allocs)
	}
}

func BenchmarkAdd(b *testing.B) {
	s := newState(b)
	h := batch{pid: 1, n: 1}.header()
	seq := kafka.Sequence(0)
	b.ReportAllocs()
	for b.Loop() {
		s.Duplicate(h)
		s.Begin()
		if err := s.Add(h, nil, Client, UnknownTxnVersion, 0); err != nil {
			b.Fatal(err)
		}
		s.Commit()
		seq = seq.Add(1)
		h.BaseSequence, h.BaseOffset, h.LastOffset = seq, h.BaseOffset+1, h.LastOffset+1
	}
}
