package httpdo

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/upstream"
)

const (
	connectTimeout = 5 * time.Second
	idleTimeout    = 30 * time.Second // shorter than vendors keep idle connections, which they close with a request on its way
	pingAfter      = 30 * time.Second // an HTTP/2 connection that is silent for so long is asked whether it lives
	pingTimeout    = 15 * time.Second
	maxIdle        = 1024
	maxHeader      = 64 << 10
)

// keepAlive finds out within a minute that a vendor's machine is gone, long before
// the time-out of an answer that has not begun.
func keepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 15 * time.Second, Count: 3}
}

func newTransport(o upstream.DriverOptions) *http.Transport {
	timeout := cmp.Or(o.ConnectTimeout, connectTimeout)
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{KeepAliveConfig: keepAlive()}).DialContext
	}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			c, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &countingConn{Conn: c}, nil
		},
		TLSHandshakeTimeout:    timeout,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
}

// countingConn counts the bytes that were written to a connection.
type countingConn struct {
	net.Conn
	written atomic.Int64
	failed  atomic.Bool // a write has failed
}

// Write counts what it wrote.
func (c *countingConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.count(int64(n), err)
	return n, err
}

// ReadFrom is Write of all that r has. A long body in memory, which http.Transport hands
// over under a limit that is its length, writes itself, and needs no buffer.
func (c *countingConn) ReadFrom(r io.Reader) (n int64, err error) {
	limited, ok := r.(*io.LimitedReader)
	body, writes := io.WriterTo(nil), false
	if ok {
		body, writes = limited.R.(io.WriterTo)
	}
	if !writes {
		return io.Copy(struct{ io.Writer }{c}, r)
	}
	n, err = body.WriteTo(c.Conn)
	limited.N -= n
	c.count(n, err)
	return n, err
}

func (c *countingConn) count(n int64, err error) {
	c.written.Add(n)
	if err != nil {
		c.failed.Store(true)
	}
}

// sendTracker watches whether any of a request is sent.
type sendTracker struct {
	trace   httptrace.ClientTrace
	own     bool          // by a transport of ours
	got     bool          // there was a connection for it
	conn    *countingConn // that connection, if the request has it for itself
	written int64         // what it had written before
}

// watch returns ctx with the watch in it.
func (s *sendTracker) watch(ctx context.Context, own bool) context.Context {
	s.own = own
	if !own {
		return ctx
	}
	s.trace.GotConn = s.gotConn
	return httptrace.WithClientTrace(ctx, &s.trace)
}

func (s *sendTracker) gotConn(info httptrace.GotConnInfo) {
	s.got, s.conn = true, nil
	under := info.Conn
	if secure, ok := under.(*tls.Conn); ok {
		if secure.ConnectionState().NegotiatedProtocol == "h2" {
			return
		}
		under = secure.NetConn()
	}
	if c, ok := under.(*countingConn); ok {
		s.conn, s.written = c, c.written.Load()
	}
}

// sent reports whether the request, which failed with err, may have reached the
// vendor.
func (s *sendTracker) sent(ctx context.Context, err error) bool {
	switch {
	case !s.own:
		return !dialFailed(err)
	case !s.got:
		return false
	case ctx.Err() != nil:
		return true // the transport may be writing still
	case s.conn != nil:
		return s.conn.written.Load() != s.written
	}
	return !notProcessed(err)
}

// dialFailed reports whether err is of a connection that never was.
func dialFailed(err error) bool {
	var op *net.OpError
	var name *net.DNSError
	return errors.As(err, &op) && op.Op == "dial" || errors.As(err, &name)
}

// notProcessed reports whether an HTTP/2 server said that it did not look at the
// request (RFC 9113, 6.8 and 8.7). The errors are known by their text only; a
// text that changes costs a retry and no money.
func notProcessed(err error) bool {
	text := err.Error()
	return strings.Contains(text, "REFUSED_STREAM") || strings.Contains(text, "graceful shutdown GOAWAY")
}
