package e2e

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/e2e/harness"
)

// TestJavaTools runs the command line tools of Apache Kafka 4.4.0 against the
// broker: they are the Java producer, consumer and admin client.
func TestJavaTools(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	at := []string{"--bootstrap-server", server.Bootstrap()}
	tool := func(stdin string, args ...string) string {
		t.Helper()
		return harness.MustTool(t, stdin, append(args[:1:1], append(at, args[1:]...)...)...)
	}
	tool("", "topics", "--create", "--topic", "java", "--partitions", "3", "--config", "retention.ms=1000000")
	if out := tool("", "topics", "--describe", "--topic", "java"); !strings.Contains(out, "PartitionCount: 3") || !strings.Contains(out, "retention.ms=1000000") {
		t.Errorf("topics --describe:\n%s", out)
	}
	for _, codec := range codecs {
		topic := "java." + codec
		tool("", "topics", "--create", "--topic", topic, "--partitions", "1")
		var in, want strings.Builder
		for i := range 200 {
			fmt.Fprintf(&in, "h:%d\tkey-%d\tvalue-%d\n", i, i, i)
			fmt.Fprintf(&want, "CreateTime:T\tOffset:%d\th:%d\tkey-%d\tvalue-%d\n", i, i, i, i)
		}
		tool(in.String(), "console-producer", "--topic", topic, "--compression-codec", codec, "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true")
		got := tool("", "console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "200", "--timeout-ms", "20000",
			"--formatter-property", "print.timestamp=true", "--formatter-property", "print.offset=true", "--formatter-property", "print.headers=true", "--formatter-property", "print.key=true")
		if got := regexp.MustCompile(`CreateTime:\d+`).ReplaceAllString(got, "CreateTime:T"); got != want.String() {
			t.Errorf("%s: read\n%.300s\nwant\n%.300s", codec, got, want.String())
		}
	}
	if got := tool("", "console-consumer", "--topic", "java.zstd", "--partition", "0", "--offset", "198", "--max-messages", "2", "--timeout-ms", "20000"); got != "value-198\nvalue-199\n" {
		t.Errorf("from offset 198 read %q", got)
	}
	if got := tool("", "get-offsets", "--topic", "java.gzip"); got != "java.gzip:0:200\n" {
		t.Errorf("get-offsets = %q", got)
	}
	// Large records, and offsets by time: idempotence is the Java producer's default.
	tool("", "topics", "--create", "--topic", "java.large", "--partitions", "1", "--config", "max.message.bytes=4000000")
	large := strings.Repeat("0123456789abcdef", 120_000)
	tool(large+"\n"+large+"\n", "console-producer", "--topic", "java.large", "--max-memory-bytes", "64000000", "--command-property", "max.request.size=4000000")
	if got := tool("", "console-consumer", "--topic", "java.large", "--from-beginning", "--max-messages", "2", "--timeout-ms", "20000"); got != large+"\n"+large+"\n" {
		t.Errorf("large records: read %d bytes, want %d", len(got), 2*len(large)+2)
	}
	if got := tool("", "get-offsets", "--topic", "java.gzip", "--time", "0"); got != "java.gzip:0:0\n" {
		t.Errorf("get-offsets --time 0 = %q, want the first record", got)
	}
	if got := tool("", "get-offsets", "--topic", "java.gzip", "--time", "max-timestamp"); !strings.HasPrefix(got, "java.gzip:0:") || got == "java.gzip:0:200\n" {
		t.Errorf("get-offsets --time max-timestamp = %q, want the offset of a record", got)
	}
	javaGroup(t, server, tool)
	// A group commits, resumes after a restart, and is reset.
	if got := tool("", "console-consumer", "--topic", "java.none", "--group", "java-group", "--from-beginning", "--max-messages", "50", "--timeout-ms", "20000"); strings.Count(got, "\n") != 50 {
		t.Errorf("the group read %d records, want 50", strings.Count(got, "\n"))
	}
	server.Stop(t)
	server.Restart(t)
	if got := tool("", "console-consumer", "--topic", "java.none", "--group", "java-group", "--max-messages", "150", "--timeout-ms", "20000"); !strings.HasPrefix(got, "value-50\n") || strings.Count(got, "\n") != 150 {
		t.Errorf("after the restart the group read %d records beginning with %.20q, want 150 from value-50", strings.Count(got, "\n"), got)
	}
	if out := tool("", "consumer-groups", "--describe", "--group", "java-group"); !regexp.MustCompile(`java-group\s+java\.none\s+0\s+200\s+200\s+0\s`).MatchString(out) {
		t.Errorf("consumer-groups --describe:\n%s", out)
	}
	if out := tool("", "consumer-groups", "--list"); !strings.Contains(out, "java-group\n") {
		t.Errorf("consumer-groups --list:\n%s", out)
	}
	tool("", "consumer-groups", "--reset-offsets", "--group", "java-group", "--topic", "java.none", "--to-offset", "7", "--execute")
	if out := tool("", "consumer-groups", "--describe", "--group", "java-group", "--offsets"); !regexp.MustCompile(`java\.none\s+0\s+7\s+200\s+193\s`).MatchString(out) {
		t.Errorf("after the reset:\n%s", out)
	}
	if out := tool("", "consumer-groups", "--describe", "--group", "java-group", "--state"); !strings.Contains(out, "Empty") {
		t.Errorf("state of the group:\n%s", out)
	}
	tool("", "consumer-groups", "--delete", "--group", "java-group")
	tool("", "configs", "--alter", "--topic", "java", "--add-config", "max.message.bytes=2000000,cleanup.policy=[compact,delete]")
	if out := tool("", "configs", "--describe", "--topic", "java"); !strings.Contains(out, "max.message.bytes=2000000") || !strings.Contains(out, "cleanup.policy=compact,delete") {
		t.Errorf("configs --describe:\n%s", out)
	}
	if out := tool("", "configs", "--describe", "--broker", "1", "--all"); strings.Count(out, "\n") < 300 {
		t.Errorf("the broker describes %d settings, want 300 at least", strings.Count(out, "\n"))
	}
	tool("", "topics", "--alter", "--topic", "java", "--partitions", "5")
	json := t.TempDir() + "/delete.json"
	write(t, json, `{"partitions":[{"topic":"java.lz4","partition":0,"offset":150}],"version":1}`)
	if out := tool("", "delete-records", "--offset-json-file", json); !strings.Contains(out, "low_watermark: 150") {
		t.Errorf("delete-records:\n%s", out)
	}
	if out := tool("", "log-dirs", "--describe"); !strings.Contains(out, `"partition":"java.lz4-0"`) {
		t.Errorf("log-dirs --describe:\n%.500s", out)
	}
	if out := tool("", "broker-api-versions"); !strings.Contains(out, "Produce(0): 0 to 13") || !strings.Contains(out, "Fetch(1): 4 to 18") {
		t.Errorf("broker-api-versions:\n%.2000s", out)
	}
	if out := harness.MustTool(t, "", "cluster", "list-endpoints", "--bootstrap-server", server.Bootstrap()); !strings.Contains(out, server.Bootstrap()[strings.Index(server.Bootstrap(), ":")+1:]) {
		t.Errorf("cluster list-endpoints:\n%s", out)
	}
	tool("", "topics", "--delete", "--topic", "java")
	if out := tool("", "topics", "--list"); regexp.MustCompile(`(?m)^java$`).MatchString(out) || !strings.Contains(out, "java.zstd\n") {
		t.Errorf("topics --list after the deletion:\n%s", out)
	}
	// The performance tools: idempotent by default, many batches in flight.
	if out := tool("", "producer-perf-test", "--topic", "perf", "--num-records", "50000", "--record-size", "200", "--throughput", "-1"); !strings.Contains(out, "50000 records sent") {
		t.Errorf("producer-perf-test:\n%s", out)
	}
	if out := tool("", "consumer-perf-test", "--topic", "perf", "--num-records", "50000", "--timeout", "30000"); !strings.Contains(out, ", 50000, ") {
		t.Errorf("consumer-perf-test:\n%s", out)
	}
}

// javaGroup starts three console consumers in one group, sees each hold one of
// three partitions, and after one has left the other two hold all.
func javaGroup(t *testing.T, server harness.Server, tool func(string, ...string) string) {
	t.Helper()
	tool("", "topics", "--create", "--topic", "java.three", "--partitions", "3")
	var members []*exec.Cmd
	for range 3 {
		members = append(members, harness.StartTool(t, "console-consumer", "--bootstrap-server", server.Bootstrap(), "--topic", "java.three", "--group", "java-three", "--from-beginning"))
	}
	row := regexp.MustCompile(`(?m)^java-three\s+\S+\s+\S+\s+\S+\s+(\d+)`)
	held := func(want ...string) {
		t.Helper()
		var got []string
		for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
			got = nil
			out, _, _ := harness.Tool(t, "", "consumer-groups", "--bootstrap-server", server.Bootstrap(), "--describe", "--group", "java-three", "--members")
			for _, m := range row.FindAllStringSubmatch(out, -1) {
				got = append(got, m[1])
			}
			slices.Sort(got)
			if slices.Equal(got, want) {
				return
			}
		}
		t.Errorf("members hold %v partitions after 60 s, want %v", got, want)
	}
	held("1", "1", "1")
	if err := members[0].Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	_ = members[0].Wait()
	held("1", "2")
	for _, m := range members[1:] {
		if err := m.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		_ = m.Wait()
	}
}
