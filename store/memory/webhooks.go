package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/webhook"
)

// deliveryRetention is how long a delivery is kept that has ended: as long as the
// record of a video.
const deliveryRetention = 7 * 24 * time.Hour

// delivery is a delivery and its lease.
type delivery struct {
	webhook.Status
	until time.Time
}

// accountSecrets are the secrets of an account.
type accountSecrets struct {
	current, previous webhook.Secret
	overlap           time.Time // until when previous signs
}

// deliver adds a delivery that is due now. One whose id is known changes nothing.
// The caller holds the lock.
func (m *Tasks) deliver(d webhook.Delivery) {
	m.expireDeliveries()
	if m.deliveries[d.ID] != nil {
		return
	}
	e := &delivery{Status: webhook.Status{Delivery: d, State: webhook.Waiting, Next: m.now()}}
	m.deliveries[d.ID], m.due[d.ID] = e, e
}

// expireDeliveries deletes what has ended long ago. The caller holds the lock.
func (m *Tasks) expireDeliveries() {
	old := m.now().Add(-deliveryRetention)
	for len(m.ended) > 0 && !m.ended[0].Ended.After(old) {
		delete(m.deliveries, m.ended[0].ID)
		m.ended[0] = nil
		m.ended = m.ended[1:]
	}
}

// Deliveries are at most limit of the account's deliveries (100 if that is not
// positive), the newest first; of all accounts if account is empty. Those that have
// ended are kept for seven days.
func (m *Tasks) Deliveries(_ context.Context, account string, limit int) ([]webhook.Status, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expireDeliveries()
	all := []webhook.Status{}
	for _, e := range m.deliveries {
		if account == "" || e.Account == account {
			all = append(all, e.Status)
		}
	}
	slices.SortFunc(all, func(a, b webhook.Status) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	if limit <= 0 {
		limit = 100
	}
	return all[:min(limit, len(all))], nil
}

// Resend makes a delivery due now, in whatever state it is, with all its attempts again. It
// returns false if no delivery has the id.
func (m *Tasks) Resend(_ context.Context, id string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.deliveries[id]
	if e == nil {
		return false, nil
	}
	m.ended = slices.DeleteFunc(m.ended, func(other *delivery) bool { return other == e })
	now := m.now()
	*e = delivery{Status: webhook.Status{Delivery: e.Delivery, State: webhook.Waiting, Next: now}}
	e.CreatedAt, e.Tries = now, 0
	m.due[id] = e
	return true, nil
}

// Due leases deliveries.
func (m *Tasks) Due(_ context.Context, _ string, until time.Time, n int) ([]webhook.Delivery, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	var due []*delivery
	for _, e := range m.due {
		if !e.Next.After(now) && !e.until.After(now) {
			due = append(due, e)
		}
	}
	slices.SortFunc(due, func(a, b *delivery) int { return cmp.Or(a.Next.Compare(b.Next), cmp.Compare(a.ID, b.ID)) })
	due = due[:min(max(n, 0), len(due))]
	leased := make([]webhook.Delivery, len(due))
	for i, e := range due {
		e.until, leased[i] = until, e.Delivery
	}
	return leased, nil
}

// Done ends a delivery that was received.
func (m *Tasks) Done(_ context.Context, id string, at time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.due[id]; e != nil {
		m.end(e, webhook.Sent, at)
	}
	return nil
}

// Failed records a failed attempt.
func (m *Tasks) Failed(_ context.Context, d webhook.Delivery, next time.Time, reason string, final bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.due[d.ID]
	if e == nil || e.Tries != d.Tries || !e.CreatedAt.Equal(d.CreatedAt) {
		return nil
	}
	e.Next, e.Reason, e.until = next, reason, time.Time{}
	e.Tries++
	if final {
		m.end(e, webhook.Failed, m.now())
	}
	return nil
}

func (m *Tasks) end(e *delivery, s webhook.State, at time.Time) {
	e.State, e.Ended, e.Next = s, at, time.Time{}
	delete(m.due, e.ID)
	m.ended = append(m.ended, e)
}

// Secrets are the account's, the newest first. An account without one gets one.
func (m *Tasks) Secrets(_ context.Context, account string) ([]webhook.Secret, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.accountSecrets(account)
	switch {
	case err != nil:
		return nil, err
	case s.previous.IsZero() || !m.now().Before(s.overlap):
		return []webhook.Secret{s.current}, nil
	}
	return []webhook.Secret{s.current, s.previous}, nil
}

// WebhookSecret is the secret that signs the account's deliveries, a new one if
// rotate is true: the one before goes on signing for a day.
func (m *Tasks) WebhookSecret(_ context.Context, account string, rotate bool) (webhook.Secret, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.accountSecrets(account)
	if err != nil || !rotate {
		return s.current, err
	}
	fresh, err := webhook.NewSecret(nil)
	if err != nil {
		return fresh, err
	}
	s.previous, s.current, s.overlap = s.current, fresh, m.now().Add(webhook.Overlap)
	return fresh, nil
}

// accountSecrets returns the secrets of an account, and makes the first one. The
// caller holds the lock.
func (m *Tasks) accountSecrets(account string) (*accountSecrets, error) {
	if s := m.secrets[account]; s != nil {
		return s, nil
	}
	fresh, err := webhook.NewSecret(nil)
	if err != nil {
		return &accountSecrets{}, err
	}
	m.secrets[account] = &accountSecrets{current: fresh}
	return m.secrets[account], nil
}
