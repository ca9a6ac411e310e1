package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// namedTest is how the docs point at a test: `package TestName`, the package
// below internal/.
var namedTest = regexp.MustCompile("`([a-z0-9/]+) (Test[A-Za-z0-9_]+)`")

func TestTestsNamedInTheDocsExist(t *testing.T) {
	base := root(t)
	docs, err := filepath.Glob(filepath.Join(base, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := map[string]string{} // package → its tests
	checked := 0
	for _, doc := range docs {
		raw, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range namedTest.FindAllStringSubmatch(string(raw), -1) {
			pkg, name := m[1], m[2]
			if _, seen := text[pkg]; !seen {
				files, err := filepath.Glob(filepath.Join(base, "internal", pkg, "*_test.go"))
				if err != nil {
					t.Fatal(err)
				}
				var all strings.Builder
				for _, f := range files {
					src, err := os.ReadFile(f)
					if err != nil {
						t.Fatal(err)
					}
					all.Write(src)
				}
				text[pkg] = all.String()
			}
			if !strings.Contains(text[pkg], "\nfunc "+name+"(t *testing.T)") {
				t.Errorf("%s: package %s has no test %s", filepath.Base(doc), pkg, name)
			}
			checked++
		}
	}
	if checked < 80 {
		t.Errorf("checked %d names of tests, want those of docs/regressions.md (80 at least)", checked)
	}
}
