package webhook

import (
	"cmp"
	"context"
	"io"
	"slices"
	"sync"
	"time"
)

// Notice is an event that is to be delivered. Its ID and Body never change.
type Notice struct {
	ID      string
	Account string // whose secrets sign it
	URL     string
	Body    []byte // JSON
	// CreatedAt is when it was written, or last sent anew by an operator: it is
	// tried for [GiveUpAfter] from then on.
	CreatedAt time.Time
	Tries     int // that failed so far
}

// Outbox keeps notices until they are delivered. Its implementations are safe
// for concurrent use. Several processes may share the notices: a lease says
// which of them delivers one. After an error the call is repeated.
type Outbox interface {
	// Due leases to owner at most n notices whose time has come and that nobody
	// has leased, owner neither, until the given time; those that have waited
	// longest first.
	Due(ctx context.Context, owner string, until time.Time, n int) ([]Notice, error)
	// Done ends a notice that was delivered. A repetition changes nothing.
	Done(ctx context.Context, id string, at time.Time) error
	// Failed ends the lease of a notice that Due gave and whose try failed: it
	// has one more try behind it, and is due again at next; never, if final. A
	// repetition changes nothing, nor does the end of a try from before the
	// notice was sent anew.
	Failed(ctx context.Context, n Notice, next time.Time, reason string, final bool) error
	// Secrets are those that sign the account's notices now, the newest first.
	Secrets(ctx context.Context, account string) ([]Secret, error)
}

// retention is how long a Memory lists a notice that has ended: as long as the
// record of a video.
const retention = 7 * 24 * time.Hour

// Memory is an Outbox of one process, lost when it ends. The zero value is ready.
type Memory struct {
	Now  func() time.Time // time.Now if nil
	Rand io.Reader        // makes secrets; crypto/rand's reader if nil

	mu      sync.Mutex
	entries map[string]*entry
	open    map[string]*entry // those that are not ended
	ended   []*entry          // in the order of their ends
	secrets map[string]*accountSecrets
}

// State is how far a notice is.
type State string

// The states.
const (
	Waiting State = "waiting" // for its time, or being tried
	Sent    State = "sent"
	Failed  State = "failed" // for good
)

// Entry is a notice and how far it is.
type Entry struct {
	Notice
	State  State
	Next   time.Time // when it is tried; zero if it has ended
	Ended  time.Time // zero if it has not
	Reason string    // why the last try failed; empty if none did
}

type entry struct {
	Entry
	leased time.Time
}

// accountSecrets is an account's secrets.
type accountSecrets struct {
	now, before Secret
	overlap     time.Time // until when before signs
}

// Add makes a notice that is due now. One whose id is known changes nothing.
func (m *Memory) Add(n Notice) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
	if _, known := m.entries[n.ID]; known {
		return
	}
	if m.entries == nil {
		m.entries, m.open = make(map[string]*entry), make(map[string]*entry)
	}
	e := &entry{Entry: Entry{Notice: n, State: Waiting, Next: m.now()}}
	m.entries[n.ID], m.open[n.ID] = e, e
}

// List is the account's notices, the newest first; everybody's if account is
// empty. Those that ended are kept for seven days.
func (m *Memory) List(account string) (all []Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget()
	for _, e := range m.entries {
		if account == "" || e.Account == account {
			all = append(all, e.Entry)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// Resend makes a notice due now, whatever became of it, with all its tries before
// it. It is false if there is no such notice.
func (m *Memory) Resend(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.entries[id]
	if !ok {
		return false
	}
	m.ended = slices.DeleteFunc(m.ended, func(other *entry) bool { return other == e })
	now := m.now()
	*e = entry{Entry: Entry{Notice: e.Notice, State: Waiting, Next: now}}
	e.CreatedAt, e.Tries = now, 0
	m.open[id] = e
	return true
}

// Due leases notices.
func (m *Memory) Due(_ context.Context, _ string, until time.Time, n int) ([]Notice, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var due []*entry
	for _, e := range m.open {
		if !e.Next.After(now) && !e.leased.After(now) {
			due = append(due, e)
		}
	}
	slices.SortFunc(due, func(a, b *entry) int { return cmp.Or(a.Next.Compare(b.Next), cmp.Compare(a.ID, b.ID)) })
	due = due[:min(n, len(due))]
	notices := make([]Notice, len(due))
	for i, e := range due {
		e.leased, notices[i] = until, e.Notice
	}
	return notices, nil
}

// Done ends a notice.
func (m *Memory) Done(_ context.Context, id string, at time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.open[id]; ok {
		m.end(e, Sent, at)
	}
	return nil
}

// Failed puts a notice off, or ends it.
func (m *Memory) Failed(_ context.Context, n Notice, next time.Time, reason string, final bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.open[n.ID]
	if !ok || e.Tries != n.Tries || !e.CreatedAt.Equal(n.CreatedAt) {
		return nil
	}
	e.Next, e.Tries, e.Reason, e.leased = next, n.Tries+1, reason, time.Time{}
	if final {
		m.end(e, Failed, m.now())
	}
	return nil
}

func (m *Memory) end(e *entry, s State, at time.Time) {
	e.State, e.Ended, e.Next = s, at, time.Time{}
	delete(m.open, e.ID)
	m.ended = append(m.ended, e)
}

// forget drops what ended long ago.
func (m *Memory) forget() {
	old := m.now().Add(-retention)
	for len(m.ended) > 0 && m.ended[0].Ended.Before(old) {
		delete(m.entries, m.ended[0].ID)
		m.ended[0] = nil
		m.ended = m.ended[1:]
	}
}

// Secrets are the account's, the newest first. An account without one gets one.
func (m *Memory) Secrets(_ context.Context, account string) ([]Secret, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.secrets[account]
	if p == nil {
		made, err := m.replace(account, time.Time{})
		return []Secret{made}, err
	}
	if p.before.IsZero() || !m.now().Before(p.overlap) {
		return []Secret{p.now}, nil
	}
	return []Secret{p.now, p.before}, nil
}

// Rotate gives the account a new secret. The one before signs too for as long as
// overlap, and one before that no more.
func (m *Memory) Rotate(account string, overlap time.Duration) (Secret, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.replace(account, m.now().Add(overlap))
}

func (m *Memory) replace(account string, overlap time.Time) (Secret, error) {
	made, err := NewSecret(m.Rand)
	if err != nil {
		return Secret{}, err
	}
	if m.secrets == nil {
		m.secrets = make(map[string]*accountSecrets)
	}
	next := &accountSecrets{now: made, overlap: overlap}
	if last := m.secrets[account]; last != nil {
		next.before = last.now
	}
	m.secrets[account] = next
	return made, nil
}

func (m *Memory) now() time.Time {
	if m.Now != nil {
		return m.Now()
	}
	return time.Now()
}
