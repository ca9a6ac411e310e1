// Package cli is the command line: one command a file. `varve serve` starts a
// node; the other commands are clients of a running broker, or read files
// without one. Under a name of Kafka's own tools, kafka-topics.sh for one, the
// same program behaves as that tool does.
//
// Nothing here is on a record's path. The package is the last one: cmd/varve
// hands over to Main.
package cli
