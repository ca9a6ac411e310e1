package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/e2e/harness"
)

// TestFetchMovesRecordsBySendfile counts, with strace, the bytes that every
// system call of the broker moves while a consumer reads 100 MiB: the records
// go from the file to the socket by sendfile and never through the process.
func TestFetchMovesRecordsBySendfile(t *testing.T) {
	b := harness.Start(t)
	const topic, total = "hundred", 100 << 20
	createTopic(t, b.Addr, topic, 1)
	fillBytes(t, b.Addr, topic, total)

	trace := filepath.Join(t.TempDir(), "trace")
	strace := exec.Command("strace", "-f", "-qq", "-o", trace, "-e", "trace=sendfile,splice,copy_file_range,write,writev,pwrite64,pwritev,sendto,sendmsg,sendmmsg,read,readv,pread64,preadv,preadv2,recvfrom,recvmsg", "-p", strconv.Itoa(b.Pid()))
	if err := strace.Start(); err != nil {
		t.Fatal(err)
	}
	waitTraced(t, b.Pid())
	read := readBytes(t, b.Addr, topic, total)
	if err := strace.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = strace.Wait()

	moved, calls := map[string]int64{}, map[string]int{}
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	// "123 sendfile(7, 9, [0] => [4096], 4096) = 4096", also in two halves:
	// "123 sendfile(7, 9, … <unfinished ...>" and "123 <... sendfile resumed>…) = 4096".
	line := regexp.MustCompile(`^\d+\s+(?:<\.\.\. )?([a-z0-9]+)(?:\(| resumed>).*= (\d+)$`)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := line.FindStringSubmatch(lines.Text()); m != nil {
			n, _ := strconv.ParseInt(m[2], 10, 64)
			moved[m[1]] += n
			calls[m[1]]++
		}
	}
	var table strings.Builder
	for name := range moved {
		fmt.Fprintf(&table, "%-12s %6d calls %12d bytes\n", name, calls[name], moved[name])
	}
	t.Logf("%d bytes of values read by the consumer\n%s", read, table.String())
	if moved["sendfile"] < total {
		t.Errorf("sendfile moved %d bytes, want %d at least", moved["sendfile"], total)
	}
	for name, n := range moved {
		if name != "sendfile" && n > total/100 {
			t.Errorf("%s moved %d bytes; records must not go through the process", name, n)
		}
	}
}

// waitTraced returns when the kernel says that the process has a tracer.
func waitTraced(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
		traced := 0
		for _, task := range tasks {
			b, err := os.ReadFile(task)
			if err == nil && !strings.Contains(string(b), "TracerPid:\t0") {
				traced++
			}
		}
		if traced > 0 && traced == len(tasks) {
			return
		}
	}
	t.Fatal("strace did not attach within 10 s; it needs permission to trace")
}

func fillBytes(t *testing.T, addr, topic string, total int) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(1000000))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	value := make([]byte, 100_000)
	for sent := 0; sent < total; sent += len(value) {
		c.Produce(ctx, &kgo.Record{Topic: topic, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func readBytes(t *testing.T, addr, topic string, total int) int {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}), kgo.FetchMaxPartitionBytes(10<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	read := 0
	for read < total {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %d bytes: %v", read, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { read += len(r.Value) })
	}
	return read
}
