package cli

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// watch is what the connections of a client met last. The client library tries
// again for ever and says nothing: who waits for it asks here why.
type watch struct {
	mu      sync.Mutex // guards what follows
	since   time.Time  // when the attempts began that all failed; zero: the last answer was one
	why     string     // of the last of them
	fetches int        // answers to fetch requests so far
	read    time.Time  // when the last answer came
}

// refusing is why records are not acknowledged by a broker that answers: the
// client library keeps the error and tries again.
const refusing = "the broker answers, and does not take the records"

// answers reports whether the broker has answered anything of late.
func (w *watch) answers() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.read.IsZero() && time.Since(w.read) < sayAfter
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (w *watch) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err != nil {
		w.failed(err)
	}
}

// OnBrokerRead implements kgo.HookBrokerRead.
func (w *watch) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err != nil {
		w.failed(err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.read = time.Time{}, time.Now()
	if key == kmsg.Fetch.Int16() {
		w.fetches++
	}
}

func (w *watch) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		w.since = time.Now()
	}
	w.why = plainReason(err)
}

// trouble is how long nothing has been answered, and why; zero when the last
// thing that came was an answer.
func (w *watch) trouble() (time.Duration, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		return 0, ""
	}
	return time.Since(w.since), w.why
}

// answered is how many fetch requests have been answered so far.
func (w *watch) answered() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fetches
}

// patience is how a command waits for a broker that does not answer: it says so
// once, and in the end gives up.
type patience struct {
	a       *app
	giveUp  time.Duration // 0: never
	said    bool
	waiting time.Duration // how long it has been, when last asked
}

// sayAfter is how long nothing is said of a broker that does not answer.
const sayAfter = 3 * time.Second

// giveUpAfter is Kafka's delivery.timeout.ms.
const giveUpAfter = 2 * time.Minute

// wait says that the broker has not answered for d, and returns an error when
// that is too long.
func (p *patience) wait(what string, d time.Duration, why string) error {
	p.waiting = d
	if d == 0 {
		p.said = false
		return nil
	}
	state, hint, code := "broker not reachable", "is it running, and is the address that it advertises reachable from here?", exitOffline
	switch why {
	case "":
		why = "no answer"
	case refusing:
		state = "not acknowledged"
		hint, code = "see the broker's log: is its disk full, or a data directory offline?", exitFailed
	}
	if p.giveUp > 0 && d >= p.giveUp {
		return &failure{code: code, what: what, why: fmt.Sprintf("%s for %v: %s", state, d.Round(time.Second), why), hint: hint}
	}
	first := sayAfter
	if p.giveUp > 0 {
		first = min(first, p.giveUp/2)
	}
	if d >= first && !p.said {
		p.said = true
		until := ""
		if p.giveUp > 0 {
			until = fmt.Sprintf(" for up to %v", p.giveUp)
		}
		fmt.Fprintf(p.a.Stderr, "varve: %s: %s: %s; retrying%s\n", what, state, why, until)
	}
	return nil
}
