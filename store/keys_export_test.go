package store

import (
	"context"
	"errors"

	"github.com/tollhouse-ai/gateway/billing"
)

// NewLimiterWithClock is a limiter whose clock is an SQL expression.
func NewLimiterWithClock(db *DB, clock string) *Limiter { return newLimiter(db, clock) }

// Renew is one turn of Run.
func (l *Limiter) Renew(ctx context.Context) error { return l.renew(ctx) }

// CountAnswers is how many idempotency keys the database has.
func CountAnswers(ctx context.Context, db *DB) (n int) {
	_ = db.readers().queryRow(ctx, "SELECT count(*) FROM answer").Scan(&n)
	return n
}

// AddPriceTwice adds a price in a transaction that ends in fails.
func AddPriceTwice(ctx context.Context, db *DB, p *billing.Price, fails error) error {
	return db.update(ctx, func(ctx context.Context, t *tx) error {
		return errors.Join(db.storePrice(ctx, t, p), db.storePrice(ctx, t, p), fails)
	})
}

// Damage changes a price row.
func Damage(ctx context.Context, db *DB, p *billing.Price, content string) error {
	return db.update(ctx, func(ctx context.Context, t *tx) error {
		_, err := t.exec(ctx, "UPDATE price SET content = ? WHERE version = ?", content, p.Version())
		return err
	})
}
