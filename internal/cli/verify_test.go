package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/logtest/golden"
)

func runCLI(args ...string) (status int, stdout, stderr string) {
	var out, errs strings.Builder
	status = Run(&Process{Args: append([]string{"varve"}, args...), Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs})
	return status, out.String(), errs.String()
}

// The text and the JSON of verify hold the same findings, and end with the same
// status, for a directory with damage of many kinds and for one without.
func TestVerifySaysTheSameInTextAndJSON(t *testing.T) {
	for _, tt := range []struct {
		name, stage string
		status      int
	}{{"09-crash-trusted-4.4.0", "before", exitProblems}, {"05-transactions-4.4.0", "clean", exitDone}} {
		dir := golden.Load(t, tt.name).Stage(t, tt.stage).Unpack(t)
		status, text, _ := runCLI("verify", dir)
		if status != tt.status {
			t.Errorf("%s: status %d, want %d", tt.name, status, tt.status)
		}
		status, doc, _ := runCLI("verify", "-o", "json", dir)
		if status != tt.status {
			t.Errorf("%s: status %d with JSON, want %d", tt.name, status, tt.status)
		}
		var got struct {
			Findings []struct {
				Severity, Code, File, Message string
				Position                      *int64
			}
			Partitions, Segments, Errors, Warnings int
		}
		if err := json.Unmarshal([]byte(doc), &got); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, f := range got.Findings {
			place := f.File
			if f.Position != nil {
				place += fmt.Sprintf(":%d", *f.Position)
			}
			fmt.Fprintf(&b, "%s  %s  %s  %s\n", f.Severity, f.Code, place, f.Message)
		}
		lines, summary, _ := strings.Cut(text, "verified ")
		if b.String() != lines {
			t.Errorf("%s: the JSON says\n%s\nthe text\n%s", tt.name, b.String(), lines)
		}
		if !strings.HasPrefix(summary, fmt.Sprintf("%d partition", got.Partitions)) || !strings.Contains(summary, fmt.Sprintf(": %d error", got.Errors)) || !strings.Contains(summary, fmt.Sprintf(", %d warning", got.Warnings)) {
			t.Errorf("%s: the JSON counts %d partitions, %d errors, %d warnings, the text says %s", tt.name, got.Partitions, got.Errors, got.Warnings, summary)
		}
		if tt.status == exitProblems && len(got.Findings) < 20 {
			t.Errorf("%s: %d findings", tt.name, len(got.Findings))
		}
	}
}
