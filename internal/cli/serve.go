package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/logdir"
	"github.com/varvelog/varve/internal/node"
	"github.com/varvelog/varve/internal/quorum"
)

func (a *app) serveCommand() *cobra.Command {
	var s serveFlags
	cmd := &cobra.Command{
		Use: "serve [FILE]", Short: "run a broker", GroupID: groupRun,
		Long: `Runs a broker until it is stopped by SIGTERM or SIGINT. The data directory is Apache
Kafka's: an empty one is formatted, one that Kafka wrote is taken over as it is.

Settings are Kafka's, of later sources over earlier ones: FILE (server.properties),
VARVE_KEY variables (KAFKA_KEY too with --env kafka), --override KEY=VALUE, and flags.
Every key of Kafka is also a flag: --log.retention.ms 3600000.

Without FILE it is node 1, listens on 127.0.0.1:9092 and keeps its data in
` + a.dataDir() + `. A FILE that says nothing of roles and controllers is that of a
single node.`,
		Example: `  varve serve
  varve serve --data-dir /var/lib/varve --listen 0.0.0.0:9092 --advertise broker.example.com
  varve serve /etc/kafka/server.properties --override num.partitions=3`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.files = append(s.files, args...)
			return a.serve(&s)
		},
	}
	s.register(a, cmd)
	return cmd
}

// serve runs the broker. It says what is wrong with the configuration itself,
// one line an error.
func (a *app) serve(s *serveFlags) error {
	cfg, warnings, err := s.load(a)
	if err != nil {
		return a.refuseConfig(err, warnings)
	}
	level := &slog.LevelVar{}
	level.Set(parseLevel(cfg.LogLevel))
	bar := a.newProgress("recovering", "bytes", s.quiet)
	bar.quiet = bar.quiet || !bar.terminal // elsewhere the log says it
	defer bar.end()
	log := newLogger(bar, cfg.LogFormat, level, a.getenv("JOURNAL_STREAM") != "")
	for _, w := range warnings {
		at := slog.LevelWarn
		if w.Notice {
			at = slog.LevelInfo
		}
		log.Log(context.Background(), at, w.String(), componentKey, "config")
	}
	if limit := a.limitMemory(); limit > 0 {
		log.Info("memory is limited", "event", "memory-limit", "limit", limit, "runtime", debug.SetMemoryLimit(-1))
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	signal.Ignore(syscall.SIGPIPE)

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started := make(chan startResult, 1)
	go func() {
		n, err := node.Start(ctx, cfg, node.Options{Logger: log, Recovering: func(p logdir.Progress) { bar.at(p.Bytes, p.TotalBytes) }, LogLevel: level, HTTP: true, Build: build(), Now: a.wallClock()})
		bar.end()
		started <- startResult{n, err}
	}()
	return a.supervise(cfg, log, signals, started, cancel)
}

type startResult struct {
	node *node.Node
	err  error
}

// supervise waits for what ends a broker: a signal, or its own failure. The
// first signal stops it cleanly, also while it starts; the second ends it.
func (a *app) supervise(cfg *config.Broker, log *slog.Logger, signals <-chan os.Signal, started <-chan startResult, cancel func()) error {
	var n *node.Node
	var failed <-chan struct{}
	stopped := make(chan error, 1)
	var first os.Signal // that told the broker to stop
	var at time.Time
	stopping := false
	stop := func() {
		ctx, done := context.WithTimeout(context.Background(), cfg.ShutdownGrace)
		go func() {
			defer done()
			stopped <- n.Stop(ctx)
		}()
	}
	for {
		select {
		case r := <-started:
			if r.err != nil && stopping {
				return nil // it was told to stop before it had started
			}
			if r.err != nil {
				return startFailure(r.err)
			}
			n, failed = r.node, r.node.Failed()
			if stopping {
				stop()
			}
		case s := <-signals:
			switch {
			case s == syscall.SIGHUP:
				log.Info("settings are read at start only; restart to apply changes", componentKey, "config")
			case first != nil && repeats(first, at, s, time.Now()):
				log.Debug("told to stop again", "signal", signalName(s))
			case stopping:
				log.Warn("stopped at once, by a second signal: the next start recovers", "event", "stop-forced", "signal", signalName(s))
				return exitCode(signalStatus(s))
			default:
				log.Info("told to stop", "signal", signalName(s))
				stopping = true
				first, at = s, time.Now()
				if n == nil {
					cancel()
				} else {
					stop()
				}
			}
		case <-failed:
			failed = nil
			if !stopping {
				stopping = true
				stop() // releases what is left; its error says why it failed
			}
		case err := <-stopped:
			if err != nil {
				return &failure{code: exitFailed, what: "stopped, not cleanly", why: err.Error()}
			}
			return nil
		}
	}
}

func signalName(s os.Signal) string {
	switch s {
	case syscall.SIGINT:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	}
	return s.String()
}

// startFailure gives a broker that did not start its exit status (faults.md,
// section 2): 5 when it refused a directory for safety.
func startFailure(err error) error {
	f := &failure{code: exitFailed, what: "serve", why: err.Error()}
	var inUse *logdir.InUseError
	var refused *logdir.RefusedError
	var same *logdir.SameDirectoryError
	var metadata *quorum.RefusedError
	var damaged *quorum.DamagedError
	var unusable *logdir.UnusableError
	var page *node.HTTPListenError
	switch {
	case errors.As(err, &inUse):
		f.code, f.what, f.why, f.hint = exitRefused, "", inUse.Error(), "stop the process that uses it, or name another directory with --data-dir"
	case errors.As(err, &refused):
		f.code, f.what, f.why, f.hint = exitRefused, refused.Dir, refused.Why, refused.Hint
	case errors.As(err, &metadata):
		f.code, f.what, f.why, f.hint = exitRefused, metadata.Path, metadata.Reason, metadata.Hint
		if metadata.Err != nil {
			f.why += ": " + metadata.Err.Error()
		}
	case errors.As(err, &damaged):
		f.code, f.what, f.why = exitRefused, "", damaged.Error()
		f.hint = "restore the file from a copy; varve verify lists all damage. Nothing was changed: topics and groups are known there alone"
	case errors.As(err, &same):
		f.code, f.what, f.why, f.hint = exitConfig, "", same.Error(), "name it once"
	case errors.As(err, &unusable):
		f.what, f.why, f.hint = "data directory "+unusable.Dir, unusable.Err.Error(), "name another directory with --data-dir"
		switch {
		case errors.Is(err, os.ErrPermission):
			f.hint = "run as the user that owns the directory, or name another one with --data-dir"
		case errors.Is(err, syscall.ENOTDIR):
			f.hint = "there is a file where the directory should be; name another one with --data-dir"
		}
	case errors.Is(err, quorum.ErrNotFormatted):
		f.code, f.why = exitRefused, "the metadata log is missing: no __cluster_metadata-0 in the metadata directory, which meta.properties says is formatted"
		f.hint = "restore __cluster_metadata-0, or set metadata.log.dir to where it is; topics and groups are known there alone"
	case errors.As(err, &page) && errors.Is(err, syscall.EADDRINUSE):
		f.hint = "another process listens there; name another address with --varve.http.listen HOST:PORT, or none with --varve.http.listen ''"
	case errors.Is(err, syscall.EADDRINUSE):
		f.hint = "another process listens there; stop it, or name another address with --listen HOST:PORT"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		f.hint = "this machine has no such address; 0.0.0.0 with --advertise HOST listens on all that it has"
	case errors.Is(err, os.ErrPermission):
		f.hint = "run as the user that owns the directory, or name another one with --data-dir"
	}
	return f
}

// refuseConfig prints every error of a configuration.
func (a *app) refuseConfig(err error, warnings []config.Warning) error {
	var errs config.Errors
	if !errors.As(err, &errs) {
		return err
	}
	fmt.Fprintf(a.Stderr, "varve: %s in the configuration\n", count(int64(len(errs)), "error"))
	for _, e := range errs {
		fmt.Fprintln(a.Stderr, e.Error())
		if e.Hint != "" {
			fmt.Fprintln(a.Stderr, "hint: "+e.Hint)
		}
	}
	for _, w := range warnings {
		if !w.Notice { // a misspelt key may be why another one is missing
			fmt.Fprintln(a.Stderr, "warning: "+w.String())
		}
	}
	return exitCode(exitConfig)
}
