package config

import (
	"fmt"
	"strconv"
	"strings"
)

// checkQuorum checks roles, voters and controller listeners, then that this is
// a cluster of one: a node with other nodes is not supported yet.
func (l *loader) checkQuorum(b *Broker) {
	if l.inProcessQuorum() {
		return
	}
	voters, refused := parseVoters(b.text("controller.quorum.voters"))
	if refused != "" {
		l.refuse(l.at("controller.quorum.voters"), refused, "a voter is ID@HOST:PORT")
		return
	}
	if len(voters) == 0 && b.text("controller.quorum.bootstrap.servers") == "" {
		if l.refusedKey("controller.quorum.voters") || l.refusedKey("controller.quorum.bootstrap.servers") {
			return
		}
		l.refuse(l.at("controller.quorum.voters"), "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap controllers or controller.quorum.voters must contain a parseable set of controllers.",
			"a single node has controller.quorum.bootstrap.servers=localhost:PORT, of its own controller listener")
		return
	}
	for _, key := range []string{"process.roles", "node.id", "controller.listener.names", "listeners", "listener.security.protocol.map"} {
		if l.refusedKey(key) {
			return // what follows from it is not a second error
		}
	}
	before := len(l.errs)
	roles := SplitList(b.text("process.roles"))
	mine := false
	for _, v := range voters {
		mine = mine || v == int64(b.NodeID)
	}
	if !contains(roles, "controller") {
		l.rule(!mine, "process.roles", "If process.roles contains just the 'broker' role, the node id %d must not be included in the set of voters controller.quorum.voters=%s", b.NodeID, scalaSet(voters))
	} else {
		l.rule(len(voters) == 0 || mine, "process.roles", "If process.roles contains the 'controller' role, the node id %d must be included in the set of voters controller.quorum.voters=%s", b.NodeID, scalaSet(voters))
		l.checkControllerListeners(b)
	}
	if len(l.errs) > before {
		return
	}
	if !contains(roles, "controller") || !contains(roles, "broker") {
		l.refuse(l.at("process.roles"), "a node that is only a "+roles[0]+" is not supported yet", "set process.roles=broker,controller")
	}
	if len(voters) > 1 {
		l.refuse(l.at("controller.quorum.voters"), fmt.Sprintf("a quorum of %d controllers is not supported yet", len(voters)), "name this node alone")
	}
}

func (l *loader) checkControllerListeners(b *Broker) {
	any, all := false, true
	for _, name := range SplitList(b.text("controller.listener.names")) {
		found := false
		for _, li := range b.Listeners {
			found = found || li.Name == strings.ToUpper(name)
		}
		any, all = any || found, all && found
	}
	if !any {
		l.rule(false, "controller.listener.names", "controller.listener.names must contain at least one value appearing in the 'listeners' configuration when running the KRaft controller role")
		return
	}
	l.rule(all, "controller.listener.names", "controller.listener.names must only contain values appearing in the 'listeners' configuration when running the KRaft controller role")
}

// parseVoters reads controller.quorum.voters; refused is Kafka's text
// (QuorumConfig.parseVoterConnections).
func parseVoters(value string) (ids []int64, refused string) {
	const form = " for the configuration controller.quorum.voters. Each entry should be in the form `{id}@{host}:{port}`."
	for _, item := range SplitList(value) {
		id, address, ok := strings.Cut(item, "@")
		if !ok || strings.Contains(address, "@") {
			return nil, "Invalid configuration value for controller.quorum.voters. Each entry should be in the form `{id}@{host}:{port}`."
		}
		n, err := strconv.ParseInt(id, 10, 32)
		if err != nil {
			return nil, "Failed to parse voter ID as an integer from " + id
		}
		host, port, ok := cutLast(address, ':')
		if !ok || host == "" {
			return nil, "Failed to parse host name from entry " + item + form
		}
		if p, err := strconv.ParseUint(port, 10, 16); err != nil || p == 0 {
			return nil, "Failed to parse host port from entry " + item + form
		}
		if host == "0.0.0.0" {
			return nil, "Host string (" + host + ") is not routable"
		}
		ids = append(ids, n)
	}
	return ids, ""
}

func scalaSet(ids []int64) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.FormatInt(id, 10)
	}
	return "Set(" + strings.Join(words, ", ") + ")"
}
