package node

import (
	"net"
	"net/netip"
	"os"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/server"
)

// listen binds the client listeners. Requests wait at the gate until the logs
// are loaded; an address in use is found out before anything is written.
func (n *Node) listen() error {
	if len(n.listeners) > 0 {
		return nil // bound before new directories were formatted
	}
	if err := n.listenHTTP(); err != nil {
		return err
	}
	cfg := n.static
	n.budget()
	buffers := server.NewBuffers()
	for _, l := range cfg.Listeners {
		if l.Controller { // nobody else asks it
			n.log.Info("controller listener not opened: the controller is in this process", "listener", l.String())
			continue
		}
		sc := server.Config{
			Name: l.Name, Address: l.Address(), Backlog: cfg.SocketListenBacklog,
			MaxRequestBytes: n.admission.MaxFrame(cfg.SocketRequestMaxBytes), OnFileError: n.fileFailed, IdleTimeout: cfg.ConnectionsMaxIdle,
			Admission: n.admission, Buffers: buffers, Logger: n.log,
		}
		// The kernel sizes the buffers better than a fixed number does.
		if cfg.IsSet("socket.send.buffer.bytes") {
			sc.SendBuffer = max(0, cfg.SocketSendBufferBytes)
		}
		if cfg.IsSet("socket.receive.buffer.bytes") {
			sc.ReceiveBuffer = max(0, cfg.SocketReceiveBufferBytes)
		}
		listener, err := server.Listen(sc, n.gate)
		if err != nil {
			return err
		}
		n.listeners = append(n.listeners, listener)
	}
	return nil
}

// newAdmission is what the configuration and the system let in.
func (n *Node) newAdmission() *server.Admission {
	cfg := n.static
	perIP := map[netip.Addr]int{}
	for host, limit := range cfg.MaxConnectionsPerIPOverrides {
		addrs, err := net.LookupHost(host)
		if err != nil {
			n.log.Warn("max.connections.per.ip.overrides: host not found", "host", host, "err", err)
		}
		for _, a := range addrs {
			if ip, err := netip.ParseAddr(a); err == nil {
				perIP[ip] = limit
			}
		}
	}
	return server.NewAdmission(server.Limits{
		RequestBytes:        max(0, cfg.QueuedMaxRequestBytes),
		MaxConnections:      maxConnections(limit(cfg.MaxConnections)),
		MaxConnectionsPerIP: limit(cfg.MaxConnectionsPerIP),
		PerIPOverrides:      perIP,
		CreationRate:        float64(limit(cfg.MaxConnectionCreationRate)),
	})
}

// limit turns Kafka's "2^31-1 is none" into "0 is none".
func limit(v int) int {
	if v == 1<<31-1 {
		return 0
	}
	return v
}

// addresses are the bound addresses, for the log.
func (n *Node) addresses() []string {
	var list []string
	for _, l := range n.listeners {
		list = append(list, l.Name()+"://"+l.Addr().String())
	}
	return list
}

// endpoints are the advertised listeners with what is only known now: this
// machine's name for an empty host, the bound port for port 0.
func (n *Node) endpoints() []metadata.Endpoint {
	var list []metadata.Endpoint
	for _, a := range n.static.Advertised {
		e := metadata.Endpoint{Name: a.Name, Host: a.Host, Port: uint16(a.Port), SecurityProtocol: protocolID(a)}
		if e.Host == "" {
			e.Host = canonicalName()
		}
		if e.Port == 0 {
			if addr, ok := n.Addr(a.Name).(*net.TCPAddr); ok {
				e.Port = uint16(addr.Port)
			}
		}
		list = append(list, e)
	}
	return list
}

// controllerEndpoints are the controller listeners of the configuration. They
// are registered as Kafka registers them and not bound: a directory that goes
// back to Kafka finds what it would have written.
func (n *Node) controllerEndpoints() []metadata.Endpoint {
	var list []metadata.Endpoint
	for _, l := range n.static.Listeners {
		if l.Controller {
			e := metadata.Endpoint{Name: l.Name, Host: l.Host, Port: uint16(l.Port), SecurityProtocol: protocolID(l)}
			if e.Host == "" {
				e.Host = canonicalName()
			}
			list = append(list, e)
		}
	}
	return list
}

// protocolID is org.apache.kafka.common.security.auth.SecurityProtocol.
func protocolID(l config.Listener) int16 {
	switch l.Protocol {
	case "SSL":
		return 1
	case "SASL_PLAINTEXT":
		return 2
	case "SASL_SSL":
		return 3
	}
	return 0
}

func canonicalName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "localhost"
	}
	return name
}
