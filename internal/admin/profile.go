package admin

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"time"
)

// The profiles are those of net/http/pprof, which is not used: its package
// brings html/template, whose tables are built at every start.

// maxProfile bounds how long a profile may run.
const maxProfile = 5 * time.Minute

// local reports whether a request came from this machine.
func local(r *http.Request) bool {
	if r.RemoteAddr == "" || r.RemoteAddr == "@" {
		return true // a unix socket
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

func (s *Server) profiles(w http.ResponseWriter, r *http.Request) {
	if !local(r) {
		http.Error(w, "profiles are for loopback", http.StatusForbidden)
		return
	}
	text(w, http.StatusOK)
	fmt.Fprintln(w, "profile?seconds=30\ntrace?seconds=1")
	for _, p := range pprof.Profiles() {
		fmt.Fprintf(w, "%s?debug=1 %d\n", p.Name(), p.Count())
	}
}

func (s *Server) profile(w http.ResponseWriter, r *http.Request) {
	if !local(r) {
		http.Error(w, "profiles are for loopback", http.StatusForbidden)
		return
	}
	switch name := r.PathValue("name"); name {
	case "profile":
		s.timed(w, r, 30*time.Second, func() error { return pprof.StartCPUProfile(w) }, pprof.StopCPUProfile)
	case "trace":
		s.timed(w, r, time.Second, func() error { return trace.Start(w) }, trace.Stop)
	default:
		p := pprof.Lookup(name)
		if p == nil {
			http.Error(w, "no such profile", http.StatusNotFound)
			return
		}
		debug, _ := strconv.Atoi(r.FormValue("debug"))
		if debug > 0 {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		} else {
			binaryAnswer(w)
		}
		_ = p.WriteTo(w, debug)
	}
}

// timed runs a profile for the seconds that the request asks for, or until its
// client leaves.
func (s *Server) timed(w http.ResponseWriter, r *http.Request, byDefault time.Duration, start func() error, stop func()) {
	d := byDefault
	if n, err := strconv.ParseFloat(r.FormValue("seconds"), 64); err == nil && n > 0 && n <= maxProfile.Seconds() {
		d = time.Duration(n * float64(time.Second))
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d + writeTimeout))
	binaryAnswer(w)
	if err := start(); err != nil {
		w.Header().Del("Content-Disposition")
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	defer stop()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

func binaryAnswer(w http.ResponseWriter) { w.Header().Set("Content-Type", "application/octet-stream") }
