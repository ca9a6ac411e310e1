package config

import (
	"sort"
	"strings"
)

// Source says where a value comes from, with the number it has in
// DescribeConfigs responses.
type Source int8

// The sources of DescribeConfigsResponse.ConfigSource.
const (
	SourceTopic          Source = 1
	SourceDynamicBroker  Source = 2
	SourceDynamicDefault Source = 3
	SourceStatic         Source = 4
	SourceDefault        Source = 5
	SourceLogger         Source = 6
	SourceClientMetrics  Source = 7
	SourceGroup          Source = 8
)

// Synonym is one place that gives a value to a key.
type Synonym struct {
	Name   string
	Value  string // empty when Null
	Null   bool
	Source Source
}

// Entry is what DescribeConfigs says about one key.
type Entry struct {
	Name      string
	Value     string // empty when Null
	Null      bool   // not set, or sensitive
	Source    Source
	Type      Type
	ReadOnly  bool
	Sensitive bool
	Synonyms  []Synonym // by precedence; the first one is in force
	Doc       string
}

// wanted makes a filter of a request's ConfigurationKeys: none asks for all.
func wanted(names []string) func(string) bool {
	if len(names) == 0 {
		return func(string) bool { return true }
	}
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return func(name string) bool { return set[name] }
}

// Describe describes the broker's keys, in name order: all that are not
// internal, and what is set beside them. names limits the answer; unknown ones
// are left out.
func (b *Broker) Describe(names []string) []Entry {
	want := wanted(names)
	listed := map[string]bool{}
	for _, k := range Keys(ScopeBroker) {
		if !k.Internal {
			listed[k.Name] = true
		}
	}
	for _, m := range []map[string]string{b.dynDefault, b.dynOwn} {
		for name := range m {
			listed[name] = true
		}
	}
	for name := range b.static {
		listed[name] = true
	}
	var out []Entry
	for _, name := range sortedNames(listed) {
		if want(name) {
			out = append(out, b.describeKey(name, false))
		}
	}
	return out
}

// DescribeDefaults describes the dynamic values that hold for every broker
// (DescribeConfigs of the broker named "").
func (b *Broker) DescribeDefaults(names []string) []Entry {
	want := wanted(names)
	var out []Entry
	for _, name := range sortedNames(b.dynDefault) {
		if want(name) {
			out = append(out, b.describeKey(name, true))
		}
	}
	return out
}

func (b *Broker) describeKey(name string, defaultsOnly bool) Entry {
	k := describedKey(name)
	e := Entry{Name: name, Type: k.Type, Sensitive: k.Sensitive() || k.Type == TypeUnknown, Doc: k.Doc, Source: SourceDefault,
		ReadOnly: k.Mode != PerBroker && k.Mode != ClusterWide && k.Mode != Dynamic}
	var value string
	var set bool
	if defaultsOnly {
		value, set = b.dynDefault[name]
	} else {
		value, set = b.lookup(name)
	}
	for _, s := range b.synonyms(name, e.Sensitive) {
		if !defaultsOnly || s.Source == SourceDynamicDefault {
			e.Synonyms = append(e.Synonyms, s)
		}
	}
	if len(e.Synonyms) > 0 {
		e.Source = e.Synonyms[0].Source
	}
	e.Value, e.Null = value, !set
	if e.Sensitive {
		e.Value, e.Null = "", true
	}
	return e
}

// describedKey finds the table's row, also behind a listener prefix. A key that
// nobody knows has TypeUnknown, and its value is not shown.
func describedKey(name string) Key {
	for _, scope := range []Scope{ScopeBroker, ScopeOwn, ScopeBrokerDynamic} {
		if k, ok := Lookup(scope, name); ok {
			return k
		}
	}
	if rest, ok := strings.CutPrefix(name, "listener.name."); ok {
		for rest != "" {
			_, rest, _ = strings.Cut(rest, ".")
			if k, ok := Lookup(ScopeBroker, rest); ok {
				k.Name = name
				return k
			}
		}
	}
	return Key{Name: name, Mode: ReadOnly}
}

// synonyms lists every place that gives a value to a broker key, as
// ConfigHelper.configSynonyms does: for each source the key and its coarser
// spellings. What stands before the first value of the key itself is dropped.
func (b *Broker) synonyms(name string, sensitive bool) []Synonym {
	var all []Synonym
	for _, level := range []struct {
		source Source
		get    func(string) (string, bool)
	}{
		{SourceDynamicBroker, func(n string) (string, bool) { v, ok := b.dynOwn[n]; return v, ok }},
		{SourceDynamicDefault, func(n string) (string, bool) { v, ok := b.dynDefault[n]; return v, ok }},
		{SourceStatic, func(n string) (string, bool) { s, ok := b.static[n]; return s.Value, ok }},
		{SourceDefault, b.defaultOf},
	} {
		for _, n := range spellings(name) {
			if v, ok := level.get(n); ok {
				s := Synonym{Name: n, Value: v, Source: level.source}
				if sensitive {
					s.Value, s.Null = "", true
				}
				all = append(all, s)
			}
		}
	}
	for len(all) > 0 && all[0].Name != name {
		all = all[1:]
	}
	return all
}

// spellings is DynamicBrokerConfig.brokerConfigSynonyms: the keys that speak of
// the same thing in other units, finest first.
func spellings(name string) []string {
	switch name {
	case "log.roll.ms", "log.roll.hours":
		return []string{"log.roll.ms", "log.roll.hours"}
	case "log.roll.jitter.ms", "log.roll.jitter.hours":
		return []string{"log.roll.jitter.ms", "log.roll.jitter.hours"}
	case "log.flush.interval.ms":
		return []string{"log.flush.interval.ms", "log.flush.scheduler.interval.ms"}
	case "log.retention.ms", "log.retention.minutes", "log.retention.hours":
		return []string{"log.retention.ms", "log.retention.minutes", "log.retention.hours"}
	}
	return []string{name}
}

// DescribeTopic describes a topic's keys, in name order, with the topic's own
// settings over the broker's.
func (b *Broker) DescribeTopic(own map[string]string, names []string) []Entry {
	return b.describeScope(ScopeTopic, SourceTopic, own, names)
}

// DescribeGroup describes a group's keys with the group's own settings over the
// broker's.
func (b *Broker) DescribeGroup(own map[string]string, names []string) []Entry {
	return b.describeScope(ScopeGroup, SourceGroup, own, names)
}

// DescribeClientMetrics describes a client-metrics subscription.
func (b *Broker) DescribeClientMetrics(own map[string]string, names []string) []Entry {
	return b.describeScope(ScopeClientMetrics, SourceClientMetrics, own, names)
}

func (b *Broker) describeScope(scope Scope, source Source, own map[string]string, names []string) []Entry {
	want := wanted(names)
	var out []Entry
	for _, k := range Keys(scope) {
		value, set := own[k.Name]
		if k.Internal && !set || !want(k.Name) {
			continue
		}
		e := Entry{Name: k.Name, Type: k.Type, Sensitive: k.Sensitive(), Doc: k.Doc, Source: SourceDefault}
		if below := b.synonymOf(k); below != "" {
			e.Synonyms = b.synonyms(below, e.Sensitive)
		}
		if set {
			if normal, err := k.Check(value); err == nil {
				value = normal
			}
			e.Value = value
			e.Synonyms = append([]Synonym{{Name: k.Name, Value: value, Source: source}}, e.Synonyms...)
		} else {
			e.Value, e.Null = b.defaultBelow(scope, k)
		}
		if len(e.Synonyms) > 0 {
			e.Source = e.Synonyms[0].Source
		}
		out = append(out, e)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

// synonymOf is the broker key a key takes its default from: that of the table,
// and for a group's keys the broker's key of the same name with "group." before it.
func (b *Broker) synonymOf(k Key) string {
	if k.Scope == ScopeGroup {
		if g, ok := Lookup(ScopeBroker, "group."+k.Name); ok {
			return g.Name
		}
	}
	return k.Synonym
}

func (b *Broker) defaultBelow(scope Scope, k Key) (value string, null bool) {
	if scope == ScopeTopic {
		return b.topicDefault(k.Name), k.Null && k.Synonym == ""
	}
	if below := b.synonymOf(k); below != "" {
		v, set := b.lookup(below)
		return v, !set
	}
	return k.Default, k.Null
}
