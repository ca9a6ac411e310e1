package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// need says whether an option takes an argument.
type need int8

const (
	noArg need = iota
	optionalArg
	requiredArg
)

// kafkaOption is an option of one of Kafka's tools.
type kafkaOption struct {
	name     string
	arg      need
	required bool
	help     string
}

// kafkaOptions is a command line of a tool that parses with JOpt Simple:
// "--name value" or "--name=value" in any order, repeatable, no abbreviations.
type kafkaOptions struct {
	tool   string
	table  []kafkaOption
	values map[string][]string // an option without an argument has an empty one
}

// javaError is an error that Kafka's tools print with its class: the message,
// then the class with the message.
type javaError struct{ class, message string }

func (e *javaError) Error() string { return e.message }

// toolUsage is a command line that a tool refuses with its table of options.
type toolUsage struct{ message string }

func (e *toolUsage) Error() string { return e.message }

// toolError is an error whose whole text is one of Kafka's.
type toolError string

func (e toolError) Error() string { return string(e) }

// parseKafkaOptions reads the arguments behind a tool's name.
func parseKafkaOptions(tool string, table []kafkaOption, args []string) (*kafkaOptions, error) {
	o := &kafkaOptions{tool: tool, table: append(table, kafkaOption{"help", noArg, false, "Print this text."}, kafkaOption{"version", noArg, false, "Print the version."}), values: map[string][]string{}}
	for i := 0; i < len(args); i++ {
		word, long := strings.CutPrefix(args[i], "--")
		if !long {
			if strings.HasPrefix(args[i], "-") && len(args[i]) > 1 {
				return nil, unrecognized(args[i][1:2])
			}
			continue
		}
		if word == "" {
			break
		}
		name, value, inline := strings.Cut(word, "=")
		opt, ok := o.find(name)
		switch {
		case !ok:
			return nil, unrecognized(name)
		case opt.arg == noArg || inline:
		case opt.arg == requiredArg && i+1 < len(args):
			i++
			value = args[i]
		case opt.arg == requiredArg:
			return nil, &javaError{"joptsimple.OptionMissingRequiredArgumentException", "Option " + name + " requires an argument"}
		case i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"):
			i++
			value = args[i]
		}
		o.values[name] = append(o.values[name], value)
	}
	return o, nil
}

func unrecognized(name string) error {
	return &javaError{"joptsimple.UnrecognizedOptionException", name + " is not a recognized option"}
}

func (o *kafkaOptions) find(name string) (kafkaOption, bool) {
	for _, opt := range o.table {
		if opt.name == name {
			return opt, true
		}
	}
	return kafkaOption{}, false
}

func (o *kafkaOptions) has(name string) bool { return o.values[name] != nil }

// one is the value of an option; the last one when it was repeated.
func (o *kafkaOptions) one(name string) string {
	if v := o.values[name]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

func (o *kafkaOptions) integer(name string, def int64) (int64, error) {
	if !o.has(name) {
		return def, nil
	}
	n, err := strconv.ParseInt(o.one(name), 10, 64)
	if err != nil {
		return 0, &javaError{"joptsimple.OptionArgumentConversionException", "Cannot parse argument '" + o.one(name) + "' of option " + name}
	}
	return n, nil
}

// need refuses a command line without one of the options.
func (o *kafkaOptions) need(names ...string) error {
	for _, name := range names {
		if !o.has(name) {
			return &toolUsage{`Missing required argument "[` + name + `]"`}
		}
	}
	return nil
}

// exclude refuses an option together with one of others.
func (o *kafkaOptions) exclude(used string, others ...string) error {
	if !o.has(used) {
		return nil
	}
	for _, other := range others {
		if o.has(other) {
			return &toolUsage{`Option "[` + used + `]" can't be used with option "[` + other + `]"`}
		}
	}
	return nil
}

// count is how many of the options are there.
func (o *kafkaOptions) count(names ...string) int {
	n := 0
	for _, name := range names {
		if o.has(name) {
			n++
		}
	}
	return n
}

// printTable prints every option with its help, in two columns.
func (o *kafkaOptions) printTable(w io.Writer) {
	fmt.Fprintf(w, "%-40s %s\n%-40s %s\n", "Option", "Description", "------", "-----------")
	for _, opt := range o.table {
		left := "--" + opt.name
		switch opt.arg {
		case optionalArg:
			left += " [String]"
		case requiredArg:
			left += " <String>"
		}
		help := opt.help
		if opt.required {
			help = "REQUIRED: " + help
		}
		fmt.Fprintf(w, "%-40s %s\n", left, help)
	}
}

// pairs reads key=value arguments, several to one option with commas. A key
// without a value is an error unless empty values are allowed.
func pairs(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, word := range list {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			return nil, &javaError{"java.lang.IllegalArgumentException", "Invalid command line properties: " + word}
		}
		out[key] = value
	}
	return out, nil
}
