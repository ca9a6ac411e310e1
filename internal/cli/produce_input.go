package cli

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordReader returns the next record of an input, or io.EOF.
type recordReader func() (*kgo.Record, error)

// maxRecordBytes is the longest line that is taken for one record.
const maxRecordBytes = 1 << 30

// reader makes the reader of the flags' form of input.
func (p *produceFlags) reader() (func(io.Reader) recordReader, error) {
	headers, err := p.constantHeaders()
	if err != nil {
		return nil, err
	}
	var at time.Time
	if p.timestamp != "" {
		ms, err := parseTime(p.timestamp)
		if err != nil {
			return nil, err
		}
		at = time.UnixMilli(ms)
	}
	base := func() *kgo.Record {
		r := &kgo.Record{Partition: noPartition, Headers: headers, Timestamp: at}
		if p.partition >= 0 {
			r.Partition = p.partition
		}
		if p.key != "" {
			r.Key = []byte(p.key)
		}
		return r
	}
	delimiter := unescapeText(p.delimiter)
	switch {
	case p.input != "lines" && p.input != "json":
		return nil, usageError("--input %s: the forms are lines and json", p.input)
	case delimiter == "":
		return nil, usageError("--delimiter must not be empty")
	case p.whole && p.input == "json":
		return nil, usageError("--whole and --input json exclude each other")
	case p.whole:
		return func(in io.Reader) recordReader { return p.wholeReader(in, base) }, nil
	case p.input == "json":
		return func(in io.Reader) recordReader { return p.jsonReader(in, base) }, nil
	}
	return func(in io.Reader) recordReader { return p.lineReader(in, delimiter, base) }, nil
}

func (p *produceFlags) constantHeaders() ([]kgo.RecordHeader, error) {
	var headers []kgo.RecordHeader
	for _, h := range p.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return nil, usageError("--header %s: headers are NAME=VALUE", h)
		}
		headers = append(headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return headers, nil
}

func (p *produceFlags) wholeReader(in io.Reader, base func() *kgo.Record) recordReader {
	done := false
	return func() (*kgo.Record, error) {
		if done {
			return nil, io.EOF
		}
		done = true
		data, err := io.ReadAll(in)
		if err != nil {
			return nil, &failure{code: exitFailed, what: "read the input", why: err.Error()}
		}
		r := base()
		r.Value = data
		return r, nil
	}
}

func (p *produceFlags) lineReader(in io.Reader, delimiter string, base func() *kgo.Record) recordReader {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxRecordBytes)
	lines.Split(splitAt([]byte(delimiter)))
	n := 0
	return func() (*kgo.Record, error) {
		if !lines.Scan() {
			if err := lines.Err(); err != nil {
				return nil, &failure{code: exitFailed, what: fmt.Sprintf("record %d", n+1), why: err.Error()}
			}
			return nil, io.EOF
		}
		n++
		r := base()
		value := bytes.Clone(lines.Bytes())
		if p.keySeparator != "" {
			key, rest, ok := bytes.Cut(value, []byte(unescapeText(p.keySeparator)))
			if !ok {
				return nil, &failure{code: exitFailed, what: fmt.Sprintf("record %d", n), why: fmt.Sprintf("no key separator %q in it", p.keySeparator)}
			}
			r.Key, value = p.orNull(key), rest
		}
		r.Value = p.orNull(value)
		return r, nil
	}
}

// orNull is nil for the text that stands for null.
func (p *produceFlags) orNull(b []byte) []byte {
	if p.nullValue != "" && string(b) == p.nullValue {
		return nil
	}
	return b
}

// splitAt is bufio.ScanLines for any delimiter, without its care for \r.
func splitAt(delimiter []byte) bufio.SplitFunc {
	return func(data []byte, atEOF bool) (advance int, token []byte, err error) {
		if i := bytes.Index(data, delimiter); i >= 0 {
			return i + len(delimiter), data[:i:i], nil
		}
		if atEOF && len(data) > 0 {
			return len(data), data, nil
		}
		return 0, nil, nil
	}
}

// inputRecord is a line of --input json, in the form that consume -o json has.
type inputRecord struct {
	Key         *string         `json:"key"`
	Value       *string         `json:"value"`
	KeyBase64   *string         `json:"keyBase64"`
	ValueBase64 *string         `json:"valueBase64"`
	Headers     json.RawMessage `json:"headers"`
	Partition   *int32          `json:"partition"`
	Timestamp   *string         `json:"timestamp"`

	// What consume -o ndjson prints besides, and who writes does not choose.
	Topic         json.RawMessage `json:"topic"`
	Offset        json.RawMessage `json:"offset"`
	TimestampType json.RawMessage `json:"timestampType"`
}

// jsonReader reads objects one after the other. A name that is not known is an
// error: a key that is misspelt must not become a record without one.
func (p *produceFlags) jsonReader(in io.Reader, base func() *kgo.Record) recordReader {
	lines := &lineCounter{in: in}
	dec := json.NewDecoder(lines)
	dec.DisallowUnknownFields()
	return func() (*kgo.Record, error) {
		var line inputRecord
		err := dec.Decode(&line)
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		r := base()
		if err == nil {
			err = line.into(r)
		}
		if err == nil {
			lines.forget(dec.InputOffset())
			return r, nil
		}
		why := strings.TrimPrefix(err.Error(), "json: ")
		f := &failure{code: exitFailed, what: fmt.Sprintf("line %d of the input", lines.at(dec, err)), why: why}
		if strings.HasPrefix(why, "unknown field") {
			f.hint = "the fields are key, value, keyBase64, valueBase64, headers, partition, timestamp"
		}
		return nil, f
	}
}

// lineCounter knows where lines end in what was read of an input.
type lineCounter struct {
	in     io.Reader
	read   int64   // bytes
	before int     // lines that are forgotten
	ends   []int64 // offsets of the line ends that are not
}

// Read implements io.Reader.
func (l *lineCounter) Read(b []byte) (int, error) {
	n, err := l.in.Read(b)
	for i, c := range b[:n] {
		if c == '\n' {
			l.ends = append(l.ends, l.read+int64(i))
		}
	}
	l.read += int64(n)
	return n, err
}

// forget drops the line ends before an offset, and counts them.
func (l *lineCounter) forget(offset int64) {
	n := sort.Search(len(l.ends), func(i int) bool { return l.ends[i] >= offset })
	l.before += n
	l.ends = l.ends[n:]
}

// at is the line, from 1 on, of what a decoder could not take: where the object
// ends that it has read, or where one begins that is not JSON.
func (l *lineCounter) at(dec *json.Decoder, err error) int {
	offset := dec.InputOffset()
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF) {
		rest, _ := io.ReadAll(dec.Buffered()) // of memory: it cannot fail
		offset += int64(len(rest) - len(bytes.TrimLeft(rest, " \t\r\n")))
	}
	return l.before + sort.Search(len(l.ends), func(i int) bool { return l.ends[i] >= offset }) + 1
}

func (line *inputRecord) into(r *kgo.Record) error {
	set := func(to *[]byte, text, encoded *string) error {
		if text != nil {
			*to = []byte(*text)
		}
		if encoded != nil {
			b, err := base64.StdEncoding.DecodeString(*encoded)
			if err != nil {
				return err
			}
			*to = b
		}
		return nil
	}
	if err := set(&r.Key, line.Key, line.KeyBase64); err != nil {
		return fmt.Errorf("keyBase64: %w", err)
	}
	if err := set(&r.Value, line.Value, line.ValueBase64); err != nil {
		return fmt.Errorf("valueBase64: %w", err)
	}
	if line.Partition != nil {
		r.Partition = *line.Partition
	}
	if line.Timestamp != nil {
		ms, err := parseTime(*line.Timestamp)
		if err != nil {
			return err
		}
		r.Timestamp = time.UnixMilli(ms)
	}
	headers, err := jsonHeaders(line.Headers)
	if err != nil {
		return err
	}
	r.Headers = append(r.Headers[:len(r.Headers):len(r.Headers)], headers...)
	return nil
}

// jsonHeaders reads headers as an object, or as a list of objects with name and
// value, which keeps their order and may repeat names.
func jsonHeaders(raw json.RawMessage) ([]kgo.RecordHeader, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var headers []kgo.RecordHeader
	add := func(name string, value *string) {
		h := kgo.RecordHeader{Key: name}
		if value != nil {
			h.Value = []byte(*value)
		}
		headers = append(headers, h)
	}
	if raw[0] == '[' {
		var list []struct {
			Name  string  `json:"name"`
			Value *string `json:"value"`
		}
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, fmt.Errorf("headers: %w", err)
		}
		for _, h := range list {
			add(h.Name, h.Value)
		}
		return headers, nil
	}
	var object map[string]*string
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, fmt.Errorf("headers: %w", err)
	}
	for _, name := range sortedKeys(object) {
		add(name, object[name])
	}
	return headers, nil
}
