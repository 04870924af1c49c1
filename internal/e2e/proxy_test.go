package e2e

import (
	"bytes"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// proxy stands between a node and Postgres, and can break a connection around a
// COMMIT.
type proxy struct {
	network, address string // of Postgres
	listener         net.Listener

	// atCommit says what becomes of the connection on which the client says
	// COMMIT; nil means pass. Set it before the first connection.
	atCommit func() commitFault

	mu    sync.Mutex
	links map[*link]struct{}
	down  bool
}

// commitFault is how a connection breaks.
type commitFault int

const (
	pass   commitFault = iota // not at all
	before                    // the COMMIT does not reach the database
	racing                    // it does, and nobody waits for what comes of it
	after                     // the database has answered, but the answer gets lost
)

// commits reports whether a part of what a client sends has a COMMIT. The store sends it
// among other statements, by the name under which it was prepared on the connection:
// Parse has that name and the text, Bind an empty name and then that one.
func (l *link) commits(sent []byte) bool {
	if text := bytes.Index(sent, []byte("\x00COMMIT\x00")); text >= 0 {
		parse := bytes.LastIndexByte(sent[:text], 'P') // its type, before four bytes of its length
		l.commit = slices.Concat([]byte{0}, sent[parse+5:text], []byte{0})
	}
	return len(l.commit) > 0 && bytes.Contains(sent, l.commit)
}

// newProxy returns a proxy to a store, and the address of the store behind it.
func newProxy(t testing.TB, store string) (*proxy, string) {
	t.Helper()
	config, err := pgx.ParseConfig(store)
	must(t, err)
	p := &proxy{links: map[*link]struct{}{}}
	p.network, p.address = pgconn.NetworkAddress(config.Host, config.Port)
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	go p.accept()
	t.Cleanup(p.close)
	u, err := url.Parse(store)
	must(t, err)
	q := u.Query()
	q.Del("host")
	q.Set("sslmode", "disable")
	u.Host, u.RawQuery = p.listener.Addr().String(), q.Encode()
	return p, u.String()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.serve(client)
	}
}

func (p *proxy) serve(client net.Conn) {
	database, err := net.Dial(p.network, p.address)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, database: database}
	if !p.add(l) {
		l.close()
		return
	}
	go p.pump(l, client, database, true)
	p.pump(l, database, client, false)
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (p *proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.down {
		p.links[l] = struct{}{}
	}
	return !p.down
}

// pump copies one direction until one end is closed.
func (p *proxy) pump(l *link, from, to net.Conn, asks bool) {
	defer l.close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || (!asks && l.deaf.Load()) {
			return
		}
		how := pass
		if asks && p.atCommit != nil && l.commits(buf[:n]) {
			how = p.atCommit()
		}
		l.deaf.Store(how == after)
		if how == before {
			return
		}
		if _, err = to.Write(buf[:n]); err != nil || how == racing {
			return
		}
	}
}

// close breaks every connection and refuses new ones.
func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = true
	for l := range p.links {
		l.close()
	}
}

// link is one connection through the proxy.
type link struct {
	client, database net.Conn
	deaf             atomic.Bool // the client does not hear the next answer
	commit           []byte      // the name of the client's prepared COMMIT, between NULs
}

func (l *link) close() {
	_ = l.client.Close() // both are gone for good
	_ = l.database.Close()
}

func (b commitFault) String() string {
	return strings.Fields("pass before racing after")[b]
}
