package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
)

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
	var result sql.Result
	stmt, err := t.stmt(ctx, query)
	switch {
	case err != nil:
		return 0, err
	case stmt == nil:
		result, err = t.ExecContext(ctx, t.db.text(query), args...)
	default:
		result, err = stmt.ExecContext(ctx, args...)
	}
	if err != nil {
		return 0, err
	}
	changed, err := result.RowsAffected()
	t.wrote = t.wrote || changed > 0
	return changed, err
}

// execBulk runs a bulk statement and returns how many rows it changed. On SQLite it
// calls the driver itself: for one row database/sql takes as long as SQLite.
func (t *tx) execBulk(ctx context.Context, query string, args []any) (changed int64, err error) {
	err = t.db.bulk(query).each(args, func(query string, args []any) error {
		var n int64
		var err error
		if t.db.dialect.Shared {
			n, err = t.exec(ctx, query, args...)
		} else {
			n, err = t.db.committer.direct.exec(ctx, t.conn, query, args)
		}
		changed += n
		return err
	})
	t.wrote = t.wrote || changed > 0
	return changed, err
}

// execAll is execBulk for a statement that has to change one row for each row of
// arguments: where it does not, another process was faster.
func (t *tx) execAll(ctx context.Context, query string, args []any) error {
	if len(args) == 0 {
		return nil
	}
	changed, err := t.execBulk(ctx, query, args)
	if err == nil && changed != int64(len(args)/len(t.db.bulk(query).kinds)) {
		err = errStale
	}
	return err
}

// query returns rows that have to be closed before the next statement.
func (t *tx) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	stmt, err := t.stmt(ctx, query)
	switch {
	case err != nil:
		return nil, err
	case stmt == nil:
		return t.QueryContext(ctx, t.db.text(query), args...)
	}
	return stmt.QueryContext(ctx, args...)
}

func (t *tx) queryRow(ctx context.Context, query string, args ...any) *sql.Row {
	stmt, err := t.stmt(ctx, query)
	if stmt == nil || err != nil {
		return t.QueryRowContext(ctx, t.db.text(query), args...) // gives an error again
	}
	return stmt.QueryRowContext(ctx, args...)
}

// stmt keeps each statement of SQLite compiled: the committer runs the same
// few. The statements are the connection's, which has only this one transaction.
// On Postgres there is none: its driver remembers statements by itself, and they
// would deadlock: where the driver finds the connection lost, a connection's
// statement waits for the end of the transaction that waits for the statement.
func (t *tx) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if t.db.dialect.Shared {
		return nil, nil
	}
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

// find reads one row for a caller who waits for it into to; false if there is none.
func (db *DB) find(ctx context.Context, query string, args []any, to ...any) (found bool, err error) {
	ctx, cancel := db.readContext(ctx)
	defer cancel()
	err = db.readers().queryRow(ctx, query, args...).Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, db.unavailableOrCanceled(ctx, err)
}

// list reads a few rows for a caller who waits for them.
func list[T any](ctx context.Context, db *DB, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	ctx, cancel := db.readContext(ctx)
	defer cancel()
	all, err := collect(ctx, db.readers(), scan, query, args...)
	return all, db.unavailableOrCanceled(ctx, err)
}

// now is the time of the ledger in nanoseconds since 1970, as a transaction or
// a reader sees it.
func (db *DB) now(ctx context.Context, q querier) (int64, error) {
	if db.options.Now != nil || db.dialect.Clock == "" {
		return clock(db.options.Now).UnixNano(), nil
	}
	var now int64
	err := q.queryRow(ctx, "SELECT "+db.dialect.Clock).Scan(&now)
	return now, err
}

// clock reads now, or the real clock where now is nil.
func clock(now func() time.Time) time.Time {
	if now == nil {
		return time.Now()
	}
	return now()
}
