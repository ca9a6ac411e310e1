package coordinator

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// memLog is a partition in memory. Its high watermark follows the end unless it is held.
type memLog struct {
	mu      sync.Mutex
	batches []record.Batch
	end     kafka.Offset
	high    kafka.Offset
	held    bool
	fail    error         // of every append, while set
	reading chan struct{} // closed to let Read go on; nil for at once
	watch   func()
}

var errDisk = errors.New("disk is gone")

func (l *memLog) Append(b []byte) (kafka.Offset, error) {
	l.mu.Lock()
	if l.fail != nil {
		l.mu.Unlock()
		return 0, l.fail
	}
	base := l.add(bytes.Clone(b))
	held := l.held
	l.mu.Unlock()
	if !held {
		l.commit()
	}
	return base, nil
}

// add appends a batch at the end, whatever offset it bears.
func (l *memLog) add(b record.Batch) kafka.Offset {
	base := l.end
	b.SetBaseOffset(base)
	l.batches = append(l.batches, b)
	l.end = b.NextOffset()
	return base
}

// commit moves the high watermark to the end.
func (l *memLog) commit() {
	l.mu.Lock()
	l.high = l.end
	watch := l.watch
	l.mu.Unlock()
	if watch != nil {
		watch()
	}
}

func (l *memLog) hold(held bool) {
	l.mu.Lock()
	l.held = held
	l.mu.Unlock()
}

func (l *memLog) failWith(err error) {
	l.mu.Lock()
	l.fail = err
	l.mu.Unlock()
}

// Failure implements Log.
func (l *memLog) Failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fail
}

func (l *memLog) Read(from kafka.Offset, maxBytes int, buf []byte) ([]byte, error) {
	l.mu.Lock()
	reading := l.reading
	l.mu.Unlock()
	if reading != nil {
		<-reading
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	buf = buf[:0]
	for _, b := range l.batches {
		if b.LastOffset() < from {
			continue
		}
		if len(buf) > 0 && len(buf)+len(b) > maxBytes {
			break
		}
		buf = append(buf, b...)
	}
	return buf, nil
}

func (l *memLog) StartOffset() kafka.Offset { return 0 }

func (l *memLog) EndOffset() kafka.Offset {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

func (l *memLog) HighWatermark() kafka.Offset {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.high
}

func (l *memLog) Watch(f func()) (stop func()) {
	l.mu.Lock()
	l.watch = f
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		l.watch = nil
		l.mu.Unlock()
	}
}

// written returns the records of the log.
func (l *memLog) written(t *testing.T) (list []record.Record) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.batches {
		var it record.Iterator
		if err := it.Reset(b, new(record.Decompressor)); err != nil {
			t.Fatal(err)
		}
		for it.Next() {
			r := *it.Record()
			r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
			list = append(list, r)
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
	}
	return list
}

func (l *memLog) all() []record.Batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]record.Batch(nil), l.batches...)
}
