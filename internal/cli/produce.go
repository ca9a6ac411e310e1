package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// produceFlags say what records are made of and how they are sent.
type produceFlags struct {
	topic        string
	file         string
	keySeparator string
	delimiter    string
	key          string
	headers      []string
	nullValue    string
	partition    int32
	timestamp    string
	whole        bool
	input        string

	compression string
	acks        string
	idempotence bool
	linger      time.Duration
	giveUp      time.Duration
	verbose     bool
}

func (a *app) produceCommand() *cobra.Command {
	var p produceFlags
	cmd := &cobra.Command{
		Use: "produce TOPIC", Short: "write records: lines of standard input, or of a file", GroupID: groupData,
		Long: "Writes records to a topic: one a line of standard input, or of a file. It ends when\nall of them are acknowledged.",
		Example: `  echo hello | varve produce greetings
  varve produce orders --key-separator : --file orders.txt
  varve produce images --whole --key cat.png --header type=image/png < cat.png
  varve produce orders --input json <<< '{"key":"7","value":"paid","headers":{"src":"web"}}'
  varve produce orders --compression zstd --acks 1 --partition 0 < lines`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, err := oneTopic(args, p.topic)
			if err != nil {
				return err
			}
			p.topic = topic
			return a.produce(cmd, &p)
		},
	}
	a.clientFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&p.file, "file", "f", "", "read `FILE` in place of standard input")
	f.StringVar(&p.input, "input", "lines", "`FORM` of the input: lines, or json (an object a line: key, value, headers, partition, timestamp)")
	f.StringVarP(&p.keySeparator, "key-separator", "k", "", "split each line into key and value at the first `TEXT`")
	f.StringVar(&p.delimiter, "delimiter", `\n`, "end of a record, a `TEXT`")
	f.BoolVar(&p.whole, "whole", false, "the whole input is the value of one record")
	f.StringVar(&p.key, "key", "", "`KEY` of every record")
	f.StringArrayVarP(&p.headers, "header", "H", nil, "`NAME=VALUE` of every record; may be repeated")
	f.StringVar(&p.nullValue, "null-value", "", "a value (or key) that is this `TEXT` is null: a tombstone")
	f.Int32VarP(&p.partition, "partition", "p", -1, "write to partition `N`; without it the key chooses")
	f.StringVar(&p.timestamp, "timestamp", "", "`TIME` of every record (RFC 3339, or milliseconds since 1970); without it, now")
	f.StringVarP(&p.compression, "compression", "z", "none", "`CODEC` of the batches: none (the default), gzip, snappy, lz4, zstd")
	f.StringVar(&p.acks, "acks", "all", "wait for `N`: 0 nobody, 1 the leader, all (the default; -1 is the same) in-sync replicas")
	f.BoolVar(&p.idempotence, "idempotence", true, "let the broker drop what is sent twice; on unless --acks is 0 or 1")
	f.DurationVar(&p.linger, "linger", 5*time.Millisecond, "`DURATION` to wait for more records of a batch (default 5ms)")
	f.DurationVar(&p.giveUp, "give-up-after", giveUpAfter, "end with status 6 when nothing is acknowledged for `DURATION` (default 2m)")
	f.BoolVarP(&p.verbose, "verbose", "v", false, "print partition and offset of each record")
	f.StringVar(&p.topic, "topic", "", "`NAME` of the topic, as Kafka's tools take it")
	_ = f.MarkHidden("topic")
	alsoSpelt(cmd, "producer.config", "command-config")
	alsoSpelt(cmd, "request-required-acks", "acks")
	completeFlag(cmd, "compression", "none", "gzip", "snappy", "lz4", "zstd")
	completeFlag(cmd, "acks", "all", "1", "0")
	completeFlag(cmd, "input", "lines", "json")
	a.outputFlag(cmd)
	return cmd
}

// oneTopic is a command's single topic: its argument or Kafka's --topic.
func oneTopic(args []string, flag string) (string, error) {
	if flag != "" {
		args = append(args, flag)
	}
	if err := nameEach("topic", args); err != nil {
		return "", err
	}
	if len(args) == 1 {
		return args[0], nil
	}
	return "", usageError("one topic at a time, not %s", strings.Join(args, " and "))
}

// options turns the flags into the client's settings.
func (p *produceFlags) options(cmd *cobra.Command) ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.ProducerLinger(p.linger), kgo.ProducerBatchMaxBytes(1_000_000)}
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	codec, ok := codecs[p.compression]
	if !ok {
		return nil, usageError("--compression %s: the codecs are none, gzip, snappy, lz4 and zstd", p.compression)
	}
	opts = append(opts, kgo.ProducerBatchCompression(codec))
	switch p.acks {
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()))
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()))
	case "all", "-1":
		opts = append(opts, kgo.RequiredAcks(kgo.AllISRAcks()))
	default:
		return nil, usageError("--acks %s: it is 0, 1 or all", p.acks)
	}
	if p.acks == "0" || p.acks == "1" {
		if p.idempotence && cmd.Flags().Changed("idempotence") {
			return nil, usageError("--idempotence needs --acks all")
		}
		p.idempotence = false
	}
	if !p.idempotence {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	if p.partition >= 0 {
		opts = append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	} else {
		opts = append(opts, kgo.RecordPartitioner(chosenPartitioner{kgo.StickyKeyPartitioner(nil), kgo.ManualPartitioner()}))
	}
	return opts, nil
}

// chosenPartitioner lets a record that names its partition go there, and the
// key decide for the others.
type chosenPartitioner struct{ byKey, manual kgo.Partitioner }

// ForTopic implements kgo.Partitioner.
func (c chosenPartitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return chosenTopic{c.byKey.ForTopic(topic), c.manual.ForTopic(topic)}
}

type chosenTopic struct{ byKey, manual kgo.TopicPartitioner }

// noPartition marks a record whose partition the key chooses.
const noPartition = -1

func (c chosenTopic) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition != noPartition || c.byKey.RequiresConsistency(r)
}

func (c chosenTopic) Partition(r *kgo.Record, n int) int {
	if r.Partition != noPartition {
		return c.manual.Partition(r, n)
	}
	return c.byKey.Partition(r, n)
}

func (a *app) produce(cmd *cobra.Command, p *produceFlags) error {
	opts, err := p.options(cmd)
	if err != nil {
		return err
	}
	reader, err := p.reader()
	if err != nil {
		return err
	}
	in, err := a.openInput(p.file)
	if err != nil {
		return err
	}
	defer in.Close()
	if isTerminal(in) || p.file == "" && isTerminal(a.Stdin) {
		fmt.Fprintln(a.Stderr, "one record a line; end with Ctrl-D")
	}
	ctx := cmd.Context()
	c, err := a.connect(ctx, append(opts, kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(3))...)
	if err != nil {
		return err
	}
	defer c.Close()
	s := &sending{a: a, c: c, p: p, rows: []sentRow{}}
	if topics, err := c.admin.ListTopics(ctx, p.topic); err == nil {
		s.absent = errors.Is(topics[p.topic].Err, kerr.UnknownTopicOrPartition)
	}
	return s.run(ctx, reader(in))
}

type sentRow struct {
	Partition int32   `json:"partition"`
	Offset    *bigInt `json:"offset"` // null when nobody was asked for it
	Timestamp string  `json:"timestamp"`
}

// sending is one run of produce.
type sending struct {
	a      *app
	c      *client
	p      *produceFlags
	absent bool // there was no such topic before

	mu     sync.Mutex // guards what follows
	cancel func()
	first  error // the first that went wrong: nothing more is read or sent
	asked  int64 // records given to the client
	sent   int64 // of them, acknowledged
	bytes  int64
	last   time.Time // of an acknowledgement, or of the first record after the last one
	rows   []sentRow
}

// run writes every record of the input and waits for the acknowledgements. The
// input may keep it waiting for ever, and so may the broker: both are given up
// when an error came, and the broker when it has been gone for too long.
func (s *sending) run(ctx context.Context, next recordReader) error {
	ctx, s.cancel = context.WithCancel(ctx)
	defer s.cancel()
	read, flushed := make(chan error, 1), make(chan error, 1)
	go func() { read <- s.readAll(ctx, next) }()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	patience := patience{a: s.a, giveUp: s.p.giveUp}
	var readErr error
	for {
		select {
		case <-ctx.Done():
			return s.result(ctx, readErr)
		case readErr = <-read:
			go func() { flushed <- s.c.Flush(ctx) }()
		case err := <-flushed:
			s.fail(err)
			return s.result(ctx, readErr)
		case <-tick.C:
			s.sayCreated(ctx)
			down, why := s.stuck()
			if err := patience.wait("write to "+s.p.topic, down, why); err != nil {
				s.fail(err)
			}
		}
	}
}

// readAll gives the client every record there is.
func (s *sending) readAll(ctx context.Context, next recordReader) error {
	for ctx.Err() == nil {
		r, err := next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		r.Topic = s.p.topic
		s.mu.Lock()
		if s.asked == s.sent {
			s.last = time.Now()
		}
		s.asked++
		s.mu.Unlock()
		s.c.Produce(ctx, r, s.done)
	}
	return nil
}

// fail notes what went wrong first, and ends the run.
func (s *sending) fail(err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		s.first = err
		s.cancel()
	}
}

// done is told of every record that was acknowledged, or will never be.
func (s *sending) done(r *kgo.Record, err error) {
	if err != nil {
		s.fail(err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent++
	s.bytes += int64(len(r.Key) + len(r.Value))
	s.last = time.Now()
	if !s.p.verbose {
		return
	}
	offset := known(r.Offset)
	if s.p.acks == "0" {
		offset = nil
	}
	if s.a.output == "text" {
		fmt.Fprintf(s.a.Stdout, "partition %d offset %s\n", r.Partition, offsetText(offset))
	} else {
		s.rows = append(s.rows, sentRow{r.Partition, offset, timestamp(r.Timestamp.UnixMilli())})
	}
}

// stuck is how long records have been waiting without an acknowledgement, and why.
func (s *sending) stuck() (time.Duration, string) {
	_, why := s.c.watch.trouble()
	if why == "" && s.c.watch.answers() {
		why = refusing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked == s.sent {
		return 0, ""
	}
	return time.Since(s.last), why
}

// sayCreated says that the topic was made by writing to it, once it is.
func (s *sending) sayCreated(ctx context.Context) {
	s.mu.Lock()
	say := s.absent && s.sent > 0
	s.absent = s.absent && !say
	s.mu.Unlock()
	if !say {
		return
	}
	topics, err := s.c.admin.ListTopics(ctx, s.p.topic)
	if t := topics[s.p.topic]; err == nil && t.Err == nil {
		fmt.Fprintf(s.a.Stderr, "topic %s did not exist; created with %s\n", s.p.topic, count(int64(len(t.Partitions)), "partition"))
	}
}

// result prints what was written, or returns why not everything was.
func (s *sending) result(ctx context.Context, readErr error) error {
	s.sayCreated(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil && ctx.Err() != nil {
		s.first = ctx.Err()
	}
	if s.first != nil {
		return produceFailure(s.p.topic, s.sent, s.first)
	}
	if readErr != nil {
		return readErr
	}
	if s.a.output == "json" {
		doc := map[string]any{"topic": s.p.topic, "records": s.sent, "bytes": s.bytes}
		if s.p.verbose {
			doc["offsets"] = s.rows
		}
		return s.a.print(doc, nil)
	}
	if isTerminal(s.a.Stderr) {
		fmt.Fprintf(s.a.Stderr, "wrote %s to %s\n", count(s.sent, "record"), s.p.topic)
	}
	return nil
}

func produceFailure(topic string, sent int64, err error) error {
	what := "write to " + topic
	if sent > 0 {
		what += ", after " + count(sent, "record")
	}
	var f *failure
	if errors.As(err, &f) {
		f.what = what
		return f
	}
	if errors.Is(err, kgo.ErrRecordTimeout) || errors.Is(err, kgo.ErrRecordRetries) {
		return &failure{code: exitOffline, what: what, why: err.Error(), hint: "is the address that the broker advertises reachable from here?"}
	}
	if errors.Is(err, kerr.InvalidRecord) {
		f := &failure{}
		if errors.As(failed(what, err), &f) {
			f.hint = "a topic with cleanup.policy=compact needs a key in every record: --key-separator TEXT, or --key KEY"
			return f
		}
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		f := &failure{}
		if errors.As(failed(what, err), &f) {
			f.hint = "create it with varve topics create " + topic
			return f
		}
	}
	if _, choice, ok := strings.Cut(err.Error(), "invalid record partitioning choice of "); ok {
		n, of, _ := strings.Cut(strings.TrimSuffix(choice, " available"), " from ")
		return &failure{code: exitMissing, what: what, why: "there is no partition " + n + ": the topic has " + of}
	}
	return failed(what, err)
}
