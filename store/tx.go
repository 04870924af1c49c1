package store

import (
	"context"
	"database/sql"
	"time"
)

// querier is what a transaction and the pool of readers have in common.
// Statements are written with ? for their arguments.
type querier interface {
	query(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	queryRow(ctx context.Context, query string, args ...any) *sql.Row
}

// tx is one writing transaction. It belongs to the committer's goroutine.
type tx struct {
	*sql.Tx
	db   *DB
	conn *sql.Conn // that it is on
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.result(ctx, query, args)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (t *tx) result(ctx context.Context, query string, args []any) (sql.Result, error) {
	if t.db.dialect.Shared {
		return t.ExecContext(ctx, t.db.text(query), args...)
	}
	stmt, err := t.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt.ExecContext(ctx, args...)
}

// execBulk is exec for the statements of which a batch runs many. On SQLite it
// calls the driver itself: for one row database/sql takes as long as SQLite.
func (t *tx) execBulk(ctx context.Context, query string, args []any) (changed int64, err error) {
	if t.db.dialect.Shared {
		return t.exec(ctx, query, args...)
	}
	return t.db.committer.direct.exec(ctx, t.conn, query, args)
}

// query returns rows that have to be closed before the next statement.
func (t *tx) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if t.db.dialect.Shared {
		return t.QueryContext(ctx, t.db.text(query), args...)
	}
	stmt, err := t.stmt(ctx, query)
	if err != nil {
		return nil, err
	}
	return stmt.QueryContext(ctx, args...)
}

func (t *tx) queryRow(ctx context.Context, query string, args ...any) *sql.Row {
	if t.db.dialect.Shared {
		return t.QueryRowContext(ctx, t.db.text(query), args...)
	}
	stmt, err := t.stmt(ctx, query)
	if err != nil {
		return t.conn.QueryRowContext(ctx, t.db.text(query), args...) // gives the error again
	}
	return stmt.QueryRowContext(ctx, args...)
}

// stmt keeps each statement of SQLite compiled: the committer runs the same
// few. The statements are the connection's, which has only this one transaction.
// On Postgres, whose driver remembers statements by itself, they would be a
// trap: where the driver finds the connection lost, a connection's statement
// waits for the end of the transaction that waits for the statement.
func (t *tx) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	prepared := t.db.committer.prepared
	if known := prepared[query]; known != nil {
		return known, nil
	}
	stmt, err := t.conn.PrepareContext(ctx, t.db.text(query))
	if err != nil {
		return nil, err
	}
	prepared[query] = stmt
	return stmt, nil
}

// reading is the pool of readers, or a transaction of it, as a querier.
type reading struct {
	db   *DB
	from interface {
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}
}

// readContext is the context of what a caller waits for that reads: a database
// that does not answer is given up after Options.WaitTimeout. SQLite, which answers
// or fails, needs no bound.
func (db *DB) readContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if !db.dialect.Shared {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, db.options.WaitTimeout)
}

// readers is where everything is read that does not go on to write.
func (db *DB) readers() reading { return reading{db, db.reader} }

func (r reading) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return r.from.QueryContext(ctx, r.db.text(query), args...)
}

func (r reading) queryRow(ctx context.Context, query string, args ...any) *sql.Row {
	return r.from.QueryRowContext(ctx, r.db.text(query), args...)
}

// clock reads now, or the real clock where now is nil.
func clock(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}
