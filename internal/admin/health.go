package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// readiness is the answer of /readyz.
type readiness struct {
	Ready    bool      `json:"ready"`
	Waiting  []awaited `json:"waiting,omitempty"`
	Warnings []awaited `json:"warnings,omitempty"`
}

// awaited is one thing that keeps a broker from being ready, or from being well.
type awaited struct {
	What  string `json:"what"`
	Dir   string `json:"dir,omitempty"`
	Done  *int   `json:"done,omitempty"`
	Total *int   `json:"total,omitempty"`
	Err   string `json:"err,omitempty"`
}

// readinessOf says what a broker waits for. It is ready when its listeners
// accept, recovery is done, and no data directory is offline.
func readinessOf(v *View) readiness {
	var r readiness
	wait := func(a awaited) { r.Waiting = append(r.Waiting, a) }
	switch v.State {
	case Starting:
		wait(awaited{What: "start"})
	case Recovery:
		wait(awaited{What: "recovery", Done: &v.Loaded, Total: &v.ToLoad})
	case Stopping:
		wait(awaited{What: "stop"})
	}
	if v.Failed != nil {
		wait(awaited{What: "failed", Err: v.Failed.Error()})
	}
	if v.Dirs != nil {
		for _, d := range v.Dirs.States() {
			switch {
			case d.Err != nil:
				wait(awaited{What: "directory", Dir: d.Path, Err: d.Err.Error()})
			case d.ReadOnly:
				r.Warnings = append(r.Warnings, awaited{What: "writes-refused", Dir: d.Path})
			}
		}
	}
	r.Ready = len(r.Waiting) == 0
	return r
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	r := readinessOf(s.o.Look())
	status := http.StatusOK
	if !r.Ready {
		status = http.StatusServiceUnavailable
	}
	answerJSON(w, status, r)
}

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	v := s.o.Look()
	if len(v.Stuck) == 0 {
		text(w, http.StatusOK)
		io.WriteString(w, "ok\n")
		return
	}
	text(w, http.StatusServiceUnavailable)
	for _, part := range v.Stuck {
		fmt.Fprintln(w, part)
	}
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	answerJSON(w, http.StatusOK, s.o.Build)
}

func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	text(w, http.StatusOK)
	io.WriteString(w, "varve "+s.o.Build.Version+"\n\n/healthz\n/readyz\n/metrics\n/version\n/debug/pprof/\n")
}

func answerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error here is a client that left
}

func text(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
}
