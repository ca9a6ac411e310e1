package dump

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/vfs"
)

// decoderFlags are the flags of the recorded texts of internal topics.
var decoderFlags = map[string]string{
	"consumer_offsets": "--offsets-decoder", "transaction_state": "--transaction-log-decoder",
	"cluster_metadata": "--cluster-metadata-decoder", "share_group_state": "--share-group-state-decoder",
}

// What kafka-dump-log of 4.4.0 and 3.9.2 printed about every golden directory
// is printed again, byte for byte.
func TestGoldenDirectoriesAreDumpedAsKafkaDumpedThem(t *testing.T) {
	texts := 0
	for _, name := range golden.Names(t) {
		c := golden.Load(t, name)
		for i := range c.Stages {
			s := &c.Stages[i]
			found, err := filepath.Glob(filepath.Join(c.Dir, "dump", s.Name+".*txt"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range found {
				dump := "dump/" + filepath.Base(file)
				tag := strings.Trim(strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), s.Name), "txt"), ".")
				flag, decoded := decoderFlags[tag]
				if tag != "" && !decoded {
					continue // another stage's, or standard error
				}
				texts++
				t.Run(name+"/"+s.Name+"/"+tag, func(t *testing.T) {
					checkDump(t, s, dump, flag)
				})
			}
		}
	}
	if texts < 90 {
		t.Errorf("compared %d texts, want at least 90", texts)
	}
}

func checkDump(t *testing.T, s *golden.Stage, dump, flag string) {
	dir := s.Unpack(t)
	wantOut, wantErr := s.DumpText(t, dump)
	args := []string{flag}
	if flag == "" {
		args = args[:0]
		switch {
		case strings.Contains(wantOut, "payload: "):
			args = append(args, "--print-data-log")
		case strings.Contains(wantOut, "\n| "):
			args = append(args, "--deep-iteration")
		}
	}
	files := dumpedFiles(wantOut)
	var stdout, stderr bytes.Buffer
	tool := Tool{FS: vfs.OS(), Dir: dir, Stdout: &stdout, Stderr: &stderr}
	code := tool.Run(append(args, "--files", strings.Join(files, ",")))
	gotOut, gotErr := stdout.String(), strings.ReplaceAll(stderr.String(), dir+"/", "")
	if strings.HasPrefix(s.Kafka, "3.") {
		gotOut, gotErr = asKafka39(gotOut, gotErr)
		wantOut, wantErr = asKafka39(wantOut, wantErr)
	}
	if gotOut != wantOut {
		t.Errorf("standard output (-want +got)\n%s", firstDifference(wantOut, gotOut))
	}
	failed := strings.Contains(wantErr, "Exception in thread")
	if (code != 0) != failed {
		t.Errorf("exit %d, want failure %v: %s", code, failed, gotErr)
	}
	if d := cmp.Diff(blocks(wantErr), blocks(gotErr)); d != "" {
		t.Errorf("standard error (-want +got)\n%s", d)
	}
}

// dumpedFiles are the files of a recorded text, in order.
func dumpedFiles(text string) []string {
	var files []string
	for line := range strings.Lines(text) {
		if f, ok := strings.CutPrefix(line, "Dumping "); ok {
			files = append(files, strings.TrimSpace(f))
		}
	}
	return files
}

// asKafka39 removes what 3.9.2 prints otherwise: a stray brace, a blank at the
// end of a producer, the transaction decoder's own text, the name of a log
// that does not start at 0 among those with gaps, and where offsets were not found.
func asKafka39(stdout, stderr string) (string, string) {
	stdout = regexp.MustCompile(`(?m)( crc: \d+)}`).ReplaceAllString(stdout, "$1")
	stdout = regexp.MustCompile(`(?m) +$`).ReplaceAllString(stdout, "")
	stdout = regexp.MustCompile(`key: (transaction_metadata::|\{"type":"0","data":\{"transactionalId").*`).ReplaceAllString(stdout, "key: …")
	stdout = strings.ReplaceAll(stdout, ` LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[{"voterId":1}]}`, " controlType: LEADER_CHANGE(2)")
	stderr = regexp.MustCompile(`(?m)^The following indexed offsets are not found in .*$`).ReplaceAllString(stderr, "Offsets not found")
	stderr = regexp.MustCompile(`(?m)^  -1 is followed by \d+\n`).ReplaceAllString(stderr, "")
	stderr = regexp.MustCompile(`(?m)^Non-consecutive offsets in .*\n(?: *\n)?((?:Non|Mis|Found|Off)|\z)`).ReplaceAllString(stderr, "$1")
	return stdout, stderr
}

// blocks are the groups of findings, in no order, with what belongs to each;
// of an exception its first line.
func blocks(stderr string) []string {
	var out []string
	for line := range strings.Lines(stderr) {
		switch {
		case strings.HasPrefix(line, "Caused by") || strings.HasPrefix(line, "\t"):
		case strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "Indexed offset"):
			out[len(out)-1] += line
		default:
			out = append(out, line)
		}
	}
	for i := range out {
		lines := strings.SplitAfter(out[i], "\n")
		slices.Sort(lines[1:])
		out[i] = strings.Join(lines, "")
	}
	slices.Sort(out)
	return out
}

func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		var a, b string
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return fmt.Sprintf("line %d\n-%s\n+%s", i+1, a, b)
		}
	}
	return ""
}

// A recorded call of the tool.
type cliCase struct {
	ID             string
	Args           []string
	Exit           int
	Stdout, Stderr []string
	NoFinalNewline bool `json:"stdoutNoFinalNewline"`
	Trace          []string
	Match          []string
}

func TestRecordedCallsAreAnsweredAsKafkaAnswersThem(t *testing.T) {
	root := golden.CLIRoot(t)
	found, err := filepath.Glob(filepath.Join(root, "cases", "dump-log-*.json"))
	if err != nil || len(found) < 40 {
		t.Fatalf("%d recorded calls, %v", len(found), err)
	}
	inputs := filepath.Join(root, "inputs")
	for _, file := range found {
		var c cliCase
		golden.JSON(t, file, &c)
		t.Run(c.ID, func(t *testing.T) {
			var args []string
			for _, a := range c.Args {
				args = append(args, strings.ReplaceAll(a, "{{INPUTS}}", inputs))
			}
			var stdout, stderr bytes.Buffer
			code := Main(args, &stdout, &stderr)
			wantOut := text(c.Stdout, inputs)
			if c.NoFinalNewline {
				wantOut = strings.TrimSuffix(wantOut, "\n")
			}
			if code != c.Exit || stdout.String() != wantOut {
				t.Errorf("exit %d, want %d; standard output (-want +got)\n%s", code, c.Exit, firstDifference(wantOut, stdout.String()))
			}
			wantErr := text(append(slices.Clone(c.Stderr), c.Trace...), inputs)
			if stderr.String() != wantErr {
				t.Errorf("standard error\n got %s\nwant %s", stderr.String(), wantErr)
			}
		})
	}
}

func text(lines []string, inputs string) string {
	var s strings.Builder
	for _, l := range lines {
		s.WriteString(strings.ReplaceAll(l, "{{INPUTS}}", inputs) + "\n")
	}
	return s.String()
}

// What a decoder prints is JSON that any reader accepts.
func TestDecodersPrintValidJSON(t *testing.T) {
	c := golden.Load(t, "07-groups-4.4.0")
	s := c.Stage(t, "clean")
	dir := s.Unpack(t)
	logs, err := filepath.Glob(filepath.Join(dir, "__consumer_offsets-*", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no logs: %v", err)
	}
	var stdout, stderr bytes.Buffer
	if code := Main([]string{"--offsets-decoder", "--skip-record-metadata", "--files", strings.Join(logs, ",")}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr.String())
	}
	n := 0
	for line := range strings.Lines(stdout.String()) {
		_, rest, ok := strings.Cut(line, "| key: ")
		if !ok {
			continue
		}
		key, payload, _ := strings.Cut(rest, " payload: ")
		if !json.Valid([]byte(key)) || strings.TrimSpace(payload) != "<DELETE>" && !json.Valid([]byte(payload)) {
			t.Errorf("not JSON: %s", line)
		}
		n++
	}
	if n < 20 {
		t.Errorf("%d records, want more", n)
	}
}
