package store

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
)

// tx is one writing transaction. It belongs to the committer's goroutine, and BEGIN and
// COMMIT are statements like the others. Where its connection is a [Pipeline], what needs
// no answer at once waits in a queue until something does: a batch takes two trips to the
// database, its reads and its writes.
type tx struct {
	db       *DB
	conn     *sql.Conn // that it is on
	pipeline bool      // conn's is one

	queue  []Statement      // to be sent, on a Pipeline
	open   bool             // BEGIN was sent, and no COMMIT that worked
	wrote  bool             // it has something to commit
	prices []*billing.Price // their rows are there once it is committed
}

// Row is the row that the result of a statement is at.
type Row interface{ Scan(to ...any) error }

// Statement is a statement that a [Pipeline] sends together with others.
type Statement struct {
	Query string
	Args  []any
	// Exact says that Query, an INSERT, UPDATE or DELETE, must change a row for each element of
	// its first argument, an array. If it does not, it fails with an error that is a Conflict.
	Exact bool
	// Scan is given each row of the result; nil where it is not read.
	Scan func(Row) error
}

// Pipeline is a driver's connection that sends many statements at once, without waiting
// for the answer to one before it sends the next.
type Pipeline interface {
	// Send runs the statements up to the first that fails. refused says that the database
	// has answered so: then neither that one nor any after it was done.
	Send(ctx context.Context, all []Statement) (refused bool, err error)
}

// begin queues or starts the transaction, with a statement about itself or an empty one.
func (t *tx) begin(ctx context.Context, setting string) error {
	for _, statement := range [...]string{cmp.Or(t.db.dialect.Begin, "BEGIN"), setting} {
		switch {
		case statement == "":
		case t.pipeline:
			t.queue = append(t.queue, Statement{Query: statement})
		default:
			t.open = true // even after an error: it may have begun
			if _, err := t.exec(ctx, statement); err != nil {
				t.rollback(ctx)
				return err
			}
			t.wrote = false // SQLite repeats how many rows the statement before changed
		}
	}
	return nil
}

// commit sends what is queued with the COMMIT, which is not done if a statement fails. After
// an error, unsure says that the transaction may be durable.
func (t *tx) commit(ctx context.Context) (unsure bool, err error) {
	if t.pipeline {
		t.queue = append(t.queue, Statement{Query: "COMMIT"})
		var refused bool
		refused, err = t.send(ctx)
		unsure = err != nil && !refused
	} else {
		_, err = t.exec(ctx, "COMMIT")
		unsure = err != nil // even if the error denies it
	}
	t.open = err != nil
	return unsure, err
}

// rollback ends the transaction, if commit has not. On a [Pipeline], a connection whose
// rollback fails is not used again: the next BEGIN would join this transaction. SQLite's
// ROLLBACK fails if the transaction has ended already, and ends it in any case.
func (t *tx) rollback(ctx context.Context) {
	if !t.open {
		return
	}
	t.open = false
	if !t.pipeline {
		_, _ = t.exec(ctx, "ROLLBACK")
		return
	}
	t.queue = []Statement{{Query: "ROLLBACK"}}
	if _, err := t.send(ctx); err != nil {
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// sync waits for the answers to what is queued.
func (t *tx) sync(ctx context.Context) error {
	_, err := t.send(ctx)
	return err
}

func (t *tx) send(ctx context.Context) (refused bool, err error) {
	if len(t.queue) == 0 {
		return false, nil
	}
	all := t.queue
	t.queue, t.open = nil, true
	lost := t.conn.Raw(func(c any) error {
		refused, err = c.(Pipeline).Send(ctx, all)
		return nil // what a statement says is not about the connection
	})
	return refused, cmp.Or(err, lost)
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(ctx context.Context, query string, args ...any) (changed int64, err error) {
	if t.db.dialect.Shared {
		if err = t.sync(ctx); err == nil {
			changed, err = session{t.db, t.conn}.exec(ctx, query, args...)
		}
	} else {
		changed, err = t.db.committer.direct.exec(ctx, t.conn, query, args)
	}
	t.wrote = t.wrote || changed > 0
	return changed, err
}

// write is exec for a statement that may change any number of rows.
func (t *tx) write(ctx context.Context, query string, args ...any) error {
	if t.pipeline {
		t.queue, t.wrote = append(t.queue, Statement{Query: t.db.text(query), Args: args}), true
		return nil
	}
	_, err := t.exec(ctx, query, args...)
	return err
}

// writeBulk runs a bulk statement. Where exact is set it has to change one row for each
// row of arguments: where it does not, another process was faster.
func (t *tx) writeBulk(ctx context.Context, query string, args []any, exact bool) error {
	if len(args) == 0 {
		return nil
	}
	bulk, changed := t.db.bulk(query), int64(0)
	err := bulk.each(args, func(query string, args []any) error {
		if t.pipeline {
			t.queue, t.wrote = append(t.queue, Statement{Query: t.db.text(query), Args: args, Exact: exact}), true
			return nil
		}
		n, err := t.exec(ctx, query, args...)
		changed += n
		return err
	})
	if err == nil && exact && !t.pipeline && changed != int64(len(args)/len(bulk.kinds)) {
		err = errStale
	}
	return err
}

// read calls scan for each row that a query finds, on a Pipeline not before sync.
func (t *tx) read(ctx context.Context, scan func(Row) error, query string, args ...any) error {
	if t.pipeline {
		t.queue = append(t.queue, Statement{Query: t.db.text(query), Args: args, Scan: scan})
		return nil
	}
	return forEach(ctx, t, scan, query, args...)
}

// query returns rows that must be closed before the next statement. It keeps each query of
// SQLite compiled: the committer runs the same few, on a connection with only this
// transaction. Postgres's driver remembers statements; there, queued statements are sent
// first.
func (t *tx) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if t.db.dialect.Shared {
		if err := t.sync(ctx); err != nil {
			return nil, err
		}
		return session{t.db, t.conn}.query(ctx, query, args...)
	}
	prepared := t.db.committer.prepared
	stmt := prepared[query]
	if stmt == nil {
		var err error
		if stmt, err = t.conn.PrepareContext(ctx, query); err != nil {
			return nil, err
		}
		prepared[query] = stmt
	}
	return stmt.QueryContext(ctx, args...)
}

// find reads one row into to; false if there is none.
func (t *tx) find(ctx context.Context, query string, args []any, to ...any) (found bool, err error) {
	err = t.read(ctx, func(row Row) error {
		found = true
		return row.Scan(to...)
	}, query, args...)
	if err == nil {
		err = t.sync(ctx)
	}
	return found, err
}

// direct runs writes that the driver of a SQLite connection has compiled. It calls the
// driver itself: for one row database/sql takes as long as SQLite.
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

// close drops the statements. Call it inside the connection's Raw: a closed connection has
// ended them.
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

// text is the one text that a query finds; empty if it finds none.
func (s session) text(ctx context.Context, query string, args ...any) (text string, err error) {
	err = s.queryRow(ctx, query, args...).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return text, err
}

func (s session) exec(ctx context.Context, query string, args ...any) (int64, error) {
	result, err := s.on.ExecContext(ctx, s.db.text(query), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// writeBulk runs a bulk statement.
func (s session) writeBulk(ctx context.Context, query string, args []any) error {
	return s.db.bulk(query).each(args, func(query string, args []any) error {
		_, err := s.exec(ctx, query, args...)
		return err
	})
}

// inTx runs do in a transaction beside the committer's, and rolls it back if do fails. SQLite
// lets one connection write at a time: there the committer waits.
func (db *DB) inTx(ctx context.Context, do func(context.Context, session) error) error {
	t, err := db.writer.BeginTx(ctx, nil)
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

// find reads one row into to, for a caller that waits for it; false if there is none.
func (db *DB) find(ctx context.Context, query string, args []any, to ...any) (found bool, err error) {
	ctx, cancel := db.readContext(ctx)
	defer cancel()
	err = db.readRow(ctx, query, args).Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, db.unavailableOrCanceled(ctx, err)
}

// readRow returns a row, read beside the committer's connection. SQLite's driver would compile
// the statement each time, which takes as long as most statements run. The driver of Postgres
// remembers statements.
func (db *DB) readRow(ctx context.Context, query string, args []any) *sql.Row {
	if !db.dialect.Shared {
		if known, ok := db.compiled.Load(query); ok {
			return known.(*sql.Stmt).QueryRowContext(ctx, args...)
		}
		if stmt, err := db.reader.PrepareContext(ctx, query); err == nil { // otherwise the query returns the reason
			known, raced := db.compiled.LoadOrStore(query, stmt)
			if raced {
				_ = stmt.Close() // it was not used
			}
			return known.(*sql.Stmt).QueryRowContext(ctx, args...)
		}
	}
	return db.readers().queryRow(ctx, query, args...)
}

// list reads a few rows for a caller who waits for them.
func list[T any](ctx context.Context, db *DB, scan func(Row) (T, error), query string, args ...any) ([]T, error) {
	ctx, cancel := db.readContext(ctx)
	defer cancel()
	all, err := collect(ctx, db.readers(), scan, query, args...)
	return all, db.unavailableOrCanceled(ctx, err)
}

// now is the time of the ledger in nanoseconds since 1970, as a session
// sees it.
func (db *DB) now(ctx context.Context, q session) (int64, error) {
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
