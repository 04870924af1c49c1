package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/video"
	"github.com/tollhouse-ai/gateway/webhook"
)

var (
	_ video.Store    = (*Tasks)(nil)
	_ webhook.Outbox = (*Tasks)(nil)
)

// Tasks is a [video.Store] of one process, and the [webhook.Outbox] of its tasks,
// lost when the process ends. [NewTasks] makes one.
type Tasks struct {
	now     func() time.Time
	answers idempotency.Claimer // nil if there is none

	mu    sync.Mutex
	tasks map[string]*task   // by our id
	open  map[string]*task   // those that have not ended
	held  map[scope]int64    // how many of them each key has
	names map[scope]string   // our id by the upstream's, which two upstreams may give
	last  map[[32]byte]*task // the last of each fingerprint

	deliveries map[string]*delivery // by id
	due        map[string]*delivery // those that have not ended
	ended      []*delivery          // in the order of their ends
	secrets    map[string]*accountSecrets
}

// NewTasks returns a store without tasks. now is the clock; nil means time.Now. answers keeps
// the answers of submissions for their duplicates; it may be nil.
func NewTasks(now func() time.Time, answers idempotency.Claimer) *Tasks {
	if now == nil {
		now = time.Now
	}
	return &Tasks{
		now: now, answers: answers,
		tasks: make(map[string]*task), open: make(map[string]*task), held: make(map[scope]int64), names: make(map[scope]string), last: make(map[[32]byte]*task),
		deliveries: make(map[string]*delivery), due: make(map[string]*delivery), secrets: make(map[string]*accountSecrets),
	}
}

// task is a task and its lease.
type task struct {
	video.Task
	owner string
	until time.Time
}

// scope is a key or an upstream's id within an account.
type scope struct{ account, id string }

// Add makes a task.
func (m *Tasks) Add(_ context.Context, n video.CreateTask) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &task{Task: n.Task}
	if m.tasks[t.ID] != nil {
		return fmt.Errorf("there is a task %q already", t.ID)
	}
	if before := m.last[t.Fingerprint]; before != nil && !n.Retried && before.Repeats(m.now(), n.Window) {
		return video.ErrDuplicate(&before.Task)
	}
	key := scope{t.Account, t.Key}
	if n.Most > 0 && m.held[key] >= n.Most {
		return video.ErrTooManyTasks(n.Most)
	}
	m.tasks[t.ID], m.open[t.ID], m.last[t.Fingerprint] = t, t, t
	m.held[key]++
	return nil
}

// Change applies a step, and queues the delivery that comes with it.
func (m *Tasks) Change(ctx context.Context, s video.Step, answer *idempotency.Record) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tasks[s.Task.ID]
	if t == nil || t.Version != s.Task.Version-1 || t.State.Terminal() {
		return false, nil
	}
	t.Task = s.Task
	if t.UpstreamID != "" {
		m.names[scope{t.Account, t.UpstreamID}] = t.ID
	}
	if t.State.Terminal() {
		m.close(t)
	}
	if s.Delivery != nil {
		m.deliver(*s.Delivery)
	}
	if answer == nil || m.answers == nil {
		return true, nil
	}
	a := idempotency.Answer{Header: answer.Header, Body: answer.Body}
	a.Receipt.ID = t.RequestID
	return true, m.answers.Keep(ctx, answer.Key, t.RequestID, a)
}

// close takes a task from those that are open.
func (m *Tasks) close(t *task) {
	if m.open[t.ID] == nil {
		return
	}
	delete(m.open, t.ID)
	key := scope{t.Account, t.Key}
	if m.held[key]--; m.held[key] == 0 {
		delete(m.held, key)
	}
}

// Drop deletes a task that no upstream took.
func (m *Tasks) Drop(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.tasks[id]; t != nil {
		m.delete(t)
	}
	return nil
}

func (m *Tasks) delete(t *task) {
	m.close(t)
	delete(m.tasks, t.ID)
	if name := (scope{t.Account, t.UpstreamID}); m.names[name] == t.ID {
		delete(m.names, name)
	}
	if m.last[t.Fingerprint] == t {
		delete(m.last, t.Fingerprint)
	}
}

// Find is the account's task by its id or its upstream's.
func (m *Tasks) Find(_ context.Context, account, id string) (*video.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tasks[id]
	if t == nil || t.Account != account {
		t = m.tasks[m.names[scope{account, id}]]
	}
	if t == nil {
		return nil, nil
	}
	found := t.Task
	return &found, nil
}

// Claim leases open tasks.
func (m *Tasks) Claim(_ context.Context, owner string, until time.Time, n int) ([]*video.Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var own, free []*task
	for _, t := range m.open {
		switch {
		case t.owner == owner:
			own = append(own, t)
		case t.owner == "" || !now.Before(t.until):
			free = append(free, t)
		}
	}
	slices.SortFunc(free, func(a, b *task) int {
		return cmp.Or(a.PolledAt.Compare(b.PolledAt), cmp.Compare(a.ID, b.ID))
	})
	own = append(own, free[:min(max(n, 0), len(free))]...)
	claimed := make([]*video.Task, len(own))
	for i, t := range own {
		t.owner, t.until = owner, until
		found := t.Task
		claimed[i] = &found
	}
	return claimed, nil
}

// Purge deletes the tasks whose PurgeAt has passed.
func (m *Tasks) Purge(_ context.Context, now time.Time) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	purged := 0
	for _, t := range m.tasks {
		if !t.PurgeAt.IsZero() && !now.Before(t.PurgeAt) {
			m.delete(t)
			purged++
		}
	}
	return purged, nil
}
