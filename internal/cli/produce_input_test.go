package cli

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestJSONInputNamesTheLineThatIsWrong(t *testing.T) {
	tests := []struct{ name, input, want string }{
		{"a field that is misspelt", "{\"key\":\"a\"}\n{\"kee\":\"x\"}\n{\"key\":\"b\"}\n", `line 2 of the input: unknown field "kee"`},
		{"a value of the wrong type", "{\"key\":\"a\"}\n\n\n{\"key\":1}\n", "line 4 of the input: cannot unmarshal number"},
		{"no JSON", "{\"key\":\"a\"}\n\nkey\n", "line 3 of the input: invalid character 'k'"},
		{"an object that is not whole", "\n{\"key\":\"a\"", "line 2 of the input: unexpected EOF"},
		{"a broken encoding", "{\"keyBase64\":\"*\"}", "line 1 of the input: keyBase64: illegal base64"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := produceFlags{input: "json", delimiter: "\n"}
			reader, err := p.reader()
			if err != nil {
				t.Fatal(err)
			}
			next := reader(strings.NewReader(tt.input))
			for err == nil {
				_, err = next()
			}
			if errors.Is(err, io.EOF) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}
