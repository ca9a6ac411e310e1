package cli

import (
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/varvelog/varve/internal/config"
)

// flagError says what is wrong with a flag in words of the command line.
func flagError(cmd *cobra.Command, err error) error {
	f := &failure{code: exitUsage, why: err.Error()}
	var unknown *pflag.NotExistError
	var bare *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		f.hint = flagHint(cmd, unknown.GetSpecifiedName())
	case errors.As(err, &bare):
		f.why = "--" + bare.GetFlag().Name + " needs a value"
	case errors.As(err, &invalid):
		f.why, f.hint = invalidValue(invalid)
	}
	return f
}

func invalidValue(e *pflag.InvalidValueError) (why, hint string) {
	flag, value := e.GetFlag(), e.GetValue()
	head := fmt.Sprintf("--%s %s: ", flag.Name, value)
	switch flag.Value.Type() {
	case "int", "int32", "int64":
		if strings.Trim(value, "0123456789-+") == "" {
			return head + "the number is too large, or is none", ""
		}
		return head + "it is a whole number", ""
	case "bool":
		return head + "it is true or false", ""
	case "duration":
		if value != "" && strings.Trim(value, "0123456789.") == "" {
			return head + "the unit is missing", fmt.Sprintf("write %sms, %ss or %sm", value, value, value)
		}
		return head + "it is a duration such as 500ms, 10s or 1m30s", ""
	}
	return head + e.Unwrap().Error(), ""
}

// flagHint is what an unknown flag may have been meant for: the flag that does
// what Kafka's tools spell otherwise, or flags of a similar name.
func flagHint(cmd *cobra.Command, name string) string {
	if hint := kafkaHabit(cmd, name); hint != "" {
		return hint
	}
	type candidate struct {
		name     string
		distance int
	}
	var list []candidate
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		d := config.Distance(squeeze(name), squeeze(f.Name))
		if len(name) >= 3 && strings.HasPrefix(f.Name, name) {
			d = 0
		}
		if d <= 1+len(name)/5 && len(name) > 1 {
			list = append(list, candidate{"--" + f.Name, d})
		}
	})
	if len(list) == 0 {
		return ""
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].distance < list[j].distance })
	var names []string
	for _, c := range list[:min(3, len(list))] {
		if c.distance == list[0].distance {
			names = append(names, c.name)
		}
	}
	return "did you mean " + strings.Join(names, ", ") + "?"
}

// squeeze leaves out what words of a flag are joined with.
func squeeze(name string) string {
	return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(name))
}

// kafkaHabit says how the native command spells a flag of Kafka's tools, or one
// that people expect.
func kafkaHabit(cmd *cobra.Command, name string) string {
	switch name {
	case "broker-list", "bootstrap-servers", "bootstrap", "brokers", "broker", "server":
		return "a broker is named with -b, --bootstrap-server HOST:PORT"
	case "zookeeper":
		return "there is no ZooKeeper since Kafka 4.0; name a broker with -b HOST:PORT"
	}
	parent := ""
	if cmd.HasParent() {
		parent = cmd.Parent().Name() + " "
	}
	switch strings.TrimPrefix(parent+cmd.Name(), "varve ") {
	case "serve", "format":
		switch name {
		case "port", "host", "bind", "address":
			return "an address to listen on is --listen HOST:PORT"
		case "dir", "data", "log-dir", "log-dirs", "path":
			return "the directory is --data-dir DIR"
		case "id", "broker-id":
			return "the number of the node is --node-id N"
		}
	case "produce":
		switch name {
		case "property", "reader-property":
			return "keys are split off with --key-separator TEXT, null is --null-value TEXT, headers are --header NAME=VALUE; kafka-console-producer.sh takes --property"
		case "producer-property", "command-property":
			return "see --acks, --compression, --linger and --idempotence; kafka-console-producer.sh takes any property"
		case "timeout", "timeout-ms", "delivery-timeout":
			return "--give-up-after DURATION ends it when nothing is acknowledged, --linger DURATION fills batches"
		case "sync", "batch-size":
			return "kafka-console-producer.sh takes it"
		}
	case "consume":
		switch name {
		case "property", "formatter-property":
			return "see --print-key, --print-timestamp, --print-offset and --format; kafka-console-consumer.sh takes --property"
		case "consumer-property", "command-property":
			return "see --group, --read-committed and --from-beginning; kafka-console-consumer.sh takes any property"
		case "include", "whitelist":
			return "name every topic: varve consume A B; varve topics list --names shows them"
		case "isolation-level":
			return "--read-committed leaves out records of open and aborted transactions"
		case "exit", "end":
			return "did you mean --exit-at-end?"
		case "count", "limit", "num":
			return "did you mean --max-messages?"
		}
	case "topics create", "topics alter":
		if name == "replica-assignment" {
			return "replicas cannot be placed by hand; --partitions and --replication-factor say how many"
		}
	case "topics describe", "topics list":
		switch name {
		case "under-replicated-partitions", "unavailable-partitions", "under-min-isr-partitions", "at-min-isr-partitions":
			return "kafka-topics.sh --describe --" + name + " shows them; here see the column IN SYNC"
		}
	case "groups reset":
		if name == "all-groups" {
			return "one group at a time: varve groups list shows them"
		}
	}
	return ""
}

// completeFlag has a shell complete a flag's value.
func completeFlag(cmd *cobra.Command, flag string, words ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // it fails for a flag that is not there
}

// alsoSpelt gives a command Kafka's own spelling of a flag, out of its help.
func alsoSpelt(cmd *cobra.Command, kafka, native string) {
	f := cmd.Flags().Lookup(native)
	if f == nil {
		f = cmd.PersistentFlags().Lookup(native)
	}
	if f == nil || cmd.Flags().Lookup(kafka) != nil {
		return
	}
	cmd.Flags().AddFlag(&pflag.Flag{Name: kafka, Usage: "as Kafka's tools spell --" + native, Value: f.Value, DefValue: f.DefValue, NoOptDefVal: f.NoOptDefVal, Hidden: true})
}

// millisValue is a duration that Kafka's tools take as a number of milliseconds.
type millisValue struct{ f *pflag.Flag }

// String implements pflag.Value.
func (m millisValue) String() string { return "" }

// Type implements pflag.Value.
func (m millisValue) Type() string { return "int" }

// Set implements pflag.Value.
func (m millisValue) Set(s string) error { return m.f.Value.Set(s + "ms") }

// alsoMillis gives a command Kafka's spelling, in milliseconds, of a flag that
// is a duration.
func alsoMillis(cmd *cobra.Command, kafka, native string) {
	cmd.Flags().AddFlag(&pflag.Flag{Name: kafka, Usage: "as Kafka's tools spell --" + native, Value: millisValue{cmd.Flags().Lookup(native)}, Hidden: true})
}
