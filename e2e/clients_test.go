package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/e2e/harness"
	"github.com/varvelog/varve/e2e/protocol"
)

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// TestClients runs the same scenarios on every client library. One broker
// serves them all, so that each also meets the traces of the others.
func TestClients(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	for _, name := range harness.Clients() {
		t.Run(name, func(t *testing.T) {
			hello := harness.StartDriver(t, name, server.Bootstrap()).Do(protocol.Request{Op: "hello"})
			t.Logf("%s %s", hello.Client, hello.Version)
			t.Run("every codec with keys, headers and timestamps", func(t *testing.T) { codecsScenario(t, server, name) })
			t.Run("large messages", func(t *testing.T) { largeScenario(t, server, name) })
			t.Run("acks 0, 1 and all", func(t *testing.T) { acksScenario(t, server, name) })
			t.Run("consume from start, by offset and by time", func(t *testing.T) { positionsScenario(t, server, name) })
			t.Run("idempotent produce", func(t *testing.T) { idempotentScenario(t, server, name) })
			t.Run("delete records", func(t *testing.T) { deleteRecordsScenario(t, server, name) })
			t.Run("describe and alter configs", func(t *testing.T) { configsScenario(t, server, name) })
			t.Run("three members share a topic, commit, and resume after a restart", func(t *testing.T) { groupScenario(t, server, name) })
		})
	}
}

func topicFor(name, what string) string { return name + "." + what }

func create(d *harness.Driver, topic string, partitions int32, configs map[string]string) {
	d.Do(protocol.Request{Op: "create", Topic: topic, Partitions: partitions, Configs: configs})
}

// supported is false, with the reason logged, when the library cannot do it:
// what a client cannot send is no statement about the broker.
func supported(t *testing.T, r protocol.Response) bool {
	if r.Unsupported != "" {
		t.Logf("the client has no %s", r.Unsupported)
		return false
	}
	if r.Error != "" {
		t.Fatal(r.Error)
	}
	return true
}

func samples(n int) []protocol.Record {
	base := time.Now().Add(-time.Hour).UnixMilli()
	recs := make([]protocol.Record, n)
	for i := range recs {
		recs[i] = protocol.Record{
			Timestamp: base + int64(i)*1000, Key: fmt.Appendf(nil, "key-%d", i%7), Value: bytes.Repeat(fmt.Appendf(nil, "value %d ", i), 1+i%5),
			Headers: []protocol.Header{{Key: "trace", Value: fmt.Appendf(nil, "%08x", i)}, {Key: "empty", Value: []byte{}}},
		}
	}
	return recs
}

// same compares what was read with what was sent; offsets are dense from first.
func same(t *testing.T, got, want []protocol.Record, first int64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("read %d records, want %d", len(got), len(want))
	}
	for i, g := range got {
		w := want[i]
		if g.Offset != first+int64(i) {
			t.Fatalf("record %d: offset %d, want %d", i, g.Offset, first+int64(i))
		}
		if !bytes.Equal(g.Key, w.Key) || !bytes.Equal(g.Value, w.Value) || g.Timestamp != w.Timestamp {
			t.Fatalf("record %d: key %q value %q timestamp %d, want %q %q %d", i, g.Key, g.Value, g.Timestamp, w.Key, w.Value, w.Timestamp)
		}
		if len(g.Headers) != len(w.Headers) {
			t.Fatalf("record %d: %d headers, want %d", i, len(g.Headers), len(w.Headers))
		}
		for j := range g.Headers {
			if g.Headers[j].Key != w.Headers[j].Key || !bytes.Equal(g.Headers[j].Value, w.Headers[j].Value) {
				t.Fatalf("record %d header %d: %v, want %v", i, j, g.Headers[j], w.Headers[j])
			}
		}
	}
}

func consume(d *harness.Driver, topic string, from string, value int64, count int) []protocol.Record {
	return d.Do(protocol.Request{Op: "consume", Topic: topic, From: from, Value: value, Count: count, TimeoutMs: 20000}).Records
}

func codecsScenario(t *testing.T, server harness.Server, name string) {
	d := harness.StartDriver(t, name, server.Bootstrap())
	served := 0
	for _, codec := range codecs {
		topic := topicFor(name, codec)
		create(d, topic, 1, nil)
		want := samples(50)
		resp, err := d.Try(protocol.Request{Op: "produce", Topic: topic, Codec: codec, Records: want})
		if err != nil {
			t.Fatal(err)
		}
		if !supported(t, resp) {
			continue
		}
		served++
		same(t, consume(d, topic, "start", 0, len(want)), want, 0)
		// Another library reads it too.
		other := harness.StartDriver(t, "franz-go", server.Bootstrap())
		same(t, consume(other, topic, "start", 0, len(want)), want, 0)
		other.End()
	}
	if served < 2 {
		t.Errorf("the client could send %d codecs, want 2 at least", served)
	}
	// And it reads what the broker compressed again, from a client that did not compress.
	for _, codec := range codecs[1:] {
		if name == "kafkajs" && codec != "gzip" {
			continue // the library reads the others through packages of third parties only
		}
		topic := topicFor(name, "broker-"+codec)
		create(d, topic, 1, map[string]string{"compression.type": codec})
		want := samples(20)
		d.Do(protocol.Request{Op: "produce", Topic: topic, Codec: "none", Records: want})
		same(t, consume(d, topic, "start", 0, len(want)), want, 0)
	}
}

func largeScenario(t *testing.T, server harness.Server, name string) {
	d := harness.StartDriver(t, name, server.Bootstrap())
	topic := topicFor(name, "large")
	create(d, topic, 1, map[string]string{"max.message.bytes": "8388608"})
	size := 4 << 20
	if name == "franz-go" {
		size = 900 << 10 // the driver's own limit on a batch is 1 MiB
	}
	value := make([]byte, size)
	rnd := rand.NewChaCha8([32]byte{1})
	rnd.Read(value)
	want := []protocol.Record{{Timestamp: time.Now().UnixMilli(), Key: []byte("a"), Value: value}, {Timestamp: time.Now().UnixMilli(), Key: []byte("b"), Value: value[:size/2]}}
	for i := range want {
		d.Do(protocol.Request{Op: "produce", Topic: topic, Records: want[i : i+1]})
	}
	same(t, consume(d, topic, "start", 0, 2), want, 0)

	small := topicFor(name, "small-limit")
	create(d, small, 1, map[string]string{"max.message.bytes": "1000"})
	resp, err := d.Try(protocol.Request{Op: "produce", Topic: small, Records: []protocol.Record{{Value: value[:2000]}}})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Error == "" {
		t.Error("a record of 2000 bytes was accepted on a topic with max.message.bytes=1000")
	} else {
		t.Logf("too large: %s", resp.Error)
	}
}

func acksScenario(t *testing.T, server harness.Server, name string) {
	d := harness.StartDriver(t, name, server.Bootstrap())
	for _, acks := range []string{"0", "1", "all"} {
		topic := topicFor(name, "acks-"+acks)
		create(d, topic, 1, nil)
		want := samples(10)
		resp, err := d.Try(protocol.Request{Op: "produce", Topic: topic, Acks: acks, Records: want})
		if err != nil {
			t.Fatal(err)
		}
		if supported(t, resp) {
			same(t, consume(d, topic, "start", 0, len(want)), want, 0)
		}
	}
}

func positionsScenario(t *testing.T, server harness.Server, name string) {
	d := harness.StartDriver(t, name, server.Bootstrap())
	topic := topicFor(name, "positions")
	create(d, topic, 1, map[string]string{"index.interval.bytes": "100"})
	want := samples(200)
	for at := 0; at < len(want); at += 10 {
		d.Do(protocol.Request{Op: "produce", Topic: topic, Records: want[at : at+10]})
	}
	same(t, consume(d, topic, "start", 0, 200), want, 0)
	for _, offset := range []int64{0, 1, 57, 199} {
		got := consume(d, topic, "offset", offset, 200-int(offset))
		same(t, got, want[offset:], offset)
	}
	for _, at := range []int{0, 33, 198} {
		for _, late := range []int64{0, -500} { // exactly a record's time, and between two
			got := consume(d, topic, "time", want[at].Timestamp+late, 200-at)
			same(t, got, want[at:], int64(at))
		}
	}
}

func idempotentScenario(t *testing.T, server harness.Server, name string) {
	d := harness.StartDriver(t, name, server.Bootstrap())
	topic := topicFor(name, "idempotent")
	create(d, topic, 1, nil)
	want := samples(100)
	resp, err := d.Try(protocol.Request{Op: "produce", Topic: topic, Idempotent: true, Acks: "all", Records: want})
	if err != nil {
		t.Fatal(err)
	}
	if supported(t, resp) {
		same(t, consume(d, topic, "start", 0, len(want)), want, 0)
	}
}

func deleteRecordsScenario(t *testing.T, server harness.Server, name string) {
	d := harness.StartDriver(t, name, server.Bootstrap())
	topic := topicFor(name, "delete")
	create(d, topic, 1, nil)
	want := samples(30)
	for i := range want {
		d.Do(protocol.Request{Op: "produce", Topic: topic, Records: want[i : i+1]})
	}
	resp, err := d.Try(protocol.Request{Op: "delete-records", Topic: topic, Value: 12})
	if err != nil {
		t.Fatal(err)
	}
	if supported(t, resp) {
		same(t, consume(d, topic, "start", 0, 18), want[12:], 12)
	}
}

func configsScenario(t *testing.T, server harness.Server, name string) {
	d := harness.StartDriver(t, name, server.Bootstrap())
	topic := topicFor(name, "configs")
	create(d, topic, 1, map[string]string{"retention.ms": "123456"})
	want := map[string]string{"retention.ms": "123456", "cleanup.policy": "delete", "segment.bytes": "1073741824", "max.message.bytes": "1048588"}
	check := func() {
		t.Helper()
		got := d.Do(protocol.Request{Op: "configs", Topic: topic}).Configs
		for k, v := range want {
			if got[k] != v {
				t.Errorf("%s = %q, want %q", k, got[k], v)
			}
		}
	}
	check()
	resp, err := d.Try(protocol.Request{Op: "alter-configs", Topic: topic, Configs: map[string]string{"retention.ms": "654321", "max.message.bytes": "2000000"}})
	if err != nil {
		t.Fatal(err)
	}
	if supported(t, resp) {
		want["retention.ms"], want["max.message.bytes"] = "654321", "2000000"
		check()
	}
}

// groupScenario: one member reads all six partitions, two more join and each
// gets two, everything is read exactly once after the commits, a new group
// member starts where the group stopped, also after the broker was restarted.
func groupScenario(t *testing.T, server harness.Server, name string) {
	topic, group := topicFor(name, "shared"), topicFor(name, "group")
	admin := harness.StartDriver(t, name, server.Bootstrap())
	create(admin, topic, 6, nil)
	// Every partition gets records before each round: a library that does not
	// say what it holds shows it by what it reads.
	send := func(round string, each int) {
		var recs []protocol.Record
		for p := range int32(6) {
			for i := range each {
				recs = append(recs, protocol.Record{Partition: p, Timestamp: time.Now().UnixMilli(), Key: []byte(round), Value: fmt.Appendf(nil, "%s-%d-%d", round, p, i)})
			}
		}
		admin.Do(protocol.Request{Op: "produce", Topic: topic, Records: recs})
	}
	first := harness.StartDriver(t, name, server.Bootstrap())
	first.Do(protocol.Request{Op: "join", Group: group, Topics: []string{topic}})
	send("one", 10)
	got := pollUntil(t, first, 60)
	if len(got) != 60 {
		t.Fatalf("the only member read %d records, want 60", len(got))
	}
	first.Do(protocol.Request{Op: "commit"})

	members := []*harness.Driver{first}
	for range 2 {
		m := harness.StartDriver(t, name, server.Bootstrap())
		m.Do(protocol.Request{Op: "join", Group: group, Topics: []string{topic}})
		members = append(members, m)
	}
	// The rebalance is over when each member holds two partitions.
	read := map[string]int{}
	deadline := time.Now().Add(90 * time.Second)
	for round := 0; ; round++ {
		send(fmt.Sprintf("balance%d", round), 1)
		held := map[int32]int{}
		sizes := []int{}
		for _, m := range members {
			out := m.Do(protocol.Request{Op: "poll", Count: 100, TimeoutMs: 1500})
			for _, r := range out.Records {
				read[string(r.Value)]++
			}
			for _, a := range out.Assignment {
				held[a.Partition]++
			}
			sizes = append(sizes, len(out.Assignment))
		}
		slices.Sort(sizes)
		if reflect.DeepEqual(sizes, []int{2, 2, 2}) && len(held) == 6 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("members hold %v partitions after 90 s, want 2 each", sizes)
		}
	}
	described := admin.Do(protocol.Request{Op: "describe-group", Group: group})
	if described.State != "Stable" || described.Members != 3 {
		t.Errorf("group is %q with %d members, want Stable with 3", described.State, described.Members)
	}
	if groups := admin.Do(protocol.Request{Op: "groups"}).Groups; !slices.Contains(groups, group) {
		t.Errorf("groups %v do not list %s", groups, group)
	}
	// Read what is left, commit, and leave.
	for _, m := range members {
		m.Do(protocol.Request{Op: "poll", Count: 1000, TimeoutMs: 3000})
		m.Do(protocol.Request{Op: "commit"})
	}
	for _, m := range members {
		m.Do(protocol.Request{Op: "leave"})
		m.End()
	}
	server.Stop(t)
	server.Restart(t)
	admin = harness.StartDriver(t, name, server.Bootstrap())
	led(t, server, topic)
	send("after", 3)
	again := harness.StartDriver(t, name, server.Bootstrap())
	again.Do(protocol.Request{Op: "join", Group: group, Topics: []string{topic}})
	resumed := pollUntil(t, again, 18)
	for _, r := range resumed {
		if !strings.HasPrefix(string(r.Value), "after-") {
			t.Errorf("after the restart the group reads %q again", r.Value)
		}
	}
	if len(resumed) != 18 {
		t.Errorf("after the restart the group read %d records, want 18", len(resumed))
	}
	again.Do(protocol.Request{Op: "leave"})
}

// led returns when every partition of the topic has its leader back: a broker
// may listen a moment before it leads, and not every library tries again.
func led(t *testing.T, server harness.Server, topic string) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(server.Bootstrap()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		offsets, err := kadm.NewClient(c).ListEndOffsets(ctx, topic)
		if err == nil && offsets.Error() == nil && len(offsets[topic]) > 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s has no leaders after 30 s", topic)
}

// pollUntil polls until count records came or 45 s have passed.
func pollUntil(t *testing.T, d *harness.Driver, count int) []protocol.Record {
	t.Helper()
	var recs []protocol.Record
	deadline := time.Now().Add(45 * time.Second)
	for len(recs) < count && time.Now().Before(deadline) {
		recs = append(recs, d.Do(protocol.Request{Op: "poll", Count: count - len(recs), TimeoutMs: 3000}).Records...)
	}
	return recs
}

// TestKcat produces and reads with kcat from the distribution's packages.
func TestKcat(t *testing.T) {
	server := harness.StartServer(t)
	kcat := func(stdin string, args ...string) string {
		t.Helper()
		cmd := exec.Command("kcat", append([]string{"-b", server.Bootstrap()}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("kcat %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	for _, codec := range codecs {
		topic := "kcat." + codec
		var in, want strings.Builder
		for i := range 100 {
			fmt.Fprintf(&in, "k%d:v%d\n", i, i)
			fmt.Fprintf(&want, "%d k%d v%d h=1\n", i, i, i)
		}
		kcat(in.String(), "-P", "-t", topic, "-K", ":", "-z", codec, "-H", "h=1", "-p", "0")
		if got := kcat("", "-C", "-q", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-f", "%o %k %s %h\n"); got != want.String() {
			t.Errorf("%s: read\n%.200s\nwant\n%.200s", codec, got, want.String())
		}
		if got := kcat("", "-C", "-q", "-t", topic, "-p", "0", "-o", "97", "-e", "-f", "%o "); got != "97 98 99 " {
			t.Errorf("%s: from offset 97 read %q", codec, got)
		}
	}
	if list := kcat("", "-L"); !strings.Contains(list, `topic "kcat.zstd" with 1 partitions`) {
		t.Errorf("kcat -L does not list the topic:\n%s", list)
	}
	if got := kcat("", "-Q", "-t", "kcat.none:0:-1"); !strings.Contains(got, "offset 100") {
		t.Errorf("kcat -Q latest = %q, want offset 100", got)
	}
	// A large record, idempotence, and reading by time.
	file := filepath.Join(t.TempDir(), "large")
	write(t, file, strings.Repeat("x", 900_000))
	kcat("", "-P", "-t", "kcat.large", "-X", "enable.idempotence=true", file)
	if got := kcat("", "-C", "-q", "-t", "kcat.large", "-o", "beginning", "-e", "-f", "%S"); got != "900000" {
		t.Errorf("the large record has %s bytes, want 900000", got)
	}
	if got := kcat("", "-C", "-q", "-t", "kcat.none", "-p", "0", "-o", "s@1000", "-e", "-c", "1", "-f", "%o"); got != "0" {
		t.Errorf("reading from a time before all records begins at offset %q, want 0", got)
	}
	kcatGroup(t, server, kcat)
	group := exec.Command("kcat", "-b", server.Bootstrap(), "-G", "kcat-group", "-q", "-X", "auto.offset.reset=earliest", "-c", "100", "kcat.none")
	out, err := group.Output()
	if err != nil || strings.Count(string(out), "\n") != 100 {
		t.Errorf("kcat -G read %d lines, %v; want 100", strings.Count(string(out), "\n"), err)
	}
}

// kcatGroup has three kcat share a topic of three partitions: together they
// read every record once.
func kcatGroup(t *testing.T, server harness.Server, kcat func(string, ...string) string) {
	t.Helper()
	d := harness.StartDriver(t, "franz-go", server.Bootstrap())
	create(d, "kcat.three", 3, nil)
	var out [3]bytes.Buffer
	var members [3]*exec.Cmd
	for i := range members {
		members[i] = exec.Command("kcat", "-b", server.Bootstrap(), "-G", "kcat-three", "-q", "-u", "-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=10000", "-f", "%p %s\n", "kcat.three")
		members[i].Stdout = &out[i]
		if err := members[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(60 * time.Second)
	for time.Now().Before(deadline) {
		// The group may not be there yet; the client then has nothing to describe.
		g, err := d.Try(protocol.Request{Op: "describe-group", Group: "kcat-three"})
		if err == nil && g.State == "Stable" && g.Members == 3 {
			break
		}
		time.Sleep(300 * time.Millisecond)
	}
	for p := range 3 {
		kcat(strings.Repeat("record\n", 20), "-P", "-t", "kcat.three", "-p", fmt.Sprint(p))
	}
	time.Sleep(2 * time.Second)
	total, held := 0, map[string]int{}
	for i, m := range members {
		if err := m.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		_ = m.Wait()
		total += strings.Count(out[i].String(), "\n")
		for p := range 3 {
			if strings.Contains(out[i].String(), fmt.Sprintf("%d record", p)) {
				held[fmt.Sprint(p)]++
			}
		}
		if n := strings.Count(out[i].String(), "\n"); n != 20 {
			t.Errorf("member %d read %d records, want the 20 of one partition", i, n)
		}
	}
	if total != 60 || len(held) != 3 {
		t.Errorf("the group read %d records of %d partitions, want 60 of 3", total, len(held))
	}
}
