package cli

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/internal/config"
)

const (
	defaultBootstrap = "127.0.0.1:9092"
	dialLimit        = 5 * time.Second
	requestLimit     = 30 * time.Second
)

// clientFlags adds the flags that say which broker to talk to.
func (a *app) clientFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVarP(&a.bootstrap, "bootstrap-server", "b", "", "`HOST:PORT` of a broker; several with commas (default "+defaultBootstrap+")")
	f.StringVar(&a.commandConfig, "command-config", "", "`FILE` of client properties, as Kafka's tools read")
}

// client is a connection to a cluster.
type client struct {
	*kgo.Client
	admin *kadm.Client
	watch *watch
}

// seeds are the addresses to begin with (CLI-20).
func (a *app) seeds(props map[string]string) []string {
	for _, list := range []string{a.bootstrap, props["bootstrap.servers"], a.getenv("VARVE_BOOTSTRAP_SERVERS"), a.getenv("KAFKA_BOOTSTRAP_SERVERS")} {
		if seeds := config.SplitList(list); len(seeds) > 0 {
			return seeds
		}
	}
	return []string{defaultBootstrap}
}

// connect finds a broker that can be reached. The error of a cluster that
// cannot be is a *failure with advice.
func (a *app) connect(ctx context.Context, opts ...kgo.Opt) (*client, error) {
	props, err := a.clientProperties()
	if err != nil {
		return nil, err
	}
	seeds := a.seeds(props)
	for i, s := range seeds {
		if _, _, err := net.SplitHostPort(s); err != nil {
			if strings.Contains(s, ":") && !strings.HasPrefix(s, "[") {
				return nil, usageError("%s: an address is HOST:PORT", s)
			}
			seeds[i] = s + ":9092"
		}
	}
	if err := reach(ctx, seeds); err != nil {
		return nil, err
	}
	id := props["client.id"]
	if id == "" {
		id = "varve"
	}
	w := &watch{}
	base := []kgo.Opt{kgo.WithHooks(w), kgo.SeedBrokers(seeds...), kgo.ClientID(id), kgo.DialTimeout(dialLimit), kgo.RetryTimeout(requestLimit)}
	c, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		return nil, usageError("%v", err)
	}
	admin := kadm.NewClient(c)
	admin.SetTimeoutMillis(int32(requestLimit.Milliseconds()))
	return &client{c, admin, w}, nil
}

// reach opens and closes a connection to the first seed that takes one: the
// client library would try for a long time before it says that there is none.
func reach(ctx context.Context, seeds []string) error {
	var why error
	for _, s := range seeds {
		d := net.Dialer{Timeout: dialLimit}
		conn, err := d.DialContext(ctx, "tcp", s)
		if err == nil {
			return conn.Close()
		}
		why = err
	}
	return &failure{code: exitOffline, what: "no broker at " + strings.Join(seeds, ", "), why: plainReason(why),
		hint: "start one with varve serve, or name another with -b HOST:PORT"}
}

// plainReason is what the system said of a connection, without the addresses.
func plainReason(err error) string {
	var sys *os.SyscallError
	if errors.As(err, &sys) {
		return sys.Err.Error()
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err.Error()
	}
	if errors.Is(err, io.EOF) {
		return "connection closed"
	}
	return err.Error()
}

// clientProperties reads --command-config. Settings of security are refused
// while the client has none: they must not be dropped in silence.
func (a *app) clientProperties() (map[string]string, error) {
	props := map[string]string{}
	if a.commandConfig == "" {
		return props, nil
	}
	data, err := os.ReadFile(a.commandConfig)
	if err != nil {
		return nil, &failure{code: exitFailed, what: "read client properties", why: err.Error()}
	}
	list, err := config.ParseProperties(data)
	if err != nil {
		return nil, &failure{code: exitFailed, what: a.commandConfig, why: err.Error()}
	}
	for _, p := range list {
		props[p.Key] = p.Value
	}
	if v := strings.ToUpper(props["security.protocol"]); v != "" && v != "PLAINTEXT" {
		return nil, &failure{code: exitFailed, what: a.commandConfig, why: "security.protocol=" + v + " is not supported yet", hint: "connect to a PLAINTEXT listener"}
	}
	return props, nil
}

// withClient connects, runs f under a deadline, and closes.
func (a *app) withClient(ctx context.Context, f func(context.Context, *client) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit+dialLimit)
	defer cancel()
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(ctx, c)
}
