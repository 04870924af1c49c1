package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
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

	wrote  bool             // it has something to commit
	prices []*billing.Price // whose rows are there once it is committed
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := t.result(ctx, query, args)
	if err != nil {
		return 0, err
	}
	changed, err := result.RowsAffected()
	t.wrote = t.wrote || changed > 0
	return changed, err
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
	t.wrote = true
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

// direct are the statements that a connection's driver has compiled.
type direct struct {
	compiled map[string]driver.Stmt
	args     []driver.NamedValue // kept for its capacity
}

// exec runs a statement on a connection, always the same one until close, and
// returns how many rows it changed.
func (d *direct) exec(ctx context.Context, conn *sql.Conn, query string, args []any) (changed int64, err error) {
	d.args = d.args[:0]
	for i, arg := range args {
		v, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return 0, err
		}
		d.args = append(d.args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	lost := conn.Raw(func(c any) error {
		changed, err = d.run(ctx, c, query)
		return nil // what a statement says is not about the connection
	})
	return changed, errors.Join(lost, err)
}

func (d *direct) run(ctx context.Context, conn any, query string) (int64, error) {
	stmt := d.compiled[query]
	if stmt == nil {
		var err error
		if stmt, err = conn.(driver.ConnPrepareContext).PrepareContext(ctx, query); err != nil {
			return 0, err
		}
		d.compiled[query] = stmt
	}
	result, err := stmt.(driver.StmtExecContext).ExecContext(ctx, d.args)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// close drops the statements. It belongs inside the connection's Raw: one
// that is closed has ended them.
func (d *direct) close() {
	for _, stmt := range d.compiled {
		_ = stmt.Close() // it goes with its connection
	}
	clear(d.compiled)
}

// session runs statements on a pool, a connection or a transaction that is not the
// committer's.
type session struct {
	db *DB
	on interface {
		ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	}
}

// readers is where everything is read that does not go on to write.
func (db *DB) readers() session { return session{db, db.reader} }

func (s session) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return s.on.QueryContext(ctx, s.db.text(query), args...)
}

func (s session) queryRow(ctx context.Context, query string, args ...any) *sql.Row {
	return s.on.QueryRowContext(ctx, s.db.text(query), args...)
}

func (s session) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := s.on.ExecContext(ctx, s.db.text(query), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// inTx runs do in a transaction beside the committer's, and rolls it back if
// it fails. SQLite has one connection that writes: there the committer waits.
func (db *DB) inTx(ctx context.Context, do func(context.Context, session) error) error {
	pool := db.writer
	if db.dialect.Shared {
		pool = db.reader
	}
	t, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = t.Rollback() }() // does nothing after the commit
	if err := do(ctx, session{db, t}); err != nil {
		return err
	}
	return t.Commit()
}

// inSerialTx is inTx for a transaction that waits for those of other processes that
// are serial, and they for it.
func (db *DB) inSerialTx(ctx context.Context, do func(context.Context, session) error) error {
	return db.inTx(ctx, func(ctx context.Context, t session) error {
		if db.dialect.Serialise != "" {
			if _, err := t.exec(ctx, db.dialect.Serialise); err != nil {
				return err
			}
		}
		return do(ctx, t)
	})
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

// clock reads now, or the real clock where now is nil.
func clock(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}
