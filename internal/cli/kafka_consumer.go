package cli

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/internal/config"
)

func consoleConsumerOptions() []kafkaOption {
	return []kafkaOption{
		{"bootstrap-server", requiredArg, true, "Host and port of a broker."},
		{"topic", requiredArg, false, "The topic to read."},
		{"include", requiredArg, false, "Regular expression of topics to read."},
		{"partition", requiredArg, false, "The partition to read."},
		{"offset", requiredArg, false, "Where to start: a number, earliest or latest."},
		{"from-beginning", noArg, false, "Start at the first record there is."},
		{"max-messages", requiredArg, false, "Records to read before it ends."},
		{"timeout-ms", requiredArg, false, "Milliseconds without a record after which it ends."},
		{"group", requiredArg, false, "Group to read as a member of."},
		{"isolation-level", requiredArg, false, "read_uncommitted or read_committed."},
		{"command-config", requiredArg, false, "File of consumer properties."},
		{"command-property", requiredArg, false, "A consumer property, KEY=VALUE; may be repeated."},
		{"consumer-property", requiredArg, false, "Deprecated: use --command-property."},
		{"consumer.config", requiredArg, false, "Deprecated: use --command-config."},
		{"formatter", requiredArg, false, "Class that prints records: DefaultMessageFormatter, LoggingMessageFormatter, NoOpMessageFormatter."},
		{"formatter-property", requiredArg, false, "A property of the formatter: print.timestamp, print.key, print.offset, print.partition, print.headers, print.value, key.separator, line.separator, headers.separator, null.literal, key.deserializer, value.deserializer."},
		{"property", requiredArg, false, "Deprecated: use --formatter-property."},
		{"formatter-config", requiredArg, false, "File of properties of the formatter."},
		{"key-deserializer", requiredArg, false, "Class that decodes keys."},
		{"value-deserializer", requiredArg, false, "Class that decodes values."},
		{"skip-message-on-error", noArg, false, "Go on after a record that cannot be printed."},
		{"enable-systest-events", noArg, false, "Print shutdown_complete at the end."},
	}
}

// consoleConsumer is kafka-console-consumer.sh.
func (r *kafkaRun) consoleConsumer(ctx context.Context) error {
	r.trace = true
	if err := r.checkConsumer(); err != nil {
		return err
	}
	out := bufio.NewWriterSize(r.Stdout, 64<<10)
	formatter, err := r.formatter(out)
	if err != nil {
		return err
	}
	opts, group, err := r.consumerOptions()
	if err != nil {
		return err
	}
	limit, err := r.opts.integer("max-messages", -1)
	if err != nil {
		return err
	}
	timeout, err := r.opts.integer("timeout-ms", -1)
	if err != nil {
		return err
	}
	r.bootstrap = r.opts.one("bootstrap-server")
	c, err := r.connect(ctx, opts...)
	if err != nil {
		return err
	}
	n, err := r.readLoop(ctx, c, formatter, out, limit, timeout)
	if flushErr := out.Flush(); err == nil && flushErr != nil {
		err = flushErr
	}
	if group != "" && err == nil {
		err = r.commit(c, group)
	}
	c.Close()
	fmt.Fprintf(r.Stderr, "Processed a total of %d messages\n", n)
	if r.opts.has("enable-systest-events") {
		fmt.Fprintln(r.Stdout, "shutdown_complete")
	}
	return err
}

// readLoop prints records until a limit, a silence, or a signal.
func (r *kafkaRun) readLoop(ctx context.Context, c *client, f *messageFormatter, out *bufio.Writer, limit, timeout int64) (n int64, err error) {
	last := time.Now()
	for limit < 0 || n < limit {
		wait := time.Second
		if timeout >= 0 {
			wait = max(min(wait, time.Duration(timeout)*time.Millisecond-time.Since(last)), time.Millisecond)
		}
		poll, cancel := context.WithTimeout(ctx, wait)
		fetches := c.PollRecords(poll, pollLimit(max(limit, 0), n))
		cancel()
		if ended(ctx) {
			return n, nil
		}
		if err := fetchProblem(fetches); err != nil {
			return n, err
		}
		for it := fetches.RecordIter(); !it.Done(); {
			rec := it.Next()
			c.MarkCommitRecords(rec)
			last = time.Now()
			n++
			if err := f.print(rec); err != nil && !r.opts.has("skip-message-on-error") {
				return n, err
			}
		}
		if err := out.Flush(); err != nil {
			return n, err
		}
		if timeout >= 0 && time.Since(last) >= time.Duration(timeout)*time.Millisecond {
			return n, nil
		}
	}
	return n, nil
}

// checkConsumer is the part of ConsoleConsumerOptions that is about combinations.
func (r *kafkaRun) checkConsumer() error {
	o := r.opts
	if err := o.need("bootstrap-server"); err != nil {
		return err
	}
	for _, d := range [][2]string{{"consumer-property", "command-property"}, {"consumer.config", "command-config"}, {"property", "formatter-property"}} {
		if o.has(d[0]) {
			fmt.Fprintf(r.Stdout, "Warning: --%s is deprecated and will be removed in a future version. Use --%s instead.\n", d[0], d[1])
		}
	}
	switch {
	case o.count("topic", "include") != 1:
		return &toolUsage{"Exactly one of the following arguments is required: [topic], [include]"}
	case o.has("partition") && !o.has("topic"):
		return &toolUsage{"The topic is required when partition is specified."}
	case o.has("offset") && !o.has("partition"):
		return &toolUsage{"The partition is required when offset is specified."}
	case o.has("offset") && o.has("from-beginning"):
		return &toolUsage{"Options from-beginning and offset cannot be specified together."}
	case o.has("group") && o.has("partition"):
		return &toolUsage{"Options group and partition cannot be specified together."}
	}
	return nil
}

func (r *kafkaRun) consumerOptions() (opts []kgo.Opt, group string, err error) {
	o := r.opts
	r.commandConfig = o.one("consumer.config")
	if o.has("command-config") {
		r.commandConfig = o.one("command-config")
	}
	props, err := r.clientProperties()
	if err != nil {
		return nil, "", err
	}
	given, err := pairs(append(o.values["consumer-property"], o.values["command-property"]...))
	if err != nil {
		return nil, "", err
	}
	for k, v := range given {
		props[k] = v
	}
	group = o.one("group")
	if id, ok := props["group.id"]; ok && group == "" {
		group = id
	} else if ok && id != group {
		return nil, "", &toolUsage{"The group ids provided in different places (directly using '--group', via '--consumer-property', or via '--consumer.config') do not match. Detected group ids: '" + group + "', '" + id + "'"}
	}
	opts = []kgo.Opt{kgo.FetchMaxWait(500 * time.Millisecond)}
	level := o.one("isolation-level")
	if v, ok := props["isolation.level"]; ok && level == "" {
		level = v
	}
	switch level {
	case "", "read_uncommitted":
	case "read_committed":
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	default:
		return nil, "", configException("isolation.level", level, "String must be one of: read_committed, read_uncommitted")
	}
	start := kgo.NewOffset().AtEnd()
	if o.has("from-beginning") || props["auto.offset.reset"] == "earliest" {
		start = kgo.NewOffset().AtStart()
	}
	opts = append(opts, kgo.ConsumeResetOffset(start))
	if o.has("partition") {
		at, err := r.partitionStart(start)
		return append(opts, at), "", err
	}
	if o.has("include") {
		if _, err := includeList(o.one("include")); err != nil {
			return nil, "", err
		}
		opts = append(opts, kgo.ConsumeRegex(), kgo.ConsumeTopics("^(?:"+strings.ReplaceAll(o.one("include"), ",", "|")+")$"))
	} else {
		opts = append(opts, kgo.ConsumeTopics(o.one("topic")), kgo.AllowAutoTopicCreation())
	}
	// Kafka's tool joins a group of a random name that commits nothing, and leaves
	// it behind; reading without a group shows the same records.
	if group != "" {
		opts = append(opts, kgo.ConsumerGroup(group), kgo.AutoCommitMarks())
	}
	return opts, group, nil
}

func (r *kafkaRun) partitionStart(start kgo.Offset) (kgo.Opt, error) {
	part, err := r.opts.integer("partition", 0)
	if err != nil {
		return nil, err
	}
	switch text := strings.ToLower(r.opts.one("offset")); text {
	case "", "latest":
	case "earliest":
		start = kgo.NewOffset().AtStart()
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return nil, &toolUsage{"The provided offset value '" + r.opts.one("offset") + "' is incorrect. Valid values are 'earliest', 'latest', or a non-negative long."}
		}
		start = kgo.NewOffset().At(n)
	}
	if part < 0 || part > math.MaxInt32 {
		return nil, &toolUsage{"The partition must not be negative."}
	}
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.opts.one("topic"): {int32(part): start}}), nil
}

// formatterProperties are those of --formatter-config and --formatter-property.
func (r *kafkaRun) formatterProperties() (map[string]string, error) {
	props := map[string]string{}
	if path := r.opts.one("formatter-config"); path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		list, err := config.ParseProperties(data)
		if err != nil {
			return nil, err
		}
		for _, p := range list {
			props[p.Key] = p.Value
		}
	}
	given, err := pairs(append(r.opts.values["property"], r.opts.values["formatter-property"]...))
	for k, v := range given {
		props[k] = v
	}
	for _, side := range []string{"key", "value"} {
		if r.opts.has(side + "-deserializer") {
			props[side+".deserializer"] = r.opts.one(side + "-deserializer")
		}
	}
	return props, err
}
