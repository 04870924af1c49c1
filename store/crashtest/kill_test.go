//go:build unix

package crashtest

import (
	"context"
	"database/sql/driver"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// killer ends its process at a fault point.
type killer struct {
	task   task
	voice  *voice
	phase  atomic.Value // a string
	passed atomic.Int64 // how many times it came by
	told   sync.Map     // statements without a point
}

func newKiller(t task, v *voice) *killer {
	k := &killer{task: t, voice: v}
	k.phase.Store(migrating)
	return k
}

// reach reports whether this is the point, and the time.
func (k *killer) reach(moment string) bool {
	name := k.phase.Load().(string) + ": " + moment
	return name == k.task.Point && k.passed.Add(1) == k.task.Nth
}

// at ends the process if this is the point, and the time.
func (k *killer) at(moment string) {
	if k.reach(moment) {
		k.voice.Say(event{Kind: killed, ID: k.task.Point})
		die()
	}
}

// die does not return: the signal comes before the system call ends.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// dieSoon ends the process while its caller goes on. It spins, because timers
// are coarser than a COMMIT is long.
func (k *killer) dieSoon() {
	k.voice.Say(event{Kind: killed, ID: k.task.Point})
	started, until := make(chan struct{}), time.Now().Add(k.task.Delay)
	go func() {
		close(started)
		for time.Now().Before(until) {
		}
		die()
	}()
	<-started
}

// wrap is for store.Options.
func (k *killer) wrap(c driver.Connector) driver.Connector { return connector{c, k} }

type connector struct {
	driver.Connector
	killer *killer
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	made, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: made, killer: c.killer}, nil
}

// conn forwards all that the drivers of the store can do. One goroutine at a
// time uses it.
type conn struct {
	driver.Conn
	killer *killer
	wrote  bool // in this transaction
}

func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	c.killer.at(beforeBegin)
	begun, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	c.wrote = false
	c.killer.at(afterBegin)
	return &transaction{begun, c}, nil
}

// statement passes by the points of a statement that is about to run.
func (c *conn) statement(query string) (after func()) {
	moment := momentOf(query)
	if moment == "" {
		return func() {}
	}
	phase := c.killer.phase.Load().(string)
	if _, told := c.killer.told.LoadOrStore(phase+moment, true); !told && !named(phase, moment) {
		c.killer.voice.Say(event{Kind: unnamed, ID: phase + ": " + moment, Error: query[:min(len(query), 80)]})
	}
	c.killer.at(moment)
	first := !c.wrote
	c.wrote = true
	return func() {
		if first {
			c.killer.at(afterFirst)
		}
	}
}

func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	defer c.statement(query)()
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	defer c.statement(query)()
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &stmt{s, c, query}, nil
}

func (c *conn) Ping(ctx context.Context) error {
	if p, ok := c.Conn.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	return nil
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

type stmt struct {
	driver.Stmt
	conn  *conn
	query string
}

func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	defer s.conn.statement(s.query)()
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	defer s.conn.statement(s.query)()
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

type transaction struct {
	driver.Tx
	conn *conn
}

func (t *transaction) Commit() error {
	k := t.conn.killer
	k.at(beforeCommit)
	if k.reach(duringCommit) {
		k.dieSoon()
	}
	err := t.Tx.Commit()
	if err != nil {
		return err
	}
	k.at(afterCommit)
	if k.reach(duringCheckpoint) {
		t.conn.fold()
	}
	k.phase.CompareAndSwap(migrating, recovering)
	return nil
}

// fold has SQLite write its log into the file, and the process ended meanwhile.
func (c *conn) fold() {
	c.killer.dieSoon()
	_, err := c.Conn.(driver.ExecerContext).ExecContext(context.Background(), "PRAGMA wal_checkpoint(TRUNCATE)", nil)
	if err != nil {
		c.killer.voice.Say(event{Kind: broken, ID: "checkpoint", Error: err.Error()})
	}
	c.killer.voice.Say(event{Kind: folded})
	select {} // until the signal comes
}
