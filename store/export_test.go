package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
)

// NewLimiterWithClock is a limiter whose clocks are the database's, an SQL expression,
// and now.
func NewLimiterWithClock(db *DB, clock string, now func() time.Time) Limiter {
	return newSharedLimiter(db, clock, now)
}

// RenewSlices is one turn of what DB.Run does for a limiter.
func RenewSlices(ctx context.Context, l Limiter) error { return l.(*sharedLimiter).renew(ctx, false) }

// GiveBackSlices is what DB.Run does for a limiter at its end.
func GiveBackSlices(ctx context.Context, l Limiter) error {
	return l.(*sharedLimiter).renew(ctx, true)
}

// CountSubjects is how many keys and accounts a limiter has in memory.
func CountSubjects(l Limiter) int { return len(l.(*sharedLimiter).subjects) }

// Exchange has a limiter tell the database what it has, and ask for more.
func Exchange(ctx context.Context, limiter Limiter) error {
	l := limiter.(*sharedLimiter)
	var x *exchange
	l.mu.Lock()
	for _, s := range l.subjects {
		x = l.join(s)
	}
	l.mu.Unlock()
	return x.wait(ctx)
}

// DelayedExchange begins an exchange, and tells the database when send is called.
func DelayedExchange(limiter Limiter) (send func() error) {
	l := limiter.(*sharedLimiter)
	l.mu.Lock()
	defer l.mu.Unlock()
	claims, _ := l.claims(maps.Values(l.subjects))
	return func() error { _, err := l.send(claims); return err }
}

// DropSlices is what DB.Run does for a limiter once a minute.
func DropSlices(ctx context.Context, l Limiter) error {
	_, err := l.(*sharedLimiter).db.readers().exec(ctx, l.(*sharedLimiter).drop)
	return err
}

// CountAnswers is how many idempotency keys the database has.
func CountAnswers(ctx context.Context, db *DB) (n int) {
	_ = db.readers().queryRow(ctx, "SELECT count(*) FROM answer").Scan(&n)
	return n
}

// OccupyReportConns takes every connection for reports, and fails if it finds more
// than most.
func OccupyReportConns(ctx context.Context, db *DB, most int) (free func(), err error) {
	var taken []*sql.Conn
	free = func() {
		for _, conn := range taken {
			_ = conn.Close()
		}
	}
	n := db.reports.Stats().MaxOpenConnections
	if n < 1 || n > most {
		return free, fmt.Errorf("there are %d", n)
	}
	for range n {
		conn, err := db.reportConn(ctx)
		if err != nil {
			return free, err
		}
		taken = append(taken, conn)
	}
	return free, nil
}

// SetWaitTimeout gives the database another Options.WaitTimeout. Nobody may use it meanwhile.
func SetWaitTimeout(db *DB, wait time.Duration) { db.options.WaitTimeout = wait }

// EndlessReport is a question without an answer, for which there is time until limit.
func EndlessReport(ctx context.Context, db *DB, limit time.Duration) error {
	return db.report(ctx, limit, func(ctx context.Context, on session) error {
		var n int64
		return on.queryRow(ctx, "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT (i + 1) % 1000 FROM n) SELECT MAX(i) FROM n").Scan(&n)
	})
}

// VerifyTimeout is how long Postgres lets a statement of Verify take.
func VerifyTimeout(ctx context.Context, db *DB) (timeout string, err error) {
	conn, err := db.reportConn(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	t, err := db.snapshot(ctx, conn)
	if err != nil {
		return "", err
	}
	defer func() { _ = t.Rollback() }()
	err = t.QueryRowContext(ctx, "SHOW statement_timeout").Scan(&timeout)
	return timeout, err
}

// MigrationTimeouts are how long Postgres lets a statement of a migration take, and
// wait for a table.
func MigrationTimeouts(ctx context.Context, db *DB) (statement, lock string, err error) {
	t, err := db.writer.BeginTx(ctx, nil)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = t.Rollback() }()
	if err := db.migrating(ctx, t, tableLock); err != nil {
		return "", "", err
	}
	err = t.QueryRowContext(ctx, "SELECT current_setting('statement_timeout'), current_setting('lock_timeout')").Scan(&statement, &lock)
	return statement, lock, err
}

// SchemaOf are the statements that make the tables of a version.
func SchemaOf(db *DB, version int) (all []string) {
	known, _ := steps() // Open has read them
	all = append(all, "CREATE TABLE schema_version (version INTEGER NOT NULL)")
	for _, m := range known[:version] {
		all = append(append(all, m.statements(db.dialect)...), fmt.Sprintf("INSERT INTO schema_version (version) VALUES (%d)", m.version))
	}
	return all
}

// Unreadable is what callers of Verify get for an error on its way.
func Unreadable(ctx context.Context, db *DB, err error) error { return db.errUnreadable(ctx, err) }

// AddPriceTwice adds a price in a transaction that ends in fails.
func AddPriceTwice(ctx context.Context, db *DB, p *billing.Price, fails error) error {
	return db.update(ctx, func(b *batch) error {
		return errors.Join(b.storePrice(p), b.storePrice(p), fails)
	})
}

// DamagePrice changes a price row.
func DamagePrice(ctx context.Context, db *DB, p *billing.Price, content string) error {
	return db.update(ctx, func(b *batch) error {
		ctx, t := b.ctx, b.tx
		_, err := t.exec(ctx, "UPDATE price SET content = ? WHERE version = ?", content, p.Version())
		return err
	})
}
