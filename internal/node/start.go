package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/admin"
	"github.com/varvelog/varve/internal/broker"
	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/cleaner"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/controller"
	"github.com/varvelog/varve/internal/coordinator"
	"github.com/varvelog/varve/internal/group"
	"github.com/varvelog/varve/internal/logdir"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/quorum"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/replica"
	"github.com/varvelog/varve/internal/server"
	"github.com/varvelog/varve/internal/vfs"
)

// Start brings a broker up and returns when it serves. The order follows
// Kafka's takeover of a directory: nothing is written before the directories
// are known to be ours and the metadata log has been read to its end.
//
// Errors: *logdir.InUseError, *logdir.RefusedError, *quorum.RefusedError for
// what must not be touched, *net.OpError for an address that cannot be bound.
func Start(ctx context.Context, cfg *config.Broker, o Options) (*Node, error) {
	n := newNode(cfg, o)
	began := n.opts.Now()
	steps := []struct {
		name string
		run  func() error
	}{
		{"open data directories", n.openDirs},
		{"listen", n.listen},
		{"open metadata log", n.openQuorum},
		{"load logs", n.loadLogs},
		{"register", n.register},
		{"serve", n.serve},
	}
	for _, s := range steps {
		err := ctx.Err()
		if err == nil {
			err = s.run()
		}
		if err == nil {
			err = n.Err()
		}
		if err != nil {
			n.abandon()
			var page *HTTPListenError
			if errors.As(err, &page) {
				return nil, page
			}
			var bind *net.OpError
			if errors.As(err, &bind) {
				return nil, bind // it names itself; the step that binds is not the reader's business
			}
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	n.log.Info("started", "event", "started", "listeners", n.addresses(), "dirs", n.static.LogDirs, "clusterId", n.ClusterID(), "nodeId", n.self(),
		"brokerEpoch", n.brokerEpoch, "partitions", len(n.replicas.Partitions()), "durationMs", n.opts.Now().Sub(began).Milliseconds())
	return n, nil
}

func newNode(cfg *config.Broker, o Options) *Node {
	if o.FS == nil {
		o.FS = vfs.OS()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	n := &Node{opts: o, log: o.Logger, static: cfg, stopping: make(chan struct{}), failed: make(chan struct{}), gate: &gate{open: make(chan struct{})}}
	n.cfg.Store(cfg)
	n.log = n.countEvents(o.Logger)
	n.watchDisk()
	n.watchClock()
	n.show(admin.Starting)
	return n
}

// openDirs locks the data directories and finds out whose they are; new ones
// are formatted.
func (n *Node) openDirs() error {
	cfg := n.static
	dirs := slices.Clone(cfg.LogDirs)
	if !slices.Contains(dirs, cfg.MetadataLogDir) {
		dirs = append(dirs, cfg.MetadataLogDir)
	}
	files := budgetOf(filesLimit())
	o := logdir.Options{
		FS: n.opts.FS, Dirs: dirs, NodeID: cfg.NodeID, ClusterID: cfg.ClusterID,
		RecoveryThreads:    n.recoveryThreads(),
		FileDeleteDelay:    cfg.Topic.FileDeleteDelay.Duration(),
		ProducerExpiration: cfg.ProducerIDExpiration,
		CutRetention:       cfg.CutRetention,
		Intervals: logdir.Intervals{
			Initial:         cfg.InitialTaskDelay,
			RecoveryPoint:   cfg.FlushOffsetCheckpointInterval,
			LogStart:        cfg.FlushStartOffsetCheckpointInterval,
			HighWatermark:   cfg.HighWatermarkCheckpointInterval,
			Flush:           flushInterval(cfg),
			Synced:          logdir.SyncedInterval,
			Retention:       cfg.RetentionCheckInterval,
			ProducerExpired: cfg.ProducerIDExpirationCheckInterval,
		},
		Reserve:      cfg.DiskReserve.Of,
		Scratch:      n.scratch(),
		OpenSegments: files.segments,
		Now:          n.opts.Now, Expiry: n.expiry, Logger: n.log,
		OnOffline: n.offline,
	}
	o.ScrubRate, o.ScrubNow = cfg.ScrubRate, scrubNow()
	if cfg.CleanerEnable {
		c := cleanerConfig(cfg)
		o.Cleaner = &c
	}
	if cfg.AutoFormat {
		o.Format = n.format
	}
	var err error
	n.dirs, err = logdir.Open(o)
	if err == nil {
		n.guard.SetNewest(n.dirs.NewestFile())
		n.expiry() // the first look
	}
	return err
}

// cleanerConfig is how compaction runs.
func cleanerConfig(cfg *config.Broker) cleaner.Config {
	return cleaner.Config{
		Threads: cfg.CleanerThreads, DedupeBytes: cfg.CleanerDedupeBytes, LoadFactor: cfg.CleanerLoadFactor,
		BufferBytes: cfg.CleanerBufferBytes, BytesPerSecond: cfg.CleanerBytesPerSecond, Backoff: max(cfg.CleanerBackoff, time.Millisecond),
	}
}

// recoveryThreads is num.recovery.threads.per.data.dir when somebody set it,
// else one a processor: Kafka's default of 2 leaves the others idle.
func (n *Node) recoveryThreads() int {
	if n.static.IsSet("num.recovery.threads.per.data.dir") {
		return n.static.RecoveryThreadsPerDir
	}
	return 0
}

// maxGroupSize is what a group may have of members when group.max.size has its
// default, which is no limit. Each rebalance holds all of them in memory.
const maxGroupSize = 10_000

// flushInterval is how often logs are looked at that have a flush.ms. The
// scheduler's own default is "never", with which a flush.ms of a topic would
// have no effect until somebody found the second key.
func flushInterval(cfg *config.Broker) time.Duration {
	if d := cfg.FlushSchedulerInterval.Duration(); d < 365*24*time.Hour {
		return d
	}
	return time.Second
}

// format makes the first state of new directories. The addresses are bound
// first: a broker that cannot listen leaves no directories behind.
func (n *Node) format() error {
	if err := n.listen(); err != nil {
		return err
	}
	id := n.static.ClusterID
	if id == "" {
		id = metadata.RandomUUID().String()
	}
	n.log.Info("formatting new data directories", "event", "formatted", "dirs", n.static.LogDirs, "clusterId", id)
	return quorum.Format(quorum.FormatOptions{
		FS: n.opts.FS, Dirs: n.static.LogDirs, MetadataDir: n.static.MetadataLogDir,
		NodeID: n.static.NodeID, ClusterID: id, Now: n.opts.Now(),
	})
}

func (n *Node) openQuorum() error {
	cfg := n.static
	id, ok := n.dirs.DirectoryID(cfg.MetadataLogDir)
	if !ok {
		return fmt.Errorf("metadata directory %s is offline", cfg.MetadataLogDir)
	}
	var err error
	n.quorum, err = quorum.Open(quorum.Options{
		FS: n.dirs.FS(), Dir: cfg.MetadataLogDir, NodeID: cfg.NodeID, DirectoryID: id, Now: n.opts.Now, Logger: n.log,
		IdleInterval:     idleInterval(cfg),
		SnapshotBytes:    cfg.MetadataSnapshotBytes,
		SnapshotInterval: cfg.MetadataSnapshotInterval.Duration(),
		RetentionBytes:   cfg.MetadataMaxRetentionBytes,
		RetentionTime:    cfg.MetadataMaxRetentionTime.Duration(),
		SegmentBytes:     cfg.MetadataSegmentBytes,
		SegmentTime:      cfg.MetadataSegmentTime.Duration(),
		AwaitRoom:        true,
		OnEmpty:          n.refuseOrphans,
		OnFailure:        func(err error) { n.fail(fmt.Errorf("metadata log: %w", err)) },
	})
	if err != nil {
		return err
	}
	n.controller = controller.New(n.quorum, controller.Config{
		Broker: n.cfg.Load, BrokerEndpoints: n.endpoints(), ControllerEndpoints: n.controllerEndpoints(), LogDirs: n.dirs.DirectoryIDs(),
		DirectoryOf: n.dirs.DirectoryOf, Logger: n.log,
	})
	return n.controller.Bootstrap()
}

// refuseOrphans refuses directories that hold partitions while the metadata log
// holds nothing: it was lost, and a start without it would set every partition
// aside as one of no topic.
func (n *Node) refuseOrphans() error {
	for _, dir := range n.static.LogDirs {
		entries, err := n.opts.FS.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := e.Name()
			if !e.IsDir() || name == quorum.DirName || strings.HasSuffix(name, "-stray") || strings.HasSuffix(name, "-delete") {
				continue
			}
			if _, err := n.opts.FS.Stat(filepath.Join(dir, name, checkpoint.PartitionFile)); err != nil {
				continue
			}
			return &logdir.RefusedError{Dir: dir,
				Why:  fmt.Sprintf("holds the partition %s and no metadata of any topic: %s is lost or empty", name, filepath.Join(n.static.MetadataLogDir, quorum.DirName)),
				Hint: "restore it from a copy, or move the partitions away"}
		}
	}
	return nil
}

// idleInterval is metadata.max.idle.interval.ms when somebody set it. The NoOp
// records it asks for let the followers of a quorum see a stuck leader; a
// quorum of one has none, and they would write to the disk twice a second for
// ever (ADR 0007).
func idleInterval(cfg *config.Broker) time.Duration {
	if cfg.IsSet("metadata.max.idle.interval.ms") {
		return cfg.MetadataMaxIdleInterval
	}
	return 0
}

// loadLogs opens every partition, with recovery where the last stop was not
// clean, and has the partitions follow the metadata from here on.
func (n *Node) loadLogs() error {
	image := n.quorum.Image()
	if err := n.enoughFiles(image); err != nil {
		return err
	}
	n.applyDynamic(image)
	n.replicas = replica.NewManager(replica.Options{Dirs: n.dirs, NodeID: n.self(), Broker: n.cfg.Load, Logger: n.log})
	n.leads.Store(n.replicas)
	n.show(admin.Recovery)
	err := n.dirs.Load(logdir.LoadOptions{
		Image:    image,
		Config:   func(topic string) commitlog.Config { return logdir.LogConfig(n.replicas.TopicSettings(image, topic)) },
		Progress: n.progress, Recovering: n.opts.Recovering,
	})
	if err != nil {
		return err
	}
	n.loaded = true
	n.groups = coordinator.NewGroups(n.groupOptions())
	n.quorum.Subscribe(n.apply)
	// What fails is logged there; the partitions concerned answer with it, the
	// others are served.
	_ = n.replicas.ApplyImage(image)
	n.following.Lock()
	defer n.following.Unlock()
	n.applied = image
	return nil
}

func (n *Node) groupOptions() coordinator.Options {
	cfg := n.static
	g := group.DefaultConfig()
	g.InitialRebalanceDelay = cfg.GroupInitialRebalanceDelay
	g.MinSessionTimeout = cfg.GroupMinSessionTimeout
	g.MaxSessionTimeout = cfg.GroupMaxSessionTimeout
	g.MaxSize = min(cfg.GroupMaxSize, maxGroupSize)
	g.OffsetMetadataMaxSize = cfg.OffsetMetadataMaxBytes
	g.OffsetsRetention = cfg.OffsetsRetention
	return coordinator.Options{
		Group: g, Partitions: cfg.OffsetsTopicPartitions, CommitTimeout: cfg.OffsetCommitTimeout, CheckInterval: cfg.OffsetsRetentionCheckInterval,
		LoadBuffer: int(cfg.OffsetsLoadBufferSize), MaxBatch: int(cfg.Topic.MaxMessageBytes), Codec: record.Codec(cfg.OffsetsTopicCompressionCodec),
		ErrorCode: broker.ErrorCode, Now: n.opts.Now, Expiry: n.expiry, Logger: n.log,
	}
}

// register tells the metadata log that this broker is there, and makes it the
// leader of its partitions.
func (n *Node) register() error {
	previous, clean := n.dirs.CleanBrokerEpoch()
	if !clean {
		previous = controller.Unclean
	}
	var err error
	if n.brokerEpoch, err = n.controller.Register(previous); err != nil {
		return err
	}
	if err := n.controller.PlaceReplicas(n.placements()); err != nil {
		return err
	}
	return n.controller.Unfence()
}

// placements says in which directory each partition lies.
func (n *Node) placements() []controller.Placement {
	var list []controller.Placement
	for _, tp := range n.dirs.Partitions() {
		log := n.dirs.Log(tp)
		if id, ok := n.dirs.DirectoryOf(tp); ok && log != nil {
			list = append(list, controller.Placement{TopicID: log.TopicID(), Partition: tp.Partition, Directory: id})
		}
	}
	return list
}

// serve opens the gate: requests that came in meanwhile are answered now.
func (n *Node) serve() error {
	n.broker = broker.New(broker.Options{
		NodeID: n.self(), ClusterID: n.ClusterID(), Config: n.cfg.Load, Image: n.quorum.Image, Controller: n.controller, Groups: n.groups,
		Replicas: n.replicas, Dirs: n.dirs, Now: n.opts.Now, Logger: n.log, LogLevel: n.opts.LogLevel,
	})
	n.gate.broker = n.broker
	if n.quorum.EndStart() {
		n.dirs.Hold(true)
		n.background.Go(n.awaitRoom)
	}
	close(n.gate.open)
	n.background.Go(n.maintain)
	n.background.Go(n.retryPartitions)
	n.background.Go(n.closeSimilar)
	n.background.Go(n.lookAtClock)
	n.background.Go(n.watchLimits)
	n.show(admin.Running)
	return nil
}

// maintain does what the metadata log needs from time to time.
func (n *Node) maintain() {
	const atMost = 10 * time.Second
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for {
		select {
		case <-n.stopping:
			return
		case <-timer.C:
		}
		next, err := n.quorum.Maintain()
		if err != nil && !errors.Is(err, quorum.ErrClosed) {
			n.log.Error("metadata log maintenance failed", "err", err)
		}
		wait := atMost
		if !next.IsZero() {
			wait = min(wait, max(0, next.Sub(n.opts.Now())))
		}
		timer.Reset(wait)
	}
}

// offline is told about a data directory that failed.
func (n *Node) offline(o logdir.Offline, online int) {
	if r := n.leads.Load(); r != nil {
		r.Offline(o)
	}
	if online == 0 {
		n.fail(fmt.Errorf("no data directory is left: %s: %w", o.Dir, o.Err))
	} else if o.Dir == n.static.MetadataLogDir {
		n.fail(fmt.Errorf("the metadata directory is offline: %s: %w", o.Dir, o.Err))
	}
}

// abandon undoes a start that did not get through.
func (n *Node) abandon() {
	n.closeHTTP()
	defer n.events.Close(time.Time{})
	for _, l := range n.listeners {
		l.Close()
	}
	if n.groups != nil {
		n.groups.Close()
	}
	if n.quorum != nil {
		if err := n.quorum.Close(); err != nil {
			n.log.Warn("metadata log not closed", "err", err)
		}
	}
	if n.dirs != nil {
		// The registration in the metadata log is not the one of the marker when
		// this start wrote one; the next start then takes the stop as unclean.
		epoch, _ := n.dirs.CleanBrokerEpoch()
		if n.brokerEpoch != 0 {
			epoch = n.brokerEpoch
		}
		if err := n.dirs.Close(epoch); err != nil {
			n.log.Warn("data directories not closed cleanly", "err", err)
		}
	}
}

var _ server.Handler = (*gate)(nil)
