package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseProperties(t *testing.T) {
	tests := []struct {
		name string
		text string
		want []Property
	}{
		{"an empty file has no entries", "", nil},
		{"blank lines and comments are skipped", " \t\n# a=b\n  ! c=d\n", nil},
		{"a # later in a line belongs to the value", "a=b # c", []Property{{"a", "b # c", 1}}},
		{"= separates and blanks round it go", "a = b", []Property{{"a", "b", 1}}},
		{"a colon separates", "a : b", []Property{{"a", "b", 1}}},
		{"a blank separates", "a b", []Property{{"a", "b", 1}}},
		{"a second separator belongs to the value", "a = = b", []Property{{"a", "= b", 1}}},
		{"a key alone has an empty value", "a", []Property{{"a", "", 1}}},
		{"a value may have no key", "=b", []Property{{"", "b", 1}}},
		{"trailing blanks of a value are kept", "a=3  ", []Property{{"a", "3  ", 1}}},
		{"leading blanks of a line go", "  a=b", []Property{{"a", "b", 1}}},
		{"a backslash at the end continues", "a=b\\\n   c", []Property{{"a", "bc", 1}}},
		{"two backslashes at the end do not continue", "a=b\\\\\nc=d", []Property{{"a", `b\`, 1}, {"c", "d", 2}}},
		{"a continued line is no comment", "a=b\\\n#c", []Property{{"a", "b#c", 1}}},
		{"a comment does not continue", "#a\\\nb=c", []Property{{"b", "c", 2}}},
		{"a continuation at the end of the file ends there", "a=b\\", []Property{{"a", "b", 1}}},
		{"an empty continuation ends the entry", "a=b\\\n\nc=d", []Property{{"a", "b", 1}, {"c", "d", 3}}},
		{"the line is the first one of the entry", "\n\na=b\\\nc\nd=e", []Property{{"a", "bc", 3}, {"d", "e", 5}}},
		{"all three line ends work", "a=1\rb=2\r\nc=3\nd=4", []Property{{"a", "1", 1}, {"b", "2", 2}, {"c", "3", 3}, {"d", "4", 4}}},
		{"escapes of Java", `a=\t\n\r\f\\\=\:\#\!`, []Property{{"a", "\t\n\r\f\\=:#!", 1}}},
		{"any other escaped character is itself", `super.users=User:x\y`, []Property{{"super.users", "User:xy", 1}}},
		{"an escaped separator belongs to the key", `a\=b\ c=d`, []Property{{"a=b c", "d", 1}}},
		{"a unicode escape", `a=\u00e9x`, []Property{{"a", "éx", 1}}},
		{"a pair of unicode escapes is one character", `a=\ud83d\ude00`, []Property{{"a", "😀", 1}}},
		{"UTF-8 is read as it is", "a=é", []Property{{"a", "é", 1}}},
		{"a byte that is not UTF-8 is ISO 8859-1", "a=\xe9", []Property{{"a", "é", 1}}},
		{"a form feed is a blank", "a\f=\fb", []Property{{"a", "b", 1}}},
		{"both of two equal keys are returned", "a=1\na=2", []Property{{"a", "1", 1}, {"a", "2", 2}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseProperties([]byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("ParseProperties(%q): -want +got\n%s", tt.text, diff)
			}
		})
	}
}

func TestParsePropertiesRefusesBrokenUnicodeEscapesWithTheirLine(t *testing.T) {
	for _, text := range []string{`\u12`, `\uzzzz`, `\u+123`, `\u`} {
		_, err := ParseProperties([]byte("a=b\nc=" + text))
		var syntax *SyntaxError
		if !errors.As(err, &syntax) || syntax.Line != 2 || syntax.Reason != malformedUnicode {
			t.Errorf("ParseProperties(%q) = %v, want line 2: %s", text, err, malformedUnicode)
		}
	}
}

// storeEscaped writes an entry as java.util.Properties.store would.
func storeEscaped(p Property) string {
	escape := func(s string, key bool) string {
		var b strings.Builder
		for i, r := range s {
			switch {
			case r == ' ' && (key || i == 0):
				b.WriteString(`\ `)
			case r == '\t':
				b.WriteString(`\t`)
			case r == '\n':
				b.WriteString(`\n`)
			case r == '\r':
				b.WriteString(`\r`)
			case r == '\f':
				b.WriteString(`\f`)
			case strings.ContainsRune(`\=:#!`, r):
				b.WriteString(`\` + string(r))
			default:
				b.WriteRune(r)
			}
		}
		return b.String()
	}
	return escape(p.Key, true) + "=" + escape(p.Value, false) + "\n"
}

func FuzzParseProperties(f *testing.F) {
	for _, seed := range []string{"a=b", "a\\\n b : c\\\\", "#x\n!y\n z\\ y = \\u0041 ", "a=\\ud83d\\ude00\r\nb\xff", "\\"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		props, err := ParseProperties(data)
		if err != nil {
			return
		}
		var text strings.Builder
		for i := range props {
			text.WriteString(storeEscaped(props[i]))
			props[i].Line = i + 1
		}
		again, err := ParseProperties([]byte(text.String()))
		if err != nil || !reflect.DeepEqual(props, again) {
			t.Errorf("%q reads as %v, written again it reads as %v, %v", data, props, again, err)
		}
	})
}
