package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/internal/kafka"
)

func TestParsePartitions(t *testing.T) {
	tests := []struct {
		text string
		want []int32
	}{
		{"0", []int32{0}},
		{"0,2,5-7", []int32{0, 2, 5, 6, 7}},
		{" 1 , 3 ", []int32{1, 3}},
		{"", nil}, {"a", nil}, {"3-1", nil}, {"-1", nil}, {"0-99999999", nil},
	}
	for _, tt := range tests {
		got, err := parsePartitions(tt.text)
		if (err != nil) != (tt.want == nil) || !slices.Equal(got, tt.want) {
			t.Errorf("parsePartitions(%q) = %v, %v; want %v", tt.text, got, err, tt.want)
		}
	}
}

func TestParseTime(t *testing.T) {
	for _, text := range []string{"2023-11-14T22:13:20Z", "1700000000000", "2023-11-14T23:13:20+01:00", "2023-11-14 22:13:20", "2023-11-14T22:13:20.000"} {
		if got, err := parseTime(text); err != nil || got != 1700000000000 {
			t.Errorf("parseTime(%q) = %d, %v; want 1700000000000", text, got, err)
		}
	}
	if got, err := parseTime("2023-11-14"); err != nil || got != 1699920000000 {
		t.Errorf("a date is its first moment in UTC: %d, %v", got, err)
	}
	if _, err := parseTime("yesterday"); err == nil {
		t.Error("yesterday is a time")
	}
}

func TestTimesOfExplain(t *testing.T) {
	now := time.UnixMilli(1700000000000)
	for text, want := range map[string]kafka.Timestamp{
		"1700000000000": 1700000000000, "-1": -1, "2023-11-14": 1699920000000, "2023-11-14T22:13:20Z": 1700000000000,
		"now": 1700000000000, "now-1h": 1700000000000 - 3_600_000, "now-7d": 1700000000000 - 7*86_400_000, "now+90s": 1700000090000,
	} {
		if got, err := timeArgument(text, now); err != nil || got != want {
			t.Errorf("timeArgument(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"yesterday", "now1h", "now-", "now--1h", "2023-13-01", ""} {
		if got, err := timeArgument(text, now); err == nil {
			t.Errorf("timeArgument(%q) = %d", text, got)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"90m": 90 * time.Minute, "P1D": 24 * time.Hour, "PT1H30M": 90 * time.Minute, "7d": 7 * 24 * time.Hour} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("parseDuration(%q) = %v, %v; want %v", text, got, err, want)
		}
	}
}

func TestUnescapeText(t *testing.T) {
	for text, want := range map[string]string{`a\tb\n`: "a\tb\n", `\x41\0`: "A\x00", `\\n`: `\n`, `\q`: `\q`, `\xzz`: `\xzz`, `end\`: `end\`} {
		if got := unescapeText(text); got != want {
			t.Errorf("unescapeText(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestProduceInputForms(t *testing.T) {
	tests := []struct {
		name  string
		flags produceFlags
		input string
		want  string // records as key=value headers, with | between them; ~ is null
	}{
		{"a line is a value", produceFlags{}, "a\nb\n", "~=a|~=b"},
		{"the last line needs no newline", produceFlags{}, "a\nb", "~=a|~=b"},
		{"an empty line is an empty value", produceFlags{}, "a\n\nb\n", "~=a|~=|~=b"},
		{"no input is no record", produceFlags{}, "", ""},
		{"a carriage return belongs to the value", produceFlags{}, "a\r\n", "~=a\r"},
		{"the first separator ends the key", produceFlags{keySeparator: ":"}, "k:v:w\n", "k=v:w"},
		{"another delimiter", produceFlags{delimiter: `\0`}, "a\nb\x00c", "~=a\nb|~=c"},
		{"a text for null", produceFlags{keySeparator: ":", nullValue: "NULL"}, "k:NULL\nNULL:v\n", "k=~|~=v"},
		{"a constant key and header", produceFlags{key: "k", headers: []string{"h=1"}}, "a\n", "k=a h:1"},
		{"the whole input", produceFlags{whole: true}, "a\nb\n", "~=a\nb\n"},
		{"JSON objects", produceFlags{input: "json"}, `{"key":"k","value":null}` + "\n" + `{"valueBase64":"AAE=","headers":{"b":"2","a":"1"}}`, "k=~|~=\x00\x01 a:1 b:2"},
		{"JSON headers as a list keep their order", produceFlags{input: "json"}, `{"value":"v","headers":[{"name":"b","value":"2"},{"name":"b","value":null}]}`, "~=v b:2 b:~"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := tt.flags
			if p.input == "" {
				p.input = "lines"
			}
			if p.delimiter == "" {
				p.delimiter = `\n`
			}
			p.partition = noPartition
			read, err := p.reader()
			if err != nil {
				t.Fatal(err)
			}
			next := read(strings.NewReader(tt.input))
			var got []string
			for {
				r, err := next()
				if err != nil {
					break
				}
				got = append(got, render(r))
			}
			if strings.Join(got, "|") != tt.want {
				t.Errorf("records %q, want %q", strings.Join(got, "|"), tt.want)
			}
		})
	}
}

func render(r *kgo.Record) string {
	orTilde := func(b []byte) string {
		if b == nil {
			return "~"
		}
		return string(b)
	}
	s := orTilde(r.Key) + "=" + orTilde(r.Value)
	for _, h := range r.Headers {
		s += " " + h.Key + ":" + orTilde(h.Value)
	}
	return s
}

func TestProduceInputRefusals(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flags produceFlags
		input string
		want  string
	}{
		{"a line without its separator", produceFlags{keySeparator: ":"}, "k:v\nx\n", `record 2: no key separator ":" in it`},
		{"broken JSON", produceFlags{input: "json"}, `{"value":`, "line 1 of the input: unexpected EOF"},
		{"broken base64", produceFlags{input: "json"}, `{"valueBase64":"?"}`, "line 1 of the input: valueBase64: illegal base64 data at input byte 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := tt.flags
			if p.input == "" {
				p.input = "lines"
			}
			p.delimiter, p.partition = `\n`, noPartition
			read, err := p.reader()
			if err != nil {
				t.Fatal(err)
			}
			next := read(strings.NewReader(tt.input))
			for err == nil {
				_, err = next()
			}
			if err.Error() != tt.want {
				t.Errorf("error %q, want %q", err, tt.want)
			}
		})
	}
}

func TestKeyFlagsOfServe(t *testing.T) {
	rest, settings, err := splitKeyFlags([]string{"file", "--log.retention.ms", "5", "--data-dir", "d", "--num.partitions=3", "--listeners", "A://:1", "--", "--x.y", "1"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"file", "--data-dir", "d", "--", "--x.y", "1"}; !slices.Equal(rest, want) {
		t.Errorf("rest %v, want %v", rest, want)
	}
	var got []string
	for _, s := range settings {
		got = append(got, s.Key+"="+s.Value+" "+s.Origin.String())
	}
	if want := []string{"log.retention.ms=5 --log.retention.ms", "num.partitions=3 --num.partitions", "listeners=A://:1 --listeners"}; !slices.Equal(got, want) {
		t.Errorf("settings %v, want %v", got, want)
	}
}

func TestAKeyFlagNeedsAValue(t *testing.T) {
	for _, args := range [][]string{{"--num.partitions"}, {"--num.partitions", "--listen", "x"}} {
		if _, _, err := splitKeyFlags(args); err == nil || err.Error() != "--num.partitions needs a value" {
			t.Errorf("splitKeyFlags(%q): %v", args, err)
		}
	}
}

func FuzzLineMessageReader(f *testing.F) {
	f.Add("h:1,i:2\tk\tv", true, true)
	f.Fuzz(func(t *testing.T, line string, key, headers bool) {
		m := &lineMessageReader{parseKey: key, parseHeaders: headers, keySeparator: "\t", headersDelimiter: "\t", headersSeparator: ",", headerKeySeparator: ":"}
		if r, err := m.record(line, 1); err == nil && !key && !headers && string(r.Value) != line {
			t.Errorf("%q became %q", line, r.Value)
		}
	})
}
