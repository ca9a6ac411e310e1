package checkpoint

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf16"
)

// parseProperties reads the line format of java.util.Properties: comments,
// continued lines, escapes and three kinds of separators, in ISO 8859-1.
func parseProperties(data []byte) (map[string]string, error) {
	props := map[string]string{}
	for len(data) > 0 {
		var line []byte
		if line, data = logicalLine(data); len(line) == 0 {
			continue
		}
		key, value := splitProperty(line)
		k, err := unescape(key)
		if err != nil {
			return nil, err
		}
		v, err := unescape(value)
		if err != nil {
			return nil, err
		}
		props[k] = v
	}
	return props, nil
}

// logicalLine returns the next line that is no comment, joined with the lines
// it goes on in and without the white space each starts with.
func logicalLine(data []byte) (line, rest []byte) {
	first := true
	for {
		i := 0
		for i < len(data) && isBlank(data[i]) {
			i++
		}
		data = data[i:]
		end := slices.IndexFunc(data, func(b byte) bool { return b == '\n' || b == '\r' })
		natural, ended := data, byte(0)
		if end >= 0 {
			natural, ended, data = data[:end], data[end], data[end+1:]
		} else {
			data = nil
		}
		if first && len(natural) > 0 && (natural[0] == '#' || natural[0] == '!') {
			return nil, data
		}
		first = false
		slashes := 0
		for slashes < len(natural) && natural[len(natural)-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return append(line, natural...), data
		}
		line = append(line, natural[:len(natural)-1]...)
		if len(data) == 0 {
			return line, nil
		}
		if ended == '\r' && data[0] == '\n' {
			data = data[1:]
		}
	}
}

func isBlank(b byte) bool { return b == ' ' || b == '\t' || b == '\f' }

// splitProperty ends the key at the first '=', ':' or blank without a backslash.
func splitProperty(line []byte) (key, value []byte) {
	i := 0
	for ; i < len(line); i++ {
		if line[i] == '\\' {
			i++
			continue
		}
		if line[i] == '=' || line[i] == ':' || isBlank(line[i]) {
			break
		}
	}
	i = min(i, len(line))
	key, value = line[:i], line[i:]
	for len(value) > 0 && isBlank(value[0]) {
		value = value[1:]
	}
	if len(value) > 0 && (value[0] == '=' || value[0] == ':') {
		value = value[1:]
		for len(value) > 0 && isBlank(value[0]) {
			value = value[1:]
		}
	}
	return key, value
}

func unescape(b []byte) (string, error) {
	units := make([]uint16, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			units = append(units, uint16(b[i]))
			continue
		}
		if i++; i == len(b) {
			break
		}
		switch b[i] {
		case 'n':
			units = append(units, '\n')
		case 'r':
			units = append(units, '\r')
		case 't':
			units = append(units, '\t')
		case 'f':
			units = append(units, '\f')
		case 'u':
			if i+4 >= len(b) {
				return "", fmt.Errorf(`malformed \uxxxx encoding`)
			}
			n, err := strconv.ParseUint(string(b[i+1:i+5]), 16, 16)
			if err != nil {
				return "", fmt.Errorf(`malformed \uxxxx encoding`)
			}
			units = append(units, uint16(n))
			i += 4
		default:
			units = append(units, uint16(b[i]))
		}
	}
	return string(utf16.Decode(units)), nil
}

// appendProperties writes the entries as Properties.store does, in the order in
// which Java's ConcurrentHashMap yields them.
func appendProperties(out []byte, props map[string]string) []byte {
	slots := 16
	for len(props)*4 >= slots*3 {
		slots *= 2
	}
	type entry struct {
		key  string
		slot int
	}
	var order []entry
	for key := range props {
		h := javaHash(key)
		order = append(order, entry{key, int(h^h>>16) & (slots - 1)})
	}
	slices.SortFunc(order, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot), cmp.Compare(a.key, b.key))
	})
	for _, e := range order {
		out = appendEscaped(out, e.key, true)
		out = append(out, '=')
		out = appendEscaped(out, props[e.key], false)
		out = append(out, '\n')
	}
	return out
}

// javaHash is String.hashCode.
func javaHash(s string) uint32 {
	var h uint32
	for _, unit := range utf16.Encode([]rune(s)) {
		h = 31*h + uint32(unit)
	}
	return h
}

// appendEscaped escapes blanks everywhere in a key but only in front of a value.
func appendEscaped(out []byte, s string, key bool) []byte {
	for i, unit := range utf16.Encode([]rune(s)) {
		switch {
		case unit == ' ' && (i == 0 || key):
			out = append(out, '\\', ' ')
		case unit == '\t':
			out = append(out, '\\', 't')
		case unit == '\n':
			out = append(out, '\\', 'n')
		case unit == '\r':
			out = append(out, '\\', 'r')
		case unit == '\f':
			out = append(out, '\\', 'f')
		case unit == '\\' || unit == '=' || unit == ':' || unit == '#' || unit == '!':
			out = append(out, '\\', byte(unit))
		case unit < 0x20 || unit > 0x7e:
			out = fmt.Appendf(out, "\\u%04X", unit)
		default:
			out = append(out, byte(unit))
		}
	}
	return out
}
