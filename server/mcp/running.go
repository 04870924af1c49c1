package mcp

import (
	"context"
	"sync"
)

// running are the requests that a client can take back: those of sessions, by
// session and the client's id of the request. It is this node's only; on another
// one nothing is found, and a client that wants to be sure hangs up.
type running struct {
	mu       sync.Mutex
	sessions map[string]map[string]context.CancelFunc
}

// add notes a request until done is called.
func (r *running) add(session, id string, cancel context.CancelFunc) (done func()) {
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

func (r *running) remove(session, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sessions[session], id)
	if len(r.sessions[session]) == 0 {
		delete(r.sessions, session)
	}
}

// cancel ends a request, or all of a session for an empty id.
func (r *running) cancel(session, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, cancel := range r.sessions[session] {
		if id == "" || id == name {
			cancel()
		}
	}
}

// len is the number of sessions with running requests.
func (r *running) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sessions)
}
