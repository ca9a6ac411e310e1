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
	f.StringVar(&p.timestamp, "timestamp", "", "`TIME` of every record; without it, now")
	f.StringVarP(&p.compression, "compression", "z", "none", "`CODEC` of the batches: none, gzip, snappy, lz4, zstd")
	f.StringVar(&p.acks, "acks", "all", "wait for `N`: 0 nobody, 1 the leader, all in-sync replicas")
	f.BoolVar(&p.idempotence, "idempotence", true, "let the broker drop what is sent twice; needs --acks all")
	f.DurationVar(&p.linger, "linger", 5*time.Millisecond, "`DURATION` to wait for more records of a batch")
	f.BoolVarP(&p.verbose, "verbose", "v", false, "print partition and offset of each record")
	f.StringVar(&p.topic, "topic", "", "`NAME` of the topic, as Kafka's tools take it")
	_ = f.MarkHidden("topic")
	_ = cmd.RegisterFlagCompletionFunc("compression", cobra.FixedCompletions([]string{"none", "gzip", "snappy", "lz4", "zstd"}, cobra.ShellCompDirectiveNoFileComp))
	a.outputFlag(cmd)
	return cmd
}

// oneTopic is a command's single topic: its argument or Kafka's --topic.
func oneTopic(args []string, flag string) (string, error) {
	if flag != "" {
		args = append(args, flag)
	}
	switch len(args) {
	case 0:
		return "", usageError("name a topic")
	case 1:
		return args[0], nil
	}
	return "", usageError("one topic at a time, not %s", strings.Join(args, " and "))
}

// options turns the flags into the client's settings.
func (p *produceFlags) options(cmd *cobra.Command) ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.ProducerLinger(p.linger), kgo.ProducerBatchMaxBytes(1_000_000), kgo.RecordRetries(10)}
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
	return a.send(ctx, c, p, reader(in))
}

type sentRow struct {
	Partition int32  `json:"partition"`
	Offset    bigInt `json:"offset"`
	Timestamp string `json:"timestamp"`
}

// send writes every record of the input and waits for the acknowledgements.
func (a *app) send(ctx context.Context, c *client, p *produceFlags, next recordReader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // guards first, sent, bytes and rows
	var first error
	var sent, bytes int64
	rows := []sentRow{}
	done := func(r *kgo.Record, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			if first == nil {
				first = err
				cancel() // nothing more is read or sent
			}
			return
		}
		sent++
		bytes += int64(len(r.Key) + len(r.Value))
		if p.verbose && a.output == "text" {
			fmt.Fprintf(a.Stdout, "%d %d\n", r.Partition, r.Offset)
		} else if p.verbose {
			rows = append(rows, sentRow{r.Partition, bigInt(r.Offset), timestamp(r.Timestamp.UnixMilli())})
		}
	}
	var readErr error
	for ctx.Err() == nil {
		r, err := next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				readErr = err
			}
			break
		}
		r.Topic = p.topic
		c.Produce(ctx, r, done)
	}
	flushErr := c.Flush(ctx)
	mu.Lock()
	defer mu.Unlock()
	if first == nil && flushErr != nil {
		first = flushErr
	}
	if first != nil {
		return produceFailure(p.topic, sent, first)
	}
	if readErr != nil {
		return readErr
	}
	if a.output == "json" {
		doc := map[string]any{"topic": p.topic, "records": sent, "bytes": bytes}
		if p.verbose {
			doc["offsets"] = rows
		}
		return a.print(doc, nil)
	}
	if isTerminal(a.Stderr) {
		fmt.Fprintf(a.Stderr, "wrote %s to %s\n", count(sent, "record"), p.topic)
	}
	return nil
}

func produceFailure(topic string, sent int64, err error) error {
	what := "write to " + topic
	if sent > 0 {
		what += ", after " + count(sent, "record")
	}
	if errors.Is(err, kgo.ErrRecordTimeout) || errors.Is(err, kgo.ErrRecordRetries) {
		return &failure{code: exitOffline, what: what, why: err.Error(), hint: "is the address that the broker advertises reachable from here?"}
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
