package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/internal/admin"
)

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "version", Short: "show the version of this program", GroupID: groupHelp, Args: noArguments,
		Long:    "Shows the version of this program, and of the Apache Kafka whose behaviour it has.",
		Example: "  varve version\n  varve version -o json",
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version  string  `json:"version"`
				Kafka    string  `json:"kafka"`
				Go       string  `json:"go"`
				Platform string  `json:"platform"`
				Commit   *string `json:"commit"`
			}{Version, kafkaLevel, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, commit()}
			return a.print(v, a.printVersion)
		},
	}
	a.outputFlag(cmd)
	return cmd
}

func (a *app) printVersion() {
	of := ""
	if c := commit(); c != nil {
		of = " (" + *c + ")"
	}
	if withSeams {
		of += " faults"
	}
	fmt.Fprintf(a.Stdout, "varve %s%s, Kafka level %s, %s, %s/%s\n", Version, of, kafkaLevel, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// build is what a running broker says of itself.
func build() admin.Build {
	b := admin.Build{Version: Version, Go: runtime.Version(), Kafka: kafkaLevel}
	if c := commit(); c != nil {
		b.Commit = *c
	}
	return b
}

// commit is the revision this program was built from, when the build says.
func commit() *string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			short := s.Value[:12]
			return &short
		}
	}
	return nil
}
