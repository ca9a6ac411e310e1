package config

import (
	"fmt"
	"strings"
)

// OriginKind says what kind of source a setting came from.
type OriginKind int8

// The sources of a setting, lowest precedence first.
const (
	FromDefault  OriginKind = iota // Kafka's default or varve's own
	FromFile                       // a properties file; Line is set
	FromEnv                        // an environment variable; Name is the variable
	FromOverride                   // --override KEY=VALUE
	FromFlag                       // a named flag; Name is the flag with its dashes
	FromDynamic                    // the cluster metadata
)

// Origin is the place a setting was written at.
type Origin struct {
	Kind OriginKind
	Name string // file path, variable or flag; empty otherwise
	Line int    // 1-based line of a file; 0 otherwise
}

// String renders the origin as the head of a message: "FILE:LINE", "env NAME",
// "--override", the flag, or "default".
func (o Origin) String() string {
	switch o.Kind {
	case FromFile:
		if o.Line == 0 {
			return o.Name
		}
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	case FromEnv:
		return "env " + o.Name
	case FromOverride:
		return "--override"
	case FromFlag:
		return o.Name
	case FromDynamic:
		return "dynamic"
	}
	return "default"
}

// Error is one thing wrong with a configuration. Its text is one line,
// "FILE:LINE: KEY: MESSAGE", where MESSAGE contains what Kafka says.
type Error struct {
	Origin  Origin
	Key     string
	Message string
	Hint    string // what to do; empty when the message says it
}

// Error implements error. The hint is not part of it.
func (e *Error) Error() string {
	return e.Origin.String() + ": " + e.Key + ": " + e.Message
}

// Errors is everything wrong with a configuration, in the order of the checks.
// It is never empty when returned as an error.
type Errors []*Error

// Error implements error: one line an error, each hint on a line of its own.
func (es Errors) Error() string {
	var b strings.Builder
	for i, e := range es {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(e.Error())
		if e.Hint != "" {
			b.WriteString("\nhint: " + e.Hint)
		}
	}
	return b.String()
}

// Unwrap lets errors.As find each error.
func (es Errors) Unwrap() []error {
	out := make([]error, len(es))
	for i, e := range es {
		out[i] = e
	}
	return out
}

// Warning is something in a configuration that its author should know, but that
// does not keep the broker from starting.
type Warning struct {
	Origin  Origin
	Key     string
	Message string
	Notice  bool // worth an INFO line only
}

// String renders the warning in the form of Error.
func (w Warning) String() string {
	if w.Key == "" {
		return w.Message
	}
	return w.Origin.String() + ": " + w.Key + ": " + w.Message
}
