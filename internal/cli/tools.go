package cli

import (
	"errors"
	"fmt"
	"strings"
)

// kafkaTool resolves a name of Kafka's own tools: "kafka-topics.sh" and
// "kafka-topics" are the tool "topics" (CLI-4).
func kafkaTool(name string) (tool string, ok bool) {
	for _, suffix := range []string{".sh", ".bat", ".exe"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return strings.CutPrefix(name, "kafka-")
}

// runKafkaTool runs one of Kafka's tools by that tool's own rules: its options,
// its texts, and its exit statuses, which are 0 and 1 only.
func (p *Process) runKafkaTool(tool string, args []string) int {
	var err error
	switch tool {
	case "dump-log":
		err = p.dumpLog(args)
	case "server-start":
		return p.serverStart(args)
	default:
		fmt.Fprintf(p.Stderr, "kafka-%s is not part of varve: %s\n", tool, absent(tool))
		return exitFailed
	}
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	return exitDone
}

// absent says why a tool of Kafka's is not there.
func absent(tool string) string {
	switch tool {
	case "replica-verification", "jmx", "mirror-maker", "zookeeper-shell", "zookeeper-security-migration":
		return "it needs Kafka's own programs; use those of Apache Kafka"
	}
	return "use that of Apache Kafka, or see varve --help for what there is"
}

// serverStart is kafka-server-start.sh FILE [--override KEY=VALUE]...
func (p *Process) serverStart(args []string) int {
	if len(args) > 0 && args[0] == "-daemon" {
		fmt.Fprintln(p.Stderr, "varve: -daemon: a broker does not go into the background by itself")
		fmt.Fprintln(p.Stderr, "hint: let systemd or another supervisor start varve serve FILE")
		return exitFailed
	}
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		fmt.Fprintln(p.Stderr, "USAGE: kafka-server-start.sh server.properties [--override property=value]*")
		return exitFailed
	}
	code := p.runNative(append([]string{"serve"}, args...))
	if code == exitUsage || code == exitRefused || code == exitConfig {
		return exitFailed
	}
	return code
}
