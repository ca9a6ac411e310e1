package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// help prints a command's help: what it does, how it is called, examples, its
// sub-commands in their groups, its flags.
func (a *app) help(cmd *cobra.Command, _ []string) {
	var b strings.Builder
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}
	b.WriteString(strings.TrimSpace(about) + "\n\n")
	b.WriteString("Usage: " + usageLine(cmd) + "\n")
	a.helpCommands(&b, cmd)
	if cmd.Example != "" {
		title := "Examples"
		if !cmd.HasParent() {
			title = "A first minute"
		}
		b.WriteString("\n" + title + "\n" + strings.TrimRight(cmd.Example, "\n") + "\n")
	}
	helpFlags(&b, "Flags", cmd.NonInheritedFlags())
	helpFlags(&b, "Flags of every command", cmd.InheritedFlags())
	if !cmd.HasParent() {
		b.WriteString("\nvarve COMMAND --help says more. A broker is looked for at -b HOST:PORT, else at\n" +
			"VARVE_BOOTSTRAP_SERVERS, else at " + defaultBootstrap + ".\n\n" +
			"Exit status: 0 done, 1 failed, 2 wrong usage, 3 problems found, 4 no such thing,\n" +
			"5 refused for safety, 6 no broker reached, 78 (serve) wrong configuration.\n")
	}
	fmt.Fprint(a.Stdout, b.String())
}

func usageLine(cmd *cobra.Command) string {
	switch {
	case !cmd.HasParent():
		return "varve COMMAND [FLAGS]"
	case cmd.HasSubCommands():
		return cmd.CommandPath() + " COMMAND [FLAGS]"
	}
	return cmd.Parent().CommandPath() + " " + cmd.Use + " [FLAGS]"
}

func (a *app) helpCommands(b *strings.Builder, cmd *cobra.Command) {
	if !cmd.HasSubCommands() {
		return
	}
	if len(cmd.Groups()) == 0 {
		b.WriteString("\nCommands\n")
		for _, c := range cmd.Commands() {
			if !c.Hidden {
				fmt.Fprintf(b, "  %-16s %s\n", c.Name(), c.Short)
			}
		}
		return
	}
	for _, g := range cmd.Groups() {
		b.WriteString("\n" + g.Title + "\n")
		for _, c := range cmd.Commands() {
			if c.GroupID == g.ID && !c.Hidden {
				fmt.Fprintf(b, "  %-16s %s\n", c.Name(), c.Short)
			}
		}
	}
}

func helpFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	type row struct{ left, right string }
	var rows []row
	width := 0
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" { // everybody knows --help by now
			return
		}
		left := "    --" + f.Name
		if f.Shorthand != "" {
			left = "-" + f.Shorthand + ", --" + f.Name
		}
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			left += " " + value
		}
		rows = append(rows, row{left, usage})
		if len(left) > width && len(left) <= 30 {
			width = len(left)
		}
	})
	if len(rows) == 0 {
		return
	}
	b.WriteString("\n" + title + "\n")
	for _, r := range rows {
		fmt.Fprintf(b, "  %-*s  %s\n", width, r.left, r.right)
	}
}
