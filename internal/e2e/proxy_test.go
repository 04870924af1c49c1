package e2e

import (
	"bytes"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tollhouse-ai/gateway/internal/pgtest"
)

// commitProxy stands between nodes and Postgres, and can break a connection around a
// COMMIT.
type commitProxy struct {
	// atCommit says what becomes of the connection on which a node says COMMIT.
	atCommit func() commitFault
	links    sync.Map // *link by the node's side of the connection
}

// commitFault is how a connection breaks.
type commitFault int

const (
	pass   commitFault = iota // not at all
	before                    // the COMMIT does not reach the database
	racing                    // it does, and nobody waits for what comes of it
	after                     // the database has answered, but the answer gets lost
)

func (b commitFault) String() string {
	return strings.Fields("pass before racing after")[b]
}

// address is that of a store behind the proxy.
func (p *commitProxy) address(t testing.TB, store string) string {
	t.Helper()
	return pgtest.Through(t, store, p.carry)
}

// link is one connection through the proxy.
type link struct {
	deaf   atomic.Bool // the node does not hear the next answer
	commit []byte      // the name of the node's prepared COMMIT, between NULs
}

// commits reports whether a part of what a node sends has a COMMIT. The store sends it among
// other statements, by the name under which it was prepared on the connection. Parse has that
// name and the text; Bind has an empty name and then that one.
func (l *link) commits(sent []byte) bool {
	if text := bytes.Index(sent, []byte("\x00COMMIT\x00")); text >= 0 {
		parse := bytes.LastIndexByte(sent[:text], 'P') // its type, before four bytes of its length
		l.commit = slices.Concat([]byte{0}, sent[parse+5:text], []byte{0})
	}
	return len(l.commit) > 0 && bytes.Contains(sent, l.commit)
}

// carry copies one direction of a connection until it ends, or is broken.
func (p *commitProxy) carry(to, from net.Conn, answers bool) {
	node := from
	if answers {
		node = to
	}
	known, _ := p.links.LoadOrStore(node, new(link))
	l := known.(*link)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || answers && l.deaf.Load() {
			return
		}
		how := pass
		if !answers {
			if l.commits(buf[:n]) {
				how = p.atCommit()
			}
			l.deaf.Store(how == after)
		}
		if how == before {
			return
		}
		if _, err = to.Write(buf[:n]); err != nil || how == racing {
			return
		}
	}
}
