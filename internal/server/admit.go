package server

import (
	"math"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Limits bound what all listeners of a broker take in together. Zero values
// stand for the defaults named with each field.
type Limits struct {
	// RequestBytes bounds the memory of requests that are being read or worked
	// on (queued.max.request.bytes). 0: a quarter of the memory that the process
	// may use, where the Go memory limit (half of it) says what that is; else 64 MiB.
	RequestBytes int64
	// MaxConnections is max.connections. 0: no limit.
	MaxConnections int
	// MaxConnectionsPerIP is max.connections.per.ip. 0: no limit.
	MaxConnectionsPerIP int
	// PerIPOverrides is max.connections.per.ip.overrides.
	PerIPOverrides map[netip.Addr]int
	// MaxFresh bounds the connections without a first complete request, and
	// MaxFreshPerIP those of one address (varve.auth.max.connections). 0: 1024
	// and 256.
	MaxFresh, MaxFreshPerIP int
	// CreationRate bounds new connections a second; accepting pauses above it.
	// 0: 1,000, after a burst of twice as many.
	CreationRate float64
}

// Admission decides what may come in: connections, and the memory that
// requests take before they are answered.
type Admission struct {
	limits Limits
	lastID atomic.Uint64 // of the connections of all listeners

	mu      sync.Mutex
	used    int64        // bytes taken
	over    bool         // somebody holds more than the limit allows
	waiting []*memWaiter // in order of arrival
	total   int          // connections
	perIP   map[netip.Addr]int
	fresh   map[*Conn]struct{} // connections without a first complete request
	tokens  float64            // of the creation rate
	filled  time.Time          // when tokens were counted last
}

// What requests may take where nothing says how much memory there is, and where
// there is next to none.
const (
	usualRequestBytes = 64 << 20
	leastRequestBytes = 4 << 20
)

type memWaiter struct {
	n     int64
	over  bool // what was granted, set before ready is closed
	ready chan struct{}
}

// NewAdmission returns an Admission with nothing taken.
func NewAdmission(l Limits) *Admission {
	if l.RequestBytes <= 0 {
		l.RequestBytes = usualRequestBytes
		if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
			l.RequestBytes = max(leastRequestBytes, limit/2)
		}
	}
	if l.MaxFresh <= 0 {
		l.MaxFresh = 1024
	}
	if l.MaxFreshPerIP <= 0 {
		l.MaxFreshPerIP = 256
	}
	if l.CreationRate <= 0 {
		l.CreationRate = 1000
	}
	return &Admission{
		limits: l,
		perIP:  make(map[netip.Addr]int),
		fresh:  make(map[*Conn]struct{}),
		tokens: 2 * l.CreationRate,
	}
}

// grant is memory that was taken. The zero value is none. One grant at a time
// may go over the limit, so that a request larger than what is left can always
// be read and those who hold half a request cannot block each other for ever.
type grant struct {
	n    int64
	over bool
}

// tryTake takes n bytes more without waiting.
func (a *Admission) tryTake(g *grant, n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.waiting) == 0 && a.takeLocked(g, n)
}

// take takes n bytes more and waits for them while the limit is reached. It
// returns false, with nothing taken, when stop is closed first.
func (a *Admission) take(g *grant, n int64, stop <-chan struct{}) bool {
	a.mu.Lock()
	if (len(a.waiting) == 0 || g.over) && a.takeLocked(g, n) {
		a.mu.Unlock()
		return true
	}
	if !a.over {
		a.over, g.over = true, true
		a.used += n
		g.n += n
		a.mu.Unlock()
		return true
	}
	w := &memWaiter{n: n, ready: make(chan struct{})}
	a.waiting = append(a.waiting, w)
	a.mu.Unlock()
	select {
	case <-w.ready:
	case <-stop:
		if a.leave(w) {
			return false
		}
		<-w.ready // granted in the meantime
	}
	g.n += n
	g.over = g.over || w.over
	return true
}

func (a *Admission) takeLocked(g *grant, n int64) bool {
	if a.used+n > a.limits.RequestBytes && !g.over {
		return false
	}
	a.used += n
	g.n += n
	return true
}

// leave takes w out of the queue; false when it was granted before.
func (a *Admission) leave(w *memWaiter) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, x := range a.waiting {
		if x == w {
			a.waiting = append(a.waiting[:i], a.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// give returns all of a grant and lets those in who wait for it.
func (a *Admission) give(g *grant) {
	if g.n == 0 && !g.over {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used -= g.n
	if g.over {
		a.over = false
	}
	*g = grant{}
	a.admitLocked()
}

func (a *Admission) admitLocked() {
	for len(a.waiting) > 0 {
		w := a.waiting[0]
		if a.used+w.n > a.limits.RequestBytes {
			if a.over {
				return
			}
			a.over, w.over = true, true
		}
		a.used += w.n
		a.waiting = a.waiting[1:]
		close(w.ready)
	}
}

// Reasons for which a connection is refused (event conn-refused).
const (
	refusedLimit = "limit"
	refusedPerIP = "per-ip"
	refusedFds   = "fds"
)

// connect counts a connection from addr in, or says why it may not come.
func (a *Admission) connect(addr netip.Addr) (refused string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.limits.MaxConnections > 0 && a.total >= a.limits.MaxConnections {
		return refusedLimit
	}
	limit, ok := a.limits.PerIPOverrides[addr]
	if !ok {
		limit = a.limits.MaxConnectionsPerIP
	}
	if (ok || limit > 0) && a.perIP[addr] >= limit {
		return refusedPerIP
	}
	a.total++
	a.perIP[addr]++
	return ""
}

// freshGrace is how long a connection may be silent before another of its
// address takes its place: many that come at once, after an outage, are alive.
const freshGrace = time.Second

// enter counts a connection among those without a first complete request. When
// there are too many it returns the one that must go: the oldest of the address
// that has most, so that silent connections make room for live ones. For the
// number of one address alone it goes only when it has been silent for a while.
func (a *Admission) enter(c *Conn) (evicted *Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fresh[c] = struct{}{}
	if len(a.fresh) <= min(a.limits.MaxFresh, a.limits.MaxFreshPerIP) {
		return nil
	}
	counts := make(map[netip.Addr]int)
	var most netip.Addr
	for f := range a.fresh {
		counts[f.addr]++
		if counts[f.addr] > counts[most] {
			most = f.addr
		}
	}
	if len(a.fresh) <= a.limits.MaxFresh && counts[most] <= a.limits.MaxFreshPerIP {
		return nil
	}
	for f := range a.fresh {
		if f.addr == most && (evicted == nil || f.id < evicted.id) {
			evicted = f
		}
	}
	if len(a.fresh) <= a.limits.MaxFresh && c.opened.Sub(evicted.opened) < freshGrace {
		return nil
	}
	delete(a.fresh, evicted)
	return evicted
}

// greeted notes that a connection sent its first complete request.
func (a *Admission) greeted(c *Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.fresh, c)
}

// disconnect counts a connection out.
func (a *Admission) disconnect(c *Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.fresh, c)
	a.total--
	if a.perIP[c.addr]--; a.perIP[c.addr] <= 0 {
		delete(a.perIP, c.addr)
	}
}

// pause is how long accepting must wait for the creation rate at this moment;
// 0 when a connection may come now, which is then counted.
func (a *Admission) pause(now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	rate := a.limits.CreationRate
	if !a.filled.IsZero() {
		a.tokens = min(2*rate, a.tokens+now.Sub(a.filled).Seconds()*rate)
	}
	a.filled = now
	if a.tokens >= 1 {
		a.tokens--
		return 0
	}
	return time.Duration((1 - a.tokens) / rate * float64(time.Second))
}

// Connections is the number of open connections.
func (a *Admission) Connections() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.total
}

// RequestBytes is the memory that requests hold now.
func (a *Admission) RequestBytes() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}

// pressed reports whether somebody waits for the memory of others.
func (a *Admission) pressed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.waiting) > 0
}

// MaxFrame is the largest frame to take in when the configuration allows
// configured: where memory is limited, one that does not fit would end the
// process.
func (a *Admission) MaxFrame(configured int32) int32 {
	if a.limits.RequestBytes >= usualRequestBytes {
		return configured // one at a time may always be read
	}
	return int32(min(int64(configured), a.limits.RequestBytes))
}

// RequestBytesLimit is the most memory that requests may hold.
func (a *Admission) RequestBytesLimit() int64 { return a.limits.RequestBytes }
