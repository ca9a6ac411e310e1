package cleaner

import (
	"math"
	"sync"
	"time"
)

// pacer holds readers and writers together to a number of bytes a second
// (log.cleaner.io.max.bytes.per.second). The zero value sets no limit.
type pacer struct {
	mu   sync.Mutex
	rate float64   // bytes a second; 0: no limit
	free time.Time // when what was asked for so far is paid
}

// setRate changes the limit. Whoever waits goes on waiting by the old one.
func (p *pacer) setRate(bytesPerSecond float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate = bytesPerSecond; bytesPerSecond >= math.MaxInt64 {
		p.rate = 0
	}
}

// wait takes the time that n more bytes cost, or until cancel is closed.
func (p *pacer) wait(n int, cancel <-chan struct{}) {
	d := p.cost(n)
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-cancel:
	}
}

func (p *pacer) cost(n int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rate <= 0 {
		return 0
	}
	now := time.Now()
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(float64(n) / p.rate * float64(time.Second)))
	return p.free.Sub(now)
}
