package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/internal/config"
)

// serveFlags are the sources of a broker's configuration on the command line.
type serveFlags struct {
	files     []string
	overrides []string
	dataDirs  []string
	listen    []string
	advertise []string
	nodeID    string
	logLevel  string
	env       string
	strict    bool
	quiet     bool
}

func (s *serveFlags) register(a *app, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&s.files, "config", nil, "`FILE` of settings (server.properties); may be repeated, later ones win")
	f.StringArrayVar(&s.overrides, "override", nil, "`KEY=VALUE`; may be repeated")
	f.StringSliceVar(&s.dataDirs, "data-dir", nil, "`DIR` of the data; several with commas (log.dirs); without it and without FILE, "+a.dataDir())
	f.StringSliceVar(&s.listen, "listen", nil, "`HOST:PORT` or NAME://HOST:PORT to listen on (listeners)")
	f.StringSliceVar(&s.advertise, "advertise", nil, "`HOST` or HOST:PORT that clients shall connect to (advertised.listeners)")
	f.StringVar(&s.nodeID, "node-id", "", "`N`, the number of this node (node.id)")
	f.StringVar(&s.logLevel, "log-level", "", "`LEVEL` of log lines: trace, debug, info, warn, error (varve.log.level)")
	f.StringVar(&s.env, "env", "", "`KIND` of variables to read besides VARVE_*: kafka for KAFKA_*")
	completeFlag(cmd, "log-level", "trace", "debug", "info", "warn", "error")
	completeFlag(cmd, "env", "kafka")
	f.BoolVar(&s.strict, "strict", false, "refuse unknown keys")
	f.BoolVar(&s.quiet, "quiet", false, "show no progress bar on a terminal")
}

// load reads files, environment and flags.
func (s *serveFlags) load(a *app) (*config.Broker, []config.Warning, error) {
	src := config.Sources{Env: a.Env, Strict: s.strict, DataDir: a.dataDir(), Fill: !a.kafkaRules}
	kind := s.env
	if kind == "" {
		kind = a.getenv("VARVE_ENV")
	}
	switch kind {
	case "", "varve":
	case "kafka":
		src.KafkaEnv = true
	default:
		return nil, nil, usageError("--env %s: it is kafka or nothing", kind)
	}
	for _, path := range s.files {
		data, err := os.ReadFile(path)
		if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
			return nil, nil, &failure{code: exitUsage, why: path + " is a directory, not a file of settings", hint: "name a directory of data with --data-dir " + path}
		}
		if err != nil {
			return nil, nil, &failure{code: exitConfig, what: "read settings", why: err.Error()}
		}
		src.Files = append(src.Files, config.File{Path: path, Data: data})
	}
	for _, o := range s.overrides {
		key, value, ok := strings.Cut(o, "=")
		if !ok {
			return nil, nil, usageError("--override %s: it is KEY=VALUE", o)
		}
		src.Flags = append(src.Flags, config.Setting{Key: strings.TrimSpace(key), Value: value, Origin: config.Origin{Kind: config.FromOverride}})
	}
	src.Flags = append(src.Flags, a.keyFlags...)
	src.Flags = append(src.Flags, s.named()...)
	return config.Load(src)
}

// named are the settings of the flags that have a name of their own.
func (s *serveFlags) named() []config.Setting {
	var out []config.Setting
	add := func(flag, key, value string) {
		if value != "" {
			out = append(out, config.Setting{Key: key, Value: value, Origin: config.Origin{Kind: config.FromFlag, Name: flag}})
		}
	}
	var listeners []string
	for _, l := range s.listen {
		if !strings.Contains(l, "://") {
			l = "PLAINTEXT://" + l
		}
		listeners = append(listeners, l)
	}
	add("--data-dir", "log.dirs", strings.Join(s.dataDirs, ","))
	add("--listen", "listeners", strings.Join(listeners, ","))
	add("--advertise", "advertised.listeners", strings.Join(s.advertise, ","))
	add("--node-id", "node.id", s.nodeID)
	add("--log-level", "varve.log.level", s.logLevel)
	return out
}

// dataDir is where data goes when nothing says (CFG-23).
func (p *Process) dataDir() string {
	home := p.getenv("HOME")
	switch {
	case runtime.GOOS == "windows" && p.getenv("LocalAppData") != "":
		return filepath.Join(p.getenv("LocalAppData"), "varve")
	case os.Geteuid() == 0 || p.getenv("INVOCATION_ID") != "" || home == "":
		return "/var/lib/varve"
	case p.getenv("XDG_DATA_HOME") != "":
		return filepath.Join(p.getenv("XDG_DATA_HOME"), "varve")
	case runtime.GOOS == "darwin":
		return filepath.Join(home, "Library", "Application Support", "varve")
	}
	return filepath.Join(home, ".local", "share", "varve")
}

// splitKeyFlags takes out of serve's arguments the keys that are flags of their
// own name: --log.retention.ms 1000, or --log.retention.ms=1000. They are the
// flags with a dot in their name, and the few keys without one.
func splitKeyFlags(args []string) (rest []string, settings []config.Setting, err error) {
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return append(rest, args[i:]...), settings, nil
		}
		name, value, inline := strings.Cut(args[i], "=")
		key, long := strings.CutPrefix(name, "--")
		if !long || !strings.Contains(key, ".") && key != "listeners" {
			rest = append(rest, args[i])
			continue
		}
		if !inline {
			if i+1 == len(args) || strings.HasPrefix(args[i+1], "--") {
				return rest, settings, usageError("%s needs a value", name)
			}
			i++
			value = args[i]
		}
		settings = append(settings, config.Setting{Key: key, Value: value, Origin: config.Origin{Kind: config.FromFlag, Name: name}})
	}
	return rest, settings, nil
}
