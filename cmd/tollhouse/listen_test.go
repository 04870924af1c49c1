package main

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
)

// pipes is a listener in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.done)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80} }

// piped is one end of a connection from an address.
type piped struct {
	net.Conn
	from net.Addr
}

func (p piped) RemoteAddr() net.Addr { return p.from }

// dial connects from an address.
func (p *pipes) dial(from string) net.Conn {
	near, far := net.Pipe()
	p.conns <- piped{far, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))}
	return near
}

// limitedServer is a server behind a connLimiter. Each request is answered when the
// test says so.
type limitedServer struct {
	*pipes
	t       *testing.T
	limiter *connLimiter
	log     *bytes.Buffer
	begun   chan string
	release chan struct{}
}

func newLimitedServer(t *testing.T, s config.Server) *limitedServer {
	h := &limitedServer{pipes: newPipes(), t: t, log: new(bytes.Buffer), begun: make(chan string), release: make(chan struct{})}
	logger := slog.New(slog.NewTextHandler(h.log, nil))
	l := listener{h.pipes, newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.begun <- r.RemoteAddr
		<-h.release
		_, _ = io.WriteString(w, "good")
	}), logger)}
	l.limitConnections(&s, logger)
	h.limiter = l.Listener.(*connLimiter)
	served := make(chan error, 1)
	go func() { served <- l.server.Serve(l.Listener) }()
	t.Cleanup(func() {
		_ = l.server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return h
}

// begin sends a request and waits until it is being answered.
func (h *limitedServer) begin(c net.Conn) {
	h.t.Helper()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		h.t.Fatal(err)
	}
	<-h.begun
}

// closed reports whether the server has closed the connection.
func closed(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	_ = c.SetReadDeadline(time.Time{})
	return errors.Is(err, io.EOF)
}

func TestANewConnectionTakesThePlaceOfTheOneThatIsSilentForLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLimitedServer(t, config.Server{MaxConnections: 3, MaxConnectionsPerIP: 3})
		busy, first, second := h.dial("192.0.2.7:1"), h.dial("192.0.2.7:2"), h.dial("192.0.2.7:3")
		h.begin(busy)
		fourth := h.dial("192.0.2.8:1")
		synctest.Wait()
		if !closed(first) || closed(second) || closed(busy) || closed(fourth) {
			t.Errorf("closed: first %t, second %t, busy %t, fourth %t", closed(first), closed(second), closed(busy), closed(fourth))
		}
		h.release <- struct{}{}
		answer := make([]byte, 512)
		if n, err := busy.Read(answer); err != nil || !strings.HasSuffix(string(answer[:n]), "good") {
			t.Errorf("%q, %v", answer[:n], err)
		}
		synctest.Wait() // it is silent again, and has been so for the shortest time
		h.dial("192.0.2.8:2")
		h.dial("192.0.2.8:3")
		synctest.Wait()
		if !closed(second) || !closed(fourth) || closed(busy) {
			t.Errorf("closed: second %t, fourth %t, busy %t", closed(second), closed(fourth), closed(busy))
		}
		last := h.dial("192.0.2.9:1")
		if synctest.Wait(); !closed(busy) || closed(last) {
			t.Errorf("closed: busy %t, last %t", closed(busy), closed(last))
		}
	})
}

func TestAConnectionIsClosedAtOnceWhenAllOthersCarryRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLimitedServer(t, config.Server{MaxConnections: 2})
		for _, from := range []string{"192.0.2.7:1", "192.0.2.8:1"} {
			h.begin(h.dial(from))
		}
		if late := h.dial("192.0.2.9:1"); !closed(late) {
			t.Error("a third connection is open")
		}
		if h.limiter.all.open != 2 || len(h.limiter.peers) != 2 {
			t.Errorf("%d open, %d peers", h.limiter.all.open, len(h.limiter.peers))
		}
		close(h.release)
	})
}

func TestAnAddressHasABoundOfItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		from, other string // two connections of each
		bounded     bool
		others      bool // those are closed
	}{
		"an IPv4 address":                {"192.0.2.7", "192.0.2.8", true, false},
		"an IPv4 address written as v6":  {"[::ffff:192.0.2.7]", "192.0.2.7", true, true},
		"the network of an IPv6 host":    {"[2001:db8::1]", "[2001:db8::2]", true, true},
		"another network":                {"[2001:db8::1]", "[2001:db8:0:1::1]", true, false},
		"loopback":                       {"127.0.0.1", "127.0.0.1", false, false},
		"loopback of IPv6":               {"[::1]", "[::1]", false, false},
		"a trusted proxy":                {"10.1.2.3", "10.9.9.9", false, false},
		"a trusted proxy written as v6":  {"[::ffff:10.1.2.3]", "10.9.9.9", false, false},
		"what is nearly a trusted proxy": {"11.1.2.3", "10.9.9.9", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newLimitedServer(t, config.Server{MaxConnections: 100, MaxConnectionsPerIP: 1, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
				h.begin(h.dial(c.from + ":1"))
				if second := h.dial(c.from + ":2"); closed(second) != c.bounded {
					t.Errorf("the second connection is closed: %t", !c.bounded)
				}
				if other := h.dial(c.other + ":1"); closed(other) != c.others {
					t.Errorf("the other connection is closed: %t", !c.others)
				}
				close(h.release)
			})
		})
	}
}

func TestTooManyConnectionsAreToldOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLimitedServer(t, config.Server{MaxConnections: 1})
		h.begin(h.dial("192.0.2.7:1"))
		for range 50 {
			h.dial("192.0.2.9:1")
		}
		time.Sleep(time.Second) // virtual
		h.dial("192.0.2.9:1")
		synctest.Wait()
		if n := strings.Count(h.log.String(), "too many connections"); n != 2 || !strings.Contains(h.log.String(), "closed=50") {
			t.Errorf("%d lines:\n%s", n, h.log)
		}
		close(h.release)
	})
}

// Header bytes that come one a second are cut off with the header's time, on a
// new connection and on one that has been used, where it begins with the fourth.
func TestAClientThatDripsItsHeadersIsCutOff(t *testing.T) {
	const head = "GET / HTTP/1.1\r\nX-Slow: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"
	for _, used := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := newLimitedServer(t, config.Server{})
			c := h.dial("192.0.2.7:1")
			if used {
				h.begin(c)
				h.release <- struct{}{}
				if _, err := c.Read(make([]byte, 512)); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			go func() { _, _ = io.Copy(io.Discard, c) }() // what it is told
			for i := range head {
				if _, err := io.WriteString(c, head[i:i+1]); err != nil {
					break
				}
				time.Sleep(time.Second) // virtual
			}
			if lasted := time.Since(began); lasted < readHeaderTimeout || lasted > 2*readHeaderTimeout {
				t.Errorf("a connection that was used before (%t) lasted %v", used, lasted)
			}
		})
	}
}

func TestAConnectionThatSaysNothingIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLimitedServer(t, config.Server{})
		used, mute := h.dial("192.0.2.7:1"), h.dial("192.0.2.7:2")
		h.begin(used)
		h.release <- struct{}{}
		if _, err := used.Read(make([]byte, 512)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(readHeaderTimeout + time.Second) // virtual
		if !closed(mute) || closed(used) {
			t.Errorf("closed: mute %t, used %t", closed(mute), closed(used))
		}
		time.Sleep(idleTimeout) // virtual
		if !closed(used) {
			t.Error("a connection without requests stays open")
		}
	})
}

func TestTheUsualBoundsFollowTheLimitOfOpenFiles(t *testing.T) {
	for files, want := range map[int][2]int{0: {100_000, 50_000}, 20_000: {9872, 4936}, 1 << 30: {100_000, 50_000}, 64: {128, 64}} {
		c := newConnLimiter(nil, &config.Server{}, files, nil)
		if got := [2]int{c.all.most, c.maxPerPeer}; got != want {
			t.Errorf("%d files: %v, want %v", files, got, want)
		}
	}
}

func TestUploadsLieInTheDataDirectoryWhereThereIsNoOther(t *testing.T) {
	temporary, data := t.TempDir(), "data"
	if got := uploadDir(temporary, data); got != temporary {
		t.Errorf("%s, want %s", got, temporary)
	}
	if got := uploadDir(filepath.Join(temporary, "none"), data); got != data {
		t.Errorf("%s, want %s", got, data)
	}
}
