package sqlite_test

import (
	"database/sql/driver"
	"testing"

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
