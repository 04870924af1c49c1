package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
)

// locked is a database with two accounts and another session that locks rows.
type locked struct {
	*fixture
	other *sql.Tx
	waits atomic.Int64 // transactions that waited for a lock in vain
}

func newLocked(t *testing.T, o store.Options) *locked {
	t.Helper()
	l := &locked{}
	o.Committed = func(c store.Commit) {
		if e, ok := errors.AsType[*pgconn.PgError](c.Err); ok && e.Code == "55P03" {
			l.waits.Add(1)
		}
	}
	l.fixture = newFixture(t, pgtest.Schema(t), o, 1_000, "acme", "other")
	return l
}

// lock is a session that runs a statement in a transaction and ends it with unlock.
func (l *locked) lock(statement string) {
	l.t.Helper()
	var err error
	if l.other, err = pgtest.Open(l.t, l.dsn).BeginTx(context.Background(), nil); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = l.other.Rollback() })
	if _, err := l.other.ExecContext(l.t.Context(), statement); err != nil {
		l.t.Fatal(err)
	}
}

func (l *locked) unlock() {
	l.t.Helper()
	must(l.t, l.other.Rollback())
}

// serve makes n calls of the account that is not locked.
func (l *locked) serve(n int, name string) {
	l.t.Helper()
	for i := range n {
		l.mustSettle(l.mustReserve("other", fmt.Sprint(name, i)))
	}
}

// settling ends a hold beside the test.
func (l *locked) settling(h billing.Hold) <-chan error {
	settled := make(chan error, 1)
	go func() { settled <- l.settle(h) }()
	return settled
}

// A session that has a row locked stands for psql, an administrator's change that
// was left open, and a process that was paused in the middle of a transaction.
func TestALockedRowDelaysOnlyTheCallsThatNeedIt(t *testing.T) {
	for _, c := range []struct {
		name, lock string
		hold       bool // new holds of the account wait too
	}{
		{"the account", "SELECT 1 FROM account WHERE id = 'acme' FOR UPDATE", true},
		{"the hold", "SELECT 1 FROM hold WHERE id = 'running' FOR UPDATE", false},
		{"the budget of its key", "SELECT 1 FROM budget WHERE account = 'acme' FOR UPDATE", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLocked(t, store.Options{})
			l.boundKey("acme")
			running := l.mustReserve("acme", "running")
			l.lock(c.lock)
			settled := l.settling(running)
			refused := make(chan error, 1)
			go func() {
				_, err := l.reserve("acme", "new")
				refused <- err
			}()
			l.serve(30, "meanwhile")
			if n := l.waits.Load(); c.name != "the budget of its key" && n > 3 {
				t.Errorf("%d transactions waited for the lock", n)
			}
			err := <-refused // within Options.WaitTimeout
			if f := fault.From(err); c.hold && (!fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter <= 0) {
				t.Errorf("a hold that waits for the row: %v, want %s with a RetryAfter", err, fault.ServiceUnavailable)
			}
			if err := l.Ping(t.Context()); err != nil {
				t.Errorf("the database is said to be away: %v", err)
			}
			l.serve(10, "after")
			l.unlock()
			if err := <-settled; err != nil {
				t.Errorf("the settlement that waited: %v", err)
			}
			if !c.hold {
				l.mustSettle(billing.Hold{ID: "new"})
			}
			l.serve(2, "last") // after what was given back
			l.wantBalance("other", 1_000-42)
			if want := int64(999); c.hold {
				l.wantBalance("acme", want)
			} else {
				l.wantBalance("acme", want-1)
			}
			l.wantSound()
		})
	}
}

func TestALockedTableDelaysOnlyWhatWritesIt(t *testing.T) {
	t.Parallel()
	l := newLocked(t, store.Options{})
	h := l.mustReserve("acme", "running")
	l.lock("LOCK TABLE receipt IN SHARE MODE")
	settled := l.settling(h)
	for i := range 20 {
		l.mustReserve("other", fmt.Sprint("r", i))
	}
	select {
	case err := <-settled:
		t.Errorf("the settlement ended while its table was locked: %v", err)
	default:
	}
	l.unlock()
	if err := <-settled; err != nil {
		t.Error(err)
	}
	l.wantBalance("acme", 999)
}

func TestALockedRowKeepsNoProcessFromRenewingItsLease(t *testing.T) {
	t.Parallel()
	l := newLocked(t, store.Options{Lease: 2 * time.Second})
	h := l.mustReserve("acme", "running")
	l.lock("SELECT 1 FROM account WHERE id = 'acme' FOR UPDATE")
	settled := l.settling(h)
	renewed := func() (until int64) {
		must(t, l.other.QueryRowContext(t.Context(), "SELECT MAX(lease_until) FROM node").Scan(&until))
		return until
	}
	for first := renewed(); renewed() < first+3*int64(time.Second); time.Sleep(50 * time.Millisecond) {
	}
	b, err := postgres.Open(t.Context(), l.dsn, store.Options{}) // which sweeps
	must(t, err)
	defer func() { _ = b.Close() }()
	l.unlock()
	if err := <-settled; err != nil {
		t.Error(err)
	}
	if r, err := l.Receipt(t.Context(), "acme", "running"); err != nil || r.Status != billing.Captured {
		t.Errorf("%+v, %v", r, err)
	}
}

// The holds of a process that died, of which one account's cannot be ended, are
// many batches. What a start leaves is ended by the sweeps of Run.
func TestManyHoldsOnALockedAccountKeepNoServerFromStarting(t *testing.T) {
	t.Parallel()
	l := newLocked(t, store.Options{HoldFor: 1}) // over at once
	must(t, l.Credit(t.Context(), "acme", 9_000*billing.One, "more"))
	var all sync.WaitGroup
	for i := range 1_100 { // three batches
		all.Go(func() {
			if _, err := l.reserve("acme", fmt.Sprint("r", i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	l.lock("SELECT 1 FROM account WHERE id = 'acme' FOR UPDATE")
	db, err := postgres.Open(t.Context(), l.dsn, store.Options{Opening: 4 * time.Second, Lease: 100 * time.Millisecond})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	defer func() { _ = db.Close() }()
	if err := db.Stuck(t.Context()); err == nil {
		t.Error("no hold is said to be left")
	}
	l.unlock()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() { _ = db.Run(ctx) }()
	for {
		open, err := db.Ledger().OpenHolds(ctx)
		must(t, err)
		if len(open) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	l.wantBalance("acme", 10_000)
}

// The pace by which new requests are refused is learned from the same number.
func TestOperationsThatArePutOffDoNotCountAsDone(t *testing.T) {
	t.Parallel()
	commits := make(chan store.Commit, 1_000)
	l := newLocked(t, store.Options{})
	must(t, l.Close())
	// The lease is long: no heartbeat comes between.
	l.open(store.Options{Lease: time.Hour, Committed: func(c store.Commit) { commits <- c }})
	var holds []billing.Hold
	for i := range 5 {
		holds = append(holds, l.mustReserve("acme", fmt.Sprint("r", i)))
	}
	l.lock("SELECT 1 FROM account WHERE id = 'acme' FOR UPDATE")
	for len(commits) > 0 {
		<-commits
	}
	var all sync.WaitGroup
	for _, h := range holds {
		all.Go(func() {
			if err := l.settle(h); err != nil {
				t.Error(err)
			}
		})
	}
	for tries := 0; tries < 3; { // at what is put off
		if c := <-commits; c.Err == nil {
			tries++
			if c.Operations != 0 {
				t.Errorf("a transaction that did nothing counts %d operations", c.Operations)
			}
		}
	}
	l.unlock()
	all.Wait()
	must(t, l.Close())
	close(commits)
	done := 0
	for c := range commits {
		if c.Err == nil {
			done += c.Operations
		}
	}
	if done != len(holds) {
		t.Errorf("%d operations count as done, want %d", done, len(holds))
	}
}
