package main

import (
	"cmp"
	"container/list"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
)

// crowd is a listener whose connections are bounded, in all and from one address.
// One too many takes the place of the connection that has been without a request
// for the longest, which is what a slow client's is while it sends its headers;
// when all carry requests, it is closed.
type crowd struct {
	net.Listener
	most, perPeer int
	trusted       []netip.Prefix // whose connections are many people's
	logger        *slog.Logger

	mu     sync.Mutex
	open   int
	peers  map[netip.Prefix]*peer
	silent list.List // of *guest, the longest first
	told   time.Time // when the log last heard of it
	cut    int       // connections closed since then
}

// peer is an address, or the network of an IPv6 host.
type peer struct {
	open   int
	silent list.List // of *guest, the longest first
}

// guest is an open connection.
type guest struct {
	net.Conn
	crowd   *crowd
	from    netip.Prefix // the zero prefix has no bound of its own
	peer    *peer        // nil where from is zero
	among   [2]*list.Element
	counted bool
}

// usualConnections is for a system that has no limit of open files, or a high
// one. A call can need a connection of its own to a vendor.
const usualConnections = 100_000

func newCrowd(l net.Listener, s *config.Server, files int, logger *slog.Logger) *crowd {
	const spare, least = 256, 128 // for the store, the log and the like
	most := usualConnections
	if files > 0 {
		most = min(most, max((files-spare)/2, least))
	}
	most = cmp.Or(int(s.MaxConnections), most)
	return &crowd{
		Listener: l, most: most, perPeer: cmp.Or(int(s.MaxConnectionsPerIP), max(most/2, 1)),
		trusted: s.TrustedProxies, logger: logger, peers: make(map[netip.Prefix]*peer),
	}
}

// Accept waits for the next connection that there is room for.
func (c *crowd) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		g := &guest{Conn: conn, crowd: c, from: c.origin(conn.RemoteAddr())}
		cut := c.admit(g)
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
func (c *crowd) origin(a net.Addr) netip.Prefix {
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
func (c *crowd) admit(g *guest) (cut *guest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.from.IsValid() {
		if g.peer = c.peers[g.from]; g.peer == nil {
			g.peer = new(peer)
		}
	}
	cut = c.victim(g)
	if cut != nil {
		c.forget(cut)
		c.tell()
	}
	if cut != g {
		g.counted = true
		c.count(g, 1)
		c.fallSilent(g)
	}
	return cut
}

// victim is the connection that has to go before g can be there.
func (c *crowd) victim(g *guest) *guest {
	var silent *list.List
	switch {
	case g.peer != nil && g.peer.open >= c.perPeer:
		silent = &g.peer.silent
	case c.open >= c.most:
		silent = &c.silent
	default:
		return nil
	}
	if first := silent.Front(); first != nil {
		return first.Value.(*guest)
	}
	return g
}

func (c *crowd) count(g *guest, n int) {
	c.open += n
	if g.peer == nil {
		return
	}
	c.peers[g.from] = g.peer
	if g.peer.open += n; g.peer.open == 0 {
		delete(c.peers, g.from)
	}
}

// fallSilent notes that a connection waits for a request.
func (c *crowd) fallSilent(g *guest) {
	if !g.counted || g.among[0] != nil {
		return
	}
	g.among[0] = c.silent.PushBack(g)
	if g.peer != nil {
		g.among[1] = g.peer.silent.PushBack(g)
	}
}

// speakUp notes that a connection has a request, or is gone.
func (c *crowd) speakUp(g *guest) {
	if g.among[0] == nil {
		return
	}
	c.silent.Remove(g.among[0])
	if g.among[1] != nil {
		g.peer.silent.Remove(g.among[1])
	}
	g.among = [2]*list.Element{}
}

func (c *crowd) forget(g *guest) {
	if !g.counted {
		return
	}
	g.counted = false
	c.speakUp(g)
	c.count(g, -1)
}

// tell says at most once a second that there are too many connections.
func (c *crowd) tell() {
	c.cut++
	now := time.Now()
	if now.Sub(c.told) < time.Second {
		return
	}
	c.logger.Warn("too many connections: those that wait are closed, then new ones", "open", c.open, "most", c.most, "closed", c.cut)
	c.told, c.cut = now, 0
}

// note follows a connection's requests; it is a server's ConnState.
func (c *crowd) note(conn net.Conn, state http.ConnState) {
	g, ok := conn.(*guest)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateActive:
		c.speakUp(g)
	case http.StateIdle:
		c.fallSilent(g)
	}
}

// Close closes the connection.
func (g *guest) Close() error {
	g.crowd.mu.Lock()
	g.crowd.forget(g)
	g.crowd.mu.Unlock()
	return g.Conn.Close()
}

// CloseWrite lets an answer reach a client that is still sending.
func (g *guest) CloseWrite() error {
	if half, ok := g.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
