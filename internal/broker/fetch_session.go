package broker

// Fetch sessions (KIP-227): the broker remembers what a client fetches, so that
// a request names only what changed and an answer only what is new. Any
// connection may go on with a session.
//
//	(0, -1)  a full fetch without a session
//	(0, 0)   a full fetch that begins a session
//	(s, 0)   ends s; a full fetch that begins another one
//	(s, -1)  ends s; a full fetch without a session
//	(s, n)   an incremental fetch; n counts 1, 2, … 2³¹−1, 1, …

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/replica"
	"github.com/varvelog/varve/internal/wire"
)

const (
	epochInitial = 0
	epochFinal   = -1
)

// evictAfter is how long a session must have been unused, or must have existed,
// before others may take its place (MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS).
const evictAfter = 120 * time.Second

// What the sessions begun from one address may remember, and about what each
// partition takes of it. A client beyond it goes on without a session.
const (
	maxSessionBytes      = 8 << 20
	sessionPartBytes     = 640
	maxSessionPartitions = maxSessionBytes / sessionPartBytes
)

// partKey names a partition as the client does: by topic id, or by name below
// version 13.
type partKey struct {
	id    kafka.TopicID
	name  string
	index int32
}

// session is what the broker remembers of one client's fetches.
type session struct {
	id         int32
	byID       bool // partitions are named by topic id
	privileged bool // of a follower
	created    time.Time
	from       netip.Addr // of the client that began it

	// mu is held by the fetch under way, also while it waits. Whoever else wants
	// the session asks it to hurry first.
	mu     sync.Mutex
	hurry  chan struct{} // capacity 1: the fetch under way should answer
	epoch  int32         // of the next request
	byKey  map[partKey]*fetchPart
	parts  partList
	waiter *replica.Waiter // for the watches of the parts
	ended  atomic.Bool     // no longer in the cache: its watches go when mu is free

	// used and size are guarded by the cache's mutex. The size is in partitions,
	// as the cache counts it.
	used time.Time
	size int
}

func newSession(byID, privileged bool, now time.Time) *session {
	s := &session{
		byID: byID, privileged: privileged, created: now, used: now, epoch: 1,
		hurry: make(chan struct{}, 1), byKey: map[partKey]*fetchPart{}, waiter: replica.NewWaiter(),
	}
	s.parts.init()
	return s
}

// lock waits for the session, and has a fetch that waits in it answer.
func (s *session) lock() {
	if !s.mu.TryLock() {
		select {
		case s.hurry <- struct{}{}:
		default:
		}
		s.mu.Lock()
	}
	select {
	case <-s.hurry: // it was for the one before
	default:
	}
}

// unlock frees the session. One that has ended leaves its partitions.
func (s *session) unlock() {
	for {
		ended := s.ended.Load()
		if ended {
			s.leaveLocked()
		}
		s.mu.Unlock()
		if ended == s.ended.Load() || !s.mu.TryLock() {
			return
		}
	}
}

// end makes the session leave its partitions, at once or when the fetch under
// way is done. It is no longer in the cache.
func (s *session) end() {
	s.ended.Store(true)
	s.lock()
	s.unlock()
}

func (s *session) leaveLocked() {
	for p := s.parts.first(); p != nil; p = s.parts.after(p) {
		p.unwatch()
	}
}

// set adds a partition at the end, or replaces what is asked of it.
func (s *session) set(name []byte, id kafka.TopicID, want *wire.FetchPartition) *fetchPart {
	if p := s.byKey[partKey{id, string(name), want.Index}]; p != nil {
		p.ask(want)
		return p
	}
	p := &fetchPart{name: bytes.Clone(name), id: id, told: unknownWatermarks}
	p.ask(want)
	s.byKey[p.key()] = p
	s.parts.push(p)
	return p
}

// forget drops a partition.
func (s *session) forget(name []byte, id kafka.TopicID, index int32) {
	if p := s.byKey[partKey{id, string(name), index}]; p != nil {
		p.unwatch()
		s.parts.remove(p)
		delete(s.byKey, p.key())
	}
}

// update brings in an incremental request.
func (s *session) update(q *wire.FetchRequest) {
	for i := range q.Topics {
		t := &q.Topics[i]
		for j := range t.Partitions {
			s.set(t.Name, t.ID, &t.Partitions[j])
		}
	}
	for i := range q.Forgotten {
		t := &q.Forgotten[i]
		for _, index := range t.Partitions {
			s.forget(t.Name, t.ID, index)
		}
	}
}

// nextEpoch is the epoch after e.
func nextEpoch(e int32) int32 {
	if e == math.MaxInt32 {
		return 1
	}
	return e + 1
}

// report decides whether an incremental answer lists a partition, and notes
// what the client is told. A partition with records goes to the end of the
// order, so that the others come first next time.
func (s *session) report(p *fetchPart, a *wire.FetchPartitionResponse) bool {
	records := a.Region.Length > 0
	now := watermarks{high: a.HighWatermark, start: a.LogStart}
	listed := records || now != p.told || a.ErrorCode != kafka.None || a.Diverging.Known || a.PreferredReadReplica >= 0
	p.told = now
	if a.ErrorCode != kafka.None {
		p.told.high = -1 // so that the end of the error is told
	}
	if records {
		s.parts.remove(p)
		s.parts.push(p)
	}
	return listed
}

// sessionCache holds the sessions of a broker.
type sessionCache struct {
	slots func() int // max.incremental.fetch.session.cache.slots

	mu         sync.Mutex
	sessions   map[int32]*session
	partitions map[netip.Addr]int // of all sessions begun from there
}

func newSessionCache(slots func() int) *sessionCache {
	return &sessionCache{slots: slots, sessions: map[int32]*session{}, partitions: map[netip.Addr]int{}}
}

// find returns a session, nil when there is none.
func (c *sessionCache) find(id int32) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessions[id]
}

// touch notes a use and the size of a session. It reports false when the session
// has grown beyond what its address may have.
func (c *sessionCache) touch(s *session, size int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions[s.id] != s { // it has been ended
		return true
	}
	s.used = now
	c.partitions[s.from] += size - s.size
	grown := size > s.size
	s.size = size
	return !grown || c.partitions[s.from] <= maxSessionPartitions
}

// hasRoom reports whether an address may have a session with n partitions more.
func (c *sessionCache) hasRoom(from netip.Addr, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.partitions[from]+n <= maxSessionPartitions
}

// deleteLocked takes a session out.
func (c *sessionCache) deleteLocked(s *session) {
	if c.sessions[s.id] != s {
		return
	}
	delete(c.sessions, s.id)
	if c.partitions[s.from] -= s.size; c.partitions[s.from] <= 0 {
		delete(c.partitions, s.from)
	}
}

// remove ends a session. The caller does not hold its lock.
func (c *sessionCache) remove(id int32) {
	c.mu.Lock()
	s := c.sessions[id]
	if s != nil {
		c.deleteLocked(s)
	}
	c.mu.Unlock()
	if s != nil {
		s.end()
	}
}

// drop is remove for a caller that holds the session's lock.
func (c *sessionCache) drop(s *session) {
	c.mu.Lock()
	c.deleteLocked(s)
	c.mu.Unlock()
	s.ended.Store(true)
}

// add takes a session in and gives it an id, or reports that there is no room.
func (c *sessionCache) add(s *session, now time.Time) bool {
	var evicted *session
	c.mu.Lock()
	s.size = len(s.byKey)
	if c.partitions[s.from]+s.size > maxSessionPartitions {
		c.mu.Unlock()
		return false
	}
	if len(c.sessions) >= c.slots() {
		if evicted = c.evictLocked(s, now); evicted == nil {
			c.mu.Unlock()
			return false
		}
	}
	for s.id == 0 || c.sessions[s.id] != nil {
		s.id = randomSessionID()
	}
	c.sessions[s.id] = s
	c.partitions[s.from] += s.size
	c.mu.Unlock()
	if evicted != nil {
		evicted.end()
	}
	return true
}

// randomSessionID is positive, so that ids cannot be guessed; 0 is no id.
func randomSessionID() int32 {
	var b [4]byte
	rand.Read(b[:])
	return int32(binary.BigEndian.Uint32(b[:]) & math.MaxInt32)
}

// evictLocked makes room for a newcomer: by the session that was unused for
// longest, when that is long enough; else by the least one that the newcomer
// outranks, being a follower's or having more partitions. It returns the session
// that goes, nil when none does.
func (c *sessionCache) evictLocked(newcomer *session, now time.Time) *session {
	var stale, least *session
	for _, s := range c.sessions {
		if stale == nil || s.used.Before(stale.used) {
			stale = s
		}
		if evictable := !s.privileged && newcomer.privileged || now.Sub(s.created) > evictAfter; evictable &&
			(least == nil || outranks(least, s)) {
			least = s
		}
	}
	evicted := stale
	if stale == nil || now.Sub(stale.used) <= evictAfter {
		if least == nil || !outranks(newcomer, least) {
			return nil
		}
		evicted = least
	}
	c.deleteLocked(evicted)
	return evicted
}

// outranks reports whether a has the better claim to a slot.
func outranks(a, b *session) bool {
	if a.privileged != b.privileged {
		return a.privileged
	}
	return a.size > b.size
}
