//go:build !race && !invariants

package broker_test

// The race detector makes pools forget, and invariants are checked with
// arguments that escape: costs are those of the product build.

import (
	"bytes"
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sys/unix"

	"github.com/varvelog/varve/internal/node"
	"github.com/varvelog/varve/internal/record"
)

// sizedBatch is a batch of n records with values of size bytes.
func sizedBatch(t testing.TB, codec record.Codec, n, size int) []byte {
	t.Helper()
	o := record.NewBuildOptions()
	o.Codec = codec
	var b record.Builder
	b.Reset(o)
	value := make([]byte, size)
	for i := range value {
		value[i] = byte(i * i)
	}
	for range n {
		b.Append(1750000000000, nil, value, nil)
	}
	batch, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(batch)
}

// flow is a round of requests and answers whose costs are asserted. The answers
// of a flow have all the same size.
type flow struct {
	name          string
	frames        []byte // sent in one write
	answers       int
	allocs        float64
	reads, writes int // system calls of the broker, as /proc/self/io counts them, at most
}

// client is a raw, blocking client: nothing is allocated, every call is counted.
type client struct {
	t             testing.TB
	fd            int
	buf           []byte
	reads, writes int
}

func newClient(t testing.TB, n *node.Node) *client {
	t.Helper()
	f, err := dial(t, n).Conn.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &client{t: t, fd: int(f.Fd()), buf: make([]byte, 4<<20)}
}

func (c *client) round(f *flow) {
	for b := f.frames; len(b) > 0; c.writes++ {
		n, err := unix.Write(c.fd, b)
		if err != nil {
			c.t.Fatal(err)
		}
		b = b[n:]
	}
	have := 0
	for done := 0; done < f.answers; {
		if have >= 4 {
			if size := 4 + int(binary.BigEndian.Uint32(c.buf)); have >= size {
				have = copy(c.buf, c.buf[size:have])
				done++
				continue
			}
		}
		n, err := unix.Read(c.fd, c.buf[have:])
		if err != nil || n == 0 {
			c.t.Fatalf("read: %d, %v", n, err)
		}
		c.reads++
		have += n
	}
}

func produceFrame(version int16, topic string, id [16]byte, acks int16, batch []byte) []byte {
	q := produceRequest(version, to(topic, 0, batch))
	q.Acks = acks
	if version >= 13 {
		q.Topics[0].Topic, q.Topics[0].TopicID = "", id
	}
	return frame(q, 1, "test")
}

func fetchFrame(version int16, topic string, id [16]byte, offset int64, limit int32) []byte {
	q := fetching(topic, from(0, offset))
	q.Version, q.MaxBytes = version, limit
	if version >= 13 {
		q.Topics[0].Topic, q.Topics[0].TopicID = "", id
	}
	return frame(q, 1, "test")
}

// flows sets a broker up and lists what its hot paths are asked.
func flows(t testing.TB) (*node.Node, []flow) {
	n := newNode(t)
	c := dial(t, n)
	id := createTopic(c, "t", 1)
	fetchID := createTopic(c, "f", 1)
	big := sizedBatch(t, record.None, 16, 1000)
	for range 200 {
		do[*kmsg.ProduceResponse](c, produceRequest(9, to("f", 0, big)))
	}
	small := produceFrame(9, "t", id, 1, sizedBatch(t, record.None, 1, 950))
	return n, []flow{
		{"produce 1 KiB, one at a time", small, 1, 0, 2, 1},
		{"produce 1 KiB by topic id, acks=all", produceFrame(13, "", id, -1, sizedBatch(t, record.None, 1, 950)), 1, 0, 2, 1},
		{"produce 1 KiB, ten at a time", bytes.Repeat(small, 10), 10, 0, 2, 10},
		{"produce 16 KiB of 16 records", produceFrame(9, "t", id, 1, big), 1, 0, 6, 1},
		{"produce 1 MB of 1000 records", produceFrame(9, "t", id, 1, sizedBatch(t, record.None, 1000, 1000)), 1, 0, 60, 1},
		{"produce snappy", produceFrame(9, "t", id, 1, sizedBatch(t, record.Snappy, 16, 1000)), 1, 0, 6, 1},
		{"produce lz4", produceFrame(9, "t", id, 1, sizedBatch(t, record.LZ4, 16, 1000)), 1, 0, 6, 1},
		{"produce zstd", produceFrame(9, "t", id, 1, sizedBatch(t, record.Zstd, 16, 1000)), 1, 0, 6, 1},
		{"produce gzip", produceFrame(9, "t", id, 1, sizedBatch(t, record.Gzip, 16, 1000)), 1, 0, 6, 1},
		{"fetch 16 KiB", fetchFrame(12, "f", fetchID, 0, 17_000), 1, 0, 4, 0},
		{"fetch 16 KiB by topic id", fetchFrame(18, "", fetchID, 0, 17_000), 1, 0, 4, 0},
		// Its position is not known: the header of the batch before and its own are read too.
		{"fetch 16 KiB, somewhere in the log", fetchFrame(12, "f", fetchID, 1600, 17_000), 1, 0, 5, 0},
		{"fetch 1 MB", fetchFrame(12, "f", fetchID, 0, 1<<20), 1, 0, 4, 40},
		{"api versions", frame(func() kmsg.Request {
			q := kmsg.NewPtrApiVersionsRequest()
			q.Version, q.ClientSoftwareName, q.ClientSoftwareVersion = 3, "test", "1"
			return q
		}(), 1, "test"), 1, 0, 2, 0},
		{"metadata of all topics", frame(func() kmsg.Request {
			q := kmsg.NewPtrMetadataRequest()
			q.Version = 12
			return q
		}(), 1, "test"), 1, 2, 2, 0},
	}
}

func TestHotPathsAllocateNothing(t *testing.T) {
	n, list := flows(t)
	for i := range list {
		f := &list[i]
		t.Run(f.name, func(t *testing.T) {
			c := newClient(t, n)
			for range 100 {
				c.round(f)
			}
			if got := testing.AllocsPerRun(max(200, 20_000_000/(len(f.frames)+10_000)), func() { c.round(f) }); got > f.allocs {
				t.Errorf("%.0f allocations a round, want %.0f", got, f.allocs)
			}
		})
	}
}

func TestHotPathsMakeFewSystemCalls(t *testing.T) {
	n, list := flows(t)
	const rounds = 500
	for i := range list {
		f := &list[i]
		t.Run(f.name, func(t *testing.T) {
			c := newClient(t, n)
			for range 10 {
				c.round(f)
			}
			c.reads, c.writes = 0, 0
			r0, w0 := ioCalls(t)
			for range rounds {
				c.round(f)
			}
			r1, w1 := ioCalls(t)
			reads, writes := r1-r0-c.reads, w1-w0-c.writes
			t.Logf("%.2f reads, %.2f writes a round", float64(reads)/rounds, float64(writes)/rounds)
			// Room for what runs besides (timers, the metadata log), less than one call a round.
			if limit := f.reads*rounds + rounds/4; reads > limit {
				t.Errorf("%d reads in %d rounds, want at most %d", reads, rounds, limit)
			}
			if limit := f.writes*rounds + rounds/4; writes > limit {
				t.Errorf("%d writes in %d rounds, want at most %d", writes, rounds, limit)
			}
		})
	}
}

// ioCalls are the read and write system calls of this process so far.
func ioCalls(t testing.TB) (reads, writes int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, _ := strconv.Atoi(value)
		switch name {
		case "syscr":
			reads = n
		case "syscw":
			writes = n
		}
	}
	return reads, writes
}

func BenchmarkHotPaths(b *testing.B) {
	n, list := flows(b)
	for i := range list {
		f := &list[i]
		b.Run(strings.ReplaceAll(f.name, " ", "_"), func(b *testing.B) {
			c := newClient(b, n)
			b.ReportAllocs()
			b.SetBytes(int64(len(f.frames)))
			for b.Loop() {
				c.round(f)
			}
		})
	}
}

// TestAWokenLongPollAllocatesNothing has a consumer wait in a session for each
// record that a producer sends.
func TestAWokenLongPollAllocatesNothing(t *testing.T) {
	n := newNode(t)
	setup := dial(t, n)
	createTopic(setup, "t", 2)
	q := fetching("t", from(0, 0), from(1, 0))
	q.SessionEpoch = 0
	session := do[*kmsg.FetchResponse](setup, q).SessionID
	const warm, rounds = 100, 500
	var frames [][]byte
	for i := range int64(warm + rounds + 1) {
		q := fetching("t", from(0, i))
		q.SessionID, q.SessionEpoch, q.MaxWaitMillis = session, int32(i)+1, 20_000
		frames = append(frames, frame(q, 1, "test"))
	}
	produce := flow{frames: produceFrame(9, "t", [16]byte{}, 1, oneRecord(t)), answers: 1}
	consumer, producer := newClient(t, n), newClient(t, n)
	next := 0
	round := func() {
		fetch := flow{frames: frames[next], answers: 0}
		next++
		consumer.round(&fetch) // sends it
		producer.round(&produce)
		consumer.round(&flow{answers: 1})
	}
	for range warm {
		round()
	}
	if got := testing.AllocsPerRun(rounds, round); got > 0 {
		t.Errorf("%.0f allocations a record, want none", got)
	}
}
