package config

import (
	"errors"
	"fmt"
	"strings"
)

// loader collects what Load finds.
type loader struct {
	src      Sources
	static   map[string]Setting
	raw      []Setting // in order of precedence, repeated keys included
	errs     Errors
	warnings []Warning
	filled   []string // required keys that no source sets and that have varve's defaults
}

func (l *loader) refuse(s Setting, message, hint string) {
	l.errs = append(l.errs, &Error{Origin: s.Origin, Key: s.Key, Message: message, Hint: hint})
}

func (l *loader) warn(s Setting, message string) {
	l.warnings = append(l.warnings, Warning{Origin: s.Origin, Key: s.Key, Message: message})
}

// collect reads every source, lowest precedence first.
func (l *loader) collect() {
	for _, f := range l.src.Files {
		props, err := ParseProperties(f.Data)
		if err != nil {
			var syntax *SyntaxError
			errors.As(err, &syntax)
			l.errs = append(l.errs, &Error{Origin: Origin{FromFile, f.Path, syntax.Line}, Key: "syntax", Message: syntax.Reason})
			continue
		}
		seen := map[string]int{}
		for _, p := range props {
			s := Setting{Key: p.Key, Value: p.Value, Origin: Origin{FromFile, f.Path, p.Line}}
			if first, ok := seen[p.Key]; ok {
				l.warn(s, fmt.Sprintf("set twice, in lines %d and %d; the last one counts", first, p.Line))
			}
			seen[p.Key] = p.Line
			l.raw = append(l.raw, s)
		}
	}
	settings, errs, warnings := environment(l.src.Env, l.src.KafkaEnv)
	l.errs = append(l.errs, errs...)
	l.warnings = append(l.warnings, warnings...)
	if l.src.KafkaEnv && !l.fileSets("listeners") {
		settings = listenersFromAdvertised(settings)
	}
	l.raw = append(l.raw, settings...)
	l.raw = append(l.raw, l.src.Flags...)
}

func (l *loader) fileSets(key string) bool {
	for _, s := range l.raw {
		if s.Key == key {
			return true
		}
	}
	return false
}

// checkKeys lets the last setting of each key win, then checks name, type,
// range and class of each.
func (l *loader) checkKeys() {
	last := map[string]int{}
	for i, s := range l.raw {
		last[s.Key] = i
	}
	for i, s := range l.raw {
		if last[s.Key] == i {
			l.checkSetting(s)
		}
	}
	l.reconcileNodeID()
}

func (l *loader) checkSetting(s Setting) {
	k, known := keyOf(s.Key)
	if !known {
		l.unknownKey(s)
		l.static[s.Key] = s
		return
	}
	normal, err := k.Check(s.Value)
	if err == nil && k.Scope == ScopeOwn {
		err = checkOwn(k, normal)
	}
	if err == nil && strings.Contains(normal, "${") && l.fileSets("config.providers") {
		err = &ValueError{Key: s.Key, Text: "references to configuration providers are not supported; write the value itself"}
	}
	if err != nil {
		l.refuse(s, err.Error(), "")
		return
	}
	if _, repeated := splitList(s.Value); repeated && k.Type == TypeList {
		l.warn(s, "has duplicate values; duplicates are removed")
	}
	s.Value = normal
	if message, hint := refusedByClass(k, normal); message != "" {
		l.refuse(s, message, hint)
		return
	}
	l.static[s.Key] = s
}

// keyOf finds a broker key, also behind a listener prefix, or one of varve's own.
func keyOf(name string) (Key, bool) {
	if k, ok := Lookup(ScopeBroker, name); ok {
		return k, true
	}
	return Lookup(ScopeOwn, name)
}

func checkOwn(k Key, v string) error {
	var err error
	switch k.Name {
	case "varve.shutdown.grace", "varve.clock.jump.max", "varve.cut.retention":
		_, err = ParseDuration(v)
	case "varve.http.listen":
		err = checkHTTPListen(v)
	case "varve.scrub.rate":
		_, err = ParseSize(v)
	case "varve.disk.reserve":
		_, err = ParseReserve(v)
	}
	if err != nil {
		return &ValueError{Key: k.Name, Value: v, Reason: err.Error()}
	}
	return nil
}

// reconcileNodeID keeps node.id and the deprecated broker.id the same, as
// KafkaConfig.populateSynonyms does.
func (l *loader) reconcileNodeID() {
	node, hasNode := l.static["node.id"]
	broker, hasBroker := l.static["broker.id"]
	switch {
	case hasNode && hasBroker && node.Value != broker.Value:
		l.refuse(broker, "`node.id` and `broker.id` must be set to the same value. `broker.id` is deprecated, please use `node.id` instead.", "")
	case hasNode:
		l.static["broker.id"] = Setting{"broker.id", node.Value, node.Origin}
	case hasBroker:
		l.warn(broker, "is deprecated; use node.id")
		l.static["node.id"] = Setting{"node.id", broker.Value, broker.Origin}
	}
	if id, ok := l.static["node.id"]; ok && strings.HasPrefix(id.Value, "-") {
		l.refuse(id, "Invalid value "+id.Value+" for configuration node.id: Value must be at least 0", "")
	}
}

// refusedByClass refuses settings that would silently drop a promise of safety
// or security (CFG-19).
func refusedByClass(k Key, value string) (message, hint string) {
	if value == k.Default && !k.Null || value == "" {
		return "", ""
	}
	switch k.Class {
	case ClassRefuse:
		if k.Type == TypeClass {
			return fmt.Sprintf("Invalid value %s for configuration %s: Class %s could not be found.", value, k.Name, value),
				"varve loads no Java classes; remove the key"
		}
		return fmt.Sprintf("Invalid value %s for configuration %s: not supported", value, k.Name), "remove the key, or set it to " + k.Default
	case ClassRefuseOther:
		if strings.HasPrefix(value, "org.apache.kafka.") || strings.HasPrefix(value, "kafka.") {
			return "", ""
		}
		return fmt.Sprintf("Invalid value %s for configuration %s: Class %s could not be found.", value, k.Name, value),
			"varve loads no Java classes; remove the key"
	}
	switch k.Name {
	case "authorizer.class.name":
		return "an authorizer is not supported yet: every client may do everything", "remove the key, and let only trusted hosts reach the listeners"
	case "config.providers":
		return "configuration providers are not supported yet", "remove the key, and write values in place of ${…} references"
	}
	return "", ""
}

// unknownKey warns, with the nearest known key when there is one.
func (l *loader) unknownKey(s Setting) {
	if quietlyUnknown(s.Key) {
		return
	}
	message, hint := "unknown key", ""
	if near := nearestKey(s.Key); near != "" {
		hint = "did you mean " + near + "?"
		message += "; " + hint
	}
	if l.src.Strict {
		l.refuse(s, "unknown key", hint)
		return
	}
	l.warn(s, message)
}

// quietlyUnknown are keys of plug-ins and neighbours that share the file.
func quietlyUnknown(key string) bool {
	for _, prefix := range []string{"listener.name.", "rsm.config.", "rlmm.config.", "confluent.", "rest."} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return strings.HasSuffix(key, ".jaas.config") || key == "jmx.port"
}

// nearestKey is a known key that equals name without separators, or else the
// first within edit distance 2; empty when there is none.
func nearestKey(name string) string {
	if k, ok := Lookup(ScopeTopic, name); ok && k.Synonym != "" {
		return k.Synonym // a setting of topics, whose default is the broker's under another name
	}
	bare := squeeze(name)
	best, bestDistance := "", 3
	for _, scope := range []Scope{ScopeBroker, ScopeOwn} {
		for _, k := range Keys(scope) {
			if squeeze(k.Name) == bare {
				return k.Name
			}
			if n := len(name) - len(k.Name); n < bestDistance && -n < bestDistance { // else it is farther than that
				if d := Distance(name, k.Name); d < bestDistance {
					best, bestDistance = k.Name, d
				}
			}
		}
	}
	return best
}

func squeeze(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("._- ", r) {
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// Distance is the number of bytes to insert, delete or replace between two
// words (Levenshtein); the command line uses it for its own suggestions too.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := diagonal
			if a[i-1] != b[j-1] {
				replace++
			}
			diagonal = row[j]
			row[j] = min(replace, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
