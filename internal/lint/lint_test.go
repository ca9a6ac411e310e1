package lint

import (
	"bufio"
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	module   = "github.com/varvelog/varve"
	maxLines = 800
)

// layers is section 3.1 of the design as the code has it: a package imports
// only packages of a lower number. Test packages have no number.
var layers = map[string]int{
	"internal/kafka": 0, "internal/invariant": 0,
	"internal/vfs": 1, "internal/config": 1, "internal/events": 1, "internal/clock": 1,
	"internal/vfs/memfs": 2, "internal/vfs/failstop": 2, "internal/vfs/faultfs": 2, "internal/vfs/slowfs": 2, "internal/vfs/tracefs": 2,
	"internal/record": 2, "internal/index": 2, "internal/checkpoint": 2, "internal/sendfile": 2, "internal/group": 2,
	"internal/segment": 3, "internal/producer": 3, "internal/wire": 3, "internal/flusher": 3,
	"internal/commitlog": 4, "internal/metadata": 4, "internal/server": 4,
	"internal/quorum": 5, "internal/cleaner": 5, "internal/scrub": 5,
	"internal/logdir": 6, "internal/dump": 6, "internal/verify": 6,
	"internal/replica": 7, "internal/repair": 7, "internal/explain": 7,
	"internal/coordinator": 8, "internal/controller": 8,
	"internal/broker": 9,
	"internal/admin":  10,
	"internal/node":   12,
	"internal/cli":    13,
	"cmd/varve":       14,
	"":                14, // package varve, the public API
}

// testOnly are the packages that only tests import.
var testOnly = map[string]bool{"internal/lint": true, "internal/logtest": true, "internal/logtest/golden": true, "internal/sim": true}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

type goFile struct {
	rel  string // path below the root, slash-separated
	file *ast.File
	set  *token.FileSet
	src  []byte
}

// sources parses every Go file of the main module.
func sources(t *testing.T) []goFile {
	t.Helper()
	var files []goFile
	base := root(t)
	err := filepath.WalkDir(base, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(base, p)
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			_, modErr := os.Stat(filepath.Join(p, "go.mod"))
			if d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && rel != "." || rel != "." && modErr == nil || rel == "data" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, rel, src, parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, goFile{rel, f, set, src})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 10 {
		t.Fatalf("found %d Go files below %s, want the whole module", len(files), base)
	}
	return files
}

func isTest(rel string) bool { return strings.HasSuffix(rel, "_test.go") }

func pkgOf(rel string) string {
	dir := path.Dir(rel)
	if dir == "." {
		return ""
	}
	return dir
}

func TestPackagesImportOnlyLowerLayers(t *testing.T) {
	for _, f := range sources(t) {
		pkg := pkgOf(f.rel)
		if isTest(f.rel) || testOnly[pkg] {
			continue
		}
		layer, ok := layers[pkg]
		if !ok {
			t.Errorf("%s: package %q has no layer; add it to internal/lint and ARCHITECTURE.md", f.rel, pkg)
			continue
		}
		for _, imp := range f.file.Imports {
			p, _ := strconv.Unquote(imp.Path.Value)
			low, ours := strings.CutPrefix(p, module+"/")
			if !ours {
				if p == module {
					low = ""
				} else {
					continue
				}
			}
			if testOnly[low] {
				t.Errorf("%s imports %s, which is for tests only", f.rel, low)
			} else if l, ok := layers[low]; !ok {
				t.Errorf("%s imports %s, which has no layer", f.rel, low)
			} else if l >= layer {
				t.Errorf("%s (layer %d) imports %s (layer %d); a package imports only lower layers", f.rel, layer, low, l)
			}
		}
	}
}

func TestFilesAreShortEnoughToRead(t *testing.T) {
	for _, f := range sources(t) {
		if isTest(f.rel) || ast.IsGenerated(f.file) {
			continue
		}
		if n := bytes.Count(f.src, []byte("\n")); n > maxLines {
			t.Errorf("%s has %d lines, the limit is %d: find the second noun in it", f.rel, n, maxLines)
		}
	}
}

func TestEveryPackageIsDocumentedOnce(t *testing.T) {
	docs := map[string]int{}
	seen := map[string]bool{}
	for _, f := range sources(t) {
		if isTest(f.rel) {
			continue
		}
		pkg := pkgOf(f.rel)
		seen[pkg] = true
		if f.file.Doc != nil && len(f.file.Doc.Text()) > 40 {
			docs[pkg]++
		}
	}
	for pkg := range seen {
		if docs[pkg] != 1 {
			t.Errorf("package %q has %d package comments, want 1", pkg, docs[pkg])
		}
	}
}

// TestExportedNamesAreDocumented covers types, functions, methods of exported
// types, and groups of constants and variables.
func TestExportedNamesAreDocumented(t *testing.T) {
	for _, f := range sources(t) {
		if isTest(f.rel) {
			continue
		}
		for _, decl := range f.file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) && !interfaceMethod[d.Name.Name] {
					t.Errorf("%s: %s has no doc comment", f.set.Position(d.Pos()), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() && d.Doc == nil && s.Doc == nil {
						t.Errorf("%s: type %s has no doc comment", f.set.Position(s.Pos()), s.Name.Name)
					}
				}
			}
		}
	}
}

// interfaceMethod are the methods whose meaning is their interface's.
var interfaceMethod = map[string]bool{"Error": true, "Unwrap": true, "Is": true, "String": true, "Close": true, "Len": true, "Less": true, "Swap": true, "Write": true, "Read": true}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

func TestNoInitFunctions(t *testing.T) {
	for _, f := range sources(t) {
		for _, decl := range f.file.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && d.Recv == nil && d.Name.Name == "init" {
				t.Errorf("%s: init function; pass the value instead", f.set.Position(d.Pos()))
			}
		}
	}
}

// clockFree are the packages to which time is given.
var clockFree = []string{"internal/kafka", "internal/record", "internal/index", "internal/group", "internal/segment", "internal/producer", "internal/metadata", "internal/commitlog", "internal/wire"}

func TestPurePackagesDoNotReadTheClock(t *testing.T) {
	for _, f := range sources(t) {
		if isTest(f.rel) || !contains(clockFree, pkgOf(f.rel)) {
			continue
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && (sel.Sel.Name == "Now" || sel.Sel.Name == "Since" || sel.Sel.Name == "Until" || sel.Sel.Name == "Sleep") {
				t.Errorf("%s: time.%s in a package to which time is given", f.set.Position(sel.Pos()), sel.Sel.Name)
			}
			return true
		})
	}
}

func TestFilesAreReachedThroughVfs(t *testing.T) {
	below := []string{"internal/record", "internal/index", "internal/checkpoint", "internal/segment", "internal/producer", "internal/commitlog", "internal/cleaner", "internal/scrub", "internal/metadata", "internal/quorum", "internal/logdir", "internal/replica", "internal/coordinator", "internal/controller", "internal/verify", "internal/dump", "internal/repair", "internal/explain"}
	banned := map[string]bool{"Open": true, "OpenFile": true, "Create": true, "ReadFile": true, "WriteFile": true, "Rename": true, "Remove": true, "RemoveAll": true, "Mkdir": true, "MkdirAll": true, "ReadDir": true, "Stat": true, "Truncate": true}
	for _, f := range sources(t) {
		if isTest(f.rel) || !contains(below, pkgOf(f.rel)) {
			continue
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "os" && banned[sel.Sel.Name] {
					t.Errorf("%s: os.%s; files are reached through vfs only", f.set.Position(sel.Pos()), sel.Sel.Name)
				}
			}
			return true
		})
	}
}

// reference is how ARCHITECTURE.md and docs point at code: `dir/file.go:Func`
// or `dir/file.go:Type.Method`, below internal/ unless it starts with another folder.
var reference = regexp.MustCompile("`([a-z0-9_/]+\\.go)(?::([A-Za-z_][A-Za-z0-9_.]*))?`")

func TestReferencesInTheDocsExist(t *testing.T) {
	base := root(t)
	byFile := map[string]map[string]bool{}
	for _, f := range sources(t) {
		names := map[string]bool{}
		for _, decl := range f.file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil && len(d.Recv.List) == 1 {
					names[receiver(d.Recv.List[0].Type)+"."+name] = true
				}
				names[name] = true
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok {
						names[s.Name.Name] = true
					}
				}
			}
		}
		byFile[f.rel] = names
	}
	checked := 0
	docs, err := filepath.Glob(filepath.Join(base, "docs", "*", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Glob(filepath.Join(base, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	list := []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"}
	for _, doc := range append(docs, top...) {
		rel, _ := filepath.Rel(base, doc)
		list = append(list, rel)
	}
	for _, doc := range list {
		f, err := os.Open(filepath.Join(base, doc))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		for n := 1; lines.Scan(); n++ {
			for _, m := range reference.FindAllStringSubmatch(lines.Text(), -1) {
				rel := m[1]
				names, ok := byFile["internal/"+rel]
				if !ok {
					names, ok = byFile[rel]
				}
				if !ok {
					if m[2] != "" || strings.Contains(rel, "/") {
						t.Errorf("%s:%d: there is no %s", doc, n, rel)
					}
					continue
				}
				checked++
				if m[2] != "" && !names[m[2]] {
					t.Errorf("%s:%d: %s has no %s", doc, n, rel, m[2])
				}
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
	}
	if checked < 20 {
		t.Errorf("checked %d references, want the reading paths (20 at least)", checked)
	}
}

func receiver(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}

// unfinished and foreign are words that no file of ours may hold. They are
// written in two halves so that this file does not hold them either.
var unfinished = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)

func TestNothingIsLeftUnfinished(t *testing.T) {
	for _, f := range sources(t) {
		for i, line := range bytes.Split(f.src, []byte("\n")) {
			if unfinished.Match(line) {
				t.Errorf("%s:%d: %s", f.rel, i+1, bytes.TrimSpace(line))
			}
			if isTest(f.rel) && bytes.Contains(line, []byte("t.Sk"+"ip")) {
				t.Errorf("%s:%d: a check that cannot run fails, it does not skip", f.rel, i+1)
			}
		}
	}
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
