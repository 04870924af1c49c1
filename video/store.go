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

// Store keeps tasks. Its implementations are safe for concurrent use; an error
// that is not a *fault.Error means that the store is unavailable.
//
// A Store that is also the gateway's billing.Meter takes a [CreateTask] with
// Reserve (billing.HoldRequest.With) and a [Step] with Settle, each in one
// transaction with the money.
type Store interface {
	// Add makes a task, unless the key has as many open ones as it may
	// (fault.ConcurrencyExceeded) or submitted the same a moment ago
	// (fault.IdempotencyConflict, naming the task).
	Add(ctx context.Context, n CreateTask) error
	// Change applies a step to the task that has the step's Version; false if
	// another was faster. answer, which may be nil, is kept with it for
	// duplicates of the submission.
	Change(ctx context.Context, s Step, answer *idempotency.Record) (bool, error)
	// Drop forgets a task that no upstream took.
	Drop(ctx context.Context, id string) error
	// Find is the account's task by its id or its upstream's; nil if there is
	// none.
	Find(ctx context.Context, account, id string) (*Task, error)
	// Claim leases at most n open tasks that nobody has leased to owner until
	// the given time, those that were polled longest ago first, and renews the
	// leases that owner has already. It returns all tasks that are owner's now.
	Claim(ctx context.Context, owner string, until time.Time, n int) ([]*Task, error)
	// Purge forgets the tasks whose PurgeAt has passed; it returns how many.
	Purge(ctx context.Context, now time.Time) (int, error)
}

// Clock is a [Store] with a clock of its own. The processes that share the
// store use it to decide when a task ends and when its record is purged;
// without it each uses its own clock. It is safe for concurrent use.
type Clock interface {
	// Now is the time of the store.
	Now(ctx context.Context) (time.Time, error)
}

// CreateTask is a task to be made. It is a billing.Record: with the hold of the
// task, both become durable or neither does.
type CreateTask struct {
	Task   Task
	Most   int64         // open tasks that the key may have, this one included; 0 means no limit
	Window time.Duration // the duplicate window; 0 means none
	// Retried says that the request has an idempotency key, so that the duplicate
	// window does not apply.
	Retried bool
}

// RecordKind is "video.new".
func (CreateTask) RecordKind() string { return "video.new" }

// Step is one change of a task's. It is a billing.Record: one that ends a task
// becomes durable with its settlement, and so does the notice of it.
type Step struct {
	Task   Task    // as it is afterwards, Version included: the stored one is one less
	Notice *Notice // what the owner is told; nil for nothing
}

// RecordKind is "video.step".
func (Step) RecordKind() string { return "video.step" }

// Drop forgets a task that no upstream took. It is a billing.Record, which
// becomes durable with the settlement of the task's hold.
type Drop struct{ ID string }

// RecordKind is "video.drop".
func (Drop) RecordKind() string { return "video.drop" }

// Notice is an event for a webhook, which is delivered at least once, always
// with the same id and body.
type Notice struct {
	ID      string // "evt_…"
	Account string
	TaskID  string
	URL     string
	Body    []byte // the event as JSON
	At      time.Time
}

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
		return ErrDuplicate(&e.task)
	}
	if n.Most > 0 && m.held[scope{t.Account, t.Key}] >= n.Most {
		return ErrTooManyTasks(n.Most)
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
