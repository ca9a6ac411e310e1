package cli

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// messageFormatter is DefaultMessageFormatter and its relatives.
type messageFormatter struct {
	out                            *bufio.Writer
	silent, logging                bool
	columns                        []string
	key, value, header             decoder
	separator, line, headers, null string
}

// decoder renders bytes as a deserializer of Kafka's clients prints them.
type decoder func([]byte) (string, error)

func (r *kafkaRun) formatter(out *bufio.Writer) (*messageFormatter, error) {
	f := &messageFormatter{out: out}
	class := r.opts.one("formatter")
	switch class[strings.LastIndexAny(class, ".$")+1:] {
	case "", "DefaultMessageFormatter":
	case "LoggingMessageFormatter":
		f.logging = true
	case "NoOpMessageFormatter":
		f.silent = true
	default:
		return nil, &toolUsage{class}
	}
	props, err := r.formatterProperties()
	if err != nil {
		return nil, err
	}
	get := func(key, def string) string {
		if v, ok := props[key]; ok {
			return v
		}
		return def
	}
	on := func(key, def string) bool { return strings.EqualFold(strings.TrimSpace(get(key, def)), "true") }
	for _, c := range []string{"timestamp", "partition", "offset", "delivery", "epoch", "headers", "key"} {
		if on("print."+c, "false") {
			f.columns = append(f.columns, c)
		}
	}
	if on("print.value", "true") {
		f.columns = append(f.columns, "value")
	}
	f.separator, f.line, f.headers, f.null = get("key.separator", "\t"), get("line.separator", "\n"), get("headers.separator", ","), get("null.literal", "null")
	for _, d := range []struct {
		to  *decoder
		key string
	}{{&f.key, "key.deserializer"}, {&f.value, "value.deserializer"}, {&f.header, "headers.deserializer"}} {
		if *d.to, err = decoderOf(get(d.key, "")); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *messageFormatter) print(r *kgo.Record) error {
	if f.silent {
		return nil
	}
	if f.logging {
		_, err := fmt.Fprintf(f.out, "[%s] INFO %s:%d, key:%s, value:%s (org.apache.kafka.tools.consumer.LoggingMessageFormatter)\n", time.Now().Format("2006-01-02 15:04:05,000"),
			timestampName(r), r.Timestamp.UnixMilli(), string(orText(r.Key, "null")), string(orText(r.Value, "null")))
		return err
	}
	for i, c := range f.columns {
		if i > 0 {
			put(f.out, f.separator)
		}
		if err := f.column(r, c); err != nil {
			return err
		}
	}
	put(f.out, f.line)
	return nil
}

func orText(b []byte, null string) []byte {
	if b == nil {
		return []byte(null)
	}
	return b
}

func (f *messageFormatter) column(r *kgo.Record, c string) error {
	switch c {
	case "timestamp":
		if name := timestampName(r); name == "NO_TIMESTAMP" {
			put(f.out, name)
		} else {
			fmt.Fprintf(f.out, "%s:%d", name, r.Timestamp.UnixMilli())
		}
	case "partition":
		fmt.Fprintf(f.out, "Partition:%d", r.Partition)
	case "offset":
		fmt.Fprintf(f.out, "Offset:%d", r.Offset)
	case "delivery":
		put(f.out, "Delivery:NOT_PRESENT")
	case "epoch":
		put(f.out, "Epoch:NOT_PRESENT")
	case "headers":
		if len(r.Headers) == 0 {
			put(f.out, "NO_HEADERS")
		}
		for i, h := range r.Headers {
			if i > 0 {
				put(f.out, f.headers)
			}
			put(f.out, h.Key+":")
			if err := f.decoded(f.header, h.Value); err != nil {
				return err
			}
		}
	case "key":
		return f.decoded(f.key, r.Key)
	case "value":
		return f.decoded(f.value, r.Value)
	}
	return nil
}

func (f *messageFormatter) decoded(d decoder, b []byte) error {
	if b == nil {
		put(f.out, f.null)
		return nil
	}
	s, err := d(b)
	if err != nil {
		return err
	}
	put(f.out, s)
	return nil
}

// decoderOf finds a deserializer by its class name, with or without the package.
func decoderOf(class string) (decoder, error) {
	const pkg = "org.apache.kafka.common.serialization."
	fixed := func(size int, render func([]byte) string) decoder {
		return func(b []byte) (string, error) {
			if len(b) != size {
				return "", &javaError{"org.apache.kafka.common.errors.SerializationException", "Size of data received by " + strings.TrimPrefix(class, pkg) + " is not " + strconv.Itoa(size)}
			}
			return render(b), nil
		}
	}
	switch strings.TrimPrefix(class, pkg) {
	case "", "StringDeserializer", "ByteArrayDeserializer", "BytesDeserializer", "ByteBufferDeserializer":
		return func(b []byte) (string, error) { return string(b), nil }, nil
	case "VoidDeserializer":
		return func([]byte) (string, error) {
			return "", &javaError{"java.lang.IllegalArgumentException", "Data should be null for a VoidDeserializer."}
		}, nil
	case "IntegerDeserializer":
		return fixed(4, func(b []byte) string { return strconv.Itoa(int(int32(binary.BigEndian.Uint32(b)))) }), nil
	case "LongDeserializer":
		return fixed(8, func(b []byte) string { return strconv.FormatInt(int64(binary.BigEndian.Uint64(b)), 10) }), nil
	case "ShortDeserializer":
		return fixed(2, func(b []byte) string { return strconv.Itoa(int(int16(binary.BigEndian.Uint16(b)))) }), nil
	case "FloatDeserializer":
		return fixed(4, func(b []byte) string {
			return strconv.FormatFloat(float64(math.Float32frombits(binary.BigEndian.Uint32(b))), 'g', -1, 32)
		}), nil
	case "DoubleDeserializer":
		return fixed(8, func(b []byte) string {
			return strconv.FormatFloat(math.Float64frombits(binary.BigEndian.Uint64(b)), 'g', -1, 64)
		}), nil
	case "UUIDDeserializer":
		return func(b []byte) (string, error) {
			if len(b) == 16 {
				h := hex.EncodeToString(b)
				return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:], nil
			}
			return string(b), nil
		}, nil
	}
	return nil, &javaError{"java.lang.ClassNotFoundException", class}
}
