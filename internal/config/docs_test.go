package config

import (
	"strings"
	"testing"
)

func TestKeysThatHaveEffectAreDocumented(t *testing.T) {
	for _, scope := range []Scope{ScopeTopic, ScopeOwn} {
		for _, k := range Keys(scope) {
			if k.Doc == "" {
				t.Errorf("%s %s has no text", scope, k.Name)
			}
		}
	}
	k, _ := Lookup(ScopeBroker, "log.segment.bytes")
	if !strings.HasPrefix(k.Doc, "Default of the topic setting segment.bytes. ") {
		t.Errorf("log.segment.bytes: %q", k.Doc)
	}
}

func TestEveryTextBelongsToAKey(t *testing.T) {
	for name, text := range parseDocs(docsTSV) {
		found := false
		for _, scope := range []Scope{ScopeBroker, ScopeTopic, ScopeGroup, ScopeClientMetrics} {
			_, ok := Lookup(scope, name)
			found = found || ok
		}
		if !found {
			t.Errorf("%s is no key", name)
		}
		if !strings.HasSuffix(text, ".") || len(text) > 200 {
			t.Errorf("%s: %q is not a sentence or two", name, text)
		}
	}
}
