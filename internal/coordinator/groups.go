package coordinator

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/group"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// Options configure the coordinator of groups. Zero values stand for Kafka's
// defaults, except where a field says otherwise.
type Options struct {
	Group         group.Config  // group.DefaultConfig when zero
	Partitions    int32         // offsets.topic.num.partitions, until SetPartitions tells better
	CommitTimeout time.Duration // offsets.commit.timeout.ms
	CheckInterval time.Duration // offsets.retention.check.interval.ms
	LoadBuffer    int           // offsets.load.buffer.size, bytes
	MaxBatch      int           // the offsets topic's max.message.bytes
	Codec         record.Codec  // offsets.topic.compression.codec

	// ErrorCode names the errors of Log in the protocol's terms. It is required.
	ErrorCode func(error) kafka.ErrorCode
	// Now is the wall clock; nil: time.Now. Expiry is the time that the ages of
	// offsets are counted by; nil: Now.
	Now, Expiry func() time.Time
	// Logger is required.
	Logger *slog.Logger
}

func (o *Options) setDefaults() {
	if o.Group.OffsetsRetention == 0 {
		o.Group = group.DefaultConfig()
	}
	if o.Group.NewID == nil {
		o.Group.NewID = newUUID
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Expiry == nil {
		o.Expiry = o.Now
	}
	setDefault(&o.Partitions, 50)
	setDefault(&o.CommitTimeout, 5*time.Second)
	setDefault(&o.CheckInterval, 10*time.Minute)
	setDefault(&o.LoadBuffer, 5<<20)
	setDefault(&o.MaxBatch, 1048588)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// newUUID is a random UUID (version 4) as Java prints it.
func newUUID() string {
	var u [16]byte
	if _, err := rand.Read(u[:]); err != nil {
		panic(err) // cannot happen: crypto/rand ends the process instead
	}
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// Client is who sends a request.
type Client struct {
	ID   string
	Host string // with a leading slash, as Kafka records it: /127.0.0.1
}

// Groups is the group coordinator of a broker. Its methods may be called from
// any goroutine. Those that take a context wait for their answer; when the
// context ends first they return its error and no answer.
type Groups struct {
	opts       Options
	schedule   *schedule
	partitions atomic.Int32
	loads      sync.WaitGroup

	mu     sync.RWMutex
	shards map[int32]*shard // guarded by mu
	closed bool             // guarded by mu
}

// NewGroups starts a coordinator without partitions. Close ends it.
func NewGroups(o Options) *Groups {
	o.setDefaults()
	g := &Groups{opts: o, schedule: newSchedule(), shards: map[int32]*shard{}}
	g.partitions.Store(o.Partitions)
	return g
}

// SetPartitions tells how many partitions __consumer_offsets has.
func (g *Groups) SetPartitions(n int32) { g.partitions.Store(n) }

// PartitionFor returns the partition of __consumer_offsets that holds a group.
func (g *Groups) PartitionFor(group string) int32 { return PartitionFor(group, g.partitions.Load()) }

// Load makes this broker the coordinator of a partition that it has come to
// lead. It returns at once; requests are refused while the partition is
// replayed. A partition that was loaded before is unloaded first.
func (g *Groups) Load(partition int32, log Log) {
	s := &shard{
		partition: partition,
		opts:      &g.opts,
		logger:    g.opts.Logger,
		log:       log,
		schedule:  g.schedule,
		waiters:   map[group.Waiter]chan kmsg.Response{},
	}
	s.stopWatch = log.Watch(func() {
		if s.uncommitted.Load() {
			g.schedule.now(s)
		}
	})
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		s.stopWatch()
		return
	}
	was := g.shards[partition]
	g.shards[partition] = s
	g.loads.Add(1)
	g.mu.Unlock()
	if was != nil {
		was.unload()
	}
	load := func() {
		defer g.loads.Done()
		s.load()
	}
	if log.StartOffset() == log.EndOffset() {
		load() // nothing to read: most partitions of a new cluster
		return
	}
	go load()
}

// Unload gives a partition up; its groups are answered that the coordinator is elsewhere.
func (g *Groups) Unload(partition int32) {
	g.mu.Lock()
	s := g.shards[partition]
	delete(g.shards, partition)
	g.mu.Unlock()
	if s != nil {
		s.unload()
	}
}

// Close unloads all partitions and waits for everything that runs.
func (g *Groups) Close() {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return
	}
	g.closed = true
	shards := g.shards
	g.shards = nil
	g.mu.Unlock()
	for _, s := range shards {
		s.unload()
	}
	g.loads.Wait()
	g.schedule.close()
}

func (g *Groups) shard(partition int32) *shard {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.shards[partition]
}

// all returns the shards in the order of their partitions.
func (g *Groups) all() []*shard {
	var list []*shard
	for p := range g.partitions.Load() {
		if s := g.shard(p); s != nil {
			list = append(list, s)
		}
	}
	return list
}

// call runs an operation on the shard of a group.
func (g *Groups) call(ctx context.Context, c Client, id string, op func(*group.Machine, group.Context) group.Effects) (kmsg.Response, kafka.ErrorCode, error) {
	s := g.shard(g.PartitionFor(id))
	if s == nil {
		return nil, kafka.ErrNotCoordinator, nil
	}
	return s.call(ctx, c, op)
}
