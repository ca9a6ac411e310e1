package server

// Stats are what a listener has seen so far.
type Stats struct {
	Open     int64 // connections now
	Accepted int64 // connections taken in
	Requests int64 // requests that came whole
}

// Stats counts. Each connection counts for itself, so that busy ones share no
// cache line; the sum is made here.
func (l *Listener) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{Open: int64(len(l.conns)), Accepted: l.accepted, Requests: l.requests}
	for c := range l.conns {
		s.Requests += c.requests.Load()
	}
	return s
}
