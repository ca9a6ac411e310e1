package replica

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
)

// cacheLine keeps what appenders write off the lines that others read.
const cacheLine = 128

// Waiter is one goroutine that waits for news of any number of partitions: a
// long poll, or an acks=all that is not committed yet. It is made once for a
// connection or fetch session and used again and again.
//
// A partition is joined by a Watch, which may stay from one fetch to the next:
// an appender then only adds it to the waiter's news, so that the next fetch
// looks at the partitions that have some and at no other (performance T15).
//
// The order of a fetch: read; when that is too little, Arm with what is
// missing, Watch what was read, wait on C or for the deadline, Disarm, read again.
type Waiter struct {
	wake chan struct{} // capacity 1

	mu    sync.Mutex
	need  int64  // bytes that are missing; at 0 the waiter was woken
	armed bool   // somebody waits on C
	news  *Watch // partitions that changed since they were last taken, newest first
}

// NewWaiter makes a waiter.
func NewWaiter() *Waiter { return &Waiter{wake: make(chan struct{}, 1)} }

// C gets a token when enough has happened.
func (w *Waiter) C() <-chan struct{} { return w.wake }

// Arm begins a wait for at least need bytes; at most 0 is woken at the first
// news of any kind. News that came before Arm counts from the next Watch on.
func (w *Waiter) Arm(need int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.wake:
	default:
	}
	w.need, w.armed = max(1, need), true
}

// Disarm ends the wait.
func (w *Waiter) Disarm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
}

// Next takes one watch that has had news since it was last taken; nil when
// there is none.
func (w *Waiter) Next() *Watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.news
	if x != nil {
		w.news = x.nextNews
		x.nextNews, x.hasNews = nil, false
	}
	return x
}

// credit notes news of x that is worth bytes.
func (w *Waiter) credit(x *Watch, bytes int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !x.hasNews {
		x.hasNews, x.nextNews = true, w.news
		w.news = x
	}
	if !w.armed || w.need <= 0 {
		return
	}
	if w.need -= min(bytes, w.need); w.need == 0 {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// forget takes x out of the news.
func (w *Waiter) forget(x *Watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !x.hasNews {
		return
	}
	for at := &w.news; *at != nil; at = &(*at).nextNews {
		if *at == x {
			*at = x.nextNews
			break
		}
	}
	x.nextNews, x.hasNews = nil, false
}

// Watch is a waiter's place at one partition. The zero value is ready; it is
// part of what its owner keeps for the partition and is used again.
type Watch struct {
	// Owner is for whoever takes the watch from Waiter.Next.
	Owner any

	waiter *Waiter

	// Guarded by the partition's watches.mu.
	prev, next *Watch
	joined     bool
	o          WatchOptions
	counted    int64 // bytes of o.Mark that were credited

	// Guarded by the waiter's mu.
	nextNews *Watch
	hasNews  bool
}

// WatchOptions say what counts as news.
type WatchOptions struct {
	// Bound and Offset: nothing is news before that bound is above Offset, and
	// above where Mark saw it. A fetch gives the offset it reads from, an
	// acks=all its LastOffset.
	Bound  commitlog.Bound
	Offset kafka.Offset
	// MaxBytes is the most that the partition can contribute to the answer; 0
	// means no limit.
	MaxBytes int64
	// Mark is that of the read which found too little, so that nothing between
	// that read and this call is missed.
	Mark Mark
}

// Mark is a moment in the life of a partition. The zero Mark is before all others.
type Mark struct {
	bytes  int64 // appended since the start
	rolls  int64
	bounds [commitlog.LogEnd + 1]kafka.Offset // by Bound
}

// watches is the list of a partition's watches.
type watches struct {
	bytes atomic.Int64
	rolls atomic.Int64
	_     [cacheLine - 16]byte
	count atomic.Int64 // of the list; looked at without the lock after each append
	_     [cacheLine - 8]byte

	mu   sync.Mutex
	head *Watch
}

func (l *watches) waiting() bool { return l.count.Load() != 0 }

// appended counts an append. It comes after the log has published it, and
// before waiting is asked: whoever is not on the list yet will find it in the
// counts when it joins.
func (l *watches) appended(size int, rolled bool) {
	if rolled {
		l.rolls.Add(1)
	}
	l.bytes.Add(int64(size))
}

// mark notes where the partition stands, before a read; the counts first, so
// that an append beside it is counted as news rather than missed.
func (p *Partition) mark() Mark {
	m := Mark{bytes: p.watches.bytes.Load(), rolls: p.watches.rolls.Load()}
	for b := range m.bounds {
		m.bounds[b] = p.bound(commitlog.Bound(b))
	}
	return m
}

// Watch joins w to the partition's watches, or, when it is joined, moves it to
// what was read since. News that came after o.Mark is credited at once.
func (p *Partition) Watch(w *Watch, waiter *Waiter, o WatchOptions) {
	l := &p.watches
	l.mu.Lock()
	defer l.mu.Unlock()
	w.waiter, w.o, w.counted = waiter, o, 0
	if !w.joined {
		w.joined, w.prev, w.next = true, nil, l.head
		if l.head != nil {
			l.head.prev = w
		}
		l.head = w
		l.count.Add(1) // before the counts are looked at: see appended
	}
	if p.Err() != nil {
		waiter.credit(w, math.MaxInt64)
		return
	}
	p.look(w)
}

// Unwatch ends a watch; what it had as news is forgotten. One that is not
// joined is left as it is.
func (p *Partition) Unwatch(w *Watch) {
	l := &p.watches
	l.mu.Lock()
	defer l.mu.Unlock()
	if !w.joined {
		return
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		l.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.joined = nil, nil, false
	l.count.Add(-1)
	w.waiter.forget(w)
}

// Wake tells the watches what was appended. It is called without any lock, by
// whoever appended, once the answer is written.
func (p *Partition) Wake() {
	l := &p.watches
	if l.count.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := l.head; w != nil; w = w.next {
		p.look(w)
	}
}

// WakeAll wakes every waiter whatever it waits for: the leadership, the
// directory or the partition itself has changed.
func (p *Partition) WakeAll() {
	l := &p.watches
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := l.head; w != nil; w = w.next {
		w.waiter.credit(w, math.MaxInt64)
	}
}

// look credits w with what is new for it: the bytes appended since its mark. A
// wake-up may come early, never late, for whoever is woken reads again.
//
// A roll completes a fetch whatever its min.bytes, as in Kafka: it stands in a
// segment that will not grow. So does a bound that is not the end of the log,
// for it may have moved over any number of bytes that were there before.
func (p *Partition) look(w *Watch) {
	bound, seen := p.bound(w.o.Bound), &w.o.Mark
	if bound <= max(w.o.Offset, seen.bounds[w.o.Bound]) {
		return
	}
	if p.watches.rolls.Load() != seen.rolls || w.o.Bound == commitlog.LastStable || bound < p.log.EndOffset() {
		w.waiter.credit(w, math.MaxInt64)
		return
	}
	bytes := max(1, p.watches.bytes.Load()-seen.bytes)
	if w.o.MaxBytes > 0 {
		bytes = min(bytes, w.o.MaxBytes)
	}
	if bytes > w.counted {
		w.waiter.credit(w, bytes-w.counted)
		w.counted = bytes
	}
}

func (p *Partition) bound(b commitlog.Bound) kafka.Offset {
	switch b {
	case commitlog.HighWatermark:
		return p.log.HighWatermark()
	case commitlog.LastStable:
		return p.log.LastStable()
	}
	return p.log.EndOffset()
}
