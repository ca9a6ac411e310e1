package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
)

// failure is an error with everything its user should see: what was being
// done, why it did not work, what to do, and the exit status.
type failure struct {
	code int
	what string // "create topic orders"; may be empty
	why  string
	hint string
	kafk *kerr.Error // the protocol error behind it; nil when there is none
}

func (f *failure) Error() string {
	if f.what == "" {
		return f.why
	}
	return f.what + ": " + f.why
}

// exitCode ends a command that has said everything already.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit status %d", int(c)) }

// usageError is a command line that cannot be understood.
func usageError(format string, args ...any) error {
	return &failure{code: exitUsage, why: fmt.Sprintf(format, args...)}
}

// refused is an action that was not done for safety, with advice.
func refused(hint, format string, args ...any) error {
	return &failure{code: exitRefused, why: fmt.Sprintf(format, args...), hint: hint}
}

// failed wraps an error of a client call: a protocol error with its name and
// number, or whatever else went wrong.
func failed(what string, err error) error {
	return failedWith(what, "", err)
}

// failedWith is failed with the broker's own message for the error.
func failedWith(what, message string, err error) error {
	var f *failure
	if errors.As(err, &f) {
		return err
	}
	var k *kerr.Error
	if errors.As(err, &k) {
		if message == "" {
			message = k.Description
		}
		why := fmt.Sprintf("%s (%d): %s", k.Message, k.Code, strings.TrimSuffix(message, "."))
		return &failure{code: exitOf(k), what: what, why: why, hint: hintOf(k), kafk: k}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &failure{code: exitOffline, what: what, why: "no answer from the broker in time", hint: "is it overloaded, or is the address that it advertises not reachable from here?"}
	}
	return &failure{code: exitFailed, what: what, why: err.Error()}
}

func exitOf(k *kerr.Error) int {
	switch k {
	case kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.GroupIDNotFound, kerr.ResourceNotFound:
		return exitMissing
	case kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed:
		return exitOffline
	case kerr.NonEmptyGroup:
		return exitRefused
	}
	return exitFailed
}

func hintOf(k *kerr.Error) string {
	switch k {
	case kerr.UnknownTopicOrPartition:
		return "varve topics list shows the topics there are"
	case kerr.GroupIDNotFound:
		return "varve groups list shows the groups there are"
	case kerr.TopicAlreadyExists:
		return "--if-not-exists makes this no error"
	case kerr.NonEmptyGroup:
		return "stop the members of the group first"
	case kerr.InvalidReplicationFactor:
		return "a topic cannot have more replicas than there are brokers"
	case kerr.MessageTooLarge:
		return "raise the topic's max.message.bytes, or send smaller records"
	}
	return ""
}

// report prints an error in the form the command's output has, and returns the
// exit status.
func (a *app) report(cmd *cobra.Command, err error) int {
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{code: exitUsage, why: err.Error()} // cobra's own errors are about the command line
	}
	if f.code == exitUsage && f.hint == "" && cmd != nil {
		f.hint = "see " + cmd.CommandPath() + " --help"
	}
	if a.output == "json" {
		a.reportJSON(f)
	}
	fmt.Fprintln(a.Stderr, "varve: "+f.Error())
	if f.hint != "" {
		fmt.Fprintln(a.Stderr, "hint: "+f.hint)
	}
	return f.code
}

// reportJSON keeps the promise that standard output under -o json is exactly
// one document, also when nothing came of the command.
func (a *app) reportJSON(f *failure) {
	type body struct {
		Code    *int16  `json:"code"`
		Name    *string `json:"name"`
		Message string  `json:"message"`
		Hint    *string `json:"hint"`
	}
	b := body{Message: f.Error()}
	if f.kafk != nil {
		b.Code, b.Name = &f.kafk.Code, &f.kafk.Message
	}
	if f.hint != "" {
		b.Hint = &f.hint
	}
	if !a.printed {
		_ = json.NewEncoder(a.Stdout).Encode(map[string]body{"error": b})
	}
}
