package group

import (
	"maps"
	"slices"
	"time"

	"github.com/varvelog/varve/internal/kafka"
)

// Config is the part of the broker's configuration that groups go by.
type Config struct {
	InitialRebalanceDelay time.Duration // group.initial.rebalance.delay.ms
	MinSessionTimeout     time.Duration // group.min.session.timeout.ms
	MaxSessionTimeout     time.Duration // group.max.session.timeout.ms
	MaxSize               int           // group.max.size
	NewMemberJoinTimeout  time.Duration // Kafka's fixed five minutes
	OffsetMetadataMaxSize int           // offset.metadata.max.bytes, in UTF-16 units as Kafka counts it
	OffsetsRetention      time.Duration // offsets.retention.minutes

	// NewID returns a random UUID in its text form; it becomes part of member ids.
	NewID func() string
}

// DefaultConfig returns Kafka's defaults. NewID is left to the caller.
func DefaultConfig() Config {
	return Config{
		InitialRebalanceDelay: 3 * time.Second,
		MinSessionTimeout:     6 * time.Second,
		MaxSessionTimeout:     30 * time.Minute,
		MaxSize:               1<<31 - 1,
		NewMemberJoinTimeout:  5 * time.Minute,
		OffsetMetadataMaxSize: 4096,
		OffsetsRetention:      7 * 24 * time.Hour,
	}
}

// Type is the protocol that a group follows.
type Type uint8

// The group types, and the answer for a word that is none.
const (
	UnknownType Type = iota
	Classic
	Consumer
	Share
	Streams
)

// String is the type's name on the wire.
func (t Type) String() string {
	switch t {
	case Classic:
		return "classic"
	case Consumer:
		return "consumer"
	case Share:
		return "share"
	case Streams:
		return "streams"
	}
	return "unknown"
}

// Machine holds the groups and offsets of one partition of __consumer_offsets.
// One goroutine at a time may use it.
type Machine struct {
	cfg     Config
	classic map[string]*classicGroup
	modern  map[string]*modernGroup // Invariant: no id is in both maps
	offsets offsets
}

// New returns a machine without groups.
func New(cfg Config) *Machine {
	return &Machine{
		cfg:     cfg,
		classic: map[string]*classicGroup{},
		modern:  map[string]*modernGroup{},
		offsets: newOffsets(),
	}
}

// Counts is the size of a machine, for logs and metrics.
type Counts struct {
	Groups, Offsets int
}

// Counts returns how many groups and committed offsets the machine holds.
func (m *Machine) Counts() Counts {
	return Counts{Groups: len(m.classic) + len(m.modern), Offsets: m.offsets.count}
}

// groupIDs returns the ids of all groups, sorted.
func (m *Machine) groupIDs() []string {
	ids := make([]string, 0, len(m.classic)+len(m.modern))
	ids = slices.AppendSeq(ids, maps.Keys(m.classic))
	ids = slices.AppendSeq(ids, maps.Keys(m.modern))
	slices.Sort(ids)
	return ids
}

func (m *Machine) exists(id string) bool {
	return m.classic[id] != nil || m.modern[id] != nil
}

// createClassic adds an empty classic group.
func (m *Machine) createClassic(id string, now kafka.Timestamp) *classicGroup {
	g := &classicGroup{id: id, state: Empty, previous: Dead, stateSince: now}
	m.classic[id] = g
	return g
}

// Loaded is called once, when the partition has been replayed to its end: it
// starts the session timers of the members that were found, and rebalances
// groups that have become larger than the configuration allows.
func (m *Machine) Loaded(now kafka.Timestamp) Effects {
	var fx Effects
	for _, id := range m.groupIDs() {
		g := m.classic[id]
		if g == nil {
			continue
		}
		for _, mb := range g.members {
			m.heartbeat(&fx, g, mb)
		}
		if len(g.members) > m.cfg.MaxSize {
			m.prepareRebalance(&fx, g, now)
		}
	}
	return fx
}

// Fire tells the machine that a timer has run out.
func (m *Machine) Fire(key TimerKey, now kafka.Timestamp) Effects {
	var fx Effects
	g := m.classic[key.Group]
	if g == nil {
		return fx
	}
	switch key.Kind {
	case SessionTimer:
		m.expireMember(&fx, g, key.Member, now)
	case JoinTimer:
		if g.initialJoin {
			m.endInitialDelay(&fx, g, now)
		} else {
			m.completeJoin(&fx, g, now)
		}
	case SyncTimer:
		m.expireSync(&fx, g, now)
	}
	return fx
}

// Abandon answers everyone who still waits with the given error, because the
// partition is being given up. The machine must not be used afterwards.
func (m *Machine) Abandon(code kafka.ErrorCode) []Reply {
	var fx Effects
	for _, id := range m.groupIDs() {
		g := m.classic[id]
		if g == nil {
			continue
		}
		for _, mb := range g.members {
			g.answerJoin(&fx, mb, joinError(mb.id, code))
			g.answerSync(&fx, mb, syncError(code))
		}
		g.state = Dead
	}
	return fx.Replies
}
