package main

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordID names a record: 16 bits of its producer, 48 bits of its number
// among what that producer sent to the partition.
type recordID uint64

func newID(producer int, seq int64) recordID { return recordID(producer)<<48 | recordID(seq) }

func (id recordID) producer() int { return int(id >> 48) }
func (id recordID) seq() int64    { return int64(id & (1<<48 - 1)) }

// payload is the value of a record: its name, and bytes that follow from it.
func payload(id recordID) []byte {
	b := fmt.Appendf(nil, "%d %d ", id.producer(), id.seq())
	x := uint64(id)*0x9e3779b97f4a7c15 + 1
	for n := 100 + int(x>>32%600); len(b) < n; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b = fmt.Appendf(b, "%x,", x&0xfffff)
	}
	return b
}

// parse is the way back; it fails when a byte differs.
func parse(value []byte) (recordID, error) {
	var p int
	var seq int64
	if _, err := fmt.Sscanf(string(value[:min(len(value), 40)]), "%d %d ", &p, &seq); err != nil {
		return 0, fmt.Errorf("%.40q was sent by nobody", value)
	}
	id := newID(p, seq)
	if !bytes.Equal(payload(id), value) {
		return 0, fmt.Errorf("not the bytes of record %d of producer %d", seq, p)
	}
	return id, nil
}

// seen is a record as the tail reader saw it.
type seen struct {
	id recordID
	at int64 // ms
}

// partition is what must be in one partition that is not compacted. The tail
// reader enters every record, producers what was acknowledged.
type partition struct {
	topic    string
	number   int32
	findings *findings

	mu      sync.Mutex
	base    int64  // offset of seen[0]
	seen    []seen // from the log start as last observed
	start   int64  // log start as last observed, or as acknowledged by DeleteRecords
	pending map[int64]recordID
	lanes   map[int]int64 // by producer: the next number, if none is lost
	again   int64         // records of plain producers that are there twice
}

func (p *partition) String() string { return fmt.Sprintf("%s-%d", p.topic, p.number) }

// next is the offset that the tail reader expects.
func (p *partition) nextLocked() int64 { return p.base + int64(len(p.seen)) }

// read enters one record of the tail reader.
func (p *partition) read(r *kgo.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := p.nextLocked()
	if r.Offset != next {
		p.findings.add("%v: the tail reader got offset %d, expected %d", p, r.Offset, next)
		if r.Offset < next {
			return
		}
		for ; next < r.Offset; next++ {
			p.seen = append(p.seen, seen{})
		}
	}
	id, err := parse(r.Value)
	if err != nil {
		p.findings.add("%v offset %d: %v", p, r.Offset, err)
	}
	p.seen = append(p.seen, seen{id, r.Timestamp.UnixMilli()})
	if want, ok := p.pending[r.Offset]; ok {
		delete(p.pending, r.Offset)
		if want != id {
			p.findings.add("%v offset %d holds record %d of producer %d, acknowledged was %d of %d", p, r.Offset, id.seq(), id.producer(), want.seq(), want.producer())
		}
	}
	switch expected := p.lanes[id.producer()]; {
	case id.seq() == expected:
		p.lanes[id.producer()] = expected + 1
	case id.seq() > expected:
		p.findings.add("%v offset %d: record %d of producer %d comes after its record %d", p, r.Offset, id.seq(), id.producer(), expected-1)
		p.lanes[id.producer()] = id.seq() + 1
	case idempotent(id.producer()):
		p.findings.add("%v offset %d: record %d of idempotent producer %d is there twice or late, %d was the next", p, r.Offset, id.seq(), id.producer(), expected)
	default:
		p.again++
	}
}

// acknowledge enters what the broker told a producer.
func (p *partition) acknowledge(id recordID, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if offset >= p.nextLocked() {
		p.pending[offset] = id
		return
	}
	if offset < p.base {
		return // retention was faster than the answer
	}
	if got := p.seen[offset-p.base].id; got != id {
		p.findings.add("%v offset %d held record %d of producer %d, acknowledged is %d of %d", p, offset, got.seq(), got.producer(), id.seq(), id.producer())
	}
}

// check holds a record of another reader against what the tail reader saw;
// false when the tail reader is not there yet.
func (p *partition) check(who string, r *kgo.Record) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Offset >= p.nextLocked() {
		return false
	}
	if r.Offset < p.base {
		return true
	}
	id, err := parse(r.Value)
	if err != nil {
		p.findings.add("%s: %v offset %d: %v", who, p, r.Offset, err)
		return true
	}
	if want := p.seen[r.Offset-p.base]; want.id != id || want.at != r.Timestamp.UnixMilli() {
		p.findings.add("%s: %v offset %d is record %d of producer %d at %d ms, before it was %d of %d at %d ms", who, p, r.Offset, id.seq(), id.producer(), r.Timestamp.UnixMilli(), want.id.seq(), want.id.producer(), want.at)
	}
	return true
}

// observe enters a log start that the broker reported. What lies before it has
// been deleted: by DeleteRecords, by size, or because it is old enough.
func (p *partition) observe(start int64, retention time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if start < p.start {
		p.findings.add("%v: log start went back from %d to %d", p, p.start, start)
	}
	p.start = max(p.start, start)
	drop := min(p.start-p.base, int64(len(p.seen)))
	if drop <= 0 {
		return
	}
	if retention > 0 {
		if last := p.seen[drop-1]; time.Since(time.UnixMilli(last.at)) < retention {
			p.findings.add("%v: retention took offset %d after %v, allowed after %v", p, p.base+drop-1, time.Since(time.UnixMilli(last.at)).Round(time.Millisecond), retention)
		}
	}
	p.seen = append([]seen(nil), p.seen[drop:]...)
	p.base += drop
}

// firstAt is the offset that a lookup by time has to find, -1 for none.
func (p *partition) firstAt(t int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range p.seen {
		if s.at >= t {
			return p.base + int64(i)
		}
	}
	return -1
}

// bounds are the observed log start, and the end as read by the tail reader.
func (p *partition) bounds() (start, next, firstMs int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.seen) > 0 {
		firstMs = p.seen[0].at
	}
	return p.start, p.nextLocked(), firstMs
}

// model is all partitions that are not compacted.
type model struct {
	findings   *findings
	partitions map[string][]*partition
	acked      atomic.Int64
}

func newModel(f *findings) *model {
	m := &model{findings: f, partitions: map[string][]*partition{}}
	for _, t := range plainTopics {
		for n := range t.partitions {
			m.partitions[t.name] = append(m.partitions[t.name], &partition{topic: t.name, number: n, findings: f, pending: map[int64]recordID{}, lanes: map[int]int64{}})
		}
	}
	return m
}

func (m *model) each(f func(*partition)) {
	for _, t := range plainTopics {
		for _, p := range m.partitions[t.name] {
			f(p)
		}
	}
}

// starts are the log starts that must not come back after a restart.
func (m *model) starts() map[*partition]int64 {
	out := map[*partition]int64{}
	m.each(func(p *partition) { out[p], _, _ = p.bounds() })
	return out
}

// waitRead returns when every acknowledged record has been read, or reports
// what is missing.
func (m *model) waitRead(ctx context.Context) {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		missing := 0
		m.each(func(p *partition) {
			p.mu.Lock()
			missing += len(p.pending)
			p.mu.Unlock()
		})
		if missing == 0 {
			return
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			m.each(func(p *partition) {
				p.mu.Lock()
				defer p.mu.Unlock()
				for offset, id := range p.pending {
					m.findings.add("%v: %d acknowledged records cannot be read, such as %d of producer %d at offset %d; the reader is at %d", p, len(p.pending), id.seq(), id.producer(), offset, p.nextLocked())
					return
				}
			})
			return
		}
	}
}
