// Command floor measures the bare system calls of a commit log; see package floor.
package main

import (
	"os"

	"github.com/varvelog/varve/bench/floor"
)

func main() {
	if len(os.Args) > 1 && floor.ChildMain(os.Args[1:]) {
		return
	}
	floor.Main()
}
