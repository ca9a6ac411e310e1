package config

import (
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// Listener is one entry of listeners or advertised.listeners.
type Listener struct {
	Name       string // upper case
	Protocol   string // PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL
	Host       string // empty = every address of the machine; without brackets
	Port       int    // 0 = any free port
	Controller bool   // named in controller.listener.names: not for clients
}

// String renders the listener as it is written in a file.
func (l Listener) String() string { return l.Name + "://" + l.Address() }

// Address is host:port, with brackets round an IPv6 host.
func (l Listener) Address() string {
	host := l.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(l.Port)
}

// listenerPattern is EndPoint.UriParseRegExp.
var listenerPattern = regexp.MustCompile(`^(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)$`)

// parseListeners reads a listener list; refused is Kafka's text when it cannot.
// Names are looked up in protocols; a name in controllers is a controller's.
func parseListeners(value string, protocols map[string]string, controllers []string) (list []Listener, refused string) {
	items := SplitList(value)
	shown := "[" + strings.Join(items, ", ") + "]"
	for _, item := range items {
		m := listenerPattern.FindStringSubmatch(item)
		port := -1
		if m != nil {
			if n, err := strconv.Atoi(m[3]); err == nil {
				port = n
			}
		}
		if m == nil || port < 0 || port > 65535 {
			return nil, "Error creating broker listeners from '" + shown + "': Unable to parse " + item + " to a broker endpoint"
		}
		l := Listener{Name: strings.ToUpper(m[1]), Host: m[2], Port: port}
		protocol, ok := protocols[l.Name]
		if !ok {
			return nil, "Error creating broker listeners from '" + shown + "': No security protocol defined for listener " + l.Name
		}
		l.Protocol = protocol
		for _, c := range controllers {
			l.Controller = l.Controller || strings.EqualFold(c, l.Name)
		}
		list = append(list, l)
	}
	return list, ""
}

// checkListenerList refuses repeated names and ports (SocketServerConfigs and
// CoreUtils.listenerListToEndPoints). value is what the file says.
func checkListenerList(list []Listener, value string) string {
	names := map[string]bool{}
	ports := map[int][]Listener{}
	for _, l := range list {
		if names[l.Name] {
			return "Each listener must have a different name, listeners: " + value
		}
		names[l.Name] = true
		if l.Port != 0 {
			ports[l.Port] = append(ports[l.Port], l)
		}
	}
	for _, l := range list {
		same := ports[l.Port]
		switch {
		case len(same) < 2:
		case len(same) > 2:
			return "Each listener must have a different port unless exactly one listener has an IPv4 address and the other IPv6 address, listeners: " + value +
				", port: " + strconv.Itoa(l.Port)
		case family(same[0].Host) == 0 || family(same[1].Host) == 0:
			return "Each listener must have a different port, listeners: " + value
		case family(same[0].Host) == family(same[1].Host):
			return "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, listeners: " + value +
				", port: " + strconv.Itoa(l.Port)
		}
	}
	return ""
}

// family is 4 or 6 for an address, 0 for a name.
func family(host string) int {
	addr, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return 0
	case addr.Is4():
		return 4
	}
	return 6
}

// parseProtocolMap reads listener.security.protocol.map; refused is the text
// when it cannot.
func parseProtocolMap(value string) (protocols map[string]string, refused string) {
	protocols = map[string]string{}
	for _, item := range SplitList(value) {
		name, protocol, ok := cutLast(item, ':')
		if !ok {
			return nil, "Error parsing configuration property 'listener.security.protocol.map': " + item + " is not in the form NAME:PROTOCOL"
		}
		protocol = strings.ToUpper(trimJava(protocol))
		switch protocol {
		case "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL":
		default:
			return nil, "No enum constant org.apache.kafka.common.security.auth.SecurityProtocol." + protocol
		}
		protocols[strings.ToUpper(trimJava(name))] = protocol
	}
	return protocols, ""
}

// protocolsOf is KafkaConfig.effectiveListenerSecurityProtocolMap: without a map
// of its own, and as long as no listener is named after SSL or SASL, controller
// listeners are PLAINTEXT.
func (b *Broker) protocolsOf(controllers []string) (map[string]string, string) {
	protocols, refused := parseProtocolMap(b.text("listener.security.protocol.map"))
	if refused != "" || b.IsSet("listener.security.protocol.map") {
		return protocols, refused
	}
	names := append([]string(nil), controllers...)
	for _, item := range SplitList(b.text("listeners")) {
		name, _, _ := strings.Cut(item, "://")
		names = append(names, name)
	}
	for _, name := range names {
		name = strings.ToUpper(name)
		if name == "SSL" || strings.HasPrefix(name, "SASL_") {
			return protocols, ""
		}
	}
	for _, c := range controllers {
		if c = strings.ToUpper(c); c != "PLAINTEXT" {
			protocols[c] = "PLAINTEXT"
		}
	}
	return protocols, ""
}
