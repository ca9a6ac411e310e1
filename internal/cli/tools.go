package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// kafkaTool resolves a name of Kafka's own tools: "kafka-topics.sh" and
// "kafka-topics" are the tool "topics" (CLI-4).
func kafkaTool(name string) (tool string, ok bool) {
	for _, suffix := range []string{".sh", ".bat", ".exe"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return strings.CutPrefix(name, "kafka-")
}

// kafkaRun is one run of a tool under Kafka's name.
type kafkaRun struct {
	*app
	opts  *kafkaOptions
	trace bool // errors of Java are printed with their class alone
}

// runKafkaTool runs one of Kafka's tools by that tool's own rules: its options,
// its texts, and its exit statuses, which are 0 and 1 only.
func (p *Process) runKafkaTool(tool string, args []string) int {
	a := &app{Process: p}
	switch tool {
	case "dump-log":
		var code exitCode
		if errors.As(p.dumpLog(args), &code) {
			return int(code)
		}
		return exitDone
	case "server-start":
		return p.serverStart(args)
	case "topics":
		return a.runTool(tool, topicsOptions(), args, (*kafkaRun).topics)
	case "consumer-groups":
		return a.runTool(tool, consumerGroupsOptions(), args, (*kafkaRun).consumerGroups)
	case "console-producer":
		return a.runTool(tool, consoleProducerOptions(), args, (*kafkaRun).consoleProducer)
	case "console-consumer":
		return a.runTool(tool, consoleConsumerOptions(), args, (*kafkaRun).consoleConsumer)
	}
	fmt.Fprintf(p.Stderr, "kafka-%s is not part of varve: %s\n", tool, absent(tool))
	return exitFailed
}

// runTool parses the options, runs the tool, and prints its error as Kafka's
// tools print theirs.
func (a *app) runTool(tool string, table []kafkaOption, args []string, run func(*kafkaRun, context.Context) error) int {
	r := &kafkaRun{app: a}
	var err error
	if r.opts, err = parseKafkaOptions(tool, table, args); err == nil {
		switch {
		case r.opts.has("help") || len(args) == 0:
			fmt.Fprintf(a.Stderr, "kafka-%s, as varve has it. varve --help shows the native commands.\n", tool)
			r.opts.printTable(a.Stderr)
			return exitFailed
		case r.opts.has("version"):
			fmt.Fprintf(a.Stdout, "%s (varve %s)\n", kafkaLevel, Version)
			return exitDone
		}
		ctx, ended := a.interruptible()
		err = run(r, ctx)
		if s := ended(); s != nil {
			return signalStatus(s)
		}
	}
	return r.finish(err)
}

// finish prints an error on stderr. Errors that a tool prints on stdout are
// printed there by the tool, which then returns an exitCode.
func (r *kafkaRun) finish(err error) int {
	var code exitCode
	var usage *toolUsage
	var java *javaError
	var f *failure
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		fmt.Fprintln(r.Stderr, usage.message)
		r.opts.printTable(r.Stderr)
	case errors.As(err, &java):
		if !r.trace {
			fmt.Fprintln(r.Stderr, java.message)
		}
		fmt.Fprintln(r.Stderr, java.class+": "+java.message)
	case errors.As(err, &f):
		fmt.Fprintln(r.Stderr, f.Error())
	default:
		fmt.Fprintln(r.Stderr, err)
	}
	return exitFailed
}

// open connects to --bootstrap-server with the settings of --command-config.
func (r *kafkaRun) open(ctx context.Context) (*client, error) {
	r.bootstrap = r.opts.one("bootstrap-server")
	r.commandConfig = r.opts.one("command-config")
	for _, address := range strings.Split(r.bootstrap, ",") {
		if !strings.Contains(address, ":") {
			fmt.Fprintf(r.Stderr, "invalid address: %s\n", address)
			return nil, &javaError{"org.apache.kafka.common.KafkaException", "Failed to create new KafkaAdminClient"}
		}
	}
	return r.connect(ctx)
}

// messageOf is the text of a broker's error: its own, or the one that Kafka's
// clients have for the code.
func messageOf(message string, err error) string {
	if message != "" {
		return message
	}
	var k *kerr.Error
	if errors.As(err, &k) {
		return k.Description
	}
	return err.Error()
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
	p.kafkaRules = true
	code := p.runNative(append([]string{"serve"}, args...))
	if code == exitUsage || code == exitRefused || code == exitConfig {
		return exitFailed
	}
	return code
}
