package config

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/varvelog/varve/internal/invariant"
)

//go:embed keys.tsv
var keysTSV string

// Scope says what a key configures.
type Scope string

// The scopes of keys.tsv, and varve's own.
const (
	ScopeBroker        Scope = "broker"
	ScopeTopic         Scope = "topic"
	ScopeGroup         Scope = "group"
	ScopeClientMetrics Scope = "client-metrics"
	ScopeBrokerDynamic Scope = "broker-dynamic" // throttles: dynamic only, no static form
	ScopeUserClient    Scope = "user-client"
	ScopeIP            Scope = "ip"
	ScopeOwn           Scope = "varve" // varve's own broker keys; not in keys.tsv
)

// Type is a key's type with the number it has in DescribeConfigs responses.
type Type int8

// The types of DescribeConfigsResponse.ConfigType.
const (
	TypeUnknown  Type = 0
	TypeBoolean  Type = 1
	TypeString   Type = 2
	TypeInt      Type = 3
	TypeShort    Type = 4
	TypeLong     Type = 5
	TypeDouble   Type = 6
	TypeList     Type = 7
	TypeClass    Type = 8
	TypePassword Type = 9
)

// String is the name of the type in keys.tsv.
func (t Type) String() string {
	switch t {
	case TypeBoolean:
		return "boolean"
	case TypeString:
		return "string"
	case TypeInt:
		return "int"
	case TypeShort:
		return "short"
	case TypeLong:
		return "long"
	case TypeDouble:
		return "double"
	case TypeList:
		return "list"
	case TypeClass:
		return "class"
	case TypePassword:
		return "password"
	}
	return "unknown"
}

// Mode says how a key may change while the broker runs (CFG-27).
type Mode string

// The modes of keys.tsv. Keys that are not a broker's are Dynamic.
const (
	ReadOnly    Mode = "read-only"
	PerBroker   Mode = "per-broker"
	ClusterWide Mode = "cluster-wide"
	Dynamic     Mode = "dynamic"
)

// Class says what setting a key does here (appendix A of the conventions).
type Class string

// The classes of keys.tsv. A key of ClassM2 or ClassM3 is accepted, checked and
// described, and without effect until that phase.
const (
	ClassM1          Class = "M1"
	ClassM2          Class = "M2"
	ClassM3          Class = "M3"
	ClassNote        Class = "note"
	ClassWarn        Class = "warn"
	ClassRefuse      Class = "refuse"
	ClassRefuseOther Class = "refuse-other"
)

// Key is one row of the table: everything known about a setting but its value.
type Key struct {
	Scope    Scope
	Name     string
	Type     Type
	Default  string // Kafka's, in normal form; meaningless when Null or Required
	Null     bool   // the default is null: not set
	Required bool   // there is no default
	Valid    string // Kafka's own rendering of the valid values; empty = any
	Mode     Mode
	Class    Class
	Internal bool   // never listed unless set
	Synonym  string // topic keys: the broker key the default comes from; may be empty
	Doc      string // one or two sentences of manual; may be empty
}

// Sensitive reports whether the key's value is never shown.
func (k Key) Sensitive() bool { return k.Type == TypePassword }

type keyTable struct {
	byScope map[Scope][]Key          // sorted by name
	byName  map[Scope]map[string]int // where in byScope
}

// loadKeys parses the table once, when it is first asked for: `varve version`
// and other tools that need no configuration do not pay for it.
var loadKeys = sync.OnceValue(parseKeys)

func parseKeys() *keyTable {
	t := &keyTable{byScope: map[Scope][]Key{ScopeBroker: make([]Key, 0, 448)}, byName: map[Scope]map[string]int{}}
	docs := parseDocs(docsTSV)
	synonyms := map[string]string{} // texts of broker keys by the topic key that they are the default of
	rows := strings.Split(strings.TrimSuffix(keysTSV, "\n"), "\n")
	for i, row := range rows[1:] {
		k, err := parseKey(row)
		if err != nil {
			invariant.Violated("keys.tsv line %d: %v", i+2, err) // the table is part of the binary
		}
		k.Doc = docs[k.Name]
		t.add(k)
		if k.Scope == ScopeTopic && k.Synonym != "" && docs[k.Synonym] == "" {
			synonyms[k.Synonym] = "Default of the topic setting " + k.Name + ". " + k.Doc
		}
	}
	for _, k := range ownKeys() {
		t.add(k)
	}
	for i, k := range t.byScope[ScopeBroker] {
		if k.Doc == "" {
			t.byScope[ScopeBroker][i].Doc = synonyms[k.Name]
		}
	}
	for scope, keys := range t.byScope {
		slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
		at := make(map[string]int, len(keys))
		for i := range keys {
			at[keys[i].Name] = i
		}
		t.byName[scope] = at
	}
	return t
}

func (t *keyTable) add(k Key) {
	t.byScope[k.Scope] = append(t.byScope[k.Scope], k)
}

func parseKey(row string) (Key, error) {
	var f [9]string
	n := 0
	for column := range strings.SplitSeq(row, "\t") {
		if n < len(f) {
			f[n] = column
		}
		n++
	}
	if n != len(f) {
		return Key{}, fmt.Errorf("%d columns, want %d", n, len(f))
	}
	k := Key{
		Scope: Scope(f[0]), Name: f[1], Default: f[3], Valid: f[4],
		Mode: Mode(f[5]), Class: Class(f[6]), Synonym: f[8],
	}
	for t := TypeBoolean; t <= TypePassword; t++ {
		if t.String() == f[2] {
			k.Type = t
		}
	}
	if k.Type == TypeUnknown {
		return Key{}, fmt.Errorf("unknown type %q", f[2])
	}
	k.Default = strings.TrimPrefix(k.Default, "class ") // a class renders as its name
	switch f[3] {
	case "null":
		k.Null, k.Default = true, ""
	case "<none>":
		k.Required, k.Default = true, ""
	}
	for flag := range strings.FieldsFuncSeq(f[7], func(r rune) bool { return r == ',' || r == ' ' }) {
		if flag != "internal" {
			return Key{}, fmt.Errorf("unknown flag %q", flag)
		}
		k.Internal = true
	}
	return k, nil
}

// Keys returns every key of a scope in name order, Kafka's and varve's own. The
// caller must not change the slice.
func Keys(scope Scope) []Key { return loadKeys().byScope[scope] }

// Lookup finds one key of a scope.
func Lookup(scope Scope, name string) (Key, bool) {
	t := loadKeys()
	i, ok := t.byName[scope][name]
	if !ok {
		return Key{}, false
	}
	return t.byScope[scope][i], true
}
