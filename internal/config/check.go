package config

import (
	"fmt"
	"strconv"
	"strings"
)

// builtin is what varve serves with when no file says anything (CFG-23). With a
// file Kafka's own defaults hold; its required keys are filled in when that was
// asked for.
func (l *loader) builtin() map[string]Setting {
	defaults := map[string]Setting{}
	set := func(key, value string) { defaults[key] = Setting{Key: key, Value: value} }
	if len(l.src.Files) > 0 {
		l.fillRequired(set)
		return defaults
	}
	set("process.roles", "broker,controller")
	set("node.id", "1")
	set("broker.id", "1")
	set("listeners", "PLAINTEXT://127.0.0.1:9092")
	set("controller.listener.names", "CONTROLLER")
	if _, ok := l.static["log.dir"]; !ok && l.src.DataDir != "" {
		set("log.dirs", l.src.DataDir)
	}
	return defaults
}

// fillRequired gives a file the keys that Kafka requires and that are the same
// for every single node. A file that says something of controllers, or that is
// one for ZooKeeper, is not completed by guessing.
func (l *loader) fillRequired(set func(key, value string)) {
	if !l.src.Fill {
		return
	}
	for _, key := range append(sortedNames(l.static), l.refusedKeys()...) {
		if strings.HasPrefix(key, "controller.") && key != "controller.listener.names" || key == "zookeeper.connect" {
			return
		}
	}
	if names, ok := l.static["controller.listener.names"]; ok && l.staticListener(names.Value) {
		return // a listener of the controller belongs to a quorum, of which nothing is said
	}
	if s, ok := l.static["process.roles"]; ok {
		if roles := SplitList(s.Value); len(roles) != 2 || !contains(roles, "broker") || !contains(roles, "controller") {
			return
		}
	}
	for _, d := range []Property{{Key: "process.roles", Value: "broker,controller"}, {Key: "node.id", Value: "1"}, {Key: "controller.listener.names", Value: "CONTROLLER"}} {
		if _, ok := l.static[d.Key]; ok || l.refusedKey(d.Key) {
			continue
		}
		l.filled = append(l.filled, d.Key+"="+d.Value)
		set(d.Key, d.Value)
		if d.Key == "node.id" {
			set("broker.id", d.Value)
		}
	}
}

func (l *loader) refusedKeys() []string {
	var keys []string
	for _, e := range l.errs {
		keys = append(keys, e.Key)
	}
	return keys
}

// staticListener reports whether listeners names one of the list.
func (l *loader) staticListener(names string) bool {
	for _, item := range SplitList(l.static["listeners"].Value) {
		name, _, _ := strings.Cut(item, "://")
		for _, n := range SplitList(names) {
			if strings.EqualFold(n, name) {
				return true
			}
		}
	}
	return false
}

// inProcessQuorum reports whether the controller needs no listener: nothing was
// said about a quorum, and there is no file that has to be valid for Kafka.
func (l *loader) inProcessQuorum() bool {
	for _, key := range []string{"controller.listener.names", "controller.quorum.voters", "controller.quorum.bootstrap.servers"} {
		if _, ok := l.static[key]; ok {
			return false
		}
	}
	return len(l.src.Files) == 0 || len(l.filled) > 0
}

// missing is a setting that nobody wrote: errors about it name the last source.
func (l *loader) missing(key string) Setting {
	s := Setting{Key: key}
	if n := len(l.src.Files); n > 0 {
		s.Origin = Origin{Kind: FromFile, Name: l.src.Files[n-1].Path}
	}
	return s
}

func (l *loader) at(key string) Setting {
	if s, ok := l.static[key]; ok {
		return s
	}
	return l.missing(key)
}

// checkRequired refuses keys without a default that nobody set. What is wrong
// besides is looked for as if they had the values that a single node has.
func (l *loader) checkRequired(b *Broker) {
	for _, d := range []Property{{Key: "process.roles", Value: "broker,controller"}, {Key: "node.id", Value: "1"}, {Key: "controller.listener.names", Value: "CONTROLLER"}} {
		if _, set := b.lookup(d.Key); set {
			continue
		}
		b.builtin[d.Key] = Setting{Key: d.Key, Value: d.Value}
		if !l.refusedKey(d.Key) {
			l.refuse(l.missing(d.Key), fmt.Sprintf("Missing required configuration %q which has no default value.", d.Key), "a single node has "+d.Key+"="+d.Value)
		}
	}
}

// refusedKey reports whether an error about the key is known already.
func (l *loader) refusedKey(key string) bool {
	for _, e := range l.errs {
		if e.Key == key || key == "node.id" && e.Key == "broker.id" {
			return true
		}
	}
	return false
}

// checkRules applies the rules over several keys (KafkaConfig.validateValues). A
// key whose value was refused has its default here, so that what else is wrong
// is found in the same run.
func (l *loader) checkRules(b *Broker) {
	l.checkLogRules(b)
	l.checkNetworkRules(b)
	l.checkListeners(b)
	l.checkQuorum(b)
	l.checkGroupRules(b)
}

// rule refuses the key with Kafka's "requirement failed" text unless it holds.
func (l *loader) rule(holds bool, key, format string, args ...any) {
	if !holds {
		l.refuse(l.at(key), "requirement failed: "+fmt.Sprintf(format, args...), "")
	}
}

func (l *loader) checkLogRules(b *Broker) {
	if v, set := b.lookup("log.roll.ms"); set {
		l.rule(mustInt("log.roll.ms", v) >= 1, "log.roll.ms", "log.roll.ms must be greater than or equal to 1")
	}
	if v, set := b.lookup("log.roll.jitter.ms"); set {
		l.rule(mustInt("log.roll.jitter.ms", v) >= 0, "log.roll.jitter.ms", "log.roll.jitter.ms must be greater than or equal to 0")
	}
	retention := "log.retention.hours"
	for _, key := range []string{"log.retention.ms", "log.retention.minutes"} {
		if _, set := b.lookup(key); set {
			retention = key
			break
		}
	}
	l.rule(b.logRetention() != 0, retention, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
	threads := max(b.number("log.cleaner.threads"), 1)
	l.rule(b.number("log.cleaner.dedupe.buffer.size")/threads > 1024*1024, "log.cleaner.dedupe.buffer.size",
		"log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.")
	wait := b.number("replica.fetch.wait.max.ms")
	l.rule(wait <= b.number("replica.socket.timeout.ms"), "replica.socket.timeout.ms",
		"replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary socket timeouts")
	l.rule(wait <= b.number("replica.lag.time.max.ms"), "replica.fetch.wait.max.ms",
		"replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent frequent changes in ISR")
	l.rule(b.Topic.MinCompactionLag <= b.Topic.MaxCompactionLag, "log.cleaner.min.compaction.lag.ms",
		"conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)", b.Topic.MinCompactionLag, b.Topic.MaxCompactionLag)
}

func (l *loader) checkNetworkRules(b *Broker) {
	overrides := l.at("max.connections.per.ip.overrides")
	for _, item := range SplitList(b.text("max.connections.per.ip.overrides")) {
		_, limit, ok := cutLast(item, ':')
		if !ok {
			l.refuse(overrides, "Invalid value "+item+" for configuration max.connections.per.ip.overrides: entries are HOST:LIMIT", "")
			continue
		}
		if _, err := strconv.ParseInt(trimJava(limit), 10, 32); err != nil {
			l.refuse(overrides, fmt.Sprintf("For input string: %q", trimJava(limit)), "the limit after the colon of "+item+" is a number of connections")
		}
	}
	l.rule(b.MaxConnectionsPerIP > 0 || len(b.MaxConnectionsPerIPOverrides) > 0, "max.connections.per.ip",
		"max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.")
	idle, delay := b.number("connections.max.idle.ms"), b.number("connection.failed.authentication.delay.ms")
	l.rule(idle < 0 || delay < idle, "connections.max.idle.ms",
		"connection.failed.authentication.delay.ms=%d should always be less than connections.max.idle.ms=%d to prevent failed authentication responses from timing out", delay, idle)
}

// checkListeners reads and checks listeners and advertised.listeners, and sets
// the fields made of them.
func (l *loader) checkListeners(b *Broker) {
	controllers := SplitList(b.text("controller.listener.names"))
	protocols, refused := b.protocolsOf(controllers)
	if refused != "" {
		l.refuse(l.at("listener.security.protocol.map"), refused, "")
		return
	}
	value := b.text("listeners")
	listeners, refused := parseListeners(value, protocols, controllers)
	if refused == "" {
		refused = checkListenerList(listeners, value)
	}
	if refused != "" {
		l.refuse(l.at("listeners"), refused, listenerHint(refused))
		return
	}
	b.Listeners = listeners
	for _, li := range listeners {
		if li.Protocol != "PLAINTEXT" {
			l.refuse(l.at("listeners"), fmt.Sprintf("listener %s uses %s, which is not supported yet", li.Name, li.Protocol),
				"use PLAINTEXT listeners that only trusted hosts can reach")
		}
	}
	l.checkAdvertised(b, protocols, controllers)
	l.checkInterBroker(b, protocols)
}

func listenerHint(refused string) string {
	switch {
	case strings.Contains(refused, "Unable to parse"):
		_, rest, _ := strings.Cut(refused, "Unable to parse ")
		item, _, _ := strings.Cut(rest, " to a broker endpoint")
		_, address, named := strings.Cut(item, "://")
		_, port, found := cutLast(address, ':')
		switch {
		case !named:
		case !found || port == "" || strings.HasSuffix(address, "]"):
			return "the port is missing: NAME://HOST:PORT"
		case strings.Trim(port, "-0123456789") == "":
			return "the port is 0 to 65535"
		}
		return "a listener is NAME://HOST:PORT"
	case strings.Contains(refused, "No security protocol"):
		return "name it in listener.security.protocol.map, as NAME:PLAINTEXT"
	case strings.Contains(refused, "must have a different name"):
		return "give each a name of its own, as A://HOST:PORT, and that name a protocol: --override listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"
	}
	return ""
}

func (l *loader) checkAdvertised(b *Broker, protocols map[string]string, controllers []string) {
	var clients []Listener
	for _, li := range b.Listeners {
		if !li.Controller {
			clients = append(clients, li)
		}
	}
	value, set := b.lookup("advertised.listeners")
	advertised := clients
	if set {
		var refused string
		value = expandAdvertised(value, clients)
		if advertised, refused = parseListeners(value, protocols, controllers); refused != "" {
			l.refuse(l.at("advertised.listeners"), refused, listenerHint(refused))
			return
		}
	}
	b.Advertised = nil
	named := map[string]bool{}
	for _, a := range advertised {
		if a.Controller {
			continue
		}
		if named[a.Name] {
			l.refuse(l.at("advertised.listeners"), "Each listener must have a different name, listeners: "+value, "")
			return
		}
		named[a.Name] = true
		b.Advertised = append(b.Advertised, a)
	}
	key := "advertised.listeners"
	if !set {
		key = "listeners"
	}
	l.rule(len(b.Advertised) > 0, key, "There must be at least one broker advertised listener. Perhaps all listeners appear in controller.listener.names?")
	for _, a := range b.Advertised {
		if a.Host == "0.0.0.0" {
			l.refuse(l.at(key), "requirement failed: advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
				"say how clients reach this machine: --advertise HOST")
		}
		found := false
		for _, c := range clients {
			found = found || c.Name == a.Name
		}
		l.rule(found, key, "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. Found %s. The valid options based on the current configuration are %s",
			namesOf(b.Advertised), namesOf(b.Listeners))
	}
}

// expandAdvertised lets a bare HOST or HOST:PORT stand for every client
// listener at that address, the short form of --advertise.
func expandAdvertised(value string, clients []Listener) string {
	if value == "" || strings.Contains(value, "://") {
		return value
	}
	host, port := value, ""
	if h, p, ok := cutLast(value, ':'); ok && !strings.HasSuffix(value, "]") && family(value) != 6 {
		host, port = h, p
	}
	if family(host) == 6 {
		host = "[" + host + "]"
	}
	var out []string
	for _, c := range clients {
		at := port
		if at == "" {
			at = strconv.Itoa(c.Port)
		}
		out = append(out, c.Name+"://"+host+":"+at)
	}
	return strings.Join(out, ",")
}

func namesOf(list []Listener) string {
	names := make([]string, len(list))
	for i, li := range list {
		names[i] = li.Name
	}
	return strings.Join(names, ",")
}

func (l *loader) checkInterBroker(b *Broker, protocols map[string]string) {
	name, named := b.lookup("inter.broker.listener.name")
	if named && b.IsSet("security.inter.broker.protocol") {
		l.refuse(l.at("inter.broker.listener.name"), "Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.", "")
		return
	}
	if named {
		name = strings.ToUpper(name)
		if _, ok := protocols[name]; !ok {
			l.refuse(l.at("inter.broker.listener.name"), "Listener with name "+name+" defined in inter.broker.listener.name not found in listener.security.protocol.map.", "")
			return
		}
	} else {
		name = b.text("security.inter.broker.protocol")
	}
	b.InterBrokerListener = name
	found := false
	for _, a := range b.Advertised {
		found = found || a.Name == name
	}
	if !named && !found && len(b.Advertised) > 0 && l.inProcessQuorum() {
		b.InterBrokerListener = b.Advertised[0].Name // one node without a file: nobody else asks for it
		return
	}
	l.rule(found || len(b.Advertised) == 0, "inter.broker.listener.name",
		"inter.broker.listener.name must be a listener name defined in advertised.listeners. The valid options based on currently configured listeners are %s", namesOf(b.Advertised))
}

func (l *loader) checkGroupRules(b *Broker) {
	for _, kind := range []string{"group.consumer", "group.share", "group.streams"} {
		for _, what := range []string{"heartbeat.interval.ms", "session.timeout.ms"} {
			low, high, at := kind+".min."+what, kind+".max."+what, kind+"."+what
			l.rule(b.number(low) <= b.number(high), high, "%s must be greater than or equal to %s", high, low)
			l.rule(b.number(at) >= b.number(low), at, "%s must be greater than or equal to %s", at, low)
			l.rule(b.number(at) <= b.number(high), at, "%s must be less than or equal to %s", at, high)
		}
	}
}
