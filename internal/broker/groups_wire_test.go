package broker

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/coordinator"
	"github.com/varvelog/varve/internal/group"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/server"
)

// offsetsLog is a partition of __consumer_offsets in memory.
type offsetsLog struct {
	mu      sync.Mutex
	batches []record.Batch
	end     kafka.Offset
}

func (l *offsetsLog) Append(b []byte) (kafka.Offset, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch := record.Batch(bytes.Clone(b))
	batch.SetBaseOffset(l.end)
	l.batches = append(l.batches, batch)
	l.end = batch.NextOffset()
	return batch.BaseOffset(), nil
}

func (l *offsetsLog) Read(from kafka.Offset, _ int, buf []byte) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.batches {
		if b.LastOffset() >= from {
			return append(buf[:0], b...), nil
		}
	}
	return nil, nil
}

func (l *offsetsLog) StartOffset() kafka.Offset { return 0 }

func (l *offsetsLog) EndOffset() kafka.Offset {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

func (l *offsetsLog) HighWatermark() kafka.Offset { return l.EndOffset() }

func (l *offsetsLog) Failure() error { return nil }

func (l *offsetsLog) Watch(func()) (stop func()) { return func() {} }

// wireTopic is the topic of the captured frames.
const wireTopic = "AMDjjvXnQyqPtxNMFtCsqQ"

// groupBroker serves the group APIs on a loopback port, over partitions in memory.
func groupBroker(t *testing.T) (addr string, groups *coordinator.Groups) {
	t.Helper()
	id, err := kafka.ParseUUID(wireTopic)
	if err != nil {
		t.Fatal(err)
	}
	d := metadata.NewDelta(metadata.NewImage())
	records := []metadata.Record{&metadata.TopicRecord{Name: "wire", TopicID: id}}
	for p := range int32(2) {
		records = append(records, &metadata.PartitionRecord{PartitionID: p, TopicID: id, Replicas: []kafka.BrokerID{0}, ISR: []kafka.BrokerID{0}})
	}
	for _, r := range records {
		if err := d.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	image := d.Finish(1, 1, 1)

	o := coordinator.Options{Group: group.DefaultConfig(), Partitions: 3, ErrorCode: ErrorCode, Logger: slog.New(slog.DiscardHandler)}
	o.Group.InitialRebalanceDelay = 0
	groups = coordinator.NewGroups(o)
	t.Cleanup(groups.Close)
	for p := range o.Partitions {
		groups.Load(p, &offsetsLog{})
	}
	b := New(Options{Image: func() *metadata.Image { return image }, Groups: groups})
	l, err := server.Listen(server.Config{Name: "PLAINTEXT", Address: "127.0.0.1:0"}, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String(), groups
}

// rawConn exchanges frames.
type rawConn struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *rawConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return &rawConn{c, bufio.NewReader(c)}
}

// exchange sends a frame and returns the answer's, both with their size.
func (c *rawConn) exchange(frame []byte) ([]byte, error) {
	if _, err := c.Write(frame); err != nil {
		return nil, err
	}
	size := make([]byte, 4)
	if _, err := io.ReadFull(c.r, size); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size))
	if _, err := io.ReadFull(c.r, body); err != nil {
		return nil, err
	}
	return append(size, body...), nil
}

// pair is a captured request and its answer.
type pair struct {
	Client, API       string
	Key, Version      int16
	Request, Response []byte
	Closed, Timeout   bool
}

func (p *pair) isGroup() bool {
	return slices.Contains([]int16{8, 9, 11, 12, 13, 14, 15, 16, 42, 47}, p.Key)
}

func wirePairs(t *testing.T, file string) (pairs []pair) {
	t.Helper()
	f, err := os.Open(filepath.Join(golden.Root(t), "wire", file))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := json.NewDecoder(f)
	for {
		var p pair
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pairs
		} else if err != nil {
			t.Fatal(err)
		}
		if p.isGroup() && !p.Closed && !p.Timeout {
			pairs = append(pairs, p)
		}
	}
}

// parseRequest decodes the request of a frame.
func (p *pair) parseRequest(t *testing.T, frame []byte) (kmsg.Request, []byte) {
	t.Helper()
	q := kmsg.RequestForKey(p.Key)
	q.SetVersion(p.Version)
	at := 4 + 8
	if n := int16(binary.BigEndian.Uint16(frame[at:])); n > 0 {
		at += int(n)
	}
	at += 2
	if q.IsFlexible() {
		at++ // no tags
	}
	if err := q.ReadFrom(frame[at:]); err != nil {
		t.Fatalf("%s %s v%d: %v", p.Client, p.API, p.Version, err)
	}
	return q, frame[:at]
}

func (p *pair) parseResponse(t *testing.T, frame []byte) kmsg.Response {
	t.Helper()
	a := kmsg.ResponseForKey(p.Key)
	a.SetVersion(p.Version)
	at := 8
	if a.IsFlexible() {
		at++
	}
	if err := a.ReadFrom(frame[at:]); err != nil {
		t.Fatalf("%s %s v%d: answer: %v", p.Client, p.API, p.Version, err)
	}
	return a
}

// frameOf puts a request behind the header of a frame.
func frameOf(header []byte, q kmsg.Request) []byte {
	frame := q.AppendTo(bytes.Clone(header))
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// replayer sends captured requests with the member ids of this broker, which
// are as long as the captured ones, and puts those back into the answers.
type replayer struct {
	conn *rawConn
	ids  [][2][]byte // captured, ours
}

func (r *replayer) learn(captured, ours string) {
	if captured != "" && len(captured) == len(ours) {
		r.ids = append(r.ids, [2][]byte{[]byte(captured), []byte(ours)})
	}
}

func (r *replayer) swap(frame []byte, from, to int) []byte {
	for _, id := range r.ids {
		frame = bytes.ReplaceAll(frame, id[from], id[to])
	}
	return frame
}

// run replays a pair and returns the answer as if the captured ids were ours.
func (r *replayer) run(t *testing.T, p *pair) []byte {
	t.Helper()
	q, header := p.parseRequest(t, p.Request)
	if j, ok := q.(*kmsg.JoinGroupRequest); ok && j.MemberID != "" && !r.knows(j.MemberID) {
		// The capture has only the second of the two joins.
		first := *j
		first.MemberID = ""
		frame, err := r.conn.exchange(frameOf(header, &first))
		if err != nil {
			t.Fatal(err)
		}
		r.learn(j.MemberID, p.parseResponse(t, frame).(*kmsg.JoinGroupResponse).MemberID)
	}
	frame, err := r.conn.exchange(r.swap(p.Request, 0, 1))
	if err != nil {
		t.Fatalf("%s %s v%d: %v", p.Client, p.API, p.Version, err)
	}
	if p.Key == 11 {
		want, got := p.parseResponse(t, p.Response).(*kmsg.JoinGroupResponse), p.parseResponse(t, frame).(*kmsg.JoinGroupResponse)
		if !r.knows(want.MemberID) {
			r.learn(want.MemberID, got.MemberID)
		}
	}
	return r.swap(frame, 1, 0)
}

func (r *replayer) knows(captured string) bool {
	return slices.ContainsFunc(r.ids, func(id [2][]byte) bool { return string(id[0]) == captured })
}

// TestCapturedGroupRequestsAreAnsweredByteForByte replays what clients asked
// Apache Kafka 4.4.0. Groups of other protocols and transactions are left out.
func TestCapturedGroupRequestsAreAnsweredByteForByte(t *testing.T) {
	for _, file := range []string{"raw.jsonl", "java.jsonl", "franz-go.jsonl", "kafka-python.jsonl", "kafkajs.jsonl", "librdkafka.jsonl", "sarama.jsonl"} {
		t.Run(file, func(t *testing.T) {
			addr, _ := groupBroker(t)
			r := &replayer{conn: dial(t, addr)}
			pairs := wirePairs(t, file)
			compared := 0
			for i := range pairs {
				p := &pairs[i]
				if elsewhere(p) {
					continue
				}
				compared++
				got := r.run(t, p)
				switch p.Key {
				case 16: // the captured broker knew groups of all clients
					continue
				case 15, 42: // the order of the rows is that of a hash map
					want, got := p.parseResponse(t, p.Response), p.parseResponse(t, got)
					if diff := diffMessages(sortRows(want), sortRows(got)); diff != "" {
						t.Errorf("%s %s v%d (-kafka +varve):\n%s", p.Client, p.API, p.Version, diff)
					}
				default:
					if !bytes.Equal(got, p.Response) {
						t.Errorf("%s %s v%d answers\n%s\nwant\n%s\n%s", p.Client, p.API, p.Version,
							base64.StdEncoding.EncodeToString(got), base64.StdEncoding.EncodeToString(p.Response),
							diffMessages(p.parseResponse(t, p.Response), p.parseResponse(t, got)))
					}
				}
			}
			if compared < 4 {
				t.Errorf("%d answers compared, want more", compared)
			}
		})
	}
}

// elsewhere reports whether the pair depends on what this broker was not asked
// to do: groups of the KIP-848 protocol, and what comes after requests that were
// not captured.
func elsewhere(p *pair) bool {
	for _, id := range []string{"java-next", "rd-consumer"} {
		if bytes.Contains(p.Request, []byte(id)) {
			return true
		}
	}
	if p.Client == "librdkafka" && p.API == "OffsetCommit" {
		return true // its SyncGroup was not captured
	}
	return p.Client == "kafkajs" && p.API == "OffsetFetch" && !bytes.Contains(p.Request, []byte("wire"))
}

func diffMessages(want, got kmsg.Response) string {
	return cmp.Diff(want, got, cmp.Comparer(func(a, b kmsg.Tags) bool { return a.Len() == b.Len() }))
}

func sortRows(r kmsg.Response) kmsg.Response {
	switch r := r.(type) {
	case *kmsg.DescribeGroupsResponse:
		slices.SortFunc(r.Groups, func(a, b kmsg.DescribeGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
	case *kmsg.DeleteGroupsResponse:
		slices.SortFunc(r.Groups, func(a, b kmsg.DeleteGroupsResponseGroup) int { return strings.Compare(a.Group, b.Group) })
	}
	return r
}
