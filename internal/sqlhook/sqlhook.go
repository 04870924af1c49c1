// Package sqlhook runs a function around each step that the connections of a database
// take. So a test can make a step fail, wait, or be the last one of its process.
package sqlhook

import (
	"context"
	"database/sql/driver"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/store"
)

// Kind is what a step does.
type Kind int

// The kinds of a step.
const (
	Connect Kind = iota
	Begin
	Read   // a SELECT
	Write  // any other statement
	Commit // also where it fails: a rollback is not a step
	Use    // the pool asks whether a connection can still be used
)

// Step is one step of a connection.
type Step struct {
	Kind  Kind
	Query string      // of a statement
	First bool        // it is the first Write of its transaction that changes data
	Conn  driver.Conn // beneath the hook; nil while connecting
}

// Hook runs around a step. It calls do, or does not, and returns the error that
// the caller of the step gets.
type Hook func(s Step, do func() error) error

// Wrap returns a connector whose connections take their steps through the hook.
// It can do what the drivers of the store can do.
func Wrap(c driver.Connector, hook Hook) driver.Connector { return connector{c, hook} }

type connector struct {
	driver.Connector
	hook Hook
}

// around runs do as a step. If the step failed after do made a value, drop gets the value.
func around[T comparable](hook Hook, s Step, do func() (T, error), drop func(T)) (T, error) {
	var made, none T
	err := hook(s, func() (err error) {
		made, err = do()
		return err
	})
	if err == nil {
		return made, nil
	}
	if made != none {
		drop(made)
	}
	return none, err
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	made, err := around(c.hook, Step{Kind: Connect}, func() (driver.Conn, error) { return c.Connector.Connect(ctx) }, func(d driver.Conn) { _ = d.Close() })
	if err != nil {
		return nil, err
	}
	hooked := &conn{Conn: made, hook: c.hook}
	if p, ok := made.(store.Pipeline); ok {
		return pipeline{hooked, p}, nil
	}
	return hooked, nil
}

// conn is used by one goroutine at a time.
type conn struct {
	driver.Conn
	hook  Hook
	wrote bool // in this transaction
}

func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	c.wrote = false
	begun, err := around(c.hook, Step{Kind: Begin, Conn: c.Conn}, func() (driver.Tx, error) {
		return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	}, func(tx driver.Tx) { _ = tx.Rollback() })
	if err != nil {
		return nil, err
	}
	return &transaction{begun, c}, nil
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &stmt{s, c, query}, nil
}

// pipeline is a conn whose driver can send many statements at once.
type pipeline struct {
	*conn
	to store.Pipeline
}

// Send takes the steps of all statements at once. If the hook does not do one of them,
// none is sent. If it fails one that was done, the answers to all are lost.
func (c pipeline) Send(ctx context.Context, all []store.Statement) (refused bool, err error) {
	do := func() error {
		refused, err = c.to.Send(ctx, all)
		return err
	}
	var steps []Step
	for _, s := range all {
		if s.Query != rollback {
			steps = append(steps, c.statement(s.Query))
		}
	}
	for _, s := range slices.Backward(steps) {
		inner := do
		do = func() error { return c.hook(s, inner) }
	}
	err = do()
	return refused, err
}

// Ping asks the hook before the driver, where the driver has something to ask.
func (c *conn) Ping(ctx context.Context) error {
	return c.hook(Step{Kind: Use, Conn: c.Conn}, func() error {
		if p, ok := c.Conn.(driver.Pinger); ok {
			return p.Ping(ctx)
		}
		return nil
	})
}

func (c *conn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// rollback is a statement that is not a step.
const rollback = "ROLLBACK"

// statement is the step of a query.
func (c *conn) statement(query string) Step {
	verb, _, _ := strings.Cut(query, " ")
	s := Step{Kind: Write, Query: query, Conn: c.Conn}
	switch verb {
	case "BEGIN":
		s.Kind, c.wrote = Begin, false
	case "COMMIT":
		s.Kind = Commit
	case "SELECT":
		s.Kind = Read
	case "PRAGMA", "SET": // of the session, not of the data
	default:
		s.First, c.wrote = !c.wrote, true
	}
	return s
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return around(c.hook, c.statement(query), func() (driver.Result, error) {
		return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	}, func(driver.Result) {})
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return around(c.hook, c.statement(query), func() (driver.Rows, error) {
		return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	}, func(r driver.Rows) { _ = r.Close() })
}

type stmt struct {
	driver.Stmt
	conn  *conn
	query string
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if s.query == rollback {
		return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	}
	return around(s.conn.hook, s.conn.statement(s.query), func() (driver.Result, error) {
		return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	}, func(driver.Result) {})
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return around(s.conn.hook, s.conn.statement(s.query), func() (driver.Rows, error) {
		return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
	}, func(r driver.Rows) { _ = r.Close() })
}

type transaction struct {
	driver.Tx
	conn *conn
}

func (t *transaction) Commit() error {
	committed := false
	err := t.conn.hook(Step{Kind: Commit, Conn: t.conn.Conn}, func() error {
		committed = true
		return t.Tx.Commit()
	})
	if !committed {
		_ = t.Tx.Rollback() // the driver of a lost connection leaves nothing open
	}
	return err
}
