package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/tollhouse-ai/gateway/store"
)

// pipelines makes connections that are a [store.Pipeline].
type pipelines struct {
	driver.Connector
	first *firstHost
}

func (p pipelines) Connect(ctx context.Context) (driver.Conn, error) {
	moved := p.first.moved.Load()
	c, err := p.Connector.Connect(context.WithValue(ctx, connecting{}, moved))
	if err != nil {
		p.first.failed(moved)
		return nil, err
	}
	return conn{c.(*stdlib.Conn)}, nil
}

type conn struct{ *stdlib.Conn }

// Send implements [store.Pipeline]. Each statement is prepared when it is first sent,
// which takes a trip of its own.
func (c conn) Send(ctx context.Context, all []store.Statement) (refused bool, err error) {
	var batch pgx.Batch
	for i := range all {
		switch s := &all[i]; {
		case s.Scan != nil:
			batch.Queue(s.Query, s.Args...).Query(func(rows pgx.Rows) error { return scan(rows, s.Scan) })
		case s.Query == "COMMIT":
			batch.Queue(s.Query).Exec(committed)
		case s.Exact && !strings.HasPrefix(s.Query, "INSERT "): // which adds all of its rows or fails
			batch.Queue(exactly(s.Query), s.Args...)
		default:
			batch.Queue(s.Query, s.Args...)
		}
	}
	err = c.confirmed(c.Conn.Conn().SendBatch(ctx, &batch).Close())
	if pgconn.SafeToRetry(err) {
		return false, driver.ErrBadConn
	}
	answer, answered := errors.AsType[*pgconn.PgError](err)
	return answered && answer.SeverityUnlocalized == "ERROR", err
}

// confirmed is the error of what may have been a COMMIT, or that its standby has not
// confirmed it.
func (c conn) confirmed(err error) error {
	told := c.Conn.Conn().PgConn().CustomData()
	if _, found := told[unconfirmed]; found {
		delete(told, unconfirmed)
		return errUnconfirmed
	}
	return err
}

// BeginTx implements [driver.ConnBeginTx].
func (c conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	begun, err := c.Conn.BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	return transaction{begun, c}, nil
}

type transaction struct {
	driver.Tx
	conn conn
}

// Commit implements [driver.Tx].
func (t transaction) Commit() error { return t.conn.confirmed(t.Tx.Commit()) }

// exactly is a write that divides by zero unless it changes as many rows as its first
// argument has elements: the server then skips all that was sent after it, a COMMIT too.
func exactly(write string) string {
	return "WITH changed AS (" + write + " RETURNING 1) SELECT 1 / CAST((SELECT COUNT(*) FROM changed) = CARDINALITY($1) AS INT)"
}

// committed refuses the answer to a COMMIT of a transaction that had failed.
func committed(tag pgconn.CommandTag) error {
	if tag.String() != "COMMIT" {
		return pgx.ErrTxCommitRollback
	}
	return nil
}

func scan(rows pgx.Rows, row func(store.Row) error) error {
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
