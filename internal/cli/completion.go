package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	return &cobra.Command{
		Use: "completion bash|zsh|fish|powershell", Short: "print the completion script of a shell", GroupID: groupHelp,
		Long: "Prints a script that makes a shell complete varve's commands and flags, and the\nnames of topics and groups of a running broker.",
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
