package store

import (
	"context"
	"database/sql"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/webhook"
)

// Secrets implements [webhook.Outbox]. An account without one gets one.
func (db *DB) Secrets(ctx context.Context, account string) ([]webhook.Secret, error) {
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
func (db *DB) secrets(ctx context.Context, q querier, condition, account string, args ...any) (found []webhook.Secret, err error) {
	rows, err := q.query(ctx, "SELECT secret FROM webhook_secret WHERE account = ? AND "+condition+" ORDER BY expires_at > 0, created_at DESC", append([]any{account}, args...)...)
	if err != nil {
		return nil, err
	}
	err = each(rows, func(rows *sql.Rows) error {
		var text string
		if err := rows.Scan(&text); err != nil {
			return err
		}
		s, err := webhook.ParseSecret(text)
		found = append(found, s)
		return err
	})
	return found, err
}

// WebhookSecret is what signs an account's notices. It is made if there is none,
// and with rotate in any case: the one before it signs too for 24 hours, and one
// before that no more. Whoever may call it can forge notices.
func (db *DB) WebhookSecret(ctx context.Context, account string, rotate bool) (webhook.Secret, error) {
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
	err = db.update(ctx, func(ctx context.Context, t *tx) error {
		found, err := db.secrets(ctx, t, current, account)
		if err == nil && len(found) > 0 && !rotate {
			made = found[0]
			return nil
		}
		if err != nil {
			return err
		}
		made = fresh
		return t.putSecret(ctx, account, fresh)
	})
	if err != nil {
		return webhook.Secret{}, err
	}
	return made, nil
}

func first(found []webhook.Secret) webhook.Secret {
	if len(found) == 0 {
		return webhook.Secret{}
	}
	return found[0]
}

// putSecret makes a secret the current one.
func (t *tx) putSecret(ctx context.Context, account string, s webhook.Secret) error {
	now, err := t.db.now(ctx, t)
	if err != nil {
		return err
	}
	if _, err := t.exec(ctx, "DELETE FROM webhook_secret WHERE account = ? AND expires_at > 0", account); err != nil {
		return err
	}
	if _, err := t.exec(ctx, "UPDATE webhook_secret SET expires_at = ? WHERE account = ? AND expires_at = 0", now+int64(webhook.Overlap), account); err != nil {
		return err
	}
	_, err = t.exec(ctx, "INSERT INTO webhook_secret (account, secret, created_at, expires_at) VALUES (?, ?, ?, 0)", account, s.Reveal(), now)
	return err
}
