package mcp

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/fault"
)

// sessionHeader names a session of the versions of the protocol that have them.
const sessionHeader = "Mcp-Session-Id"

// A session's id proves by itself that it was given out for the key that comes
// with it: it ends in a code of the rest that only who has the key can make. So
// nothing is kept of a session, and any node knows its ids, before a restart and
// after it; and an id is worth nothing with another key.

// newSession is the id of a session that the exchange with this id opens.
func newSession(exchange, token string) string {
	name := strings.TrimPrefix(exchange, "req_")
	return "mcp_" + name + "." + sessionMAC(name, token)
}

// checkSession is nil for an id that was given out for the key, and where there
// is none.
func checkSession(id, token string) error {
	name, code, _ := strings.Cut(strings.TrimPrefix(id, "mcp_"), ".")
	if id == "" || hmac.Equal([]byte(code), []byte(sessionMAC(name, token))) && strings.HasPrefix(id, "mcp_") {
		return nil
	}
	return fault.New(fault.NotFound, "There is no such session of this key. Begin a new one with initialize.")
}

func sessionMAC(name, token string) string {
	mac := hmac.New(sha256.New, []byte(token))
	_, _ = mac.Write([]byte("tollhouse mcp session\n" + name)) // a hash takes everything
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
}

// runningRequests are the requests that a client can cancel: those of sessions, by
// session and the client's id of the request. It is this node's only; on another
// one nothing is found, and a client that wants to be sure hangs up.
type runningRequests struct {
	mu       sync.Mutex
	sessions map[string]map[string]context.CancelFunc
}

// add notes a request until done is called.
func (r *runningRequests) add(session, id string, cancel context.CancelFunc) (done func()) {
	if session == "" || id == "" {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions == nil {
		r.sessions = make(map[string]map[string]context.CancelFunc)
	}
	requests := r.sessions[session]
	if requests == nil {
		requests = make(map[string]context.CancelFunc)
		r.sessions[session] = requests
	}
	if requests[id] != nil { // the first one keeps its name
		return func() {}
	}
	requests[id] = cancel
	return func() { r.remove(session, id) }
}

func (r *runningRequests) remove(session, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions[session], id)
	if len(r.sessions[session]) == 0 {
		delete(r.sessions, session)
	}
}

// cancel ends a request, or all of a session for an empty id.
func (r *runningRequests) cancel(session, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, cancel := range r.sessions[session] {
		if id == "" || id == name {
			cancel()
		}
	}
}

// len is the number of sessions with running requests.
func (r *runningRequests) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sessions)
}
