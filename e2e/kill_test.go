package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/e2e/harness"
)

var (
	kills    = flag.Int("kills", 200, "kill -9 cycles of TestKill")
	killSeed = flag.Uint64("kill.seed", 0, "seed of TestKill; 0 takes one from the clock")
)

// TestKill runs producers and a committing consumer, kills the broker at a
// random moment, checks the dead directory with varve verify and with Apache
// Kafka's dump-log, starts again on it, and reads back what was acknowledged:
// all there, at its offset, in the order sent, and no record twice from
// idempotent producers. Again and again on the same directory.
func TestKill(t *testing.T) {
	t.Parallel()
	seed := *killSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("%d kills, seed %d (-args -kills=%d -kill.seed=%d)", *kills, seed, *kills, seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	// Small segments roll often; the interval makes index entries common.
	b := harness.Start(t, "log.segment.bytes=1048576", "log.index.interval.bytes=512", "num.partitions=3")
	const topic = "killed"
	const partitions = 3
	createTopic(t, b.Addr, topic, partitions)

	k := &killRun{t: t, topic: topic, next: make([]int64, partitions), last: map[string]int{}, seen: map[string]bool{}}
	total := 0
	for cycle := range *kills {
		stop := k.produce(b.Addr, cycle, rnd.Uint64())
		time.Sleep(time.Duration(5+rnd.IntN(200)) * time.Millisecond)
		b.Kill()
		got := stop()
		total += got
		verifyDead(t, b.Dir, cycle)
		b.Restart(t)
		k.check(b.Addr, cycle)
		if t.Failed() {
			t.Fatalf("cycle %d of seed %d", cycle, seed)
		}
	}
	b.Stop(t)
	if out, errs, code := harness.Varve(t, "verify", b.Dir); code != 0 {
		t.Errorf("varve verify after the clean stop: exit %d\n%s%s", code, out, errs)
	}
	t.Logf("%d kills, %d acknowledged records, none lost", *kills, total)
}

func createTopic(t *testing.T, addr, topic string, partitions int32) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := kadm.NewClient(c).CreateTopic(context.Background(), partitions, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
}

// verifyDead checks the directory as the kill left it.
func verifyDead(t *testing.T, dir string, cycle int) {
	t.Helper()
	if out, errs, code := harness.Varve(t, "verify", dir); code != 0 {
		t.Errorf("cycle %d: varve verify: exit %d\n%s%s", cycle, code, out, errs)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "*", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("cycle %d: no logs in %s: %v", cycle, dir, err)
	}
	// Those that changed lately: sealed segments were dumped in an earlier cycle.
	var recent []string
	for _, l := range logs {
		info, err := os.Stat(l)
		if err == nil && info.Size() > 0 && time.Since(info.ModTime()) < 30*time.Second {
			recent = append(recent, l)
		}
	}
	if len(recent) == 0 {
		return
	}
	out, errs, code := harness.Tool(t, "", "dump-log", "--files", strings.Join(recent, ","))
	if code != 0 || strings.Contains(out, "isvalid: false") || strings.Contains(errs, "Exception") {
		t.Errorf("cycle %d: Apache Kafka's dump-log: exit %d\n%.2000s%.2000s", cycle, code, out, errs)
	}
}

type killRun struct {
	t     *testing.T
	topic string
	next  []int64 // per partition: the first offset not yet read back

	mu   sync.Mutex
	acks []map[int64]string // per partition: acknowledged, not yet read back
	last map[string]int     // per producer and partition: the highest number read back
	seen map[string]bool    // values of idempotent producers, read back

	committed int64 // the last group offset whose commit was acknowledged
}

// produce starts four producers, two of them idempotent; the returned function
// waits for them to end and says how many records were acknowledged.
func (k *killRun) produce(addr string, cycle int, seed uint64) func() int {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	n := 0
	k.mu.Lock()
	k.acks = make([]map[int64]string, len(k.next))
	for p := range k.acks {
		k.acks[p] = map[int64]string{}
	}
	k.mu.Unlock()
	for i := range 4 {
		opts := []kgo.Opt{kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordRetries(0), kgo.ProducerLinger(0), kgo.RetryTimeout(100 * time.Millisecond)}
		kind := "idempotent"
		if i >= 2 {
			kind = "plain"
			opts = append(opts, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()), kgo.MaxProduceRequestsInflightPerBroker(1))
		}
		c, err := kgo.NewClient(opts...)
		if err != nil {
			k.t.Fatal(err)
		}
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			defer c.Close()
			for seq := 0; ctx.Err() == nil; seq++ {
				value := fmt.Sprintf("%s-%d-%d %d %s", kind, cycle, i, seq, strings.Repeat("x", rnd.IntN(900)))
				p := int32(rnd.IntN(len(k.next)))
				done := func(r *kgo.Record, err error) {
					if err != nil {
						cancel()
						return
					}
					k.mu.Lock()
					n++
					k.acks[r.Partition][r.Offset] = string(r.Value)
					k.mu.Unlock()
				}
				c.Produce(ctx, &kgo.Record{Topic: k.topic, Partition: p, Value: []byte(value)}, done)
				if seq%20 == 19 {
					_ = c.Flush(ctx)
				}
			}
			flushCtx, stop := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer stop()
			_ = c.Flush(flushCtx)
		})
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RetryTimeout(100*time.Millisecond))
	if err != nil {
		k.t.Fatal(err)
	}
	wg.Go(func() {
		defer c.Close()
		for at := k.committed + 1; ctx.Err() == nil; at++ {
			offsets := kadm.Offsets{}
			offsets.Add(kadm.Offset{Topic: k.topic, Partition: 0, At: at, LeaderEpoch: -1})
			if err := kadm.NewClient(c).CommitAllOffsets(ctx, "killed-group", offsets); err != nil {
				return
			}
			k.committed = at
		}
	})
	return func() int {
		cancel()
		wg.Wait()
		k.mu.Lock()
		defer k.mu.Unlock()
		return n
	}
}

// check reads everything new back.
func (k *killRun) check(addr string, cycle int) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	adminClient, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		k.t.Fatal(err)
	}
	defer adminClient.Close()
	ends, err := kadm.NewClient(adminClient).ListEndOffsets(ctx, k.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		k.t.Fatalf("cycle %d: end offsets: %v", cycle, err)
	}
	if k.committed > 0 {
		offsets, err := kadm.NewClient(adminClient).FetchOffsets(ctx, "killed-group")
		if err != nil {
			k.t.Fatalf("cycle %d: group offset: %v", cycle, err)
		}
		if got, _ := offsets.Lookup(k.topic, 0); got.At < k.committed {
			k.t.Errorf("cycle %d: group offset is %d, acknowledged was %d", cycle, got.At, k.committed)
		}
	}
	from := map[int32]kgo.Offset{}
	for p := range k.next {
		from[int32(p)] = kgo.NewOffset().At(k.next[p])
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{k.topic: from}))
	if err != nil {
		k.t.Fatal(err)
	}
	defer c.Close()
	behind := func() bool {
		for p := range k.next {
			end, _ := ends.Lookup(k.topic, int32(p))
			if k.next[p] < end.Offset {
				return true
			}
		}
		return false
	}
	for behind() {
		fetches := c.PollFetches(ctx)
		if ctx.Err() != nil {
			k.t.Fatalf("cycle %d: reading back stopped at %v", cycle, k.next)
		}
		for _, e := range fetches.Errors() {
			k.t.Fatalf("cycle %d: read %s-%d: %v", cycle, e.Topic, e.Partition, e.Err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset != k.next[r.Partition] {
				k.t.Errorf("cycle %d: partition %d jumps from offset %d to %d", cycle, r.Partition, k.next[r.Partition], r.Offset)
			}
			k.next[r.Partition] = r.Offset + 1
			value := string(r.Value)
			if want, ok := k.acks[r.Partition][r.Offset]; ok {
				if value != want {
					k.t.Errorf("cycle %d: partition %d offset %d holds %.40q, acknowledged was %.40q", cycle, r.Partition, r.Offset, value, want)
				}
				delete(k.acks[r.Partition], r.Offset)
			}
			var name string
			var seq int
			if _, err := fmt.Sscanf(value, "%s %d", &name, &seq); err != nil {
				k.t.Errorf("cycle %d: partition %d offset %d holds %.40q, which nobody sent", cycle, r.Partition, r.Offset, value)
				return
			}
			at := fmt.Sprintf("%s/%d", name, r.Partition)
			if before, ok := k.last[at]; ok && seq < before {
				k.t.Errorf("cycle %d: partition %d: record %d of %s comes after its record %d", cycle, r.Partition, seq, name, before)
			}
			k.last[at] = seq
			if strings.HasPrefix(name, "idempotent") {
				id := fmt.Sprintf("%s %d", name, seq)
				if k.seen[id] {
					k.t.Errorf("cycle %d: %s is there twice", cycle, id)
				}
				k.seen[id] = true
			}
		})
	}
	for p, left := range k.acks {
		if len(left) > 0 {
			k.t.Errorf("cycle %d: partition %d lost %d acknowledged records", cycle, p, len(left))
		}
	}
}
