package config

import (
	"errors"
	"strings"
)

// keyOfVariable maps the rest of a variable's name, after its prefix, to a key
// as Kafka's container image does: lower case, then over the whole text and in
// this order "_" to ".", "..." to "-", ".." to "_".
func keyOfVariable(rest string) string {
	key := strings.ReplaceAll(strings.ToLower(rest), "_", ".")
	key = strings.ReplaceAll(key, "...", "-")
	return strings.ReplaceAll(key, "..", "_")
}

// neverKeys are the variables that configure Kafka's scripts and its JVM.
func neverKey(variable string) bool {
	switch variable {
	case "KAFKA_VERSION", "KAFKA_HEAP_OPTS", "KAFKA_LOG4J_OPTS", "KAFKA_OPTS", "KAFKA_JMX_OPTS",
		"KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS", "KAFKA_LOG4J_ROOT_LOGLEVEL",
		"KAFKA_LOG4J_LOGGERS", "KAFKA_TOOLS_LOG4J_LOGLEVEL", "KAFKA_JMX_HOSTNAME":
		return true
	}
	return false
}

// ownVariable reports whether a VARVE_ variable is read elsewhere and is no key.
func ownVariable(variable string) bool {
	switch variable {
	case "VARVE_ENV", "VARVE_BOOTSTRAP_SERVERS", "VARVE_DEBUG", "VARVE_CLUSTER_ID":
		return true
	}
	return false
}

// environment turns variables ("NAME=VALUE", as os.Environ has them) into
// settings: KAFKA_ ones when kafka is set, then VARVE_ ones, which win.
func environment(env []string, kafka bool) (settings []Setting, errs Errors, warnings []Warning) {
	var own []Setting
	ignored := ""
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		origin := Origin{Kind: FromEnv, Name: name}
		if rest, ok := strings.CutPrefix(name, "VARVE_"); ok && !ownVariable(name) {
			own = append(own, Setting{Key: ownKeyOfVariable(rest), Value: value, Origin: origin})
			continue
		}
		rest, ok := strings.CutPrefix(name, "KAFKA_")
		if !ok || rest == "BOOTSTRAP_SERVERS" {
			continue
		}
		if !kafka {
			if ignored == "" {
				ignored = name
			}
			continue
		}
		if neverKey(name) {
			continue
		}
		props, err := ParseProperties([]byte(keyOfVariable(rest) + "=" + value + "\n"))
		var syntax *SyntaxError
		if errors.As(err, &syntax) {
			errs = append(errs, &Error{Origin: origin, Key: keyOfVariable(rest), Message: syntax.Reason})
			continue
		}
		for _, p := range props {
			settings = append(settings, Setting{Key: p.Key, Value: p.Value, Origin: origin})
		}
	}
	if ignored != "" {
		warnings = append(warnings, Warning{Notice: true,
			Message: ignored + " and other KAFKA_ variables are ignored; set VARVE_ENV=kafka to have them read"})
	}
	return append(dropZooKeeper(settings, &warnings), own...), errs, warnings
}

// ownKeyOfVariable also finds varve's own keys without their prefix repeated:
// VARVE_LOG_LEVEL is varve.log.level, because there is no log.level.
func ownKeyOfVariable(rest string) string {
	key := keyOfVariable(rest)
	if _, ok := Lookup(ScopeBroker, key); !ok {
		if _, ok := Lookup(ScopeOwn, "varve."+key); ok {
			return "varve." + key
		}
	}
	return key
}

// dropZooKeeper removes zookeeper.connect of images that still set it.
func dropZooKeeper(settings []Setting, warnings *[]Warning) []Setting {
	kept := settings[:0]
	for _, s := range settings {
		if s.Key == "zookeeper.connect" {
			*warnings = append(*warnings, Warning{Origin: s.Origin, Key: s.Key, Notice: true,
				Message: "dropped: there is no ZooKeeper since Kafka 4.0"})
			continue
		}
		kept = append(kept, s)
	}
	return kept
}

// listenersFromAdvertised is what the image's scripts do before the broker
// starts: advertised listeners alone also say what to listen on.
func listenersFromAdvertised(settings []Setting) []Setting {
	var advertised *Setting
	for i := range settings {
		switch {
		case settings[i].Key == "listeners":
			return settings
		case settings[i].Key == "advertised.listeners" && strings.HasPrefix(settings[i].Origin.Name, "KAFKA_"):
			advertised = &settings[i]
		}
	}
	if advertised == nil {
		return settings
	}
	var listeners []string
	for _, l := range SplitList(advertised.Value) {
		name, rest, ok := strings.Cut(l, "://")
		colon := strings.LastIndexByte(rest, ':')
		if !ok || colon < 0 {
			return settings // the check of advertised.listeners says what is wrong
		}
		listeners = append(listeners, name+"://0.0.0.0"+rest[colon:])
	}
	return append(settings, Setting{Key: "listeners", Value: strings.Join(listeners, ","), Origin: advertised.Origin})
}
