package broker

// Produce (key 0), versions 3 to 13; which field came when is in wire/produce.go.
// Versions 0 to 2 are advertised and close the connection, as Kafka 4 does.
//
// A batch is checked in two places: here, what concerns the request (exactly one
// whole batch of format 2, codecs that the version knows, transactions), and in
// the log, what concerns the topic. The bytes of a batch go from the
// connection's buffer to the file; nothing is copied or kept here.
//
// With acks=0 there is no answer; an error closes the connection, so that the
// producer hears of it.

import (
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/replica"
	"github.com/varvelog/varve/internal/server"
	"github.com/varvelog/varve/internal/wire"
)

const (
	acksAll  = -1
	acksNone = 0

	// adminClientID may write to internal topics (AdminUtils.ADMIN_CLIENT_ID).
	adminClientID = "__admin_client"
)

// errAcksNone closes the connection of a producer that does not wait for answers.
var errAcksNone = errors.New("acks=0 and a batch was refused")

// produceCall is the state of one produce. It is pooled: its slices are used again.
type produceCall struct {
	b    *Broker
	c    *Context
	req  wire.ProduceRequest
	resp wire.ProduceResponse

	failed  bool
	repeats map[partKey]int // how often each partition is still to come; nil when there are few
	places  map[partKey]int // where each topic is in the response; nil when there are few
	syncs   []pendingSync   // in the order of appends
	appends []pendingAppend
	wake    []*replica.Partition // to be told once the answer is written
	wakeFn  func()               // bound once
	waiter  *replica.Waiter      // for acks=all; made at first need
}

// pendingSync is an append that waits for the disk.
type pendingSync struct {
	p         *replica.Partition
	owed      commitlog.SyncPoint
	topic     int // where the answer is in the response
	partition int
}

// pendingAppend is an append that waits for the in-sync replicas.
type pendingAppend struct {
	p         *replica.Partition
	last      kafka.Offset
	topic     int // where the answer is in the response
	partition int
}

func newProduceCall() any {
	f := &produceCall{}
	f.wakeFn = f.wakeFetches
	return f
}

func (b *Broker) produce(c *Context) (server.Verdict, error) {
	f := b.produces.Get().(*produceCall)
	f.b, f.c, f.failed = b, c, false
	verdict, err := f.serve()
	f.req.Forget()
	if len(f.wake) > 0 && verdict != server.Close {
		c.Request.AfterWrite(f.wakeFn) // gives f back
		return verdict, err
	}
	f.wakeFetches()
	return verdict, err
}

// wakeFetches tells those who wait for records, and ends the call.
func (f *produceCall) wakeFetches() {
	for i, p := range f.wake {
		p.Wake()
		f.wake[i] = nil
	}
	f.wake = f.wake[:0]
	b := f.b
	f.b, f.c = nil, nil
	b.produces.Put(f)
}

func (f *produceCall) serve() (server.Verdict, error) {
	if err := f.req.Decode(f.c.Request.Body, f.c.Version); err != nil {
		return server.Close, err
	}
	f.resp.Topics, f.resp.NodeEndpoints = f.resp.Topics[:0], f.resp.NodeEndpoints[:0]
	f.syncs, f.appends = f.syncs[:0], f.appends[:0]
	f.findRepeats()
	refused := f.refuseAll()
	for i := range f.req.Topics {
		f.topic(i, refused)
	}
	if f.req.Acks == acksNone {
		if f.failed {
			return server.Close, &server.CloseError{Reason: "acks-0-error", Err: errAcksNone}
		}
		return server.NoReply, nil
	}
	if len(f.syncs) > 0 {
		if err := f.awaitSyncs(); err != nil {
			return server.Close, err
		}
	}
	if len(f.appends) > 0 {
		// The followers, whose fetches it waits for, are among those who wait.
		for _, p := range f.wake {
			p.Wake()
		}
		if err := f.awaitReplicas(); err != nil {
			return server.Close, err
		}
	}
	f.resp.Encode(f.c.Request.Out, f.c.Version)
	return server.Reply, nil
}

// refuseAll finds what refuses every partition of the request.
func (f *produceCall) refuseAll() kafka.ErrorCode {
	if f.req.TransactionalID != nil {
		return kafka.None
	}
	for i := range f.req.Topics {
		for j := range f.req.Topics[i].Partitions {
			if b := f.req.Topics[i].Partitions[j].Records; len(b) >= record.HeaderSize && record.Batch(b).Magic() == record.MagicV2 && record.Batch(b).IsTransactional() {
				return kafka.ErrTransactionalIDAuthorizationFailed
			}
		}
	}
	return kafka.None
}

// topic appends the partitions of one topic. One that the request names again
// is left to the later place, as Kafka's map of partitions does it.
func (f *produceCall) topic(i int, refused kafka.ErrorCode) {
	t := &f.req.Topics[i]
	at := f.responseTopic(t)
	for j := range t.Partitions {
		if f.namedAgain(i, j) {
			continue
		}
		answers := &f.resp.Topics[at].Partitions
		*answers = append(*answers, wire.ProducePartitionResponse{
			Index: t.Partitions[j].Index, BaseOffset: -1, LogAppendTime: kafka.NoTimestamp, LogStart: -1,
		})
		a := &(*answers)[len(*answers)-1]
		if refused != kafka.None {
			a.ErrorCode = refused
		} else {
			f.partition(t, &t.Partitions[j], a, at, len(*answers)-1)
		}
		f.failed = f.failed || a.ErrorCode != kafka.None
	}
	if len(f.resp.Topics[at].Partitions) == 0 && at == len(f.resp.Topics)-1 {
		f.resp.Topics = f.resp.Topics[:at] // nothing was asked of it
		delete(f.places, topicKey(t))
	}
}

// responseTopic is the place of a topic in the response, once for each topic.
func (f *produceCall) responseTopic(t *wire.ProduceTopic) int {
	if f.places != nil {
		if i, ok := f.places[topicKey(t)]; ok {
			return i
		}
		f.places[topicKey(t)] = len(f.resp.Topics)
	} else {
		for i := range f.resp.Topics {
			if x := &f.resp.Topics[i]; x.ID == t.ID && string(x.Name) == string(t.Name) {
				return i
			}
		}
	}
	f.resp.Topics = grow(f.resp.Topics)
	x := &f.resp.Topics[len(f.resp.Topics)-1]
	x.Name, x.ID, x.Partitions = t.Name, t.ID, x.Partitions[:0]
	return len(f.resp.Topics) - 1
}

// topicKey names a topic of the request.
func topicKey(t *wire.ProduceTopic) partKey { return partKey{id: t.ID, name: string(t.Name)} }

// manyPartitions is from how many partitions, or topics, on a map finds repeated
// ones: a request may name a million of them.
const manyPartitions = 128

// findRepeats counts how often each partition is named, when there are many.
func (f *produceCall) findRepeats() {
	f.places = nil
	if len(f.req.Topics) > manyPartitions {
		f.places = make(map[partKey]int, len(f.req.Topics))
	}
	n := 0
	for i := range f.req.Topics {
		n += len(f.req.Topics[i].Partitions)
	}
	f.repeats = nil
	if n <= manyPartitions {
		return
	}
	f.repeats = make(map[partKey]int, n)
	for i := range f.req.Topics {
		t := &f.req.Topics[i]
		for j := range t.Partitions {
			f.repeats[partKey{t.ID, string(t.Name), t.Partitions[j].Index}]++
		}
	}
}

// namedAgain reports whether the request names partition j of topic i later.
func (f *produceCall) namedAgain(i, j int) bool {
	t := &f.req.Topics[i]
	if f.repeats != nil {
		key := partKey{t.ID, string(t.Name), t.Partitions[j].Index}
		f.repeats[key]--
		return f.repeats[key] > 0
	}
	for k := i; k < len(f.req.Topics); k++ {
		u := &f.req.Topics[k]
		from := 0
		if k == i {
			from = j + 1
		} else if u.ID != t.ID || string(u.Name) != string(t.Name) {
			continue
		}
		for _, p := range u.Partitions[from:] {
			if p.Index == t.Partitions[j].Index {
				return true
			}
		}
	}
	return false
}

// partition appends one batch and fills in its answer.
func (f *produceCall) partition(t *wire.ProduceTopic, in *wire.ProducePartition, a *wire.ProducePartitionResponse, topicAt, partitionAt int) {
	p, code := f.b.partition(t.Name, t.ID, in.Index)
	if code != kafka.None && code != kafka.ErrNotLeaderOrFollower {
		a.ErrorCode = code
		return
	}
	batch, code, message := oneBatch(in.Records, f.c.Version)
	switch {
	case code != kafka.None:
		a.ErrorCode, a.ErrorMessage = code, message
	case f.req.Acks < acksAll || f.req.Acks > 1:
		a.ErrorCode = kafka.ErrInvalidRequiredAcks
	case p == nil:
		a.ErrorCode = kafka.ErrNotLeaderOrFollower
	case kafka.IsInternalTopic(p.Name().Topic) && f.c.ClientID() != adminClientID:
		a.ErrorCode = kafka.ErrInvalidTopicException
	case batch.IsTransactional():
		a.ErrorCode = notInTransaction(f.c.Version)
	default:
		f.append(p, batch, a, topicAt, partitionAt)
	}
	if a.ErrorCode == kafka.ErrNotLeaderOrFollower && p != nil && f.c.Version >= 10 {
		role := p.Role()
		a.CurrentLeader = wire.LeaderIDAndEpoch{Known: true, ID: role.Leader, Epoch: role.LeaderEpoch}
		f.resp.NodeEndpoints = f.b.addEndpoint(f.resp.NodeEndpoints, f.c.Listener(), role.Leader)
	}
}

// notInTransaction is the error of a batch of a transaction that nobody began:
// there is no transaction coordinator yet that could have. Clients from version
// 12 on expect the broker to begin it (KIP-890); to them it is an error that
// ends the transaction.
func notInTransaction(version int16) kafka.ErrorCode {
	if version <= 10 {
		return kafka.ErrInvalidTxnState
	}
	return kafka.ErrTransactionAbortable
}

// oneBatch finds the one batch that a partition's records must be
// (ProduceRequest.validateRecords). A partial batch or garbage behind it is
// dropped.
func oneBatch(b []byte, version int16) (record.Batch, kafka.ErrorCode, []byte) {
	size, ok, err := record.NextBatch(b)
	switch {
	case err != nil:
		return nil, kafka.ErrCorruptMessage, corruptText(err)
	case !ok:
		return nil, kafka.ErrInvalidRecord, nil
	}
	batch := record.Batch(b[:size])
	if batch.Magic() != record.MagicV2 {
		return nil, kafka.ErrInvalidRecord, nil
	}
	if version < 7 && batch.Codec() == record.Zstd {
		return nil, kafka.ErrUnsupportedCompressionType, nil
	}
	switch _, more, err := record.NextBatch(b[size:]); {
	case err != nil:
		return nil, kafka.ErrCorruptMessage, corruptText(err)
	case more:
		return nil, kafka.ErrInvalidRecord, nil
	}
	return batch, kafka.None, nil
}

// corruptText is Kafka's text for framing that cannot be right
// (ByteBufferLogInputStream); it has none for a batch shorter than its header.
func corruptText(err error) []byte {
	var e *record.CorruptError
	switch {
	case !errors.As(err, &e) || e.Reason == "size":
		return nil
	case e.Reason == "magic":
		return fmt.Appendf(nil, "Invalid magic found in record: %d", e.Found)
	}
	return fmt.Appendf(nil, "Record size %d is less than the minimum record overhead (%d)", e.Found, e.Want)
}

func (f *produceCall) append(p *replica.Partition, batch record.Batch, a *wire.ProducePartitionResponse, topicAt, partitionAt int) {
	info, err := p.Append(batch, replica.AppendOptions{Origin: commitlog.Client, Acks: f.req.Acks})
	if err != nil {
		a.ErrorCode = ErrorCode(err)
		explainRefusal(err, a, p)
		return
	}
	a.BaseOffset, a.LogAppendTime, a.LogStart = info.FirstOffset, info.LogAppendTime, info.LogStartOffset
	if info.Wake {
		f.wake = append(f.wake, p)
	}
	if f.req.Acks == acksNone {
		return // the sync is under way; nobody waits for it
	}
	if !info.Owed.IsZero() {
		f.syncs = append(f.syncs, pendingSync{p, info.Owed, topicAt, partitionAt})
	}
	if f.req.Acks == acksAll && !info.Committed {
		f.appends = append(f.appends, pendingAppend{p, info.LastOffset, topicAt, partitionAt})
	}
}

// explainRefusal adds what Kafka tells besides the code: the log start offset,
// except for errors that have nothing to do with the records' content; and which
// records were refused, with a message, when single records were.
func explainRefusal(err error, a *wire.ProducePartitionResponse, p *replica.Partition) {
	switch a.ErrorCode {
	case kafka.ErrUnknownTopicOrPartition, kafka.ErrNotLeaderOrFollower, kafka.ErrMessageTooLarge,
		kafka.ErrRecordListTooLarge, kafka.ErrCorruptMessage, kafka.ErrKafkaStorageError:
		return
	}
	if l := p.Log(); l != nil {
		a.LogStart = l.StartOffset()
	}
	var refused *commitlog.AppendError
	if !errors.As(err, &refused) || len(refused.RecordErrors) == 0 {
		return
	}
	a.ErrorMessage = []byte(refused.Message)
	for _, r := range refused.RecordErrors {
		a.RecordErrors = append(a.RecordErrors, wire.RecordError{BatchIndex: r.Index, Message: []byte(r.Message)})
	}
}

// awaitSyncs waits until the appends of a topic that syncs before it answers are
// durable. All of them were made before the first is waited for, so that they
// share rounds with each other and with those of other connections. As with a
// write, only the disk ends the wait.
func (f *produceCall) awaitSyncs() error {
	// Earlier answers of the connection are true already.
	if err := f.c.Request.Flush(); err != nil {
		return err
	}
	for i := range f.syncs {
		s := &f.syncs[i]
		if err := s.p.AwaitSync(s.owed); err != nil {
			a := &f.resp.Topics[s.topic].Partitions[s.partition]
			*a = wire.ProducePartitionResponse{Index: a.Index, ErrorCode: ErrorCode(err), BaseOffset: -1, LogAppendTime: kafka.NoTimestamp, LogStart: -1}
		}
		s.p = nil
	}
	return nil
}

// awaitReplicas waits until the appends are committed or the request's time is
// up. The records stay in the log either way.
func (f *produceCall) awaitReplicas() error {
	if err := f.c.Request.Flush(); err != nil {
		return err
	}
	if f.waiter == nil {
		f.waiter = replica.NewWaiter()
	}
	timer := time.NewTimer(time.Duration(f.req.TimeoutMs) * time.Millisecond)
	defer timer.Stop()
	over := false
	for i := range f.appends {
		w := &f.appends[i]
		if f.resp.Topics[w.topic].Partitions[w.partition].ErrorCode != kafka.None {
			continue // the disk has failed it
		}
		var watch replica.Watch
		for w.p.Err() == nil && w.p.Log().HighWatermark() <= w.last && !over {
			f.waiter.Arm(0)
			w.p.Watch(&watch, f.waiter, replica.WatchOptions{Bound: commitlog.HighWatermark, Offset: w.last})
			select {
			case <-f.waiter.C():
			case <-timer.C:
				over = true
			case <-f.c.Done():
				over = true
			}
			f.waiter.Disarm()
		}
		w.p.Unwatch(&watch)
		a := &f.resp.Topics[w.topic].Partitions[w.partition]
		switch err := w.p.Err(); {
		case err != nil:
			*a = wire.ProducePartitionResponse{Index: a.Index, ErrorCode: ErrorCode(err), BaseOffset: -1, LogAppendTime: kafka.NoTimestamp, LogStart: -1}
		case w.p.Log().HighWatermark() <= w.last:
			a.ErrorCode = kafka.ErrRequestTimedOut
		}
	}
	return nil
}
