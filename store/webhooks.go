package store

import (
	"context"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/webhook"
)

const (
	noticeColumns = "id, account, task, url, body, created_at, state, tries, reason, next_at, ended_at"
	noticeKinds   = "tttttntntnn"
)

// Due implements [webhook.Outbox].
func (db *dbLedger) Due(ctx context.Context, owner string, until time.Time, n int) ([]webhook.Delivery, error) {
	var due []webhook.Delivery // the committer's until run has returned nil
	var end int64              // of the leases; an earlier attempt may have written them
	err := db.update(ctx, func(b *batch) error {
		found, err := collect(b.ctx, b.tx, scanNotice, "SELECT "+noticeColumns+" FROM notice WHERE state = 'waiting' AND next_at <= ?"+
			" AND (lease_until <= ? OR (owner = ? AND lease_until = ?)) ORDER BY next_at, id LIMIT ?"+db.skipLocked(), b.now, b.now, owner, end, max(n, 0))
		if err != nil {
			return err
		}
		end = db.ledgerTime(until, b.now)
		due = []webhook.Delivery{}
		var leased []any
		for _, e := range found {
			due, leased = append(due, e.Delivery), append(leased, e.ID, owner, end)
		}
		return b.tx.writeBulk(b.ctx, "UPDATE notice SET owner = c.column2, lease_until = c.column3 FROM (ROWS[ttn]) AS c WHERE id = c.column1", leased, true)
	})
	if err != nil {
		return nil, err
	}
	return due, nil
}

// scanNotice reads a row of noticeColumns.
func scanNotice(rows Row) (webhook.Status, error) {
	var e webhook.Status
	var body, state string
	var created, next, ended, tries int64
	err := rows.Scan(&e.ID, &e.Account, &e.TaskID, &e.URL, &body, &created, &state, &tries, &e.Reason, &next, &ended)
	e.Body, e.State, e.Tries = []byte(body), webhook.State(state), int(tries)
	e.CreatedAt, e.Next, e.Ended = timeOrZero(created), timeOrZero(next), timeOrZero(ended)
	return e, err
}

// Done implements [webhook.Outbox].
func (db *dbLedger) Done(ctx context.Context, id string, at time.Time) error {
	return db.update(ctx, func(b *batch) error {
		return b.endNotice(id, webhook.Sent, nanos(at))
	})
}

// Failed implements [webhook.Outbox].
func (db *dbLedger) Failed(ctx context.Context, n webhook.Delivery, next time.Time, reason string, final bool) error {
	return db.update(ctx, func(b *batch) error {
		changed, err := b.tx.exec(b.ctx, "UPDATE notice SET next_at = ?, tries = tries + 1, reason = ?, owner = '', lease_until = 0 WHERE id = ? AND state = 'waiting' AND tries = ? AND created_at = ?",
			db.ledgerTime(next, b.now), reason, n.ID, int64(n.Tries), nanos(n.CreatedAt))
		if err != nil || changed == 0 || !final {
			return err
		}
		return b.endNotice(n.ID, webhook.Failed, b.now)
	})
}

func (b *batch) endNotice(id string, state webhook.State, at int64) error {
	return b.tx.write(b.ctx, "UPDATE notice SET state = ?, ended_at = ?, next_at = 0, owner = '', lease_until = 0 WHERE id = ? AND state = 'waiting'", string(state), at, id)
}

// mostNotices are listed at once.
const mostNotices = 1000

// Deliveries implements [Ledger].
func (db *dbLedger) Deliveries(ctx context.Context, account string, limit int) ([]webhook.Status, error) {
	where, args := "WHERE account = ? ", []any{account}
	if account == "" {
		where, args = "", nil
	}
	if limit <= 0 {
		limit = 100
	}
	all, err := list(ctx, db.DB, scanNotice, "SELECT "+noticeColumns+" FROM notice "+where+"ORDER BY created_at DESC, id LIMIT ?", append(args, min(limit, mostNotices))...)
	if all == nil {
		all = []webhook.Status{}
	}
	return all, err
}

// Resend implements [Ledger].
func (db *dbLedger) Resend(ctx context.Context, id string) (found bool, err error) {
	var changed int64 // the committer's until update has returned nil
	err = db.update(ctx, func(b *batch) (err error) {
		changed, err = b.tx.exec(b.ctx, "UPDATE notice SET state = 'waiting', created_at = ?, tries = 0, reason = '', next_at = ?, ended_at = 0, owner = '', lease_until = 0 WHERE id = ?",
			b.now, b.now, id)
		return err
	})
	if err != nil {
		return false, err
	}
	return changed > 0, nil
}

// noticesKept is how long a notice is kept that has ended: as long as the record
// of a video.
const noticesKept = 7 * 24 * time.Hour

// Secrets implements [webhook.Outbox]. An account without one gets one.
func (db *dbLedger) Secrets(ctx context.Context, account string) ([]webhook.Secret, error) {
	ctx, cancel := db.readContext(ctx)
	defer cancel()
	now, err := db.now(ctx, db.readers())
	if err != nil {
		return nil, db.unavailableOrCanceled(ctx, err)
	}
	found, err := db.secrets(ctx, db.readers(), "(expires_at = 0 OR expires_at > ?)", account, now)
	if err != nil || len(found) > 0 {
		return found, db.unavailableOrCanceled(ctx, err)
	}
	made, err := db.WebhookSecret(ctx, account, false)
	return []webhook.Secret{made}, err
}

// secrets are those of an account for which a condition holds, the current one
// first.
func (db *DB) secrets(ctx context.Context, q source, condition, account string, args ...any) ([]webhook.Secret, error) {
	return collect(ctx, q, func(rows Row) (s webhook.Secret, err error) {
		var text string
		if err := rows.Scan(&text); err != nil {
			return s, err
		}
		return webhook.ParseSecret(text)
	}, "SELECT secret FROM webhook_secret WHERE account = ? AND "+condition+" ORDER BY expires_at > 0, created_at DESC", append([]any{account}, args...)...)
}

// WebhookSecret implements [Ledger].
func (db *dbLedger) WebhookSecret(ctx context.Context, account string, rotate bool) (webhook.Secret, error) {
	const current = "expires_at = 0"
	if !rotate {
		found, err := db.secrets(ctx, db.readers(), current, account)
		if err != nil || len(found) > 0 {
			return first(found), db.unavailableOrCanceled(ctx, err)
		}
	}
	fresh, err := webhook.NewSecret(db.options.Rand)
	if err != nil {
		return webhook.Secret{}, fault.Wrap(fault.InternalError, "No webhook secret was made, for lack of random bytes.", err)
	}
	var made webhook.Secret // the committer's until update has returned nil
	err = db.update(ctx, func(b *batch) error {
		found, err := db.secrets(b.ctx, b.tx, current, account)
		if err == nil && len(found) > 0 && (!rotate || found[0].Reveal() == fresh.Reveal()) { // an earlier attempt may have written it
			made = found[0]
			return nil
		}
		if err != nil {
			return err
		}
		made = fresh
		return b.putSecret(account, fresh)
	})
	if err != nil {
		return webhook.Secret{}, err
	}
	return made, nil
}

// first is the first that was found, or none.
func first[T any](found []T) (one T) {
	if len(found) > 0 {
		one = found[0]
	}
	return one
}

// putSecret makes a secret the current one.
func (b *batch) putSecret(account string, s webhook.Secret) error {
	if err := b.tx.write(b.ctx, "DELETE FROM webhook_secret WHERE account = ? AND expires_at > 0", account); err != nil {
		return err
	}
	if err := b.tx.write(b.ctx, "UPDATE webhook_secret SET expires_at = ? WHERE account = ? AND expires_at = 0", b.now+int64(webhook.Overlap), account); err != nil {
		return err
	}
	return b.tx.write(b.ctx, "INSERT INTO webhook_secret (account, secret, created_at, expires_at) VALUES (?, ?, ?, 0)", account, s.Reveal(), b.now)
}
