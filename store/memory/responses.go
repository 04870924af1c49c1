package memory

import (
	"cmp"
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/responses/state"
)

var _ state.Store = (*Responses)(nil)

// Responses is a [state.Store] of one process, lost when it ends. The zero value is
// ready.
type Responses struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// MaxBytes bounds what is kept, 256 MiB if zero. Above it the account that has most of
	// it loses its oldest, so that none can take the room of others.
	MaxBytes int64

	mu    sync.Mutex
	named map[scope]*list.Element // by the id of a response, and of each item
	kept  map[string]*accountResponses
	size  int64
}

// accountResponses are the responses of one account, at least one.
type accountResponses struct {
	list.List // of *state.Response, the oldest first
	size      int64
}

// KeptBy implements [state.Store]: no meter does.
func (m *Responses) KeptBy(any) bool { return false }

// Admit implements [state.Store]. There is room for all: what is kept longest makes it.
func (m *Responses) Admit(string, int) error { return nil }

// Put implements [state.Store].
func (m *Responses) Put(_ context.Context, r state.Response) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if before := m.find(r.Account, r.ID); before != nil && responseOf(before).ID == r.ID {
		m.drop(before)
	}
	if m.named == nil {
		m.named, m.kept = make(map[scope]*list.Element), make(map[string]*accountResponses)
	}
	for a := m.kept[r.Account]; a != nil && a.Len() > 0 && m.expired(a.Front()); {
		m.drop(a.Front())
	}
	a := m.kept[r.Account]
	if a == nil {
		a = new(accountResponses)
		m.kept[r.Account] = a
	}
	e := a.PushBack(&r)
	a.size, m.size = a.size+bytesOf(&r), m.size+bytesOf(&r)
	m.named[scope{r.Account, r.ID}] = e
	for _, id := range r.Items {
		if before := m.find(r.Account, id); before == nil || responseOf(before).ID != id { // a response stays one
			m.named[scope{r.Account, id}] = e
		}
	}
	for m.size > cmp.Or(m.MaxBytes, 256<<20) {
		m.drop(m.largest().Front())
	}
	return nil
}

// largest is the account that has the most bytes.
func (m *Responses) largest() (most *accountResponses) {
	for _, a := range m.kept {
		if most == nil || a.size > most.size {
			most = a
		}
	}
	return most
}

// Get implements [state.Store].
func (m *Responses) Get(_ context.Context, account, id string) (*state.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.find(account, id)
	if e == nil {
		return nil, nil
	}
	r := *responseOf(e)
	r.Items = nil
	return &r, nil
}

// Has implements [state.Store].
func (m *Responses) Has(_ context.Context, account, id string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.find(account, id) != nil, nil
}

// Delete implements [state.Store].
func (m *Responses) Delete(_ context.Context, account, id string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.find(account, id)
	if e == nil || responseOf(e).ID != id {
		return false, nil
	}
	m.drop(e)
	return true, nil
}

// find is what has the id and has not expired; nil if nothing does.
func (m *Responses) find(account, id string) *list.Element {
	e := m.named[scope{account, id}]
	if e == nil || m.expired(e) {
		return nil
	}
	return e
}

func (m *Responses) expired(e *list.Element) bool { return !m.now().Before(responseOf(e).Expires) }

func (m *Responses) drop(e *list.Element) {
	r := responseOf(e)
	a := m.kept[r.Account]
	a.Remove(e)
	if a.size, m.size = a.size-bytesOf(r), m.size-bytesOf(r); a.Len() == 0 {
		delete(m.kept, r.Account)
	}
	for _, id := range append([]string{r.ID}, r.Items...) {
		if name := (scope{r.Account, id}); m.named[name] == e {
			delete(m.named, name)
		}
	}
}

func responseOf(e *list.Element) *state.Response { return e.Value.(*state.Response) }

// bytesOf is about what a response takes.
func bytesOf(r *state.Response) int64 {
	const each = 256 // of a response or an item, apart from its text
	n := each + len(r.Body) + len(r.ID) + len(r.Previous)
	for _, id := range r.Items {
		n += each + len(id)
	}
	return int64(n)
}

func (m *Responses) now() time.Time {
	if m.Now != nil {
		return m.Now()
	}
	return time.Now()
}
