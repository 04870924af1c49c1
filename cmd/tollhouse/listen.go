package main

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
)

// The bounds on clients that are slow on purpose (faults.md, row 31). There is
// no write time-out for the whole of an answer: a stream may last.
const (
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	closeTimeout      = 1500 * time.Millisecond // in which the last bytes of cancelled calls get out, and the server is away 2 s after the drain
)

// listeners are the public and the admin address with what serves them.
type listeners struct {
	public, admin listener
	failed        chan error // a listener broke
}

// listener is an address and its server; the zero listener is off.
type listener struct {
	net.Listener
	server *http.Server
}

// open binds an address. The handler serves it from [listeners.start] on.
func bind(what, address string, h http.Handler, logger *slog.Logger) (listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return listener{}, fmt.Errorf("cannot listen on %s: choose another address with --%s (%w)", address, what, err)
	}
	return listener{l, newServer(h, logger)}, nil
}

func newServer(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}

// bound has the listener take no more connections than it should.
func (l *listener) limitConnections(s *config.Server, logger *slog.Logger) {
	c := newConnLimiter(l.Listener, s, openFiles(), logger)
	l.Listener, l.server.ConnState = c, c.connState
}

// open binds both addresses, or none.
func (h *app) listen(s *settings, token secret.String) (*listeners, error) {
	l := &listeners{failed: make(chan error, 2)}
	var err error
	ready := map[string]func() error{"channels": h.channelsUsable}
	maps.Copy(ready, h.storage.checks())
	public := server.New(h.gateway, server.Options{Ready: ready, Warn: h.readyWarnings(), TempDir: uploadDir(os.TempDir(), s.data)})
	if l.public, err = bind("listen", s.listen, h.telemetry.withTraces(h.withMCP(public)), h.logger); err != nil {
		return nil, err
	}
	l.public.limitConnections(&h.components.Load().Config.Server, h.logger)
	if s.admin == adminOff {
		return l, nil
	}
	o := server.AdminOptions{Token: token, Accounts: h.storage.ledger, Keys: h.storage.keys, Webhooks: h.storage.webhooks, Store: h.storage.name, Logger: h.logger, Channels: channelAdmin{h}, TestChannel: h.testChannel}
	o.Metrics, o.PublicMetrics = h.telemetry.metrics, h.components.Load().Config.Metrics.Public
	if h.file != "" {
		o.Reload = h.reload
	}
	if l.admin, err = bind("admin", s.admin, server.NewAdmin(o), h.logger); err != nil {
		return nil, errors.Join(err, l.public.Close())
	}
	return l, nil
}

// uploads is where large forms lie: in the system's place for temporary files, or
// in the data directory of an image that has no such place.
func uploadDir(temporary, data string) string {
	if info, err := os.Stat(temporary); err == nil && info.IsDir() {
		return temporary
	}
	return data
}

// start serves in the background until stop.
func (l *listeners) start() {
	for _, s := range []listener{l.public, l.admin} {
		if s.server == nil {
			continue
		}
		go func() {
			if err := s.server.Serve(s.Listener); !errors.Is(err, http.ErrServerClosed) {
				l.failed <- fmt.Errorf("stopped serving %s: %w", s.Addr(), err)
			}
		}()
	}
}

// stop waits a moment for answers to get out, then closes every connection.
func (l *listeners) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, s := range []listener{l.admin, l.public} {
		if s.server == nil {
			continue
		}
		if s.server.Shutdown(ctx) != nil {
			_ = s.server.Close() // nothing is left to be told of it
		}
	}
}

// crowd is a listener whose connections are bounded, in all and from one address.
// One too many takes the place of the connection that has been without a request
// for the longest, which is what a slow client's is while it sends its headers;
// when all carry requests, it is closed.
type connLimiter struct {
	net.Listener
	maxOpen, maxPerPeer int
	trusted             []netip.Prefix // whose connections are many people's
	logger              *slog.Logger

	mu       sync.Mutex
	open     int
	peers    map[netip.Prefix]*peer
	idle     list.List // of *guest, the longest first
	warnedAt time.Time // when the log last heard of it
	closed   int       // connections closed since then
}

// peer is an address, or the network of an IPv6 host.
type peer struct {
	open int
	idle list.List // of *guest, the longest first
}

// guest is an open connection.
type trackedConn struct {
	net.Conn
	limiter *connLimiter
	prefix  netip.Prefix // the zero prefix has no bound of its own
	peer    *peer        // nil where from is zero
	idleIn  [2]*list.Element
	counted bool
}

// usualConnections is for a system that has no limit of open files, or a high
// one. A call can need a connection of its own to a vendor.
const defaultMaxConnections = 100_000

func newConnLimiter(l net.Listener, s *config.Server, files int, logger *slog.Logger) *connLimiter {
	const spare, least = 256, 128 // for the store, the log and the like
	most := defaultMaxConnections
	if files > 0 {
		most = min(most, max((files-spare)/2, least))
	}
	most = cmp.Or(int(s.MaxConnections), most)
	return &connLimiter{
		Listener: l, maxOpen: most, maxPerPeer: cmp.Or(int(s.MaxConnectionsPerIP), max(most/2, 1)),
		trusted: s.TrustedProxies, logger: logger, peers: make(map[netip.Prefix]*peer),
	}
}

// Accept waits for the next connection that there is room for.
func (c *connLimiter) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		g := &trackedConn{Conn: conn, limiter: c, prefix: c.peerOf(conn.RemoteAddr())}
		cut := c.add(g)
		if cut != nil {
			_ = cut.Conn.Close() // nobody reads it any more
		}
		if cut != g {
			return g, nil
		}
	}
}

// origin is whose connection it is: an IPv4 address, or the network of 64 bits
// that an IPv6 host can choose its address in. This machine's own and a trusted
// proxy's are not counted. What a header says of it is never believed.
func (c *connLimiter) peerOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	trusted := func(p netip.Prefix) bool { return p.Contains(ip) }
	if !ip.IsValid() || ip.IsLoopback() || slices.ContainsFunc(c.trusted, trusted) {
		return netip.Prefix{}
	}
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(ip, bits).Masked()
}

// admit counts a connection. It returns the one that must be closed for that: an
// older one, or the new one itself; nil for none.
func (c *connLimiter) add(g *trackedConn) (cut *trackedConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.prefix.IsValid() {
		if g.peer = c.peers[g.prefix]; g.peer == nil {
			g.peer = new(peer)
		}
	}
	cut = c.evictee(g)
	if cut != nil {
		c.remove(cut)
		c.warn()
	}
	if cut != g {
		g.counted = true
		c.count(g, 1)
		c.markIdle(g)
	}
	return cut
}

// victim is the connection that has to go before g can be there.
func (c *connLimiter) evictee(g *trackedConn) *trackedConn {
	var silent *list.List
	switch {
	case g.peer != nil && g.peer.open >= c.maxPerPeer:
		silent = &g.peer.idle
	case c.open >= c.maxOpen:
		silent = &c.idle
	default:
		return nil
	}
	if first := silent.Front(); first != nil {
		return first.Value.(*trackedConn)
	}
	return g
}

func (c *connLimiter) count(g *trackedConn, n int) {
	c.open += n
	if g.peer == nil {
		return
	}
	c.peers[g.prefix] = g.peer
	if g.peer.open += n; g.peer.open == 0 {
		delete(c.peers, g.prefix)
	}
}

// fallSilent notes that a connection waits for a request.
func (c *connLimiter) markIdle(g *trackedConn) {
	if !g.counted || g.idleIn[0] != nil {
		return
	}
	g.idleIn[0] = c.idle.PushBack(g)
	if g.peer != nil {
		g.idleIn[1] = g.peer.idle.PushBack(g)
	}
}

// speakUp notes that a connection has a request, or is gone.
func (c *connLimiter) markActive(g *trackedConn) {
	if g.idleIn[0] == nil {
		return
	}
	c.idle.Remove(g.idleIn[0])
	if g.idleIn[1] != nil {
		g.peer.idle.Remove(g.idleIn[1])
	}
	g.idleIn = [2]*list.Element{}
}

func (c *connLimiter) remove(g *trackedConn) {
	if !g.counted {
		return
	}
	g.counted = false
	c.markActive(g)
	c.count(g, -1)
}

// tell says at most once a second that there are too many connections.
func (c *connLimiter) warn() {
	c.closed++
	now := time.Now()
	if now.Sub(c.warnedAt) < time.Second {
		return
	}
	c.logger.Warn("too many connections: those that wait are closed, then new ones", "open", c.open, "most", c.maxOpen, "closed", c.closed)
	c.warnedAt, c.closed = now, 0
}

// note follows a connection's requests; it is a server's ConnState.
func (c *connLimiter) connState(conn net.Conn, state http.ConnState) {
	g, ok := conn.(*trackedConn)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateActive:
		c.markActive(g)
	case http.StateIdle:
		c.markIdle(g)
	}
}

// Close closes the connection.
func (g *trackedConn) Close() error {
	g.limiter.mu.Lock()
	g.limiter.remove(g)
	g.limiter.mu.Unlock()
	return g.Conn.Close()
}

// CloseWrite lets an answer reach a client that is still sending.
func (g *trackedConn) CloseWrite() error {
	if half, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
