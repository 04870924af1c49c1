package httpdo

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream/internal/header"
)

// directTransport sends small bodies to one vendor over plain HTTP/1.1, on the goroutine that
// asks for it. In contrast, http.Transport hands each request to two goroutines of the
// connection and back. That costs about 10 µs, and memory while a stream is open
// (docs/design/benchmarks.md).
//
// net/http still writes requests and frames responses ([http.Request.Write],
// [http.ReadResponse]); only the connections are kept here. A connection is reused only
// if its response was read to its end and nothing followed. So a late or surplus response
// is never taken for the next one. It is safe for concurrent use.
type directTransport struct {
	host     string          // of the URLs
	address  string          // what is dialled
	fallback *http.Transport // dials, has the bounds, and makes all other requests
	writers  sync.Pool       // of *bufio.Writer

	mu     sync.Mutex
	idle   []*directConn // the one used last is used next
	closed bool          // no connection is kept any more
}

// newDirectTransport returns a transport to base, or nil if http.Transport is needed.
// That is for TLS, a proxy, a host name that is not ASCII, or on a system where an idle
// connection cannot be checked.
func newDirectTransport(base *url.URL, fallback *http.Transport) *directTransport {
	if !canCheckIdle || base.Scheme != "http" || !safetext.IsPrintable(base.Host) || goesByProxy(fallback.Proxy, base) {
		return nil
	}
	port := base.Port()
	if port == "" {
		port = webPorts[base.Scheme]
	}
	return &directTransport{
		host: base.Host, address: net.JoinHostPort(base.Hostname(), port), fallback: fallback,
		writers: sync.Pool{New: func() any { return bufio.NewWriter(nil) }},
	}
}

// maxDirectBody is the largest body, in bytes, that is written before the response is looked
// at. It normally fits into the socket buffers of both ends. So a vendor that answers before
// it has read the request (docs/reference/faults.md, row 39) does not wait for us while we
// wait for it.
const maxDirectBody = 64 << 10

// handles reports whether a request is made here: a POST to the vendor with a small body. A
// GET is http.Transport's, which repeats it if the vendor was closing the connection, and so
// are headers that it refuses.
func (t *directTransport) handles(req *http.Request) bool {
	small := req.Body != nil && 0 < req.ContentLength && req.ContentLength <= maxDirectBody
	if req.Method != http.MethodPost || !small || req.URL.Host != t.host || req.URL.Scheme != "http" {
		return false
	}
	for name, values := range req.Header {
		if !header.IsToken(name) || slices.ContainsFunc(values, func(v string) bool { return !safetext.IsPrintable(v) }) {
			return false
		}
	}
	return true
}

// RoundTrip makes a request once: nothing is repeated.
func (t *directTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if !t.handles(req) {
		return t.fallback.RoundTrip(req)
	}
	ctx := req.Context()
	c, err := t.getConn(ctx)
	if err != nil {
		_ = req.Body.Close() // nothing of it is sent
		return nil, causeOf(ctx, err)
	}
	if trace := httptrace.ContextClientTrace(ctx); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: c.countingConn})
	}
	stop := context.AfterFunc(ctx, c.discard)
	resp, err := t.exchange(c, req)
	if err != nil {
		stop()
		c.discard()
		return nil, causeOf(ctx, err)
	}
	body := &directBody{ReadCloser: resp.Body, ctx: ctx, transport: t, conn: c, stop: stop}
	body.noReuse = req.Close || resp.Close || resp.StatusCode < 200
	if resp.Body == http.NoBody {
		body.end(true)
	} else {
		resp.Body = body
	}
	return resp, nil
}

// exchange writes a request, then reads the head of its response. A vendor may answer and
// close before it has read the body (docs/reference/faults.md, row 39). So a response may
// exist although the write failed halfway.
func (t *directTransport) exchange(c *directConn, req *http.Request) (*http.Response, error) {
	before := c.written.Load()
	writeErr := t.write(c, req)
	if early := c.failed.Load() && c.written.Load() > before; writeErr != nil && !early {
		return nil, writeErr
	}
	resp, err := c.readHead(req, t.fallback.MaxResponseHeaderBytes)
	if err != nil {
		return nil, cmp.Or(writeErr, err)
	}
	resp.Close = resp.Close || writeErr != nil
	return resp, nil
}

func (t *directTransport) write(c *directConn, req *http.Request) error {
	w := t.writers.Get().(*bufio.Writer)
	w.Reset(c.countingConn)
	err := req.Write(w)
	if err == nil {
		err = w.Flush()
	}
	w.Reset(nil)
	t.writers.Put(w)
	return err
}

// directBody is the body of a response. Its end frees the connection.
type directBody struct {
	io.ReadCloser
	ctx       context.Context
	transport *directTransport
	conn      *directConn
	stop      func() bool // the end of ctx closes conn no more; false if it does or did
	noReuse   bool
	ended     atomic.Bool
}

// Read reads the body, until ctx ends.
func (b *directBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.end(true)
	case err != nil:
		err = causeOf(b.ctx, err)
	}
	return n, err
}

// Close closes the connection unless the body was read to its end. It may be called while
// another goroutine reads, which then gets no more than has come.
func (b *directBody) Close() error {
	b.end(false)
	return nil
}

func (b *directBody) end(whole bool) {
	if b.ended.Swap(true) {
		return
	}
	if stopped := b.stop(); stopped && whole && !b.noReuse && b.conn.reader.Buffered() == 0 {
		b.transport.putIdle(b.conn)
	} else {
		b.conn.discard()
	}
}

// getConn returns an idle connection that is open and quiet, or a new one.
func (t *directTransport) getConn(ctx context.Context) (*directConn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for c := t.popIdle(); c != nil; c = t.popIdle() {
		if c.isQuiet() {
			return c, nil
		}
		c.discard()
	}
	conn, err := t.fallback.DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, err
	}
	return newDirectConn(conn.(*countingConn)), nil
}

// popIdle removes and returns the most recently used idle connection; nil if there is none.
func (t *directTransport) popIdle() *directConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.idle) - 1
	if n < 0 {
		return nil
	}
	c := t.idle[n]
	t.idle[n] = nil
	t.idle = t.idle[:n]
	c.idleTimer.Stop() // if it fires nevertheless, it finds that the connection is not idle
	return c
}

// putIdle keeps a connection for the next request.
func (t *directTransport) putIdle(c *directConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.idle) >= t.fallback.MaxIdleConnsPerHost {
		c.discard()
		return
	}
	t.idle = append(t.idle, c)
	if c.idleTimer == nil {
		c.idleTimer = time.AfterFunc(t.fallback.IdleConnTimeout, func() { t.expire(c) })
	} else {
		c.idleTimer.Reset(t.fallback.IdleConnTimeout)
	}
}

// expire closes a connection if it is idle.
func (t *directTransport) expire(c *directConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at := slices.Index(t.idle, c); at >= 0 {
		t.idle = slices.Delete(t.idle, at, at+1)
		c.discard()
	}
}

// close closes idle connections at once, and the others when their responses end.
func (t *directTransport) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for _, c := range t.idle {
		c.idleTimer.Stop()
		c.discard()
	}
	t.idle = nil
}

// directConn is a connection, which one request has at a time.
type directConn struct {
	*countingConn
	raw       syscall.RawConn // for isQuiet; nil if the connection is no socket
	reader    *bufio.Reader   // reads by the directConn
	headLeft  int64           // bytes that may still be read of a response's head
	idleTimer *time.Timer     // closes it when it has been idle for long; nil before it was
}

func newDirectConn(conn *countingConn) *directConn {
	c := &directConn{countingConn: conn}
	c.reader = bufio.NewReader(c)
	if socket, ok := conn.Conn.(syscall.Conn); ok {
		c.raw, _ = socket.SyscallConn() // nil after an error
	}
	return c
}

// readHead reads the head of a response. It may take at most so many bytes together with the
// interim responses before it (RFC 9110, 15.2).
func (c *directConn) readHead(req *http.Request, most int64) (*http.Response, error) {
	c.headLeft = most
	for {
		resp, err := http.ReadResponse(c.reader, req)
		switch {
		case err != nil && c.headLeft <= 0:
			return nil, fmt.Errorf("the head of the response has more than %d bytes", most)
		case err != nil:
			return nil, err
		case resp.StatusCode < 100 || resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols:
			c.headLeft = math.MaxInt64
			return resp, nil
		}
	}
}

// Read reads what has come, and nothing more of a head that is too long.
func (c *directConn) Read(p []byte) (int, error) {
	if c.headLeft <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.countingConn.Read(p[:min(int64(len(p)), c.headLeft)])
	c.headLeft -= int64(n)
	return n, err
}

// discard closes the connection, so that pending reads and writes fail.
func (c *directConn) discard() { _ = c.Close() }

// causeOf is why ctx has ended, or err if it has not.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
