package config

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Property is one entry of a Java properties file.
type Property struct {
	Key, Value string
	Line       int // 1-based line the entry begins on
}

// SyntaxError is a line that the properties syntax does not allow.
type SyntaxError struct {
	Line   int
	Reason string
}

// Error implements error.
func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

// ParseProperties reads a file as java.util.Properties.load does: every entry
// in file order, repeated keys included; the caller lets the last one win. Text
// is UTF-8; bytes that are not valid UTF-8 are taken as ISO 8859-1, the
// encoding that Java's loader assumes for all of them. The only syntax error is
// a malformed \uXXXX, a *SyntaxError.
func ParseProperties(data []byte) ([]Property, error) {
	var props []Property
	lines := naturalLines(data)
	for i := 0; i < len(lines); {
		first := i
		line := strings.TrimLeft(lines[i], blanks)
		i++
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for endsInContinuation(line) {
			line = line[:len(line)-1]
			if i == len(lines) {
				break
			}
			line += strings.TrimLeft(lines[i], blanks)
			i++
		}
		p, refused := parseLogicalLine(line)
		if refused != "" {
			return nil, &SyntaxError{Line: first + 1, Reason: refused}
		}
		p.Line = first + 1
		props = append(props, p)
	}
	return props, nil
}

const blanks = " \t\f"

// naturalLines splits at \n, \r and \r\n.
func naturalLines(data []byte) []string {
	text := decodeText(data)
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	return strings.Split(text, "\n")
}

func decodeText(data []byte) string {
	if utf8.Valid(data) {
		return string(data)
	}
	var b strings.Builder
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		if r == utf8.RuneError && n == 1 {
			r = rune(data[0])
		}
		b.WriteRune(r)
		data = data[n:]
	}
	return b.String()
}

// endsInContinuation reports whether the line ends in an odd number of backslashes.
func endsInContinuation(line string) bool {
	n := 0
	for n < len(line) && line[len(line)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

func parseLogicalLine(line string) (p Property, refused string) {
	end := 0
	for end < len(line) && !strings.ContainsRune(blanks+"=:", rune(line[end])) {
		if line[end] == '\\' && end+1 < len(line) {
			end++ // the next character is part of the key whatever it is
		}
		end++
	}
	if p.Key, refused = unescape(line[:end]); refused != "" {
		return p, refused
	}
	rest := strings.TrimLeft(line[end:], blanks)
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], blanks)
	}
	p.Value, refused = unescape(rest)
	return p, refused
}

// unescape resolves backslashes; refused is the reason why it cannot, or empty.
func unescape(s string) (text, refused string) {
	if !strings.Contains(s, `\`) {
		return s, ""
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			if s[i] != '\\' {
				b.WriteByte(s[i])
			}
			continue
		}
		i++
		switch s[i] {
		case 't':
			b.WriteByte('\t')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 'f':
			b.WriteByte('\f')
		case 'u':
			unit, ok := hexUnit(s[i+1:])
			if !ok {
				return "", malformedUnicode
			}
			i += 4
			if low, ok := lowSurrogate(s[i+1:]); ok && unit >= 0xd800 && unit < 0xdc00 {
				b.WriteRune((unit-0xd800)<<10 + (low - 0xdc00) + 0x10000)
				i += 6
				continue
			}
			b.WriteRune(unit)
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String(), ""
}

// malformedUnicode is Java's text.
const malformedUnicode = `Malformed \uxxxx encoding.`

// hexUnit reads the four digits after \u.
func hexUnit(s string) (rune, bool) {
	if len(s) < 4 || strings.ContainsAny(s[:4], "+-_") {
		return 0, false
	}
	n, err := strconv.ParseUint(s[:4], 16, 16)
	return rune(n), err == nil
}

// lowSurrogate reads the second half of a character beyond the basic plane.
func lowSurrogate(s string) (rune, bool) {
	if !strings.HasPrefix(s, `\u`) {
		return 0, false
	}
	unit, ok := hexUnit(s[2:])
	return unit, ok && unit >= 0xdc00 && unit <= 0xdfff
}
