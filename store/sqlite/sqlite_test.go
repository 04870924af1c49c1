package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/longtest"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

func place(t testing.TB) storetest.Place { return placeAt(filepath.Join(t.TempDir(), "test.db")) }

func placeAt(path string) storetest.Place {
	return storetest.Place{
		Open: func(ctx context.Context, o store.Options) (*store.DB, error) { return sqlite.Open(ctx, path, o) },
		Exec: func(ctx context.Context, statement string) error {
			db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
			if err != nil {
				return err
			}
			defer func() { _ = db.Close() }()
			_, err = db.ExecContext(ctx, statement)
			return err
		},
	}
}

// opened opens the database at a place until the test ends.
func opened(t testing.TB, p storetest.Place, o store.Options) *store.DB {
	t.Helper()
	db, err := p.Open(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// funded is a new database in which acme has so many units.
func funded(t testing.TB, units int64, o store.Options) *store.DB {
	t.Helper()
	db := opened(t, place(t), o)
	must(t, db.Ledger().CreateAccount(t.Context(), "acme", billing.Money(units)*billing.One))
	return db
}

func wantSound(t testing.TB, db *store.DB) {
	t.Helper()
	if err := db.Ledger().Verify(t.Context()); err != nil {
		t.Error(err)
	}
}

// Each test of the suite has a copy of one empty database: to make the schema takes longer
// than most of them.
func TestTheStoreOnSQLite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "empty.db")
	db, err := sqlite.Open(t.Context(), path, store.Options{Now: func() time.Time { return time.Unix(0, 0) }})
	must(t, err)
	must(t, db.Close())
	empty, err := os.ReadFile(path)
	must(t, err)
	storetest.Run(t, func(t testing.TB) storetest.Place {
		path := filepath.Join(t.TempDir(), "test.db")
		must(t, os.WriteFile(path, empty, 0o600))
		return placeAt(path)
	})
}

func TestNoStatementReadsAWholeTableThatGrows(t *testing.T) {
	longtest.Require(t)
	s := &statements{seen: map[string]bool{}}
	if t.Run("suite", func(t *testing.T) {
		storetest.Run(t, func(t testing.TB) storetest.Place { return s.recorded(place(t)) })
	}) {
		s.noScans(t)
	}
}

func TestASecondProcessOnTheSameFileIsRefused(t *testing.T) {
	p := place(t)
	first := opened(t, p, store.Options{})
	if _, err := p.Open(t.Context(), store.Options{}); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("got %v", err)
	}
	must(t, first.Close())
	opened(t, p, store.Options{})
}

func TestWhoRemovesTheLockFileLetsNoSecondProcessIn(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there the lock file is the only lock")
	}
	path := filepath.Join(t.TempDir(), "test.db")
	first, err := sqlite.Open(t.Context(), path, store.Options{})
	must(t, err)
	must(t, os.Remove(path+".lock"))
	if _, err := sqlite.Open(t.Context(), path, store.Options{}); !fault.Is(err, fault.InvalidRequest) || !errors.Is(err, sqlite.ErrLocked) {
		t.Errorf("a second Open: %v", err)
	}
	must(t, first.Close())
	opened(t, storetest.Place{Open: func(ctx context.Context, o store.Options) (*store.DB, error) { return sqlite.Open(ctx, path, o) }}, store.Options{})
}

func TestAnotherNameOfTheSameFileDoesNotGetAroundTheLock(t *testing.T) {
	dir := t.TempDir()
	path, link, hard := filepath.Join(dir, "test.db"), filepath.Join(dir, "link.db"), filepath.Join(dir, "hard.db")
	first, err := sqlite.Open(t.Context(), path, store.Options{})
	must(t, err)
	defer func() { _ = first.Close() }()
	if err := errors.Join(os.Symlink(path, link), os.Link(path, hard)); err != nil {
		t.Skip("links cannot be made here: ", err)
	}
	for _, name := range []string{link, hard} {
		if _, err := sqlite.Open(t.Context(), name, store.Options{}); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
	}
}

func TestAPathWithEveryKindOfLetterIsOnePath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b?c#d%e.db")
	db, err := sqlite.Open(t.Context(), path, store.Options{})
	must(t, err)
	defer func() { _ = db.Close() }()
	if found, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "a b*.db")); len(found) != 1 {
		t.Errorf("found %q", found)
	}
}

// A commit waits for the disk, and nobody else writes keys of a file or prices
// into this database.
func TestAReloadWithTheKeysAndPricesThatAreThereWritesNothing(t *testing.T) {
	faults := &sqlhook.Faults{}
	db := funded(t, 1, store.Options{Wrap: faults.Wrap})
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Output, Amount: "1"})
	must(t, err)
	prices := billing.NewPriceList(map[string]*billing.Price{"m": price, "free": nil})
	keys := func(ids ...string) (all []auth.Key) {
		for _, id := range ids {
			all = append(all, auth.Key{ID: id, Account: "acme", Hash: auth.HashOf("sk-" + id), Models: []string{"m"}})
		}
		return all
	}
	reload := func(keys []auth.Key) int {
		t.Helper()
		faults.FailAt(0, false, nil)
		must(t, db.PublishPrices(t.Context(), prices))
		must(t, db.Keys().Replace(t.Context(), keys))
		return faults.Steps()
	}
	for range 3 { // a price counts as there when it was found by another transaction
		reload(keys("a", "b"))
	}
	if n := reload(keys("a", "b")); n != 0 {
		t.Errorf("it wrote: %d steps", n)
	}
	reload(nil)
	if n := reload(nil); n != 0 {
		t.Errorf("without keys it wrote: %d steps", n)
	}
	for i, other := range [][]auth.Key{keys("a"), nil, keys("a", "b"), keys("b", "a")} {
		if n := reload(other); n == 0 {
			t.Errorf("other keys were not written: row %d", i)
		}
	}
	faults.FailCommit(false, sqlhook.ErrFault)
	if err := db.Keys().Replace(t.Context(), keys("c")); err == nil {
		t.Fatal("the commit did not fail")
	}
	if n := reload(keys("b", "a")); n == 0 {
		t.Error("after keys of which nobody knows whether they were written, the keys were not")
	}
	if k, err := db.Keys().Find(t.Context(), auth.HashOf("sk-a")); err != nil || k == nil {
		t.Errorf("%+v, %v", k, err)
	}
}

func TestAConnectionThatIsLostAtACommitIsReplaced(t *testing.T) {
	for name, after := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			faults := &sqlhook.Faults{}
			db := opened(t, place(t), store.Options{Wrap: faults.Wrap})
			for _, name := range []string{"acme", "zeta"} {
				faults.FailCommit(after, driver.ErrBadConn)
				must(t, db.Ledger().CreateAccount(t.Context(), name, billing.One))
				wantPosted(t, db, name)
			}
		})
	}
}

// wantPosted finds the one unit of an account.
func wantPosted(t *testing.T, db *store.DB, account string) {
	t.Helper()
	got, err := db.Ledger().Balance(t.Context(), account)
	if want := (billing.Balance{Account: account, Posted: billing.One}); err != nil || got != want {
		t.Fatalf("%+v, %v, want %+v", got, err, want)
	}
}

func TestWhoIsToldThatItIsDurableFindsTheDatabaseWell(t *testing.T) {
	faults := &sqlhook.Faults{}
	var good atomic.Int64
	looked := make(chan struct{})
	db := opened(t, place(t), store.Options{Wrap: faults.Wrap, Committed: func(c store.Commit) {
		if c.Err != nil {
			return
		}
		select { // whoever is told too early has time to look
		case <-looked:
		case <-time.After(50 * time.Millisecond):
		}
		good.Add(1)
	}})
	before := good.Load()
	faults.FailCommit(false, driver.ErrBadConn)
	err := db.Ledger().CreateAccount(t.Context(), "acme", billing.One)
	away, counted := db.Ping(t.Context()), good.Load()
	close(looked)
	if err != nil || away != nil || counted == before {
		t.Errorf("the account: %v; then the database is said to be: %v, with %d commits, %d before", err, away, counted, before)
	}
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
