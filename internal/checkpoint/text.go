package checkpoint

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/varvelog/varve/internal/kafka"
)

// textFile walks over the lines of a checkpoint: the version, the number of
// entries, then one entry a line (org.apache.kafka.server.common.CheckpointFile).
type textFile struct {
	path string
	rest []byte
	line int // number of the line that next returned last
}

// next returns the next line without its end; ok is false behind the last one.
func (t *textFile) next() (line string, ok bool) {
	if len(t.rest) == 0 {
		return "", false
	}
	t.line++
	raw, rest, _ := bytes.Cut(t.rest, []byte{'\n'})
	t.rest = rest
	return string(bytes.TrimSuffix(raw, []byte{'\r'})), true
}

func (t *textFile) corrupt(format string, args ...any) error {
	return &CorruptError{Path: t.path, Line: t.line, Reason: fmt.Sprintf(format, args...)}
}

// header reads the first two lines. A file that is empty or ends after the
// version has no entries.
func (t *textFile) header() (entries int, err error) {
	line, ok := t.next()
	if !ok {
		return 0, nil
	}
	version, err := strconv.ParseInt(line, 10, 32)
	if err != nil {
		return 0, t.corrupt("version is %q, want %d", clip(line), formatVersion)
	}
	if version != formatVersion {
		return 0, t.corrupt("version is %d, want %d", version, formatVersion)
	}
	line, ok = t.next()
	if !ok {
		return 0, nil
	}
	count, err := strconv.ParseInt(line, 10, 32)
	if err != nil || count < 0 {
		return 0, t.corrupt("number of entries is %q", clip(line))
	}
	return int(count), nil
}

// each calls entry with the words of every line after the header and checks
// their number against it. entry returns false for a malformed line.
func (t *textFile) each(words int, entry func(word []string) bool) error {
	want, err := t.header()
	if err != nil {
		return err
	}
	found := 0
	for {
		line, ok := t.next()
		if !ok {
			break
		}
		word := splitWords(line)
		if len(word) != words || !entry(word) {
			return t.corrupt("malformed entry %q", clip(line))
		}
		found++
	}
	if found != want {
		return &CorruptError{Path: t.path, Reason: fmt.Sprintf("%d entries, want %d by the second line", found, want)}
	}
	return nil
}

// splitWords is Java's line.split("\\s+"): leading white space makes an empty
// first word, trailing white space nothing.
func splitWords(line string) []string {
	words := strings.FieldsFunc(line, isJavaSpace)
	if line != "" && isJavaSpace(rune(line[0])) {
		words = append([]string{""}, words...)
	}
	return words
}

func isJavaSpace(r rune) bool {
	return r == ' ' || r == '\t' || r == '\n' || r == '\v' || r == '\f' || r == '\r'
}

func parseOffset(s string) (kafka.Offset, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return kafka.Offset(n), err == nil
}

// clip keeps a message short when a file holds something else altogether.
func clip(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
