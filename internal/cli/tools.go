package cli

import (
	"fmt"
	"strings"
)

// kafkaTool resolves a name of Kafka's own tools: "kafka-topics.sh" and
// "kafka-topics" are the tool "topics" (CLI-4).
func kafkaTool(name string) (tool string, ok bool) {
	for _, suffix := range []string{".sh", ".bat", ".exe"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return strings.CutPrefix(name, "kafka-")
}

// runKafkaTool runs one of Kafka's tools by its own rules.
func (p *Process) runKafkaTool(tool string, args []string) int {
	fmt.Fprintf(p.Stderr, "kafka-%s is not part of varve\n", tool)
	return exitFailed
}
