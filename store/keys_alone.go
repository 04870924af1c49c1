package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/tollhouse-ai/gateway/fault"
)

// plainTx is one that is not the committer's.
type plainTx struct {
	reading
	tx *sql.Tx
}

func (t plainTx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.tx.ExecContext(ctx, t.db.text(query), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// inTx runs do in a transaction beside the committer's, and rolls it back if
// it fails. SQLite has one connection that writes: there the committer waits.
func (db *DB) inTx(ctx context.Context, do func(context.Context, plainTx) error) error {
	pool := db.writer
	if db.dialect.Shared {
		pool = db.reader
	}
	t, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = t.Rollback() }() // does nothing after the commit
	if err := do(ctx, plainTx{reading{db, t}, t}); err != nil {
		return err
	}
	return t.Commit()
}

// unavailableOrCanceled turns an error of the database into the one that callers get: a
// caller that hung up is told so, and every other cause is that the database is
// away. A *fault.Error stays as it is.
func (db *DB) unavailableOrCanceled(ctx context.Context, err error) error {
	var f *fault.Error
	if err != nil && !errors.As(err, &f) && errors.Is(ctx.Err(), context.Canceled) {
		return fault.From(ctx.Err())
	}
	return db.unavailable(err)
}
