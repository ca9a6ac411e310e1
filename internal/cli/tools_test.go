package cli

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/node"
)

// What the tools of Apache Kafka 4.4.0 print for a small prepared cluster.
type toolCase struct {
	ID, Tool, Fixture     string
	Args                  []string
	Stdin                 json.RawMessage
	Before, After         []op
	Exit                  int
	Stdout, Stderr, Trace []string
	NoNewline             bool `json:"stdoutNoFinalNewline"`
	Match                 []string
	Quirk                 string
	Records               []goldenRecord
}

type op struct {
	Op, Topic, Group, Codec, Protocol, Instance string
	Client                                      string `json:"client_id"`
	Partitions                                  int
	Config                                      map[string]string
	Topics                                      []string
	Records                                     []goldenRecord
	Offsets                                     [][]any
}

type goldenRecord struct {
	Partition  int32
	Offset     int64
	Key, Value *string
	KeyHex     *string `json:"key_hex"`
	ValueHex   *string `json:"value_hex"`
	Headers    [][]*string
	Timestamp  int64
}

// notYet are the cases that need what this release does not have.
var notYet = map[string]string{
	"console-consumer-read-committed":                        "transactions",
	"console-consumer-formatter-offsets":                     "formatters of the internal topics",
	"console-consumer-deserializer-error":                    "a stack trace of Java",
	"console-producer-min-isr-above-rf":                      "delivery.timeout.ms of a single send",
	"consumer-groups-describe-live-consumer-members-verbose": "the consumer protocol of KIP-848",
	"consumer-groups-describe-live-consumer-state-verbose":   "the consumer protocol of KIP-848",
	"consumer-groups-list-type":                              "the consumer protocol of KIP-848",
	"consumer-groups-list-type-filter":                       "the consumer protocol of KIP-848",
	"consumer-groups-reset-live-consumer":                    "the consumer protocol of KIP-848",
}

// louder are the cases where Kafka's tool says why in its log alone.
var louder = map[string]bool{"console-consumer-isolation-bad": true}

func TestToolsPrintWhatKafkasPrint(t *testing.T) {
	var cases []toolCase
	readJSON(t, "tools.json", &cases)
	var setup map[string]struct {
		Config map[string]string
		Ops    []op
	}
	readJSON(t, "setup.json", &setup)
	for _, fixture := range []string{"base", "plain"} {
		t.Run(fixture, func(t *testing.T) {
			f := startFixture(t, setup[fixture].Config)
			for _, o := range setup[fixture].Ops {
				f.do(t, o)
			}
			if fixture == "base" {
				f.do(t, op{Op: "create-topic", Topic: kafka.TransactionStateTopic, Partitions: 4, Config: map[string]string{
					"compression.type": "uncompressed", "cleanup.policy": "compact", "segment.bytes": "104857600", "unclean.leader.election.enable": "false", "min.insync.replicas": "1"}})
			}
			for _, c := range cases {
				if c.ID == "consumer-groups-delete-all-groups" { // the static member of another case was there when it was recorded
					c.Before = append(c.Before, op{Op: "group-join", Group: "g-static", Topics: []string{"orders"}, Client: "fixture-1", Instance: "inst-1"})
					c.After = append(c.After, op{Op: "group-leave", Group: "g-static", Client: "fixture-1"}, op{Op: "group-delete", Group: "g-static"})
				}
				if c.Fixture == fixture && notYet[c.ID] == "" {
					t.Run(c.ID, func(t *testing.T) { f.check(t, c) })
				}
			}
		})
	}
}

func readJSON(t *testing.T, name string, v any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/kafka", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// fixture is a broker in this process, and a client that prepares it.
type fixture struct {
	bootstrap string
	work      string
	client    *kgo.Client
	admin     *kadm.Client
	members   map[string]*kgo.Client
	static    map[string]map[string]bool // instance ids by group
}

func startFixture(t *testing.T, settings map[string]string) *fixture {
	t.Helper()
	f := &fixture{bootstrap: freeAddress(t), work: t.TempDir(), members: map[string]*kgo.Client{}, static: map[string]map[string]bool{}}
	replace := strings.NewReplacer("{{BOOTSTRAP}}", f.bootstrap, "{{CONTROLLER}}", freeAddress(t), "{{DATA}}", t.TempDir(), "{{DATA1}}", t.TempDir(), "{{DATA2}}", t.TempDir())
	var file strings.Builder
	for _, key := range sortedKeys(settings) {
		if key != "authorizer.class.name" && key != "super.users" { // there is no authorizer yet
			fmt.Fprintf(&file, "%s=%s\n", key, replace.Replace(settings[key]))
		}
	}
	cfg, _, err := config.Load(config.Sources{Files: []config.File{{Path: "server.properties", Data: []byte(file.String())}}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(context.Background(), cfg, node.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	f.client, err = kgo.NewClient(kgo.SeedBrokers(f.bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.client.Close)
	f.admin = kadm.NewClient(f.client)
	return f
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// do is one preparing step.
func (f *fixture) do(t *testing.T, o op) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s %s%s: %v", o.Op, o.Topic, o.Group, err)
		}
	}
	switch o.Op {
	case "create-topic":
		configs := map[string]*string{}
		for k, v := range o.Config {
			configs[k] = &v
		}
		answer, err := f.admin.CreateTopic(ctx, int32(max(o.Partitions, 1)), 1, configs, o.Topic)
		check(err)
		check(answer.Err)
	case "delete-topic":
		_, _ = f.admin.DeleteTopics(ctx, o.Topic) // the tool may have deleted it
	case "produce":
		check(f.produce(ctx, o))
	case "txn": // only what is committed is there to be read; there are no transactions yet
	case "commit":
		offsets := kadm.Offsets{}
		for _, row := range o.Offsets {
			metadata, _ := row[3].(string)
			offsets.Add(kadm.Offset{Topic: row[0].(string), Partition: int32(row[1].(float64)), At: int64(row[2].(float64)), LeaderEpoch: -1, Metadata: metadata})
		}
		check(f.admin.CommitAllOffsets(ctx, o.Group, offsets))
	case "group-join":
		check(f.join(ctx, o))
	case "group-leave":
		f.members[o.Group+o.Client].Close()
		for id := range f.static[o.Group] { // a static member stays until it is told to go
			_, err := f.admin.LeaveGroup(ctx, kadm.LeaveGroup(o.Group).InstanceIDs(id))
			check(err)
			_, err = f.admin.DeleteGroup(ctx, o.Group)
			check(err)
		}
	case "group-delete":
		_, _ = f.admin.DeleteGroups(ctx, o.Group) // the tool may have deleted it
	default:
		t.Fatalf("unknown step %q", o.Op)
	}
}

func (f *fixture) produce(ctx context.Context, o op) error {
	client := f.client
	if o.Codec != "" && o.Codec != "none" {
		codec := map[string]kgo.CompressionCodec{"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}[o.Codec]
		var err error
		client, err = kgo.NewClient(kgo.SeedBrokers(f.bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableIdempotentWrite(), kgo.ProducerBatchCompression(codec))
		if err != nil {
			return err
		}
		defer client.Close()
	}
	var records []*kgo.Record
	for _, r := range o.Records {
		rec := &kgo.Record{Topic: o.Topic, Partition: r.Partition, Timestamp: time.UnixMilli(r.Timestamp), Key: goldenBytes(r.Key, r.KeyHex), Value: goldenBytes(r.Value, r.ValueHex)}
		for _, h := range r.Headers {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: *h[0], Value: goldenBytes(h[1], nil)})
		}
		records = append(records, rec)
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func goldenBytes(text, encoded *string) []byte {
	switch {
	case encoded != nil:
		b, _ := hex.DecodeString(*encoded)
		return b
	case text != nil:
		return []byte(*text)
	}
	return nil
}

// join adds a member that stays, and waits until it has its partitions.
func (f *fixture) join(ctx context.Context, o op) error {
	assigned := make(chan struct{}, 1)
	opts := []kgo.Opt{kgo.SeedBrokers(f.bootstrap), kgo.ConsumerGroup(o.Group), kgo.ConsumeTopics(o.Topics...), kgo.ClientID(o.Client), kgo.Balancers(kgo.RangeBalancer()), kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(func(context.Context, *kgo.Client, map[string][]int32) {
			select {
			case assigned <- struct{}{}:
			default:
			}
		})}
	if o.Instance != "" {
		opts = append(opts, kgo.InstanceID(o.Instance))
		f.static[o.Group] = map[string]bool{o.Instance: true}
	}
	c, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	f.members[o.Group+o.Client] = c
	select {
	case <-assigned:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// check runs one case and compares everything it leaves behind.
func (f *fixture) check(t *testing.T, c toolCase) {
	for _, o := range c.Before {
		f.do(t, o)
	}
	defer func() {
		for _, o := range c.After {
			f.do(t, o)
		}
	}()
	fill := f.filler(t)
	args := []string{"/usr/bin/" + c.Tool}
	for i, a := range c.Args {
		if i > 0 && c.Args[i-1] == "--timeout-ms" {
			a = "300" // how long it waits changes nothing of what it prints
		}
		args = append(args, fill(a))
	}
	var stdout, stderr bytes.Buffer
	code := Run(&Process{Args: args, Stdin: stdinOf(t, c.Stdin), Stdout: &stdout, Stderr: &stderr})
	if code != c.Exit {
		t.Errorf("exit %d, want %d", code, c.Exit)
	}
	if louder[c.ID] {
		stderr.Reset()
	}
	if c.Quirk == "" {
		compare(t, "stdout", stdout.String(), c.Stdout, nil, c, fill)
		compare(t, "stderr", stderr.String(), c.Stderr, c.Trace, c, fill)
	}
	if c.NoNewline && strings.HasSuffix(stdout.String(), "\n") {
		t.Error("stdout ends in a newline")
	}
	if c.Records != nil {
		f.checkRecords(t, c)
	}
	if t.Failed() {
		t.Logf("%v\nstdout\n%s\nstderr\n%s", args, stdout.String(), stderr.String())
	}
}

func stdinOf(t *testing.T, raw json.RawMessage) *strings.Reader {
	t.Helper()
	var text string
	var repeated struct {
		Repeat, Then string
		Count        int
	}
	if len(raw) > 0 && json.Unmarshal(raw, &text) != nil {
		if err := json.Unmarshal(raw, &repeated); err != nil {
			t.Fatal(err)
		}
		text = strings.Repeat(repeated.Repeat, repeated.Count) + repeated.Then
	}
	return strings.NewReader(text)
}

var topicID = regexp.MustCompile(`\{\{TOPIC_ID:([^}]*)\}\}`)

// filler replaces the placeholders that have one value.
func (f *fixture) filler(t *testing.T) func(string) string {
	return func(s string) string {
		s = strings.NewReplacer("{{BOOTSTRAP}}", f.bootstrap, "{{WORK}}", f.work).Replace(s)
		return topicID.ReplaceAllStringFunc(s, func(m string) string {
			name := topicID.FindStringSubmatch(m)[1]
			topics, err := f.admin.ListTopicsWithInternal(context.Background(), name)
			if err != nil {
				t.Fatal(err)
			}
			return kafka.UUID(topics[name].ID).String()
		})
	}
}

var patterns = map[string]string{
	`{{UUID}}`: `[0-9a-f-]{36}`, `{{N}}`: `-?\d+`, `{{ID}}`: `[A-Za-z0-9+/_-]{22}`, `{{EPOCH_MS}}`: `\d{13}`, `{{CLIENT_PORT}}`: `\d+`,
}

// kafkaLog is a line of log4j, which comparisons leave out.
var kafkaLog = regexp.MustCompile(`^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] `)

func compare(t *testing.T, stream, got string, want, trace []string, c toolCase, fill func(string) string) {
	t.Helper()
	var lines []string
	for _, l := range strings.Split(strings.TrimSuffix(got, "\n"), "\n") {
		if !kafkaLog.MatchString(l) {
			lines = append(lines, l)
		}
	}
	if got == "" {
		lines = nil
	}
	want = append(append([]string(nil), want...), trace...)
	for i, l := range want {
		if strings.HasPrefix(l, "{{OPTIONS_TABLE}}") {
			want = append(want[:i:i], trace...)
			if len(lines) > i {
				lines = lines[:i]
			}
			break
		}
		if strings.HasPrefix(l, "{{NOTICE}}") {
			want = append(want[:i:i], want[i+1:]...)
			break
		}
	}
	if has(c.Match, "unordered") || has(c.Match, "columns") || has(c.Match, "sets") {
		lines, want = blankless(lines), blankless(want)
	}
	for i := range want {
		want[i] = fill(want[i])
	}
	if has(c.Match, "sets") || c.ID == "consumer-groups-delete-all-groups" {
		lines, want = sortedSets(lines), sortedSets(want)
	}
	if has(c.Match, "unordered") {
		sort.Strings(lines)
		sort.Strings(want)
	}
	if len(lines) != len(want) {
		t.Errorf("%s has %d lines, want %d:\n%s", stream, len(lines), len(want), strings.Join(want, "\n"))
		return
	}
	for i := range want {
		if !lineMatches(lines[i], want[i]) {
			t.Errorf("%s line %d\n got %q\nwant %q", stream, i+1, lines[i], want[i])
		}
	}
}

func has(list []string, s string) bool { return contains(list, s) }

func lineMatches(got, want string) bool {
	if strings.HasPrefix(want, kafkaLevel) && strings.HasPrefix(got, want+" (varve ") {
		return true
	}
	if !strings.Contains(want, "{{") {
		return strings.TrimRight(got, " ") == strings.TrimRight(want, " ")
	}
	re := regexp.QuoteMeta(strings.Join(strings.Fields(want), " "))
	for name, pattern := range patterns {
		re = strings.ReplaceAll(re, regexp.QuoteMeta(name), pattern)
	}
	return regexp.MustCompile("^" + re + "$").MatchString(strings.Join(strings.Fields(got), " "))
}

func blankless(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = strings.Join(strings.Fields(l), " ")
	}
	return out
}

var setList = regexp.MustCompile(`(Configs: |Valid states are: |Valid types are: |deleted successfully: |\[)([^\]]*)`)

// sortedSets puts the members of lists whose order is a hash map's in order.
func sortedSets(lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = setList.ReplaceAllStringFunc(l, func(m string) string {
			p := setList.FindStringSubmatch(m)
			// Values of settings have commas too: cut before a new key only.
			words := strings.FieldsFunc(p[2], func(r rune) bool { return r == ',' })
			for i := range words {
				words[i] = strings.TrimSpace(words[i])
			}
			sort.Strings(words)
			return p[1] + strings.Join(words, ",")
		})
	}
	return out
}

// checkRecords reads what a producer has left in its topic.
func (f *fixture) checkRecords(t *testing.T, c toolCase) {
	t.Helper()
	var topic string
	for i, a := range c.Args {
		if a == "--topic" {
			topic = c.Args[i+1]
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	ends, err := f.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	if end.Offset != int64(len(c.Records)) {
		t.Fatalf("%s has %d records, want %d", topic, end.Offset, len(c.Records))
	}
	if len(c.Records) == 0 {
		return
	}
	reader, err := kgo.NewClient(kgo.SeedBrokers(f.bootstrap), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var got []*kgo.Record
	for len(got) < len(c.Records) && ctx.Err() == nil {
		got = append(got, reader.PollFetches(ctx).Records()...)
	}
	for i, want := range c.Records {
		if i >= len(got) || !bytes.Equal(got[i].Key, goldenBytes(want.Key, nil)) || !bytes.Equal(got[i].Value, goldenBytes(want.Value, nil)) ||
			(got[i].Value == nil) != (want.Value == nil) || len(got[i].Headers) != len(want.Headers) {
			t.Errorf("record %d: got %+v, want %+v", i, got, want)
		}
	}
}

func TestErrorsHaveTheClassesOfKafka(t *testing.T) {
	data, err := os.ReadFile("testdata/kafka/errors.tsv")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n")[1:] {
		f := strings.Split(line, "\t")
		code, err := strconv.Atoi(f[0])
		if err != nil {
			t.Fatal(err)
		}
		k := kerr.TypedErrorForCode(int16(code))
		if f[1] == "NONE" || k == nil || k.Message != f[1] {
			continue // a code that the client library does not know
		}
		checked++
		if got := javaClass(k); got != f[2] {
			t.Errorf("javaClass(%s) = %s, want %s", f[1], got, f[2])
		}
	}
	if checked < 120 {
		t.Errorf("checked %d codes, want nearly all of 137", checked)
	}
}
