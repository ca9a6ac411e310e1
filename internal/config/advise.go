package config

import "strings"

// adviseOn warns of what is allowed and still surprises.
func (l *loader) adviseOn(b *Broker) {
	if len(l.filled) > 0 {
		l.warnings = append(l.warnings, Warning{Message: l.missing("").Origin.String() + ": does not set what Apache Kafka requires; serving with " + strings.Join(l.filled, ", ")})
	}
	if len(l.src.Files) > 0 && !b.IsSet("log.dirs") && !b.IsSet("log.dir") {
		l.warn(l.missing("log.dirs"), "not set; "+b.LogDirs[0]+" is used, and what is in /tmp may not survive a restart of the machine")
	}
	if s, ok := l.static["log.cleaner.enable"]; ok && s.Value == "false" {
		l.warn(s, "is deprecated; with false, compacted topics grow for ever")
	}
	for _, name := range sortedNames(l.static) {
		if k, ok := keyOf(name); ok && k.Class == ClassWarn && !onlyJMX(l.static[name].Value) {
			l.warn(l.static[name], "has no effect: reporters are Java classes, which varve does not load")
		}
	}
	if names := b.WithoutEffect(); len(names) > 0 {
		l.warnings = append(l.warnings, Warning{Notice: true, Message: "keys without effect: " + strings.Join(names, ", ")})
	}
}

func onlyJMX(value string) bool {
	for _, class := range SplitList(value) {
		if !strings.HasSuffix(class, ".JmxReporter") {
			return false
		}
	}
	return true
}

// WithoutEffect names the keys that the sources set and that are checked,
// stored and described, but change nothing in this release.
func (b *Broker) WithoutEffect() []string {
	var names []string
	for _, name := range sortedNames(b.static) {
		k, ok := keyOf(name)
		if !ok || b.static[name].Value == k.Default && !k.Null {
			continue
		}
		switch k.Class {
		case ClassNote, ClassM3:
			// The table marks some keys of the cleaner so; here they do what they do in Kafka.
			if !strings.HasPrefix(name, "log.cleaner.") {
				names = append(names, name)
			}
		case ClassM2:
			if name != "inter.broker.listener.name" {
				names = append(names, name)
			}
		case ClassM1:
			if pending(name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// pending reports whether a key of the first phase has no effect yet.
func pending(name string) bool {
	for _, prefix := range []string{"group.consumer.", "quota.", "sasl.", "ssl.", "super.users",
		"allow.everyone.", "transaction.", "transactional.", "unclean.leader.", "add.partitions.to.txn."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
