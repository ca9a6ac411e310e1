package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/internal/config"
)

func consoleProducerOptions() []kafkaOption {
	return []kafkaOption{
		{"bootstrap-server", requiredArg, true, "Host and port of a broker."},
		{"topic", requiredArg, true, "The topic to write to."},
		{"command-config", requiredArg, false, "File of producer properties."},
		{"command-property", requiredArg, false, "A producer property, KEY=VALUE; may be repeated."},
		{"producer-property", requiredArg, false, "Deprecated: use --command-property."},
		{"producer.config", requiredArg, false, "Deprecated: use --command-config."},
		{"reader-property", requiredArg, false, "A property of the line reader: parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, headers.key.separator, null.marker, ignore.error."},
		{"property", requiredArg, false, "Deprecated: use --reader-property."},
		{"reader-config", requiredArg, false, "File of properties of the line reader."},
		{"line-reader", requiredArg, false, "Class that reads lines: LineMessageReader."},
		{"compression-codec", optionalArg, false, "none, gzip, snappy, lz4 or zstd; gzip without a value."},
		{"request-required-acks", requiredArg, false, "0, 1 or all (-1)."},
		{"sync", noArg, false, "Send records one by one."},
		{"batch-size", requiredArg, false, "Bytes of a batch."},
		{"max-partition-memory-bytes", requiredArg, false, "Deprecated: use --batch-size."},
		{"timeout", requiredArg, false, "Milliseconds to wait for more records of a batch."},
		{"message-send-max-retries", requiredArg, false, "Attempts after the first."},
		{"retry-backoff-ms", requiredArg, false, "Milliseconds between attempts."},
		{"request-timeout-ms", requiredArg, false, "Milliseconds to wait for an answer."},
		{"max-block-ms", requiredArg, false, "Milliseconds to wait for metadata."},
		{"max-memory-bytes", requiredArg, false, "Without effect."},
		{"metadata-expiry-ms", requiredArg, false, "Without effect."},
		{"socket-buffer-size", requiredArg, false, "Without effect."},
	}
}

// consoleProducer is kafka-console-producer.sh.
func (r *kafkaRun) consoleProducer(ctx context.Context) error {
	r.trace = true
	o := r.opts
	if err := o.need("topic"); err != nil {
		return err
	}
	if !o.has("bootstrap-server") {
		return &toolUsage{"Error while validating the bootstrap address\n"}
	}
	for _, d := range [][2]string{{"producer-property", "command-property"}, {"producer.config", "command-config"}, {"property", "reader-property"}, {"max-partition-memory-bytes", "batch-size"}} {
		if o.has(d[0]) {
			fmt.Fprintf(r.Stdout, "Warning: --%s is deprecated and will be removed in a future version. Use --%s instead.\n", d[0], d[1])
		}
	}
	reader, err := r.lineReader()
	if err != nil {
		return err
	}
	opts, err := r.producerOptions()
	if err != nil {
		return err
	}
	r.opts.values["command-config"] = append(o.values["producer.config"], o.values["command-config"]...)
	r.bootstrap, r.commandConfig = o.one("bootstrap-server"), o.one("command-config")
	c, err := r.connect(ctx, opts...)
	if err != nil {
		return err
	}
	defer c.Close()
	return r.sendLines(ctx, c, reader)
}

// sendLines writes one record a line. A record that cannot be sent is logged,
// and the next one is sent: so does Kafka's tool, with status 0.
func (r *kafkaRun) sendLines(ctx context.Context, c *client, reader *lineMessageReader) error {
	topic := r.opts.one("topic")
	lines := bufio.NewReaderSize(r.Stdin, 64<<10)
	prompt := isTerminal(r.Stdin)
	done := func(_ *kgo.Record, err error) {
		if err != nil {
			fmt.Fprintf(r.Stderr, "[%s] ERROR Error when sending message to topic %s with error: %s (org.apache.kafka.clients.producer.internals.ErrorLoggingCallback)\n",
				time.Now().Format("2006-01-02 15:04:05,000"), topic, messageOf("", err))
		}
	}
	for n := 1; ; n++ {
		if prompt {
			fmt.Fprint(r.Stdout, ">")
		}
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		rec, parseErr := reader.record(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), n)
		if parseErr != nil {
			if err := c.Flush(ctx); err != nil {
				return err
			}
			return parseErr
		}
		rec.Topic = topic
		if r.opts.has("sync") {
			done(nil, c.ProduceSync(ctx, rec).FirstErr())
		} else {
			c.Produce(ctx, rec, done)
		}
	}
	return c.Flush(ctx)
}

// producerOptions are the client's settings: options first, then properties.
func (r *kafkaRun) producerOptions() ([]kgo.Opt, error) {
	props, err := pairs(append(r.opts.values["producer-property"], r.opts.values["command-property"]...))
	if err != nil {
		return nil, err
	}
	get := func(option, property, def string) string {
		if v, ok := props[property]; ok {
			return v
		}
		if r.opts.has(option) {
			return r.opts.one(option)
		}
		return def
	}
	codec := get("compression-codec", "compression.type", "none")
	if codec == "" {
		codec = "gzip"
	}
	codecs := map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	c, ok := codecs[codec]
	if !ok {
		return nil, configException("compression.type", codec, "String must be one of: none, gzip, snappy, lz4, zstd")
	}
	opts := []kgo.Opt{kgo.ProducerBatchCompression(c), kgo.AllowAutoTopicCreation(), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.ProducerBatchMaxBytes(100 << 20), kgo.BrokerMaxWriteBytes(101 << 20)}
	switch acks := get("request-required-acks", "acks", "all"); acks {
	case "all", "-1":
		opts = append(opts, kgo.RequiredAcks(kgo.AllISRAcks()))
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, configException("acks", acks, "String must be one of: all, -1, 0, 1")
	}
	retries, err := r.opts.integer("message-send-max-retries", 3)
	if err != nil {
		return nil, err
	}
	block, err := strconv.ParseInt(get("max-block-ms", "max.block.ms", "60000"), 10, 64)
	if err != nil {
		return nil, configException("max.block.ms", get("max-block-ms", "max.block.ms", ""), "Not a number of type LONG")
	}
	linger, err := strconv.ParseInt(get("timeout", "linger.ms", "1000"), 10, 64)
	if err != nil {
		return nil, configException("linger.ms", get("timeout", "linger.ms", ""), "Not a number of type LONG")
	}
	// The last record is flushed at the end of the input, so waiting longer for
	// more would only delay it.
	linger = min(linger, 50)
	return append(opts, kgo.AllowIdempotentProduceCancellation(), kgo.RecordRetries(int(retries)), kgo.RecordDeliveryTimeout(time.Duration(max(block, 1000))*time.Millisecond), kgo.ProducerLinger(time.Duration(linger)*time.Millisecond)), nil
}

func configException(key, value, why string) error {
	return &javaError{"org.apache.kafka.common.config.ConfigException", "Invalid value " + value + " for configuration " + key + ": " + why}
}

// lineMessageReader is LineMessageReader: what a line of the console means.
type lineMessageReader struct {
	parseKey, parseHeaders, ignoreErrors         bool
	keySeparator, headersDelimiter               string
	headersSeparator, headerKeySeparator, marker string
}

func (r *kafkaRun) lineReader() (*lineMessageReader, error) {
	switch class := r.opts.one("line-reader"); class {
	case "", "LineMessageReader", "org.apache.kafka.tools.LineMessageReader", "kafka.tools.ConsoleProducer$LineMessageReader":
	default:
		return nil, &javaError{"java.lang.ClassNotFoundException", class}
	}
	props := map[string]string{}
	if path := r.opts.one("reader-config"); path != "" {
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
	given, err := pairs(append(r.opts.values["property"], r.opts.values["reader-property"]...))
	if err != nil {
		return nil, err
	}
	for k, v := range given {
		props[k] = v
	}
	get := func(key, def string) string {
		if v, ok := props[key]; ok {
			return v
		}
		return def
	}
	on := func(key string) bool { return strings.EqualFold(strings.TrimSpace(get(key, "false")), "true") }
	m := &lineMessageReader{
		parseKey: on("parse.key"), parseHeaders: on("parse.headers"), ignoreErrors: on("ignore.error"),
		keySeparator: get("key.separator", "\t"), headersDelimiter: get("headers.delimiter", "\t"),
		headersSeparator: get("headers.separator", ","), headerKeySeparator: get("headers.key.separator", ":"), marker: get("null.marker", ""),
	}
	if m.headersDelimiter == m.headersSeparator {
		return nil, &javaError{"org.apache.kafka.common.KafkaException", "headers.delimiter and headers.separator may not be equal"}
	}
	return m, nil
}

// record reads one line. Its errors are those of Kafka's reader.
func (m *lineMessageReader) record(line string, n int) (*kgo.Record, error) {
	rec := &kgo.Record{}
	rest := line
	if m.parseHeaders {
		headers, after, ok := strings.Cut(rest, m.headersDelimiter)
		switch {
		case ok:
			var err error
			if rec.Headers, err = m.headers(headers, n, line); err != nil {
				return nil, err
			}
			rest = after
		case !m.ignoreErrors:
			return nil, m.missing("No header delimiter", n, line)
		}
	}
	if m.parseKey {
		key, after, ok := strings.Cut(rest, m.keySeparator)
		switch {
		case ok:
			rec.Key, rest = m.orNull(key), after
		case !m.ignoreErrors:
			return nil, m.missing("No key separator", n, line)
		}
	}
	rec.Value = m.orNull(rest)
	return rec, nil
}

func (m *lineMessageReader) missing(what string, n int, line string) error {
	return &javaError{"org.apache.kafka.common.KafkaException", fmt.Sprintf("%s found on line number %d: '%s'", what, n, line)}
}

func (m *lineMessageReader) headers(text string, n int, line string) ([]kgo.RecordHeader, error) {
	if m.marker != "" && text == m.marker {
		return nil, nil
	}
	var out []kgo.RecordHeader
	for _, h := range strings.Split(text, m.headersSeparator) {
		key, value, ok := strings.Cut(h, m.headerKeySeparator)
		if !ok {
			if m.ignoreErrors {
				continue
			}
			return nil, m.missing("No header key separator", n, line)
		}
		out = append(out, kgo.RecordHeader{Key: key, Value: m.orNull(value)})
	}
	return out, nil
}

func (m *lineMessageReader) orNull(s string) []byte {
	if m.marker != "" && s == m.marker {
		return nil
	}
	return []byte(s)
}
