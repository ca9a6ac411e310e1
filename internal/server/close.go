package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/sendfile"
	"github.com/varvelog/varve/internal/wire"
)

// Reasons for which a connection is closed (event conn-closed).
const (
	ReasonEOF            = "eof"             // the peer closed it
	ReasonNetwork        = "network"         // the connection broke
	ReasonIdle           = "idle"            // nothing came for connections.max.idle.ms
	ReasonStop           = "stop"            // the broker stops
	ReasonHandler        = "handler"         // the handler asked for it
	ReasonFrameSize      = "frame-size"      // a frame's size is negative or too large
	ReasonParse          = "parse"           // a request cannot be parsed
	ReasonAuthTimeout    = "auth-timeout"    // no complete request came in time, or others needed the room
	ReasonRequestTimeout = "request-timeout" // a request began and did not end
	ReasonSendTimeout    = "send-timeout"    // the peer takes nothing
	ReasonFile           = "file"            // a region could not be read while it was sent
)

// CloseError says why a connection is closed.
type CloseError struct {
	Reason string
	Err    error // may be nil
}

func (e *CloseError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Err.Error()
}

func (e *CloseError) Unwrap() error { return e.Err }

// inputError gives an error of a read its reason.
func (c *Conn) inputError(err error) error {
	switch {
	case c.expired.Load() != int32(waitNone):
		return &CloseError{Reason: waitReason(c.expired.Load()).String()}
	case c.l.isStopping():
		return &CloseError{Reason: ReasonStop}
	case errors.Is(err, io.EOF):
		return &CloseError{Reason: ReasonEOF}
	}
	return &CloseError{Reason: ReasonNetwork, Err: err}
}

// outputError gives an error of a write its reason.
func (c *Conn) outputError(err error) error {
	var fileErr *sendfile.FileError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &CloseError{Reason: ReasonSendTimeout, Err: err}
	case errors.Is(err, net.ErrClosed) && c.l.isStopping():
		return &CloseError{Reason: ReasonStop}
	case errors.As(err, &fileErr):
		if c.l.cfg.OnFileError != nil {
			c.l.cfg.OnFileError(fileErr.Name, fileErr)
		}
		return &CloseError{Reason: ReasonFile, Err: err}
	}
	return &CloseError{Reason: ReasonNetwork, Err: err}
}

// reasonOf is the reason within any error that ended a connection.
func reasonOf(err error) string {
	var closed *CloseError
	switch {
	case errors.As(err, &closed):
		return closed.Reason
	case errors.Is(err, wire.ErrMalformed):
		return ReasonParse
	}
	return ReasonHandler
}

// logClosed writes the one record about the end of a connection.
func (c *Conn) logClosed(err error) {
	reason := reasonOf(err)
	level := slog.LevelDebug
	switch reason {
	case ReasonFrameSize, ReasonParse, ReasonAuthTimeout, ReasonRequestTimeout, ReasonSendTimeout:
		level = slog.LevelInfo
	case ReasonFile:
		level = slog.LevelWarn
	}
	ctx := context.Background()
	if !c.l.log.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("event", "conn-closed"),
		slog.String("reason", reason),
		slog.String("remote", c.tcp.RemoteAddr().String()),
	}
	if c.greeted {
		attrs = append(attrs, slog.String("client", forLog(c.clientID)), slog.String("api", apiName(c.req.Header)))
	}
	if err := detailOf(err); err != nil {
		attrs = append(attrs, slog.String("err", err.Error()))
	}
	c.l.log.LogAttrs(ctx, level, "connection closed", attrs...)
}

// detailOf is what err says beyond its reason; nil when nothing.
func detailOf(err error) error {
	var closed *CloseError
	if errors.As(err, &closed) {
		return closed.Err
	}
	return err
}

// maxForeignText bounds what a log record takes over from a peer.
const maxForeignText = 256

// forLog makes a peer's text fit for a log: bounded, and quoted where it holds
// anything but printable characters.
func forLog(s string) string {
	if len(s) > maxForeignText {
		s = s[:maxForeignText] + "…"
	}
	if q := strconv.Quote(s); q[1:len(q)-1] != s {
		return q
	}
	return s
}

// apiName names the request that a connection sent last, as in "Fetch v11".
func apiName(h wire.RequestHeader) string {
	version := " v" + strconv.Itoa(int(h.Version))
	if name := kmsg.NameForKey(h.Key); name != "Unknown" {
		return name + version
	}
	return "key " + strconv.Itoa(int(h.Key)) + version
}
