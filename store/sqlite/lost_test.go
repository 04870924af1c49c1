package sqlite_test

import (
	"database/sql/driver"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

func TestAConnectionThatIsLostAtACommitIsReplaced(t *testing.T) {
	for name, after := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			faults := &storetest.Faults{}
			db, err := place(t).Open(t.Context(), store.Options{Wrap: faults.Wrap})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			for _, name := range []string{"acme", "zeta"} {
				faults.FailCommit(after, driver.ErrBadConn)
				if err := db.CreateAccount(t.Context(), name, billing.One); err != nil {
					t.Fatal(err)
				}
				wantPosted(t, db, name)
			}
		})
	}
}

// wantPosted finds the one unit of an account.
func wantPosted(t *testing.T, db *store.DB, account string) {
	t.Helper()
	got, err := db.Balance(t.Context(), account)
	if want := (billing.Balance{Account: account, Posted: billing.One}); err != nil || got != want {
		t.Fatalf("%+v, %v, want %+v", got, err, want)
	}
}

func TestWhoIsToldThatItIsDurableFindsTheDatabaseWell(t *testing.T) {
	faults := &storetest.Faults{}
	var good atomic.Int64
	looked := make(chan struct{})
	db, err := place(t).Open(t.Context(), store.Options{Wrap: faults.Wrap, Committed: func(c store.Commit) {
		if c.Err != nil {
			return
		}
		select { // whoever is told too early has time to look
		case <-looked:
		case <-time.After(50 * time.Millisecond):
		}
		good.Add(1)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	before := good.Load()
	faults.FailCommit(false, driver.ErrBadConn)
	err = db.CreateAccount(t.Context(), "acme", billing.One)
	away, counted := db.Ping(t.Context()), good.Load()
	close(looked)
	if err != nil || away != nil || counted == before {
		t.Errorf("the account: %v; then the database is said to be: %v, with %d commits, %d before", err, away, counted, before)
	}
}
