package main

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// last is the newest acknowledged record of a key.
type last struct {
	seq int64
	at  int64 // ms
}

// keyed is the model of one compacted partition, written by one producer.
type keyed struct {
	topic    string
	number   int32
	findings *findings

	mu    sync.Mutex
	acked map[string]last
	most  int // records read in one pass, at most
}

func newKeyed(topic string, number int32, f *findings) *keyed {
	return &keyed{topic: topic, number: number, findings: f, acked: map[string]last{}}
}

func (k *keyed) acknowledge(key string, seq, at int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.acked[key].at == 0 || seq > k.acked[key].seq {
		k.acked[key] = last{seq, at}
	}
}

func (k *keyed) snapshot() map[string]last {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.acked)
}

// pass is one reading of a compacted partition from its start to its end.
type pass struct {
	newest  map[string]int64
	seq     int64 // the last one of all keys: a single producer's records rise
	records int
}

// record enters one record of the pass.
func (p *pass) record(k *keyed, r *kgo.Record) {
	p.records++
	if len(r.Headers) != 1 {
		k.findings.add("%s-%d offset %d has %d headers, want 1", k.topic, k.number, r.Offset, len(r.Headers))
		return
	}
	seq, err := strconv.ParseInt(string(r.Headers[0].Value), 10, 64)
	if err != nil {
		k.findings.add("%s-%d offset %d: %v", k.topic, k.number, r.Offset, err)
		return
	}
	if p.records > 1 && seq <= p.seq {
		k.findings.add("%s-%d offset %d: record %d after record %d", k.topic, k.number, r.Offset, seq, p.seq)
	}
	p.seq = seq
	p.newest[string(r.Key)] = seq
	if tombstone(seq) {
		if r.Value != nil {
			k.findings.add("%s-%d offset %d: record %d has a value, it was sent without", k.topic, k.number, r.Offset, seq)
		}
		return
	}
	if id, err := parse(r.Value); err != nil || id.seq() != seq {
		k.findings.add("%s-%d offset %d: the value of record %d: got %d, %v", k.topic, k.number, r.Offset, seq, id.seq(), err)
	}
}

// judge compares a finished pass with what was acknowledged before it began.
// Records older than retention may be gone; 0 means none may. exact says that
// nothing was sent since.
func (k *keyed) judge(p *pass, before map[string]last, retention time.Duration, exact bool) {
	k.mu.Lock()
	k.most = max(k.most, p.records)
	k.mu.Unlock()
	for key, want := range before {
		got, ok := p.newest[key]
		switch {
		case ok && got < want.seq:
			k.findings.add("%s-%d: %s is at record %d, acknowledged was %d", k.topic, k.number, key, got, want.seq)
		case ok && exact && got != want.seq:
			k.findings.add("%s-%d: %s is at record %d, the last one sent was %d", k.topic, k.number, key, got, want.seq)
		case !ok && !tombstone(want.seq) && (retention == 0 || time.Since(time.UnixMilli(want.at)) < retention):
			k.findings.add("%s-%d: %s is gone, acknowledged was record %d", k.topic, k.number, key, want.seq)
		}
	}
	for key := range p.newest {
		if _, ok := before[key]; !ok && exact {
			k.findings.add("%s-%d: %s was never sent", k.topic, k.number, key)
		}
	}
}

// checkKeyed reads a compacted partition from its start to its end.
func (s *soak) checkKeyed(ctx context.Context, k *keyed, exact bool) {
	before := k.snapshot()
	p := &pass{newest: map[string]int64{}}
	err := s.readPartition(ctx, k.topic, k.number, kgo.NewOffset().AtStart(), -1, func(r *kgo.Record) { p.record(k, r) })
	if err != nil {
		if exact {
			k.findings.add("%s-%d: %v", k.topic, k.number, err)
		}
		return // the broker went away: the next pass will do
	}
	var retention time.Duration
	if k.topic == "soak.both" {
		retention = s.retention
	}
	k.judge(p, before, retention, exact)
	s.counts.passes.Add(1)
}

func (k *keyed) String() string { return fmt.Sprintf("%s-%d", k.topic, k.number) }
