package broker

import (
	"time"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/replica"
	"github.com/varvelog/varve/internal/wire"
)

// waits reports whether what was read is too little to be answered now.
func (f *fetchCall) waits() bool {
	return f.req.MaxWaitMs > 0 && f.known > 0 && f.got < f.need && !f.atOnce
}

// wait waits until the partitions tell of enough, or the client's time is up,
// or somebody else needs the session, and reads again.
func (f *fetchCall) wait() error {
	if err := f.c.Request.Flush(); err != nil {
		return err
	}
	f.ownNames()
	f.c.Request.Release()
	f.timer.Reset(f.longest())
	defer f.timer.Stop()
	waiter, hurry := f.own, (chan struct{})(nil)
	if f.session != nil {
		waiter, hurry = f.session.waiter, f.session.hurry
	}
	for over := false; !over && f.waits(); {
		waiter.Arm(f.need - f.got)
		f.watch(waiter)
		f.releaseRegions()
		// A session's partitions that were not read again kept their watches; what
		// they told before Arm counted for nothing, so it is looked at once more.
		if f.session == nil || waiter.Next() == nil {
			over = true
			select {
			case <-waiter.C():
			case <-f.timer.C:
			case <-hurry:
			case <-f.c.Done():
			}
		}
		waiter.Disarm()
		f.read()
	}
	return nil
}

// longest is how long the fetch may wait. A client that has gone is noticed when
// it is answered, so no wait is longer than an idle connection may live.
func (f *fetchCall) longest() time.Duration {
	wait := time.Duration(f.req.MaxWaitMs) * time.Millisecond
	if idle := f.b.opts.Config().ConnectionsMaxIdle; idle > 0 {
		return min(wait, idle)
	}
	return wait
}

// ownNames copies the topic names out of the request, so that the connection
// need not keep its read buffer for the time of the wait.
func (f *fetchCall) ownNames() {
	n := 0
	for i := range f.local {
		n += len(f.local[i].name)
	}
	if cap(f.names) < n {
		f.names = make([]byte, 0, n)
	}
	names := f.names[:0]
	for i := range f.local {
		if p := &f.local[i]; p.name != nil {
			from := len(names)
			names = append(names, p.name...)
			p.name = names[from:len(names):len(names)]
		}
	}
	f.req.Forget()
}

// watch joins the partitions that can be read, unless their watches already
// count from what was read last.
func (f *fetchCall) watch(waiter *replica.Waiter) {
	for p := f.parts.first(); p != nil; p = f.parts.after(p) {
		if p.p == nil || p.joined {
			continue
		}
		p.joined = true
		p.p.Watch(&p.watch, waiter, replica.WatchOptions{
			Bound: f.bound, Offset: p.want.FetchOffset, MaxBytes: int64(p.want.MaxBytes), Mark: p.mark,
		})
	}
}

// releaseRegions gives the regions back for the time of the wait.
func (f *fetchCall) releaseRegions() {
	for i := range f.answers {
		if a := &f.answers[i]; a.Region.Release != nil {
			a.Region.Release()
			a.Region.Release = nil
		}
	}
}

// respond writes the answer.
func (f *fetchCall) respond() {
	id := int32(0)
	switch {
	case f.session != nil:
		id = f.session.id
	case f.create:
		id = f.newSession()
	}
	f.startResponse(id)
	for i := range f.answers {
		a := &f.answers[i]
		if f.session == nil || f.session.report(a.part, &a.FetchPartitionResponse) {
			f.report(a)
		}
	}
	f.resp.Encode(f.c.Request.Out, f.c.Version)
}

// newSession begins a session with what was answered; 0 when there is no room.
func (f *fetchCall) newSession() int32 {
	from := f.c.Request.Conn.RemoteAddr().Addr().Unmap()
	if !f.b.sessions.hasRoom(from, len(f.answers)) {
		return 0
	}
	now := f.b.opts.Now()
	s := newSession(f.req.UsesTopicIDs(f.c.Version), f.req.ReplicaID >= 0, now)
	s.from = from
	for i := range f.answers {
		a := &f.answers[i]
		p := s.set(a.part.name, a.part.id, &a.part.want)
		p.told = watermarks{high: a.HighWatermark, start: a.LogStart}
		p.p, p.next = a.part.p, a.part.next
	}
	if !f.b.sessions.add(s, now) {
		return 0
	}
	return s.id
}

func (f *fetchCall) startResponse(sessionID int32) {
	f.resp.ErrorCode, f.resp.SessionID = kafka.None, sessionID
	f.resp.Topics, f.resp.NodeEndpoints = f.resp.Topics[:0], f.resp.NodeEndpoints[:0]
	if f.c.Version >= 16 {
		for i := range f.answers {
			if l := f.answers[i].CurrentLeader; l.Known {
				f.addEndpoint(l.ID)
			}
		}
	}
}

// report adds an answer to the response, behind the one before it when they are
// of one topic. The response owns the region from here on.
func (f *fetchCall) report(a *fetchAnswer) {
	topics := f.resp.Topics
	last := len(topics) - 1
	if last < 0 || topics[last].ID != a.part.id || string(topics[last].Name) != string(a.part.name) {
		topics = grow(topics)
		last++
		topics[last].Name, topics[last].ID = a.part.name, a.part.id
		topics[last].Partitions = topics[last].Partitions[:0]
		f.resp.Topics = topics
	}
	topics[last].Partitions = append(topics[last].Partitions, a.FetchPartitionResponse)
	a.Region.Release = nil
}

// grow makes s one element longer and keeps what an earlier use left in it, so
// that slices inside the element are used again.
func grow[T any](s []T) []T {
	if len(s) < cap(s) {
		return s[:len(s)+1]
	}
	var zero T
	return append(s, zero)
}

// tellLeader adds who leads the partition, for clients that can go there at once
// (KIP-951).
func (f *fetchCall) tellLeader(p *fetchPart, a *fetchAnswer) {
	if f.c.Version < 16 || a.ErrorCode != kafka.ErrNotLeaderOrFollower && a.ErrorCode != kafka.ErrFencedLeaderEpoch {
		return
	}
	role := p.p.Role()
	a.CurrentLeader = wire.LeaderIDAndEpoch{Known: true, ID: role.Leader, Epoch: role.LeaderEpoch}
}

func (f *fetchCall) addEndpoint(id kafka.BrokerID) {
	f.resp.NodeEndpoints = f.b.addEndpoint(f.resp.NodeEndpoints, f.c.Listener(), id)
}

// addEndpoint adds where a broker is reached, unless it is listed or unknown.
func (b *Broker) addEndpoint(list []wire.NodeEndpoint, listener string, id kafka.BrokerID) []wire.NodeEndpoint {
	for i := range list {
		if list[i].NodeID == id {
			return list
		}
	}
	image := b.opts.Image()
	e := endpoint(image, id, listener)
	if e == nil {
		return list
	}
	n := wire.NodeEndpoint{NodeID: id, Host: []byte(e.Host), Port: int32(e.Port)}
	if rack := image.Broker(id).Rack; rack != nil {
		n.Rack = []byte(*rack)
	}
	return append(list, n)
}

// partition finds a partition that has a replica here, by name or, when name is
// nil, by topic id; or says what a client is told instead.
func (b *Broker) partition(name []byte, id kafka.TopicID, index int32) (*replica.Partition, kafka.ErrorCode) {
	var t *replica.Topic
	if name == nil {
		t = b.opts.Replicas.TopicByID(id)
	} else {
		t = b.opts.Replicas.TopicBytes(name)
	}
	if t != nil {
		if p := t.Partition(index); p != nil {
			return p, kafka.None
		}
	}
	image := b.opts.Image()
	known := image.TopicByID(id)
	if name == nil && known == nil {
		return nil, kafka.ErrUnknownTopicID
	}
	if name != nil {
		known = image.Topic(string(name))
	}
	if known != nil {
		if _, ok := known.Partitions.Get(index); ok {
			return nil, kafka.ErrNotLeaderOrFollower
		}
	}
	return nil, kafka.ErrUnknownTopicOrPartition
}
