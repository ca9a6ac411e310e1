package server

import (
	"math"
	"time"
)

// never is a due time that does not come.
const never = math.MaxInt64

// sweepEvery is how often due times are compared with the clock. Time limits of
// connections are kept by this one look at all of them instead of a deadline
// per read, which would cost a timer each.
const sweepEvery = time.Second

// lookEvery is after how many sweeps the sweeper looks for peers that have gone
// while their request waits: nobody reads from such a connection.
const lookEvery = 3

// waitReason says what a parked connection waits for, and so why it is closed
// when that takes too long.
type waitReason int32

const (
	waitNone waitReason = iota
	waitFirst
	waitNext
	waitRest
)

// String is the reason in the log.
func (w waitReason) String() string {
	switch w {
	case waitFirst:
		return ReasonAuthTimeout
	case waitNext:
		return ReasonIdle
	default:
		return ReasonRequestTimeout
	}
}

// await has the sweeper close the connection when it still waits after d,
// counted from the bytes that came last.
func (c *Conn) await(w waitReason, d time.Duration) { c.awaitFrom(c.lastIn, w, d) }

func (c *Conn) awaitFrom(from time.Time, w waitReason, d time.Duration) {
	c.waits.Store(int32(w))
	c.due.Store(int64(from.Sub(c.l.epoch) + d))
}

// expire closes the connection from another goroutine, once.
func (c *Conn) expire(w waitReason) {
	if c.expired.CompareAndSwap(int32(waitNone), int32(w)) {
		c.tcp.Close()
	}
}

// sweep closes connections whose time is up, until the listener stops.
func (l *Listener) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case now := <-tick.C:
			l.expire(now)
			if l.cfg.Admission.pressed() {
				l.endStalled(now)
			}
			if n%lookEvery == 0 {
				l.endGone()
			}
		case <-l.stopping:
			return
		}
	}
}

// expire closes the connections that are due at now.
func (l *Listener) expire(now time.Time) {
	at := int64(now.Sub(l.epoch))
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if c.due.Load() <= at {
			c.expire(waitReason(c.waits.Load()))
		}
	}
}

// pressedStall is how long a request may stall while others wait for the memory
// that it holds.
const pressedStall = 3 * time.Second

// endStalled closes the connection that holds most memory with a request whose
// rest does not come, so that three peers that stall cannot keep everybody else
// from sending. The sweeper comes again for the next one.
func (l *Listener) endStalled(now time.Time) {
	since := int64(now.Sub(l.epoch) - pressedStall)
	var worst *Conn
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if c.due.Load() == never || waitReason(c.waits.Load()) != waitRest || c.stalled.Load() > since || c.holding.Load() == 0 {
			continue
		}
		if worst == nil || c.holding.Load() > worst.holding.Load() {
			worst = c
		}
	}
	if worst != nil {
		worst.expire(waitRest)
	}
}

// endGone ends the waits of requests whose peers have closed the connection.
func (l *Listener) endGone() {
	var busy []*Conn
	l.mu.Lock()
	for c := range l.conns {
		if c.due.Load() == never {
			busy = append(busy, c)
		}
	}
	l.mu.Unlock()
	for _, c := range busy {
		if peerGone(c.rc) {
			c.gone.Store(true)
			c.end()
		}
	}
}
