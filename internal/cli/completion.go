package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/varvelog/varve/internal/config"
)

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use: "completion bash|zsh|fish|powershell", Short: "print the completion script of a shell", GroupID: groupHelp,
		Long: "Prints a script that makes a shell complete varve's commands and flags, and the\nnames of topics and groups of a running broker. The one for bash needs the package\nbash-completion (2.x); without it the shell says that _get_comp_words_by_ref is missing.",
		Example: "  source <(varve completion bash)\n" +
			"  varve completion zsh > \"${fpath[1]}/_varve\"\n" +
			"  varve completion fish > ~/.config/fish/completions/varve.fish",
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError("name one shell: bash, zsh, fish or powershell")
			}
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.Stdout)
			case "fish":
				return root.GenFishCompletion(a.Stdout, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(a.Stdout)
			}
			return usageError("unknown shell %q: bash, zsh, fish and powershell are known", args[0])
		},
	}
}

// completionLimit is how long a shell waits for names; after it there are none.
const completionLimit = 300 * time.Millisecond

// completeTopicKeys completes the KEY= of a topic's settings.
func completeTopicKeys(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var words []string
	for _, k := range config.Keys(config.ScopeTopic) {
		words = append(words, k.Name+"=")
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// plainUsage takes the marks of the help out of what a shell shows of a flag.
func plainUsage(cmd *cobra.Command) {
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") })
	}
	for _, c := range cmd.Commands() {
		plainUsage(c)
	}
}

// completeTopics completes topic names; silently none when no broker answers.
func (a *app) completeTopics(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return a.completeNames(func(ctx context.Context, c *client) ([]string, error) {
		topics, err := c.admin.ListTopics(ctx)
		return topics.Names(), err
	})
}

// completeGroups completes group names; silently none when no broker answers.
func (a *app) completeGroups(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return a.completeNames(func(ctx context.Context, c *client) ([]string, error) {
		groups, err := c.admin.ListGroups(ctx)
		return groups.Groups(), err
	})
}

func (a *app) completeNames(ask func(context.Context, *client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionLimit)
	defer cancel()
	c, err := a.connect(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer c.Close()
	names, err := ask(ctx, c)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
