package config

import (
	_ "embed"
	"strings"
)

//go:embed docs.tsv
var docsTSV string

// parseDocs reads the manual's sentences: key, tab, text. A key of several
// scopes has one text.
func parseDocs(tsv string) map[string]string {
	docs := make(map[string]string, strings.Count(tsv, "\n"))
	for row := range strings.SplitSeq(tsv, "\n") {
		if name, text, ok := strings.Cut(row, "\t"); ok {
			docs[name] = text
		}
	}
	return docs
}
