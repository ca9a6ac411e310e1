package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consumeFlags say what to read, from where, and how far.
type consumeFlags struct {
	topics        []string
	fromBeginning bool
	offset        string
	from, to      string
	partitions    string
	group         string
	max           int64
	exitAtEnd     bool
	follow        bool
	timeout       time.Duration
	giveUp        time.Duration
	committed     bool
	format        recordFormat
}

func (a *app) consumeCommand() *cobra.Command {
	var c consumeFlags
	cmd := &cobra.Command{
		Use: "consume TOPIC...", Short: "read records", GroupID: groupData,
		Long: "Reads records and prints their values, one a line. It starts at the end and waits for\nmore, as Kafka's console consumer does, until it is told where to start or to stop.",
		Example: `  varve consume greetings --from-beginning
  varve consume orders --offset 1500 --partition 0 --max-messages 10
  varve consume orders --from 2026-03-01 --to 2026-03-02T12:00:00+01:00 -o ndjson
  varve consume orders --offset -5 --exit-at-end          # the last five of each partition
  varve consume orders --group billing                     # goes on where the group left off
  varve consume orders --from-beginning --format '%p %o %k=%v\n'`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: a.completeTopics,
	}
	a.clientFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&c.fromBeginning, "from-beginning", false, "start at the first record there is")
	f.StringVar(&c.offset, "offset", "", "start at `N`: an offset, -N from the end, earliest or latest")
	f.StringVar(&c.from, "from", "", "start at the first record at or after `TIME`: 2026-03-01T12:30:00Z, a date (then, as without a zone, in UTC), or milliseconds since 1970")
	f.StringVar(&c.to, "to", "", "leave out records at or after `TIME`; implies --exit-at-end")
	f.StringVarP(&c.partitions, "partition", "p", "", "only partitions `N`,M or N-M")
	f.StringVarP(&c.group, "group", "g", "", "read as a member of group `NAME` and commit offsets")
	f.Int64VarP(&c.max, "max-messages", "n", 0, "stop after `N` records")
	f.BoolVarP(&c.exitAtEnd, "exit-at-end", "e", false, "stop at the end that there is now")
	f.BoolVar(&c.follow, "follow", false, "wait for more at the end; this is the default")
	f.DurationVar(&c.timeout, "timeout", 0, "stop when no record came for `DURATION`")
	f.DurationVar(&c.giveUp, "give-up-after", giveUpAfter, "with an end to stop at: end with status 6 when no broker answers for `DURATION` (default 2m0s)")
	f.BoolVar(&c.committed, "read-committed", false, "leave out records of open and aborted transactions")
	f.StringArrayVar(&c.topics, "topic", nil, "`NAME` of a topic, as Kafka's tools take it")
	_ = f.MarkHidden("topic")
	alsoMillis(cmd, "timeout-ms", "timeout")
	alsoSpelt(cmd, "consumer.config", "command-config")
	c.format.flags(cmd)
	f.StringVarP(&a.output, "output", "o", "text", "`FORM` of the output: text, json (one list) or ndjson (an object a line)")
	completeFlag(cmd, "output", "text", "json", "ndjson")
	_ = cmd.RegisterFlagCompletionFunc("group", a.completeGroups)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c.topics = append(args, c.topics...)
		if err := c.check(a.output); err != nil {
			return err
		}
		if cmd.Flags().Changed("group") && c.group == "" {
			return nameEach("group", []string{c.group})
		}
		if !c.exitAtEnd && !cmd.Flags().Changed("give-up-after") {
			c.giveUp = 0 // who waits for records to come waits for the broker too
		}
		return a.consume(cmd.Context(), &c)
	}
	return cmd
}

func (c *consumeFlags) check(output string) error {
	starts := 0
	for _, set := range []bool{c.fromBeginning, c.offset != "", c.from != ""} {
		if set {
			starts++
		}
	}
	if err := nameEach("topic", c.topics); err != nil {
		return err
	}
	switch {
	case starts > 1:
		return usageError("--from-beginning, --offset and --from exclude each other")
	case c.follow && (c.exitAtEnd || c.to != ""):
		return usageError("--follow excludes --exit-at-end and --to")
	case c.group != "" && (c.partitions != "" || c.offset != "" || c.from != ""):
		return usageError("a group has its own offsets and partitions: --group excludes --partition, --offset and --from")
	case output != "text" && output != "json" && output != "ndjson":
		return usageError("-o %s: the forms are text, json and ndjson", output)
	}
	c.exitAtEnd = c.exitAtEnd || c.to != ""
	return nil
}

// consume reads until a limit, the end, or a signal; a signal is a normal end.
func (a *app) consume(ctx context.Context, f *consumeFlags) error {
	out := bufio.NewWriterSize(a.Stdout, 64<<10)
	printer, err := f.format.printer(out, a.output)
	if err != nil {
		return err
	}
	plan, err := a.plan(ctx, f)
	if err != nil {
		return err
	}
	c, err := a.connect(ctx, plan.options(f)...)
	if err != nil {
		return err
	}
	defer c.Close()
	a.printed = true
	printer.begin()
	n, err := a.poll(ctx, c, f, plan, printer, out)
	if err == nil && f.group != "" {
		err = a.commit(c, f.group)
	}
	printer.end()
	if flushErr := out.Flush(); err == nil && flushErr != nil {
		err = flushErr
	}
	if isTerminal(a.Stderr) {
		fmt.Fprintln(a.Stderr, "read "+count(n, "record"))
	}
	return err
}

// commit tells the group how far it was read, in time of its own: the command
// may be ending because of a signal.
func (a *app) commit(c *client, group string) error {
	ctx, cancel := context.WithTimeout(context.Background(), dialLimit)
	defer cancel()
	if err := c.CommitMarkedOffsets(ctx); err != nil {
		return failed("commit offsets of group "+group, err)
	}
	return nil
}

// idle is how long nothing may come, from a broker that answers, before the
// command believes that what is left up to the end holds no records: they were
// compacted away.
const idle = 2 * time.Second

// idleAnswers is how many fetches have to be answered without a record in that
// time: a broker that is slow, or gone, is not at the end.
const idleAnswers = 2

func (a *app) poll(ctx context.Context, c *client, f *consumeFlags, plan *readPlan, printer *recordPrinter, out *bufio.Writer) (n int64, err error) {
	patience := patience{a: a, giveUp: f.giveUp}
	last, answers := time.Now(), c.watch.answered()
	joined := plan.joined()
	for !plan.done() {
		wait := time.Second
		if f.timeout > 0 {
			wait = min(wait, f.timeout)
		}
		if f.giveUp > 0 {
			wait = min(wait, f.giveUp/4)
		}
		pollCtx, cancel := context.WithTimeout(ctx, wait)
		fetches := c.PollRecords(pollCtx, pollLimit(f.max, n))
		cancel()
		if ended(ctx) {
			return n, nil
		}
		problem := fetchProblem(fetches) // what came besides is printed first
		fresh := !joined                 // a group's first rebalance may take longer than any silence
		joined = plan.joined()
		var printErr error
		fetches.EachRecord(func(r *kgo.Record) {
			fresh = fresh || plan.awaits(r)
			if printErr != nil || !plan.take(r) {
				return
			}
			c.MarkCommitRecords(r)
			if f.max > 0 && n >= f.max {
				return
			}
			n++
			printErr = printer.print(r)
		})
		if printErr != nil {
			return n, printErr
		}
		if err := out.Flush(); err != nil {
			return n, err
		}
		if f.max > 0 && n >= f.max {
			return n, nil
		}
		if problem != nil {
			return n, problem
		}
		if fresh {
			last, answers = time.Now(), c.watch.answered()
		}
		since := time.Since(last)
		if f.timeout > 0 && since >= f.timeout || f.exitAtEnd && since >= idle && c.watch.answered()-answers >= idleAnswers {
			return n, nil
		}
		down, why := c.watch.trouble()
		if err := patience.wait("read "+strings.Join(f.topics, ", "), down, why); err != nil {
			return n, err
		}
	}
	return n, nil
}

// ended reports whether a signal told the command to stop, which for a reader
// is a normal end.
func ended(ctx context.Context) bool { return ctx.Err() != nil }

func pollLimit(most, n int64) int {
	if most <= 0 || most-n > math.MaxInt32 {
		return -1
	}
	return int(most - n)
}

// fetchProblem is an error that reading cannot go on after.
func fetchProblem(fetches kgo.Fetches) error {
	for _, e := range fetches.Errors() {
		if errors.Is(e.Err, context.DeadlineExceeded) || errors.Is(e.Err, context.Canceled) || errors.Is(e.Err, kgo.ErrClientClosed) {
			continue
		}
		what := fmt.Sprintf("read %s-%d", e.Topic, e.Partition)
		if errors.Is(e.Err, kerr.CorruptMessage) || strings.Contains(strings.ToLower(e.Err.Error()), "crc") {
			return &failure{code: exitFailed, what: what, why: "the next batch is damaged: " + e.Err.Error(),
				hint: "varve verify DIR, where the broker keeps its data, says which file and byte; --offset N goes on behind it"}
		}
		var loss *kgo.ErrDataLoss
		if errors.As(e.Err, &loss) || kerr.IsRetriable(e.Err) || kgo.IsRetryableBrokerErr(e.Err) {
			continue
		}
		var session *kgo.ErrGroupSession
		if errors.As(e.Err, &session) {
			what = "read as a member of the group"
		}
		return failed(what, e.Err)
	}
	return nil
}

// readPlan is where reading starts, and where it stops when there is an end.
type readPlan struct {
	start map[string]map[int32]kgo.Offset // nil: by topic, where opts say
	reset kgo.Offset
	end   map[topicPartition]int64 // partitions that are not at their end; nil: none has one
	to    int64                    // milliseconds; records from then on are left out

	group    bool
	mu       sync.Mutex              // guards what follows
	assigned map[topicPartition]bool // what the group gave this member; nil before it did
}

// joined reports whether it is known what there is to read: a group says so
// when its members have met, which takes seconds.
func (p *readPlan) joined() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.group || p.assigned != nil
}

// given notes what the group gave this member.
func (p *readPlan) given(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.assigned == nil {
		p.assigned = map[topicPartition]bool{}
	}
	for topic, numbers := range parts {
		for _, n := range numbers {
			p.assigned[topicPartition{topic, n}] = true
		}
	}
}

// revoked commits what was read of partitions before another member gets them.
func (p *readPlan) revoked(ctx context.Context, c *kgo.Client, parts map[string][]int32) {
	_ = c.CommitMarkedOffsets(ctx) // what was not committed is read again; the commit at the end says why
	p.lost(ctx, c, parts)
}

func (p *readPlan) lost(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for topic, numbers := range parts {
		for _, n := range numbers {
			delete(p.assigned, topicPartition{topic, n})
		}
	}
}

func (a *app) plan(ctx context.Context, f *consumeFlags) (*readPlan, error) {
	p := &readPlan{reset: kgo.NewOffset().AtEnd(), to: math.MaxInt64, group: f.group != ""}
	if f.fromBeginning {
		p.reset = kgo.NewOffset().AtStart()
	}
	if f.to != "" {
		ms, err := parseTime(f.to)
		if err != nil {
			return nil, err
		}
		p.to = ms
	}
	if err := p.startAt(f); err != nil {
		return nil, err
	}
	return p, a.withClient(ctx, func(ctx context.Context, c *client) error { return p.resolve(ctx, c, f) })
}

func (p *readPlan) startAt(f *consumeFlags) error {
	switch {
	case f.from != "":
		ms, err := parseTime(f.from)
		if err != nil {
			return err
		}
		p.reset = kgo.NewOffset().AfterMilli(ms)
	case f.offset == "earliest":
		p.reset = kgo.NewOffset().AtStart()
	case f.offset == "" || f.offset == "latest":
	default:
		n, err := strconv.ParseInt(f.offset, 10, 64)
		if err != nil {
			return usageError("--offset %s: it is a number, earliest or latest", f.offset)
		}
		if n < 0 {
			p.reset = kgo.NewOffset().AtEnd().Relative(n)
		} else {
			p.reset = kgo.NewOffset().At(n)
		}
	}
	return nil
}

// resolve looks the topics up, so that a missing one is an error, and notes the
// ends when the command shall stop there.
func (p *readPlan) resolve(ctx context.Context, c *client, f *consumeFlags) error {
	words := make([]string, len(f.topics))
	for i, topic := range f.topics {
		words[i] = topic
		if f.partitions != "" {
			words[i] += ":" + f.partitions
		}
	}
	set, err := partitionsOf(ctx, c, words)
	if err != nil {
		return err
	}
	if f.group == "" {
		p.start = map[string]map[int32]kgo.Offset{}
		set.Each(func(topic string, part int32) {
			if p.start[topic] == nil {
				p.start[topic] = map[int32]kgo.Offset{}
			}
			p.start[topic][part] = p.reset
		})
	}
	if !f.exitAtEnd {
		return nil
	}
	list := c.admin.ListEndOffsets
	if f.committed {
		list = c.admin.ListCommittedOffsets
	}
	ends, err := list(ctx, set.Topics()...)
	if err != nil {
		return failed("read end offsets", err)
	}
	starts, err := c.admin.ListStartOffsets(ctx, set.Topics()...)
	if err != nil {
		return failed("read start offsets", err)
	}
	p.end = map[topicPartition]int64{}
	var problem error
	set.Each(func(topic string, part int32) {
		end, _ := ends.Lookup(topic, part)
		start, _ := starts.Lookup(topic, part)
		if problem = errors.Join(problem, end.Err, start.Err); end.Offset > start.Offset {
			p.end[topicPartition{topic, part}] = end.Offset
		}
	})
	if problem != nil {
		return failed("read end offsets", problem)
	}
	return p.dropAtEnd(ctx, c, f)
}

// dropAtEnd takes out partitions that start at, or beyond, their end.
func (p *readPlan) dropAtEnd(ctx context.Context, c *client, f *consumeFlags) error {
	first := map[topicPartition]int64{}
	switch {
	case f.group != "":
		if !f.fromBeginning { // what the group has no offset of is read from the end
			for tp, end := range p.end {
				first[tp] = end
			}
		}
		committed, err := c.admin.FetchOffsets(ctx, f.group)
		if err == nil { // a new group has none
			for _, o := range committed.Sorted() {
				if o.At >= 0 {
					first[topicPartition{o.Topic, o.Partition}] = o.At
				}
			}
		}
	case f.from != "":
		ms, _ := parseTime(f.from)
		found, err := c.admin.ListOffsetsAfterMilli(ctx, ms, f.topics...)
		if err != nil {
			return failed("find offsets by time", err)
		}
		for tp := range p.end {
			if o, ok := found.Lookup(tp.topic, tp.partition); ok {
				first[tp] = o.Offset
			}
		}
	case f.offset == "latest" || f.offset == "" && !f.fromBeginning:
		p.end = map[topicPartition]int64{}
	case f.offset != "" && f.offset != "earliest":
		n, _ := strconv.ParseInt(f.offset, 10, 64)
		for tp := range p.end {
			first[tp] = n
		}
	}
	for tp, at := range first {
		if end, ok := p.end[tp]; ok && at >= end {
			delete(p.end, tp)
		}
	}
	return nil
}

func (p *readPlan) options(f *consumeFlags) []kgo.Opt {
	opts := []kgo.Opt{kgo.FetchMaxWait(500 * time.Millisecond), kgo.ConsumeResetOffset(p.reset), kgo.KeepControlRecords(),
		kgo.KeepRetryableFetchErrors()} // a damaged batch stays damaged, though the protocol says to try again
	if f.committed {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if f.group != "" {
		return append(opts, kgo.ConsumerGroup(f.group), kgo.ConsumeTopics(f.topics...), kgo.AutoCommitMarks(),
			kgo.OnPartitionsAssigned(p.given), kgo.OnPartitionsRevoked(p.revoked), kgo.OnPartitionsLost(p.lost))
	}
	return append(opts, kgo.ConsumePartitions(p.start))
}

// awaits reports whether the record is of a partition that is not at its end.
func (p *readPlan) awaits(r *kgo.Record) bool {
	_, pending := p.end[topicPartition{r.Topic, r.Partition}]
	return pending || p.end == nil
}

// take reports whether a record is to be printed, and notes how far its
// partition has been read.
func (p *readPlan) take(r *kgo.Record) bool {
	tp := topicPartition{r.Topic, r.Partition}
	end, pending := p.end[tp]
	late := r.Timestamp.UnixMilli() >= p.to
	if p.end != nil {
		if !pending {
			return false // written after the command began
		}
		if r.Offset+1 >= end {
			delete(p.end, tp)
		}
		if r.Offset >= end {
			return false
		}
	}
	return !late && !r.Attrs.IsControl()
}

// done reports whether every partition was read up to its end: of a group's,
// those that it gave this member.
func (p *readPlan) done() bool {
	if len(p.end) == 0 {
		return p.end != nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.assigned == nil {
		return false
	}
	for tp := range p.end {
		if p.assigned[tp] {
			return false
		}
	}
	return true
}
