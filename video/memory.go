package video

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/idempotency"
)

// Memory is a Store of one process, lost when it ends. The zero value is ready.
type Memory struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Outbox, when not nil, is given the notice of each step; the step is not
	// made if it fails. It must not call the Memory.
	Outbox func(ctx context.Context, n Notice) error
	// Answers, when not nil, keeps the answers that come with a change.
	Answers idempotency.Store

	mu    sync.Mutex
	tasks map[string]*entry   // by our id
	open  map[string]*entry   // those that have not ended
	held  map[scope]int64     // how many of them each key has
	names map[scope]string    // our id by the upstream's, which two upstreams may give
	last  map[[32]byte]*entry // the last of each fingerprint
}

// entry is a task and its lease.
type entry struct {
	task  Task
	owner string
	until time.Time
}

// scope is a key or an upstream's id within an account.
type scope struct{ account, id string }

// Add makes a task.
func (m *Memory) Add(_ context.Context, n CreateTask) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &n.Task
	if m.tasks[t.ID] != nil {
		return fmt.Errorf("there is a task %q already", t.ID)
	}
	if e := m.last[t.Fingerprint]; e != nil && !n.Retried && e.task.Repeats(m.now(), n.Window) {
		return Repeated(&e.task)
	}
	if n.Most > 0 && m.held[scope{t.Account, t.Key}] >= n.Most {
		return TooMany(n.Most)
	}
	if m.tasks == nil {
		m.tasks, m.open, m.last = make(map[string]*entry), make(map[string]*entry), make(map[[32]byte]*entry)
		m.held, m.names = make(map[scope]int64), make(map[scope]string)
	}
	e := &entry{task: *t}
	m.tasks[t.ID], m.open[t.ID], m.last[t.Fingerprint] = e, e, e
	m.held[scope{t.Account, t.Key}]++
	return nil
}

// end forgets that a task is open.
func (m *Memory) end(e *entry) {
	if m.open[e.task.ID] == nil {
		return
	}
	delete(m.open, e.task.ID)
	key := scope{e.task.Account, e.task.Key}
	if m.held[key]--; m.held[key] == 0 {
		delete(m.held, key)
	}
}

// Change applies a step.
func (m *Memory) Change(ctx context.Context, s Step, answer *idempotency.Record) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.tasks[s.Task.ID]
	if e == nil || e.task.Version != s.Task.Version-1 || e.task.State.Terminal() {
		return false, nil
	}
	if s.Notice != nil && m.Outbox != nil {
		if err := m.Outbox(ctx, *s.Notice); err != nil {
			return false, err
		}
	}
	e.task = s.Task
	if e.task.UpstreamID != "" {
		m.names[scope{e.task.Account, e.task.UpstreamID}] = e.task.ID
	}
	if e.task.State.Terminal() {
		m.end(e)
	}
	if answer == nil || m.Answers == nil {
		return true, nil
	}
	a := idempotency.Answer{Header: answer.Header, Body: answer.Body}
	a.Receipt.ID = s.Task.RequestID
	return true, m.Answers.Keep(ctx, answer.Key, s.Task.RequestID, a)
}

// Drop forgets a task that no upstream took.
func (m *Memory) Drop(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(id)
	return nil
}

func (m *Memory) forget(id string) {
	e := m.tasks[id]
	if e == nil {
		return
	}
	m.end(e)
	delete(m.tasks, id)
	if own := (scope{e.task.Account, e.task.UpstreamID}); m.names[own] == id {
		delete(m.names, own)
	}
	if m.last[e.task.Fingerprint] == e {
		delete(m.last, e.task.Fingerprint)
	}
}

// Find is the account's task by its id or its upstream's.
func (m *Memory) Find(_ context.Context, account, id string) (*Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.tasks[id]
	if e == nil || e.task.Account != account {
		e = m.tasks[m.names[scope{account, id}]]
	}
	if e == nil {
		return nil, nil
	}
	t := e.task
	return &t, nil
}

// Claim leases open tasks.
func (m *Memory) Claim(_ context.Context, owner string, until time.Time, n int) ([]*Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var own, free []*entry
	for _, e := range m.open {
		switch {
		case e.owner == owner:
			own = append(own, e)
		case e.owner == "" || !now.Before(e.until):
			free = append(free, e)
		}
	}
	slices.SortFunc(free, func(a, b *entry) int {
		return cmp.Or(a.task.PolledAt.Compare(b.task.PolledAt), cmp.Compare(a.task.ID, b.task.ID))
	})
	own = append(own, free[:min(max(n, 0), len(free))]...)
	tasks := make([]*Task, len(own))
	for i, e := range own {
		e.owner, e.until = owner, until
		t := e.task
		tasks[i] = &t
	}
	return tasks, nil
}

// Purge forgets the tasks whose PurgeAt has passed.
func (m *Memory) Purge(_ context.Context, now time.Time) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	purged := 0
	for id, e := range m.tasks {
		if at := e.task.PurgeAt; !at.IsZero() && !now.Before(at) {
			m.forget(id)
			purged++
		}
	}
	return purged, nil
}

func (m *Memory) now() time.Time {
	if m.Now != nil {
		return m.Now()
	}
	return time.Now()
}
