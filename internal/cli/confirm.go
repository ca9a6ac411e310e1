package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
)

// confirm asks before something that cannot be undone. Without a terminal to
// ask on it refuses unless --yes was given (CLI-28).
func (a *app) confirm(yes bool, what string) error {
	if yes {
		return nil
	}
	if !isTerminal(a.Stdin) {
		return refused("add --yes to do it, or --dry-run to see what would be done", "not asked whether to %s", what)
	}
	fmt.Fprintf(a.Stderr, "%s? (y/n) ", strings.ToUpper(what[:1])+what[1:])
	line, _ := bufio.NewReader(a.Stdin).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return &failure{code: exitFailed, why: "nothing was done"}
}

// isTerminal reports whether a stream is a character device that someone may
// sit at; /dev/null is one where nobody does.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// openInput opens a file to read records from; "-" and "" are standard input.
func (a *app) openInput(path string) (io.ReadCloser, error) {
	if path == "" || path == "-" {
		return io.NopCloser(a.Stdin), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, &failure{code: exitMissing, why: err.Error()}
	}
	return f, nil
}
