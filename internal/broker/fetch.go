package broker

// Fetch (key 1), versions 4 to 18; which field came when is in wire/fetch.go.
// Records leave as file regions: no record byte is read here.
//
// A fetch answers at once when there is enough (min.bytes), when a partition has
// an error of its own, or when the client does not wait; else it waits until
// partitions have told of enough, or its time is up, and reads again. Partitions
// that are refused before they are read (unknown topics) do not end the wait:
// clients use it as back-off.

import (
	"errors"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/replica"
	"github.com/varvelog/varve/internal/server"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/wire"
)

// debuggingConsumer is the replica id of a consumer that reads up to the log end.
const debuggingConsumer kafka.BrokerID = -2

// fetchCall is the state of one fetch. It is pooled: its slices are used again.
type fetchCall struct {
	b   *Broker
	c   *Context
	req wire.FetchRequest

	bound commitlog.Bound
	limit int64 // of the records of the answer
	need  int64 // bytes that end the wait

	session *session  // of an incremental fetch, locked
	create  bool      // a session is wanted
	parts   *partList // what is fetched: the session's, or local
	local   []fetchPart
	ring    partList        // over local
	own     *replica.Waiter // of fetches without a session

	// What the last read found.
	answers []fetchAnswer
	got     int64 // bytes
	known   int   // partitions that were read
	atOnce  bool  // something ends the wait

	resp    wire.FetchResponse
	aborted []wire.AbortedTransaction // behind the answers' Aborted
	found   []commitlog.AbortedTxn
	timer   *time.Timer
	names   []byte // of topics, while the fetch waits
}

// fetchAnswer is what a partition is answered with, unless the session leaves it out.
type fetchAnswer struct {
	part *fetchPart
	wire.FetchPartitionResponse
}

func newFetchCall() any {
	f := &fetchCall{own: replica.NewWaiter(), timer: time.NewTimer(time.Hour)}
	f.timer.Stop()
	return f
}

func (b *Broker) fetch(c *Context) (server.Verdict, error) {
	f := b.fetches.Get().(*fetchCall)
	f.b, f.c = b, c
	verdict, err := f.serve()
	f.close()
	b.fetches.Put(f)
	return verdict, err
}

func (f *fetchCall) serve() (server.Verdict, error) {
	if err := f.req.Decode(f.c.Request.Body, f.c.Version); err != nil {
		return server.Close, err
	}
	if !f.setLimits() {
		f.refuse(kafka.ErrUnknownServerError)
		return server.Reply, nil
	}
	if code := f.open(); code != kafka.None {
		f.resp = wire.FetchResponse{Topics: f.resp.Topics[:0], ErrorCode: code}
		f.resp.Encode(f.c.Request.Out, f.c.Version)
		return server.Reply, nil
	}
	f.read()
	if f.waits() {
		if err := f.wait(); err != nil {
			return server.Close, err
		}
	}
	f.respond()
	return server.Reply, nil
}

// setLimits reads what bounds the answer; false when the isolation level is unknown.
func (f *fetchCall) setLimits() bool {
	switch {
	case f.req.ReplicaID >= 0 || f.req.ReplicaID == debuggingConsumer:
		f.bound = commitlog.LogEnd
	case f.req.IsolationLevel == 1:
		f.bound = commitlog.LastStable
	default:
		f.bound = commitlog.HighWatermark
	}
	f.limit = int64(min(f.req.MaxBytes, f.b.opts.Config().FetchMaxBytes))
	f.need = min(int64(f.req.MinBytes), f.limit)
	return f.req.IsolationLevel == 0 || f.req.IsolationLevel == 1
}

// refuse answers the whole request with an error: partition by partition where
// clients do not expect one at the top.
func (f *fetchCall) refuse(code kafka.ErrorCode) {
	f.startResponse(f.req.SessionID)
	f.resp.ErrorCode = code
	if !f.req.UsesTopicIDs(f.c.Version) {
		f.full()
		for p := f.parts.first(); p != nil; p = f.parts.after(p) {
			f.addAnswer(p).refuse(p, code)
		}
		for i := range f.answers {
			f.report(&f.answers[i])
		}
	}
	f.resp.Encode(f.c.Request.Out, f.c.Version)
}

// open finds the partitions to fetch: the session's, or those of the request.
func (f *fetchCall) open() kafka.ErrorCode {
	id, epoch := f.req.SessionID, f.req.SessionEpoch
	if epoch == epochInitial || epoch == epochFinal {
		if id != 0 {
			f.b.sessions.remove(id)
		}
		f.create = epoch == epochInitial
		f.full()
		return kafka.None
	}
	s := f.b.sessions.find(id)
	if s == nil {
		return kafka.ErrFetchSessionIDNotFound
	}
	s.lock()
	switch {
	case s.ended.Load():
		s.unlock()
		return kafka.ErrFetchSessionIDNotFound
	case s.epoch != epoch:
		s.unlock()
		return kafka.ErrInvalidFetchSessionEpoch
	case s.byID != f.req.UsesTopicIDs(f.c.Version):
		s.unlock()
		return kafka.ErrFetchSessionTopicIDError
	}
	s.update(&f.req)
	if len(s.byKey) == 0 { // its last partition was taken out
		f.b.sessions.drop(s)
		s.unlock()
		f.full()
		return kafka.None
	}
	if !f.b.sessions.touch(s, len(s.byKey), f.c.Request.Received) {
		f.b.sessions.drop(s)
		s.unlock()
		return kafka.ErrFetchSessionIDNotFound // the client begins anew, and without a session
	}
	s.epoch = nextEpoch(s.epoch)
	f.session, f.parts = s, &s.parts
	return kafka.None
}

// full takes the partitions of the request, each once.
func (f *fetchCall) full() {
	f.ring.init()
	f.parts = &f.ring
	n := 0
	for i := range f.req.Topics {
		n += len(f.req.Topics[i].Partitions)
	}
	if cap(f.local) < n {
		f.local = make([]fetchPart, 0, n) // their addresses stay
	}
	var seen map[partKey]*fetchPart
	if n > 64 {
		seen = make(map[partKey]*fetchPart, n)
	}
	for i := range f.req.Topics {
		t := &f.req.Topics[i]
		for j := range t.Partitions {
			want := &t.Partitions[j]
			if earlier := f.earlier(seen, t, want.Index); earlier != nil {
				earlier.ask(want)
				continue
			}
			f.local = f.local[:len(f.local)+1]
			p := &f.local[len(f.local)-1]
			*p = fetchPart{name: t.Name, id: t.ID, told: unknownWatermarks}
			p.ask(want)
			f.ring.push(p)
			if seen != nil {
				seen[p.key()] = p
			}
		}
	}
}

// earlier finds a partition that the request named before.
func (f *fetchCall) earlier(seen map[partKey]*fetchPart, t *wire.FetchTopic, index int32) *fetchPart {
	if seen != nil {
		return seen[partKey{t.ID, string(t.Name), index}]
	}
	for i := range f.local {
		if p := &f.local[i]; p.want.Index == index && p.id == t.ID && string(p.name) == string(t.Name) {
			return p
		}
	}
	return nil
}

// close lets everything go that the fetch held.
func (f *fetchCall) close() {
	f.releaseAnswers()
	for i := range f.local {
		f.local[i].unwatch()
		f.local[i] = fetchPart{}
	}
	f.local = f.local[:0]
	if f.session != nil {
		f.session.unlock()
	}
	f.req.Forget()
	for i := range f.resp.Topics {
		f.resp.Topics[i].Name = nil
	}
	f.b, f.c, f.session, f.parts, f.create = nil, nil, nil, nil, false
}

// releaseAnswers gives back the regions that are not sent.
func (f *fetchCall) releaseAnswers() {
	for i := range f.answers {
		a := &f.answers[i]
		if a.Region.Release != nil {
			a.Region.Release()
		}
		*a = fetchAnswer{}
	}
	f.answers, f.aborted = f.answers[:0], f.aborted[:0]
}

// read reads every partition that may have something to tell, in order, within
// the limit. The first records may exceed it by being one whole batch.
func (f *fetchCall) read() {
	f.releaseAnswers()
	f.got, f.known, f.atOnce = 0, 0, false
	if f.session != nil {
		for f.session.waiter.Next() != nil { // what they tell is looked at now
		}
	}
	for p := f.parts.first(); p != nil; p = f.parts.after(p) {
		if f.session != nil && p.quiet(f.bound) {
			f.known++
			continue
		}
		a := f.addAnswer(p)
		if code := f.find(p); code != kafka.None {
			a.refuse(p, code)
			f.atOnce = f.atOnce || code == kafka.ErrNotLeaderOrFollower
			continue
		}
		f.known++
		f.readPart(p, a)
	}
}

func (f *fetchCall) addAnswer(p *fetchPart) *fetchAnswer {
	f.answers = append(f.answers, fetchAnswer{part: p})
	return &f.answers[len(f.answers)-1]
}

// refuse answers a partition with an error and nothing else.
func (a *fetchAnswer) refuse(p *fetchPart, code kafka.ErrorCode) {
	p.idle = false
	a.FetchPartitionResponse = wire.FetchPartitionResponse{
		Index: p.want.Index, ErrorCode: code, HighWatermark: -1, LastStable: -1, LogStart: -1,
		Aborted: []wire.AbortedTransaction{}, PreferredReadReplica: kafka.NoBroker,
	}
}

// find makes sure that p.p is the partition that is meant, or says why it
// cannot be read.
func (f *fetchCall) find(p *fetchPart) kafka.ErrorCode {
	if p.p != nil {
		if !errors.Is(p.p.Err(), replica.ErrUnknownPartition) {
			return kafka.None
		}
		p.unwatch()
		p.p, p.next = nil, commitlog.Hint{}
	}
	var code kafka.ErrorCode
	p.p, code = f.b.partition(p.name, p.id, p.want.Index)
	return code
}

func (f *fetchCall) readPart(p *fetchPart, a *fetchAnswer) {
	limit := min(int64(p.want.MaxBytes), f.limit-f.got)
	if f.got > 0 {
		limit = max(limit, 0)
	}
	a.FetchPartitionResponse = wire.FetchPartitionResponse{Index: p.want.Index, PreferredReadReplica: kafka.NoBroker}
	p.idle = false
	switch {
	case p.want.MaxBytes < 0 || limit < 0:
		f.failPart(a, kafka.ErrUnknownServerError)
		return
	case f.req.ReplicaID >= 0: // no broker but this one has replicas, and it does not fetch
		f.failPart(a, kafka.ErrNotLeaderOrFollower)
		f.tellLeader(p, a)
		return
	}
	info, err := p.p.Read(replica.ReadOptions{
		ReadOptions: commitlog.ReadOptions{
			MaxBytes: limit, Bound: f.bound, MinOneBatch: f.got == 0,
			Aborted: f.req.IsolationLevel == 1, AbortedBuf: f.found, Hint: p.next,
		},
		Offset:           p.want.FetchOffset,
		CurrentEpoch:     p.currentEpoch(),
		LastFetchedEpoch: max(p.want.LastFetchedEpoch, kafka.NoLeaderEpoch),
	})
	p.mark, p.next, p.joined = info.Mark, info.Next, false
	if err != nil {
		f.failPart(a, ErrorCode(err))
		f.tellLeader(p, a)
		return
	}
	if f.c.Version < 10 && storedAsZstd(p.p.Log()) {
		release(info.Region)
		a.refuse(p, kafka.ErrUnsupportedCompressionType)
		return
	}
	f.fill(p, a, &info)
}

// fill takes over what a read found.
func (f *fetchCall) fill(p *fetchPart, a *fetchAnswer, info *replica.ReadInfo) {
	a.HighWatermark, a.LastStable, a.LogStart = info.HighWatermark, info.LastStable, info.StartOffset
	if info.Diverging {
		a.Diverging = wire.EpochEnd{Known: true, Epoch: info.DivergingEpoch, End: info.DivergingEnd}
		f.atOnce = true
		return
	}
	if f.req.IsolationLevel == 1 {
		f.addAborted(a, info.Aborted)
	}
	if info.FirstBatchIncomplete {
		release(info.Region)
		return
	}
	a.Region = info.Region
	f.got += info.Region.Length
	bound := info.EndOffset
	switch f.bound {
	case commitlog.HighWatermark:
		bound = info.HighWatermark
	case commitlog.LastStable:
		bound = info.LastStable
	}
	if info.Region.Length == 0 && p.want.FetchOffset >= bound {
		p.idle, p.idleAt = true, bound
	}
}

func release(r vfs.Region) {
	if r.Release != nil {
		r.Release()
	}
}

// failPart answers a partition with an error that ends the wait.
func (f *fetchCall) failPart(a *fetchAnswer, code kafka.ErrorCode) {
	f.atOnce = true
	a.ErrorCode, a.HighWatermark, a.LastStable, a.LogStart = code, -1, -1, -1
}

// addAborted tells a read_committed consumer what to skip. The list is never null.
func (f *fetchCall) addAborted(a *fetchAnswer, found []commitlog.AbortedTxn) {
	from := len(f.aborted)
	for _, x := range found {
		f.aborted = append(f.aborted, wire.AbortedTransaction{ProducerID: x.ProducerID, FirstOffset: x.FirstOffset})
	}
	f.found = found[:0]
	a.Aborted = f.aborted[from:len(f.aborted):len(f.aborted)]
	if a.Aborted == nil {
		a.Aborted = []wire.AbortedTransaction{}
	}
}

// storedAsZstd reports whether the topic is kept in a codec that clients of
// Fetch below version 10 do not know (KIP-110).
func storedAsZstd(l *commitlog.Log) bool {
	cfg := l.Config()
	return !cfg.CompressProducer && cfg.Codec == record.Zstd
}
