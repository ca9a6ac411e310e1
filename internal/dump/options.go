package dump

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// options are the command line of kafka-dump-log.
type options struct {
	files          []string
	printData      bool
	deep           bool
	verifyOnly     bool
	sanityOnly     bool
	skipMetadata   bool
	maxMessageSize int
	maxBytes       int
	parser         parser
	schemas        schemas
	help, version  bool
}

// option describes one option to the parser and to the help.
type option struct {
	name string
	arg  string // what its argument is called; "" for an option without one
	must bool   // the argument is required
	help string
}

func optionTable() []option {
	return []option{
		{"files", "file1, file2, ...", true, "REQUIRED: the files to print, separated by commas: .log, .index, .timeindex, .txnindex, .snapshot, .checkpoint."},
		{"print-data-log", "", false, "Print keys and values of each record. On when a decoder is given."},
		{"deep-iteration", "", false, "Print each record, not only each batch. On with --print-data-log."},
		{"verify-index-only", "", false, "Check index entries against the log without printing them."},
		{"index-sanity-check", "", false, "Only the check of an index file that decides at start whether it is rebuilt."},
		{"max-message-size", "size", true, "Size of the largest batch, for the look-up behind an index entry. (default: 5242880)"},
		{"max-bytes", "size", true, "Read only this many bytes of a log. (default: 2147483647)"},
		{"key-decoder-class", "class", false, "Decoder of keys: StringDecoder, IntegerDecoder, LongDecoder or DefaultDecoder. (default: org.apache.kafka.tools.api.StringDecoder)"},
		{"value-decoder-class", "class", false, "Decoder of values, as above."},
		{"offsets-decoder", "", false, "Records are those of __consumer_offsets."},
		{"transaction-log-decoder", "", false, "Records are those of __transaction_state."},
		{"cluster-metadata-decoder", "", false, "Records are those of the metadata log."},
		{"remote-log-metadata-decoder", "", false, "Records are those of __remote_log_metadata."},
		{"share-group-state-decoder", "", false, "Records are those of __share_group_state."},
		{"skip-record-metadata", "", false, "Print keys and values alone, and no control records."},
		{"help", "", false, "Print this text."},
		{"version", "", false, "Print the version."},
	}
}

// given is what the command line has: the values of each option, "" for one
// without a value.
type given map[string][]string

func (g given) has(name string) bool { return g[name] != nil }

// parseOptions reads the command line by the rules of JOpt Simple as Kafka's
// tools use it: "--name value" and "--name=value", no abbreviations, words
// that are no options ignored.
func parseOptions(args []string) (*options, error) {
	g, err := parseWords(args)
	if err != nil {
		return nil, err
	}
	o := &options{
		help: g.has("help"), version: g.has("version"),
		verifyOnly: g.has("verify-index-only"), sanityOnly: g.has("index-sanity-check"),
		skipMetadata: g.has("skip-record-metadata"),
	}
	if o.help || o.version || len(args) == 0 {
		o.help = !o.version
		return o, nil
	}
	if o.maxMessageSize, err = g.integer("max-message-size", 5*1024*1024); err != nil {
		return nil, err
	}
	if o.maxBytes, err = g.integer("max-bytes", math.MaxInt32); err != nil {
		return nil, err
	}
	files, err := g.one("files", "")
	if err != nil {
		return nil, err
	}
	if files == "" {
		return nil, &usageError{`Missing required argument "[files]"`}
	}
	o.files = strings.Split(files, ",")
	o.printData = g.has("print-data-log") || g.has("value-decoder-class") || g.has("key-decoder-class") ||
		g.has("offsets-decoder") || g.has("transaction-log-decoder") || g.has("cluster-metadata-decoder") ||
		g.has("remote-log-metadata-decoder") || g.has("share-group-state-decoder")
	o.deep = o.printData || g.has("deep-iteration")
	o.schemas = parseSchemas(schemaText)
	o.parser, err = g.parser(o.schemas)
	return o, err
}

func parseWords(args []string) (given, error) {
	table := optionTable()
	g := given{}
	for i := 0; i < len(args); i++ {
		word, isOption := strings.CutPrefix(args[i], "--")
		if !isOption {
			if len(args[i]) > 1 && args[i][0] == '-' {
				return nil, &javaError{"joptsimple.UnrecognizedOptionException", args[i][1:2] + " is not a recognized option"}
			}
			continue
		}
		if word == "" {
			break
		}
		name, value, inline := strings.Cut(word, "=")
		opt := findOption(table, name)
		switch {
		case opt == nil:
			return nil, &javaError{"joptsimple.UnrecognizedOptionException", name + " is not a recognized option"}
		case opt.arg == "" || inline:
		case opt.must && i+1 < len(args):
			i++
			value = args[i]
		case opt.must:
			return nil, &javaError{"joptsimple.OptionMissingRequiredArgumentException", "Option " + name + " requires an argument"}
		case i+1 < len(args) && !strings.HasPrefix(args[i+1], "-"):
			i++
			value = args[i]
		}
		g[name] = append(g[name], value)
	}
	return g, nil
}

func findOption(table []option, name string) *option {
	for i := range table {
		if table[i].name == name {
			return &table[i]
		}
	}
	return nil
}

// one is the value of an option that may be given once.
func (g given) one(name, def string) (string, error) {
	switch values := g[name]; {
	case len(values) > 1:
		return "", &javaError{"joptsimple.MultipleArgumentsForOptionException",
			"Found multiple arguments for option " + name + ", but you asked for only one"}
	case len(values) == 1 && values[0] != "":
		return values[0], nil
	}
	return def, nil
}

func (g given) integer(name string, def int) (int, error) {
	s, err := g.one(name, strconv.Itoa(def))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0, &javaError{"joptsimple.OptionArgumentConversionException", fmt.Sprintf("Cannot parse argument '%s' of option %s", s, name)}
	}
	return int(n), nil
}

// parser picks the decoder; with several the first in this order counts.
func (g given) parser(all schemas) (parser, error) {
	switch {
	case g.has("offsets-decoder"):
		return coordinatorParser{all["offsets.key"], all["offsets.value"], expandMembers(all)}, nil
	case g.has("transaction-log-decoder"):
		return coordinatorParser{all["txn.key"], all["txn.value"], nameTransactionState}, nil
	case g.has("cluster-metadata-decoder"):
		return metadataParser{all["metadata"]}, nil
	case g.has("remote-log-metadata-decoder"):
		return remoteParser{all["remote"]}, nil
	case g.has("share-group-state-decoder"):
		return coordinatorParser{all["share.key"], all["share.value"], nil}, nil
	}
	var p plainParser
	for _, side := range []struct {
		option string
		decode *func([]byte) (string, error)
	}{{"value-decoder-class", &p.value}, {"key-decoder-class", &p.key}} {
		class, err := g.one(side.option, "org.apache.kafka.tools.api.StringDecoder")
		if err != nil {
			return nil, err
		}
		decode, ok := decoderClass(class)
		if !ok {
			return nil, &javaError{"java.lang.RuntimeException", "Failed to load decoder class " + class}
		}
		*side.decode = decode
	}
	return p, nil
}

// usageError is answered with the help text.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func printHelp(w io.Writer) {
	const column = 44
	fmt.Fprintf(w, "%-*s%s\n", column, "Option", "Description")
	fmt.Fprintf(w, "%-*s%s\n", column, "------", "-----------")
	for _, o := range optionTable() {
		left := "--" + o.name
		switch {
		case o.arg != "" && o.must:
			left += " <" + o.arg + ">"
		case o.arg != "":
			left += " [" + o.arg + "]"
		}
		for _, line := range wrap(o.help, 100-column) {
			fmt.Fprintf(w, "%-*s%s\n", column, left, line)
			left = ""
		}
	}
}

// wrap breaks text at blanks into lines of at most width characters.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = "  " + word
			continue
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}
