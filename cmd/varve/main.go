// Command varve is the one binary: the broker, its tools, and the kafka-*.sh
// names by argv[0].
package main

import (
	"os"

	"github.com/varvelog/varve/internal/cli"
)

func main() { os.Exit(cli.Main()) }
