package config

import (
	"os"
	"strings"
	"testing"
)

func TestOwnSettingsAreInTheManual(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Keys(ScopeOwn) {
		value := "`" + k.Default + "`"
		if k.Default == "" {
			value = "empty"
		}
		if want := "| `" + k.Name + "` | " + value + " | " + k.Doc; !strings.Contains(string(page), want) {
			t.Errorf("docs/operations.md has no row %q", want)
		}
	}
}
