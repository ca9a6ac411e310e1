package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
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

// A good batch behind a bad one in the middle of a log: the plan is printed, --yes
// alone does not do it, and with --allow-data-loss verify is content afterwards.
func TestRepairTakesNothingOutWithoutLeave(t *testing.T) {
	dir := golden.Load(t, "05-transactions-4.4.0").Stage(t, "clean").Unpack(t)
	log := filepath.Join(dir, "txn-1", "00000000000000000022.log")
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	data[3000] ^= 1
	if err := os.WriteFile(log, data, 0o644); err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		args   []string
		status int
		stdout string
	}{
		{[]string{"repair", dir}, exitProblems, "needs --allow-data-loss: move aside " + log + ": drops offsets "},
		{[]string{"repair", "--dry-run", "-o", "json", dir}, exitProblems, `"losesData": true`},
		{[]string{"repair", "--apply", dir}, exitRefused, ""}, // nobody said --yes
		{[]string{"repair", "--apply", "--yes", dir}, exitRefused, "0 steps done, 1 held, 0 left"},
		{[]string{"verify", dir}, exitProblems, "V011"},
		{[]string{"repair", "--apply", "--yes", "--allow-data-loss", dir}, exitDone, "0 held, 0 left"},
		{[]string{"verify", dir}, exitDone, "V082"},
		{[]string{"repair", dir}, exitDone, "0 steps to do, 0 held, 0 left"},
	}
	for _, s := range steps {
		status, out, errs := runCLI(s.args...)
		if status != s.status || !strings.Contains(out, s.stdout) {
			t.Errorf("%v: status %d, want %d: %s%s", s.args, status, s.status, out, errs)
		}
		now, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if changed := string(now) != string(data); changed != (s.status == exitDone) {
			t.Errorf("%v: the log was changed: %v", s.args, changed)
		}
	}
	if kept, err := os.ReadFile(log + ".cut"); err != nil || string(kept) != string(data) {
		t.Errorf("the old log is not kept: %v", err)
	}
}

// explain ends with 3 in damaged bytes, with the steps that lead there, and with 4
// outside of the log, with where it starts and ends.
func TestExplainSaysWhereALookupEnds(t *testing.T) {
	dir := golden.Load(t, "05-transactions-4.4.0").Stage(t, "clean").Unpack(t)
	index := filepath.Join(dir, "txn-1", "00000000000000000022.index")
	log := filepath.Join(dir, "txn-1", "00000000000000000022.log")
	for path, at := range map[string]int{index: 7, log: 3000} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[at] ^= 1
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		args           []string
		status         int
		stdout, stderr string
	}{
		{[]string{"--offset", "40"}, exitDone, "contradicts the .log: no batch starts at byte", ""},
		{[]string{"--offset", "33"}, exitProblems, "gets CORRUPT_MESSAGE, the walk goes on behind it", "lies in damaged bytes: " + log + ", bytes "},
		{[]string{"--offset", "33", "-o", "json"}, exitProblems, `"step": "damage"`, "lies in damaged bytes"},
		{[]string{"--offset", "50"}, exitMissing, "", "offset 50 is out of range: the log starts at offset 0 and ends at 49"},
		{[]string{"--offset", "-1"}, exitMissing, "", "offset -1 is out of range: the log starts at offset 0 and ends at 49"},
		{[]string{"--timestamp", "now+7d"}, exitMissing, "", "is out of range: the log starts at offset 0 and ends at 49"},
	}
	for _, tt := range tests {
		status, out, errs := runCLI(append([]string{"explain", dir, "txn-1"}, tt.args...)...)
		if status != tt.status || !strings.Contains(out, tt.stdout) || !strings.Contains(errs, tt.stderr) {
			t.Errorf("explain %v: status %d, want %d: %s%s", tt.args, status, tt.status, out, errs)
		}
	}
}
