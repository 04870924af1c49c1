package gateway

import (
	"context"
	"time"

	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/webhook"
	"github.com/tollhouse-ai/gateway/video"
)

// MemoryTasks keeps video tasks and their notices in this process, and loses
// them with it. It is what a gateway uses that is given neither Tasks nor a
// Meter that can keep them. It is safe for concurrent use.
type MemoryTasks struct {
	*video.Memory
	notices *webhook.Memory
}

// NewMemoryTasks returns a store without tasks. now is the clock, nil means
// time.Now; answers keeps the answers of submissions for their duplicates, nil
// for none.
func NewMemoryTasks(now func() time.Time, answers idempotency.Store) *MemoryTasks {
	notices := &webhook.Memory{Now: now}
	tasks := &video.Memory{Now: now, Answers: answers, Outbox: func(_ context.Context, n video.Notice) error {
		notices.Add(webhook.Notice{ID: n.ID, Account: n.Account, URL: n.URL, Body: n.Body, CreatedAt: n.At})
		return nil
	}}
	return &MemoryTasks{tasks, notices}
}

// Due leases notices to whoever delivers them, as [Gateway.Run] does.
func (m *MemoryTasks) Due(ctx context.Context, owner string, until time.Time, n int) ([]webhook.Notice, error) {
	return m.notices.Due(ctx, owner, until, n)
}

// Done ends a notice that was delivered.
func (m *MemoryTasks) Done(ctx context.Context, id string, at time.Time) error {
	return m.notices.Done(ctx, id, at)
}

// Failed notes a try that failed.
func (m *MemoryTasks) Failed(ctx context.Context, n webhook.Notice, next time.Time, reason string, final bool) error {
	return m.notices.Failed(ctx, n, next, reason, final)
}

// Secrets are those that sign the account's notices.
func (m *MemoryTasks) Secrets(ctx context.Context, account string) ([]webhook.Secret, error) {
	return m.notices.Secrets(ctx, account)
}

// Notices are the account's newest notices, everybody's if account is empty.
func (m *MemoryTasks) Notices(_ context.Context, account string, limit int) ([]webhook.Entry, error) {
	all := m.notices.List(account)
	return all[:min(max(limit, 0), len(all))], nil
}

// Resend makes a notice due now; false if there is none by that id.
func (m *MemoryTasks) Resend(_ context.Context, id string) (bool, error) {
	return m.notices.Resend(id), nil
}

// WebhookSecret is the secret that signs the account's notices, a new one if
// rotate is true: the one before signs too for a day.
func (m *MemoryTasks) WebhookSecret(ctx context.Context, account string, rotate bool) (webhook.Secret, error) {
	if rotate {
		return m.notices.Rotate(account, webhook.Overlap)
	}
	secrets, err := m.notices.Secrets(ctx, account)
	if err != nil {
		return webhook.Secret{}, err
	}
	return secrets[0], nil
}
