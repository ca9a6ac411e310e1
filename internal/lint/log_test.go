package lint

import (
	"go/ast"
	"go/token"
	"strconv"
	"testing"
)

// logMethods are those of a slog.Logger and of what stands for one.
var logMethods = map[string]bool{"Debug": true, "Info": true, "Warn": true, "Error": true, "Log": true, "say": true, "warn": true, "report": true}

// misnamed are attributes that have another name: one rule for all records, so
// that who reads the log searches for one thing (docs/operations.md).
var misnamed = map[string]string{
	"error": "err", "tp": "topic and partition", "topicPartition": "topic and partition", "duration": "durationMs", "took": "durationMs",
}

func TestLogRecordsNameTheirAttributesAlike(t *testing.T) {
	records := 0
	for _, f := range sources(t) {
		if isTest(f.rel) {
			continue
		}
		ast.Inspect(f.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); !ok || !logMethods[sel.Sel.Name] || len(call.Args) < 2 {
				return true
			}
			records++
			for _, arg := range call.Args {
				lit, ok := arg.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					continue
				}
				if name, err := strconv.Unquote(lit.Value); err == nil && misnamed[name] != "" {
					t.Errorf("%s: attribute %q of a log record: want %s", f.set.Position(lit.Pos()), name, misnamed[name])
				}
			}
			return true
		})
	}
	if records < 60 {
		t.Errorf("%d log records looked at, want those of the broker (60 at least)", records)
	}
}
