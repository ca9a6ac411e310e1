package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/config"
)

// parsePartitions reads "0,2,5-7".
func parsePartitions(list string) ([]int32, error) {
	var out []int32
	for _, word := range config.SplitList(list) {
		low, high, span := strings.Cut(word, "-")
		if !span {
			high = low
		}
		from, err := strconv.ParseInt(low, 10, 32)
		to, errTo := strconv.ParseInt(high, 10, 32)
		if err != nil || errTo != nil || from < 0 || to < from || to-from > 100_000 {
			return nil, usageError("%q is not a partition, nor a range of them such as 0-3", word)
		}
		for p := from; p <= to; p++ {
			out = append(out, int32(p))
		}
	}
	if len(out) == 0 {
		return nil, usageError("name a partition")
	}
	return out, nil
}

// parseTime reads RFC 3339, a date with or without a time (then in UTC), or
// milliseconds since 1970, and returns milliseconds.
func parseTime(s string) (int64, error) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		return ms, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UnixMilli(), nil
		}
	}
	return 0, usageError("%q is not a time such as 2026-03-01T12:30:00Z, nor milliseconds since 1970", s)
}

// parseDuration reads 90s, 1h30m, 7d, or ISO 8601 as Kafka's tools take it.
func parseDuration(s string) (time.Duration, error) {
	if iso, ok := strings.CutPrefix(strings.ToUpper(s), "P"); ok {
		s = strings.ToLower(strings.Replace(iso, "T", "", 1))
	}
	d, err := config.ParseDuration(s)
	if err != nil {
		return 0, usageError("%v", err)
	}
	return d, nil
}

// unescapeText resolves \n, \t, \r, \0, \\ and \xHH of a flag's value.
func unescapeText(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		case '0':
			b.WriteByte(0)
		case 'x':
			if i+2 < len(s) {
				if n, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
					b.WriteByte(byte(n))
					i += 2
					continue
				}
			}
			b.WriteString(`\x`)
		case '\\':
			b.WriteByte('\\')
		default:
			b.WriteString(s[i-1 : i+1])
		}
	}
	return b.String()
}

// nameEach refuses an empty name among those of topics or groups: a variable of
// a script that is not set must not pass for one.
func nameEach(kind string, names []string) error {
	if len(names) == 0 {
		return usageError("name a %s", kind)
	}
	for _, n := range names {
		if name, _, _ := strings.Cut(n, ":"); strings.TrimSpace(name) == "" {
			return &failure{code: exitUsage, why: "name a " + kind, hint: "a name that is empty was given; is a variable of the script not set?"}
		}
	}
	return nil
}
