package main

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// The bounds on clients that are slow on purpose. There is no time limit on
// writing a whole answer, since a stream may last; package server bounds each write.
const (
	readHeaderTimeout = 5 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 64 << 10
	// closeTimeout is how long the last bytes of canceled requests may take. With it
	// the server has ended 2 s after the drain.
	closeTimeout = 1500 * time.Millisecond
)

// listeners are the public and the admin address with their servers.
type listeners struct {
	public, admin listener
	failed        chan error // gets the error of a listener that stopped by itself
}

// listener is an address and its server; the zero listener is off.
type listener struct {
	net.Listener
	server *http.Server
}

// listen binds both addresses, or none. The error names each that cannot be had.
func (a *app) listen(s *settings, token secret.String) (*listeners, error) {
	l := &listeners{failed: make(chan error, 2)}
	c := a.components.Load().Config
	a.api = server.New(a.gateway, server.Options{Ready: a.readyChecks(), Warn: a.readyWarnings(), TempDir: uploadDir(os.TempDir(), s.data), CORS: c.CORS})
	var publicErr, adminErr error
	l.public, publicErr = bind("listen", s.listen, a.telemetry.withTraces(a.withMCP(a.api)), a.logger)
	if s.admin != adminOff {
		l.admin, adminErr = bind("admin", s.admin, server.NewAdmin(a.adminOptions(token, c)), a.logger)
	}
	switch {
	case publicErr != nil && adminErr != nil:
		return nil, fmt.Errorf("%w; %w", publicErr, adminErr)
	case publicErr != nil && l.admin.Listener != nil:
		return nil, errors.Join(publicErr, l.admin.Close())
	case publicErr != nil:
		return nil, publicErr
	case adminErr != nil:
		return nil, errors.Join(adminErr, l.public.Close())
	}
	l.public.limitConnections(&c.Server, a.logger)
	return l, nil
}

// adminOptions are the options of the admin API.
func (a *app) adminOptions(token secret.String, c *config.Config) server.AdminOptions {
	o := server.AdminOptions{
		Token: token, Accounts: a.storage.ledger, Keys: a.storage.keys, Webhooks: a.storage.webhooks, Store: a.storage.name, Logger: a.logger,
		Channels: channelAdmin{a}, TestChannel: a.testChannel, ChannelModels: a.channelModels, Metrics: a.telemetry.metrics, PublicMetrics: c.Metrics.Public,
	}
	if a.file != "" {
		o.Reload = a.reload
	}
	return o
}

// bind binds an address. The handler serves it from [listeners.start] on.
func bind(flag, address string, h http.Handler, logger *slog.Logger) (listener, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return listener{}, noAddress(flag)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return listener{}, fmt.Errorf("cannot listen on %s: choose another address with --%s (%w)", address, flag, err)
	}
	return listener{l, newServer(h, logger)}, nil
}

// noAddress is the error for a flag whose value is no address.
func noAddress(flag string) error {
	example := defaultListen
	if flag == "admin" {
		example = defaultAdmin
	}
	return fmt.Errorf("--%s takes HOST:PORT, such as %s", flag, example)
}

// newServer bounds how long the headers of a request may take and how large they may be, and
// how long a connection may be without a request. The handlers bound the rest.
func newServer(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
}

// limitConnections puts a connLimiter in front of the server.
func (l *listener) limitConnections(s *config.Server, logger *slog.Logger) {
	c := newConnLimiter(l.Listener, s, openFiles(), logger)
	l.Listener, l.server.ConnState = c, c.connState
}

// uploadDir is where large forms are kept: the system's directory for temporary
// files, or the data directory in an image that has no such directory.
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

// stop waits up to closeTimeout for answers, then closes every connection.
func (l *listeners) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, s := range []listener{l.admin, l.public} {
		if s.server == nil {
			continue
		}
		if s.server.Shutdown(ctx) != nil {
			_ = s.server.Close() // there is nothing to do about an error here
		}
	}
}

// dialable is the address at which a client on this machine reaches a listener.
func dialable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// isLoopback reports whether only this machine can connect to an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// isThisMachine reports whether an address is one at which this machine can listen. A name
// is none, but for localhost: it would have to be looked up.
func isThisMachine(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil || isLoopback(address) {
		return err == nil
	}
	own, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(own, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(net.ParseIP(host))
	})
}

// connLimiter is a listener that bounds the open connections, in all and for each
// peer. A connection above a bound evicts the one that has been without a request
// for the longest, which a client that sends its headers slowly is; when all
// connections have requests, the new one is closed.
type connLimiter struct {
	net.Listener
	maxPerPeer int
	trusted    []netip.Prefix // proxies, whose connections are many clients'
	logger     *slog.Logger

	mu       sync.Mutex
	all      connBound
	peers    map[netip.Prefix]*connBound
	warnedAt time.Time
	closed   int // connections closed since warnedAt
}

// connBound bounds connections: all of them, or those of one peer, which is an IPv4
// address or the network of an IPv6 host.
type connBound struct {
	most, open int
	idle       list.List // of *trackedConn, the longest idle first
}

// trackedConn is an open connection.
type trackedConn struct {
	net.Conn
	limiter *connLimiter
	peer    netip.Prefix    // zero for one without a bound of its own
	bounds  []*connBound    // that count it, its peer's first; nil while none does
	idleIn  []*list.Element // in their idle lists; nil while it has a request
}

// defaultMaxConnections holds for a system whose limit of open files is high or
// unknown.
const defaultMaxConnections = 100_000

// connectionsFor is how many connections clients may have where the configuration does not
// say: half of the files that the process may have open, since a request can need a
// connection to a vendor too.
func connectionsFor(files int) int {
	const reserved, least = 256, 128 // files for the store, the log and the like
	if files <= 0 {
		return defaultMaxConnections
	}
	return min(defaultMaxConnections, max((files-reserved)/2, least))
}

// newConnLimiter takes the bounds from the configuration. By default one peer may have half
// of the connections.
func newConnLimiter(l net.Listener, s *config.Server, files int, logger *slog.Logger) *connLimiter {
	maxOpen := cmp.Or(int(s.MaxConnections), connectionsFor(files))
	return &connLimiter{
		Listener: l, all: connBound{most: maxOpen}, maxPerPeer: cmp.Or(int(s.MaxConnectionsPerIP), max(maxOpen/2, 1)),
		trusted: s.TrustedProxies, logger: logger, peers: make(map[netip.Prefix]*connBound),
	}
}

// Accept waits for the next connection within the bounds.
func (l *connLimiter) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &trackedConn{Conn: conn, limiter: l, peer: l.peerOf(conn.RemoteAddr())}
		evicted := l.add(c)
		if evicted != nil {
			_ = evicted.Conn.Close() // the server does not read from it any more
		}
		if evicted != c {
			return c, nil
		}
	}
}

// peerOf is whose connection it is: an IPv4 address, or the network of 64 bits in
// which an IPv6 host can choose its address. This machine and trusted proxies have
// no bound of their own. Headers are not looked at, since a client can forge them.
func (l *connLimiter) peerOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	trusted := func(p netip.Prefix) bool { return p.Contains(ip) }
	if !ip.IsValid() || ip.IsLoopback() || slices.ContainsFunc(l.trusted, trusted) {
		return netip.Prefix{}
	}
	bits := ip.BitLen()
	if ip.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(ip, bits).Masked()
}

// add counts a connection. It returns the connection that must be closed for that:
// an idle one, the new one itself, or nil.
func (l *connLimiter) add(c *trackedConn) (evicted *trackedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	bounds := l.boundsOf(c)
	for _, b := range bounds {
		if b.open < b.most {
			continue
		}
		if evicted = c; b.idle.Len() > 0 {
			evicted = b.idle.Front().Value.(*trackedConn)
		}
		l.remove(evicted)
		l.warn()
		break
	}
	if evicted != c {
		if c.bounds = bounds; c.peer.IsValid() {
			l.peers[c.peer] = bounds[0]
		}
		for _, b := range bounds {
			b.open++
		}
		c.markIdle()
	}
	return evicted
}

// boundsOf are the bounds that a connection is to be counted in.
func (l *connLimiter) boundsOf(c *trackedConn) []*connBound {
	if !c.peer.IsValid() {
		return []*connBound{&l.all}
	}
	own := l.peers[c.peer]
	if own == nil {
		own = &connBound{most: l.maxPerPeer}
	}
	return []*connBound{own, &l.all}
}

// remove counts a connection no more, and forgets a peer that has no other.
func (l *connLimiter) remove(c *trackedConn) {
	if c.bounds == nil {
		return
	}
	c.markActive()
	for _, b := range c.bounds {
		b.open--
	}
	if c.peer.IsValid() && c.bounds[0].open == 0 {
		delete(l.peers, c.peer)
	}
	c.bounds = nil
}

// markIdle notes that the connection waits for a request.
func (c *trackedConn) markIdle() {
	if c.idleIn == nil {
		for _, b := range c.bounds {
			c.idleIn = append(c.idleIn, b.idle.PushBack(c))
		}
	}
}

// markActive notes that the connection has a request, or is closed.
func (c *trackedConn) markActive() {
	for i, e := range c.idleIn {
		c.bounds[i].idle.Remove(e)
	}
	c.idleIn = nil
}

// warn logs at most once a second that there are too many connections.
func (l *connLimiter) warn() {
	l.closed++
	now := time.Now()
	if now.Sub(l.warnedAt) < time.Second {
		return
	}
	l.logger.Warn("too many connections: closing idle ones, then new ones", "open", l.all.open, "most", l.all.most, "closed", l.closed)
	l.warnedAt, l.closed = now, 0
}

// connState follows the requests of a connection; it is a server's ConnState.
func (l *connLimiter) connState(conn net.Conn, state http.ConnState) {
	c, ok := conn.(*trackedConn)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateActive:
		c.markActive()
	case http.StateIdle:
		c.markIdle()
	}
}

// Close closes the connection.
func (c *trackedConn) Close() error {
	c.limiter.mu.Lock()
	c.limiter.remove(c)
	c.limiter.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite lets net/http deliver an answer to a client that is still sending.
func (c *trackedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
