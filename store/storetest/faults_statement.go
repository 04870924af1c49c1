package storetest

import (
	"context"
	"database/sql/driver"
	"strings"
)

// writes reports whether a statement changes anything.
func writes(query string) bool { return !strings.HasPrefix(query, "SELECT") }

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.faults.exec(func() (driver.Result, error) {
		return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	})
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.faults.query(writes(query), func() (driver.Rows, error) {
		return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	})
}

type stmt struct {
	driver.Stmt
	faults *Faults
	writes bool
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.faults.exec(func() (driver.Result, error) { return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args) })
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.faults.query(s.writes, func() (driver.Rows, error) { return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args) })
}

// exec runs a statement as a step.
func (f *Faults) exec(do func() (driver.Result, error)) (r driver.Result, err error) {
	err = f.step(func() (err error) {
		r, err = do()
		return err
	})
	return r, err
}

// query runs a statement that has rows as a step, if it writes.
func (f *Faults) query(writes bool, do func() (driver.Rows, error)) (driver.Rows, error) {
	if !writes {
		if f.isCut() {
			return nil, driver.ErrBadConn
		}
		return do()
	}
	var r driver.Rows
	err := f.step(func() (err error) {
		r, err = do()
		return err
	})
	if err != nil && r != nil {
		_ = r.Close() // nobody gets them
		r = nil
	}
	return r, err
}
