package storetest

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
	"time"
)

// Faults makes the connections of a database fail on demand. Give Wrap to
// store.Options. It is safe for concurrent use.
type Faults struct {
	mu    sync.Mutex
	cut   bool
	count int
	at    int // the step that fails; 0 for none
	after bool
	fail  func() error
	slow  time.Duration // how long each step takes

	commit bool // the step that fails is the next COMMIT

	hang    <-chan struct{} // becomes the gate when a step has failed
	gate    <-chan struct{} // steps wait until it is closed
	arrived chan struct{}   // closed when the first one waits
}

// ErrFault is what a step fails with that was told to, unless it was told what.
var ErrFault = errors.New("storetest: a fault was injected")

// Cut makes every later step fail, as for a process that was killed.
func (f *Faults) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cut = true
}

func (f *Faults) isCut() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.cut
}

// FailAt makes the nth step from now on fail with err: a connection, a BEGIN, a
// statement that writes or a COMMIT. With after it is done all the same, and
// only its answer is lost. n of 0 lets all go well again.
func (f *Faults) FailAt(n int, after bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count, f.at, f.after, f.commit = 0, n, after, false
	f.fail = func() error { return err }
}

// FailCommit is FailAt for the next COMMIT, wherever it comes.
func (f *Faults) FailCommit(after bool, err error) {
	f.FailAt(0, after, err)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commit = true
}

// committing makes the next step fail if it was to be a COMMIT.
func (f *Faults) committing() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.commit {
		f.commit, f.at = false, f.count+1
	}
}

// Block makes every later step wait until gate is closed.
func (f *Faults) Block(gate <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gate, f.arrived = gate, make(chan struct{})
}

// HangAfter is Block from the step on that follows the one that is to fail.
func (f *Faults) HangAfter(gate <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gate = nil // an earlier one, which is open: whoever passes it has not arrived
	f.hang, f.arrived = gate, make(chan struct{})
}

// Blocked returns when a step waits for the gate.
func (f *Faults) Blocked() {
	f.mu.Lock()
	arrived := f.arrived
	f.mu.Unlock()
	<-arrived
}

// Slow makes every later step take so much longer.
func (f *Faults) Slow(by time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.slow = by
}

// wait is a step's time at the gate.
func (f *Faults) wait() {
	f.mu.Lock()
	gate, slow := f.gate, f.slow
	if slow > 0 {
		f.mu.Unlock()
		time.Sleep(slow)
		f.mu.Lock()
	}
	if gate == nil {
		f.mu.Unlock()
		return
	}
	select {
	case <-f.arrived:
	default:
		close(f.arrived)
	}
	f.mu.Unlock()
	<-gate
}

// Steps is how many steps were taken since the last FailAt.
func (f *Faults) Steps() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// step runs do, unless it is to fail.
func (f *Faults) step(do func() error) error {
	f.wait()
	f.mu.Lock()
	f.count++
	hit, after, cut := f.count == f.at, f.after, f.cut
	if hit && f.hang != nil {
		f.gate, f.hang = f.hang, nil
	}
	fail := f.fail
	f.mu.Unlock()
	switch {
	case cut:
		return driver.ErrBadConn
	case hit && !after:
		return fail()
	case hit:
		_ = do() // it happened, and nobody is told
		return fail()
	}
	return do()
}

// Wrap is for store.Options.
func (f *Faults) Wrap(c driver.Connector) driver.Connector { return connector{c, f} }

type connector struct {
	driver.Connector
	faults *Faults
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	var made driver.Conn
	err := c.faults.step(func() (err error) {
		made, err = c.Connector.Connect(ctx)
		return err
	})
	if err != nil {
		if made != nil {
			_ = made.Close() // nobody gets it
		}
		return nil, err
	}
	return &conn{made, c.faults}, nil
}

// conn forwards all that the drivers of the store can do.
type conn struct {
	driver.Conn
	faults *Faults
}

func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	var begun driver.Tx
	err := c.faults.step(func() (err error) {
		begun, err = c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
		return err
	})
	if err != nil {
		if begun != nil {
			_ = begun.Rollback() // nobody gets it
		}
		return nil, err
	}
	return &transaction{begun, c.faults}, nil
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &stmt{s, c.faults, writes(query)}, nil
}

func (c *conn) Ping(ctx context.Context) error {
	if p, ok := c.Conn.(driver.Pinger); ok && !c.faults.isCut() {
		return p.Ping(ctx)
	}
	return driver.ErrBadConn
}

func (c *conn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok && !c.faults.isCut() {
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

type transaction struct {
	driver.Tx
	faults *Faults
}

func (t *transaction) Commit() error {
	committed := false
	t.faults.committing()
	err := t.faults.step(func() error {
		committed = true
		return t.Tx.Commit()
	})
	if !committed {
		_ = t.Tx.Rollback() // the driver of a lost connection leaves nothing open
	}
	return err
}

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
