package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// ownKeys are the keys that Kafka does not know. All begin with "varve.", so a
// file with them still serves Kafka. Class M1 has effect; ClassNote has none yet.
func ownKeys() []Key {
	own := func(name string, t Type, def, valid string, class Class, doc string) Key {
		return Key{Scope: ScopeOwn, Name: name, Type: t, Default: def, Valid: valid, Mode: ReadOnly, Class: class, Doc: doc}
	}
	return []Key{
		own("varve.clock.jump.max", TypeString, "1h", "", ClassM1, "Nothing is deleted by age on the word of a wall clock that jumped farther, until it has lasted; 0 is off."),
		own("varve.cut.retention", TypeString, "7d", "", ClassM1, "How long files are kept in which recovery set aside what lies behind damage (.log.cut); 0 is for ever."),
		own("varve.disk.reserve", TypeString, "auto", "", ClassM1, "Free space below which producers are refused while reads, commits and deletions go on: a size, a share of the disk such as 2%, 0 for none. auto: 1% of the disk, at least 64 MiB and at most 1 GiB, and never more than a twentieth of it."),
		own("varve.fetch.path", TypeString, "auto", "[auto, sendfile, copy]", ClassM1, "How records go from a file to a connection."),
		own("varve.format.auto", TypeBoolean, "true", "", ClassM1, "Format an empty or missing data directory at start."),
		own("varve.http.listen", TypeString, "127.0.0.1:9644", "", ClassM1, "Address of the HTTP listener for metrics and health, HOST:PORT or the path of a unix socket; empty is off."),
		own("varve.index.access", TypeString, "mmap", "[mmap, pread]", ClassM1, "How indexes are read."),
		own("varve.log.format", TypeString, "text", "[text, json]", ClassM1, "Form of the broker's own log lines."),
		own("varve.log.level", TypeString, "info", "(case insensitive) [trace, debug, info, warn, error]", ClassM1, "Least level of the broker's own log lines."),
		own("varve.metrics.partition.limit", TypeInt, "10000", "[0,...]", ClassM1, "Most partitions for which the metrics page has series of their own."),
		own("varve.scrub.rate", TypeString, "8MB", "", ClassM1, "Bytes a second that the scrub reads of each data directory to check what is in it; 0 turns it off."),
		own("varve.shutdown.grace", TypeString, "30s", "", ClassM1, "How long a clean stop may take before it is cut short."),
		own("varve.sync", TypeString, "kafka", "[kafka, group, always]", ClassM1, "When an acknowledged record is on the disk: kafka follows flush.messages and flush.ms of the topics; group syncs before each answer, one sync for all who wait; always gives each request a sync of its own."),
		own("varve.topic.auto.partitions.cap", TypeInt, "1000", "[1,...]", ClassM1, "Most partitions that automatic topic creation makes."),
	}
}

// ParseDuration reads a duration of a varve key: "250ms", "1h30m", "7d", or a
// bare number of milliseconds. It is never negative.
func ParseDuration(s string) (time.Duration, error) {
	t := trimJava(s)
	if n, err := strconv.ParseInt(t, 10, 64); err == nil && n >= 0 && n <= math.MaxInt64/int64(time.Millisecond) {
		return time.Duration(n) * time.Millisecond, nil
	}
	var days time.Duration
	if head, rest, ok := strings.Cut(t, "d"); ok {
		n, err := strconv.ParseInt(head, 10, 32)
		if err != nil || n < 0 || n > 100_000 {
			return 0, fmt.Errorf("%q is not a duration such as 250ms, 1h30m or 7d", s)
		}
		days = time.Duration(n) * 24 * time.Hour
		if t = rest; t == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(t)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration such as 250ms, 1h30m or 7d", s)
	}
	return days + d, nil
}

// ParseSize reads a size of a varve key in bytes: "512KiB", "64MB", or a bare
// number. Units with an i are powers of 1024, the others of 1000.
func ParseSize(s string) (int64, error) {
	t := trimJava(s)
	cut := len(t)
	for cut > 0 && (t[cut-1] < '0' || t[cut-1] > '9') {
		cut--
	}
	n, err := strconv.ParseInt(t[:cut], 10, 64)
	unit, ok := sizeUnit(trimJava(t[cut:]))
	if err != nil || n < 0 || !ok || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is not a size such as 65536, 512KiB or 64MB", s)
	}
	return n * unit, nil
}

func sizeUnit(s string) (int64, bool) {
	switch strings.ToLower(s) {
	case "", "b":
		return 1, true
	case "kb", "k":
		return 1e3, true
	case "mb", "m":
		return 1e6, true
	case "gb", "g":
		return 1e9, true
	case "tb", "t":
		return 1e12, true
	case "kib":
		return 1 << 10, true
	case "mib":
		return 1 << 20, true
	case "gib":
		return 1 << 30, true
	case "tib":
		return 1 << 40, true
	}
	return 0, false
}

// checkHTTPListen accepts HOST:PORT on this machine alone, and the path of a
// unix socket: there is no authorisation yet for anybody else.
func checkHTTPListen(v string) error {
	if v == "" || strings.Contains(v, "/") {
		return nil
	}
	host, port, err := net.SplitHostPort(v)
	if err != nil {
		return fmt.Errorf("it is HOST:PORT, the path of a unix socket, or nothing")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("the port is not a number from 0 to 65535")
	}
	addr, err := netip.ParseAddr(host)
	if host != "localhost" && (err != nil || !addr.IsLoopback()) {
		return fmt.Errorf("it can only be an address of this machine's loopback, such as 127.0.0.1, or the path of a unix socket")
	}
	return nil
}
