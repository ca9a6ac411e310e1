package cli

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/internal/config"
)

// app is one run of the native command line.
type app struct {
	*Process
	bootstrap     string // -b
	commandConfig string // --command-config
	output        string // -o
	printed       bool   // something is on standard output already
	keyFlags      []config.Setting
}

// The groups of commands, in the order of the help (CLI-2).
const (
	groupRun   = "run"
	groupData  = "data"
	groupFiles = "files"
	groupHelp  = "help"
)

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "varve",
		Short: "A Kafka-compatible broker whose data directory is Kafka's",
		Long:  "varve is a Kafka-compatible broker whose data directory is Kafka's.",
		Example: `  varve serve &
  varve topics create greetings --partitions 3
  echo hello | varve produce greetings
  varve consume greetings --from-beginning --max-messages 1`,
		Args:              cobra.ArbitraryArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	version := root.Flags().BoolP("version", "v", false, "show the version of this program")
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *version && len(args) == 0 {
			a.printVersion()
			return nil
		}
		return a.groupRun(cmd, args)
	}
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetHelpFunc(a.help)
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(a.helpCommand())
	root.AddGroup(&cobra.Group{ID: groupRun, Title: "Run a broker"}, &cobra.Group{ID: groupData, Title: "Topics and data, of a running broker"},
		&cobra.Group{ID: groupFiles, Title: "Files, without a broker"}, &cobra.Group{ID: groupHelp, Title: "Help"})
	root.AddCommand(a.serveCommand(), a.formatCommand(),
		a.topicsCommand(), a.produceCommand(), a.consumeCommand(), a.groupsCommand(),
		a.dumpLogCommand(), a.verifyCommand(), a.repairCommand(), a.explainCommand(),
		a.completionCommand(), a.versionCommand())
	cobra.EnableCommandSorting = false
	return root
}

// groupRun is the action of a command that only has sub-commands: help, or the
// word that is none of them.
func (a *app) groupRun(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return a.unknownCommand(cmd, args[0])
}

func (a *app) unknownCommand(cmd *cobra.Command, word string) error {
	f := &failure{code: exitUsage, why: fmt.Sprintf("unknown command %q", word)}
	if cmd.HasParent() {
		f.why = fmt.Sprintf("unknown command %q of %s", word, cmd.CommandPath())
	}
	if near := nearest(word, cmd.Commands()); len(near) > 0 {
		f.hint = "did you mean " + strings.Join(near, ", ") + "?"
	}
	return f
}

// nearest names up to three commands that word may have been meant for.
func nearest(word string, commands []*cobra.Command) []string {
	type candidate struct {
		name     string
		distance int
	}
	var list []candidate
	for _, c := range commands {
		if c.Hidden {
			continue
		}
		d := config.Distance(word, c.Name())
		if strings.HasPrefix(c.Name(), word) || strings.HasPrefix(word, c.Name()) {
			d = 0
		}
		if d <= 2 {
			list = append(list, candidate{c.Name(), d})
		}
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].distance < list[j].distance })
	var names []string
	for _, c := range list[:min(3, len(list))] {
		names = append(names, c.name)
	}
	return names
}

func (a *app) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "show the help of a command", Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 && target.HasSubCommands() {
				return a.unknownCommand(cmd.Root(), args[0])
			}
			return target.Help()
		},
	}
}

// nativeForm rewrites what Kafka's tools spell as flags: `varve topics --list`
// is `varve topics list`.
func (a *app) nativeForm(args []string) ([]string, error) {
	if len(args) == 0 {
		return args, nil
	}
	actions := map[string]string{}
	switch args[0] {
	case "topics":
		for _, w := range []string{"list", "describe", "create", "alter", "delete"} {
			actions["--"+w] = w
		}
	case "groups":
		for _, w := range []string{"list", "describe", "delete", "delete-offsets"} {
			actions["--"+w] = w
		}
		actions["--reset-offsets"] = "reset"
	case "serve":
		rest, flags, err := splitKeyFlags(args[1:])
		a.keyFlags = flags
		return append([]string{"serve"}, rest...), err
	}
	for i, arg := range args {
		if word, ok := actions[arg]; ok {
			out := []string{args[0], word}
			out = append(out, args[1:i]...)
			return append(out, args[i+1:]...), nil
		}
	}
	return args, nil
}

// unknownBeforeHelp refuses a word that is no command also where help is asked
// for: the help of another command is not the answer.
func (a *app) unknownBeforeHelp(root *cobra.Command, args []string) error {
	asked := slices.Contains(args, "--help") || slices.Contains(args, "-h")
	cmd, rest, err := root.Find(args)
	if err != nil || !asked || !cmd.HasSubCommands() {
		return err
	}
	for _, word := range rest {
		if !strings.HasPrefix(word, "-") {
			return a.unknownCommand(cmd, word)
		}
	}
	return nil
}
