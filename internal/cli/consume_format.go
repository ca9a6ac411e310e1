package cli

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"
)

// recordFormat says how records are printed.
type recordFormat struct {
	format                                string
	key, headers, time, offset, partition bool
	separator, keySeparator, nullText     string
}

func (f *recordFormat) flags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.format, "format", "", "`TEXT` a record: %t topic, %p partition, %o offset, %T time in ms, %k key, %v value, %h headers, %K and %V lengths, \\n \\t \\xHH")
	fl.BoolVar(&f.key, "print-key", false, "print keys before values")
	fl.BoolVar(&f.headers, "print-headers", false, "print headers, NAME:VALUE with commas")
	fl.BoolVar(&f.time, "print-timestamp", false, "print timestamps")
	fl.BoolVar(&f.offset, "print-offset", false, "print offsets")
	fl.BoolVar(&f.partition, "print-partition", false, "print partitions")
	fl.StringVar(&f.keySeparator, "key-separator", `\t`, "`TEXT` between what is printed of a record")
	fl.StringVar(&f.separator, "line-separator", `\n`, "`TEXT` after each record")
	fl.StringVar(&f.nullText, "null-literal", "null", "`TEXT` for what is null")
}

// recordPrinter prints records in one form.
type recordPrinter struct {
	out   *bufio.Writer
	form  string // text, json, ndjson
	parts []formatPart
	null  string
	first bool
}

// formatPart is literal text, or one property of a record.
type formatPart struct {
	literal  string
	property byte // 0 for literal text
}

func (f *recordFormat) printer(out *bufio.Writer, form string) (*recordPrinter, error) {
	p := &recordPrinter{out: out, form: form, null: unescapeText(f.nullText), first: true}
	if form != "text" {
		return p, nil
	}
	if f.format == "" {
		p.parts = f.columns()
		return p, nil
	}
	return p, p.parse(f.format)
}

// columns is the form of Kafka's console consumer.
func (f *recordFormat) columns() []formatPart {
	var parts []formatPart
	add := func(on bool, prefix string, property byte) {
		if !on {
			return
		}
		if len(parts) > 0 {
			parts = append(parts, formatPart{literal: unescapeText(f.keySeparator)})
		}
		if prefix != "" {
			parts = append(parts, formatPart{literal: prefix})
		}
		parts = append(parts, formatPart{property: property})
	}
	add(f.time, "", 'C')
	add(f.partition, "Partition:", 'p')
	add(f.offset, "Offset:", 'o')
	add(f.headers, "", 'h')
	add(f.key, "", 'k')
	add(true, "", 'v')
	return append(parts, formatPart{literal: unescapeText(f.separator)})
}

func (p *recordPrinter) parse(format string) error {
	text := unescapeText(format)
	for text != "" {
		literal, rest, ok := strings.Cut(text, "%")
		if literal != "" {
			p.parts = append(p.parts, formatPart{literal: literal})
		}
		if !ok {
			return nil
		}
		if rest == "" || !strings.Contains("tpoTkvshKVS%", rest[:1]) {
			return usageError("--format %q: after %% comes one of t p o T k v h K V %%", format)
		}
		if rest[0] == '%' {
			p.parts = append(p.parts, formatPart{literal: "%"})
		} else {
			p.parts = append(p.parts, formatPart{property: rest[0]})
		}
		text = rest[1:]
	}
	return nil
}

func (p *recordPrinter) begin() {
	if p.form == "json" {
		put(p.out, `{"records":[`)
	}
}

func (p *recordPrinter) end() {
	if p.form == "json" {
		put(p.out, "]}\n")
	}
}

func (p *recordPrinter) print(r *kgo.Record) error {
	if p.form != "text" {
		return p.printJSON(r)
	}
	for _, part := range p.parts {
		if part.property == 0 {
			put(p.out, part.literal)
			continue
		}
		p.printProperty(r, part.property)
	}
	return nil
}

func (p *recordPrinter) printProperty(r *kgo.Record, property byte) {
	switch property {
	case 't':
		put(p.out, r.Topic)
	case 'p':
		put(p.out, strconv.FormatInt(int64(r.Partition), 10))
	case 'o':
		put(p.out, strconv.FormatInt(r.Offset, 10))
	case 'T':
		put(p.out, strconv.FormatInt(r.Timestamp.UnixMilli(), 10))
	case 'C':
		put(p.out, timestampName(r)+":"+strconv.FormatInt(r.Timestamp.UnixMilli(), 10))
	case 'k':
		p.orNull(r.Key)
	case 'v', 's':
		p.orNull(r.Value)
	case 'K':
		put(p.out, lengthOf(r.Key))
	case 'V', 'S':
		put(p.out, lengthOf(r.Value))
	case 'h':
		if len(r.Headers) == 0 {
			put(p.out, "NO_HEADERS")
		}
		for i, h := range r.Headers {
			if i > 0 {
				put(p.out, ",")
			}
			put(p.out, h.Key+":")
			p.orNull(h.Value)
		}
	}
}

// timestampName is what Kafka calls the record's kind of timestamp.
func timestampName(r *kgo.Record) string {
	switch r.Attrs.TimestampType() {
	case 0:
		return "CreateTime"
	case 1:
		return "LogAppendTime"
	}
	return "NO_TIMESTAMP"
}

// lengthOf is -1 for null, as in kcat.
func lengthOf(b []byte) string {
	if b == nil {
		return "-1"
	}
	return strconv.Itoa(len(b))
}

func (p *recordPrinter) orNull(b []byte) {
	if b == nil {
		put(p.out, p.null)
		return
	}
	put(p.out, string(b))
}

// jsonRecord is a record under -o json; what is no text is base64 in a field of
// its own. `varve produce --input json` reads it.
type jsonRecord struct {
	Topic         string       `json:"topic"`
	Partition     int32        `json:"partition"`
	Offset        bigInt       `json:"offset"`
	Timestamp     string       `json:"timestamp"`
	TimestampType string       `json:"timestampType"`
	Key           *string      `json:"key"`
	KeyBase64     *string      `json:"keyBase64,omitempty"`
	Value         *string      `json:"value"`
	ValueBase64   *string      `json:"valueBase64,omitempty"`
	Headers       []jsonHeader `json:"headers"`
}

type jsonHeader struct {
	Name  string  `json:"name"`
	Value *string `json:"value"`
}

func (p *recordPrinter) printJSON(r *kgo.Record) error {
	rec := jsonRecord{Topic: r.Topic, Partition: r.Partition, Offset: bigInt(r.Offset), Timestamp: timestamp(r.Timestamp.UnixMilli()),
		TimestampType: timestampName(r), Headers: []jsonHeader{}}
	rec.Key, rec.KeyBase64 = textOrBase64(r.Key)
	rec.Value, rec.ValueBase64 = textOrBase64(r.Value)
	for _, h := range r.Headers {
		value, encoded := textOrBase64(h.Value)
		if encoded != nil {
			value = encoded
		}
		rec.Headers = append(rec.Headers, jsonHeader{h.Key, value})
	}
	if p.form == "json" && !p.first {
		put(p.out, ",")
	}
	p.first = false
	enc := json.NewEncoder(p.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(rec)
}

func textOrBase64(b []byte) (text, encoded *string) {
	if b == nil {
		return nil, nil
	}
	if utf8.Valid(b) {
		s := string(b)
		return &s, nil
	}
	s := base64.StdEncoding.EncodeToString(b)
	return nil, &s
}

// put writes text. The writer keeps its first error until it is flushed, where
// it is looked at.
func put(w *bufio.Writer, text string) { _, _ = w.WriteString(text) }
