package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

func place(t testing.TB) storetest.Place {
	path := filepath.Join(t.TempDir(), "test.db")
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

func TestTheStoreOnSQLite(t *testing.T) { storetest.Run(t, place) }

func TestASecondProcessOnTheSameFileIsRefused(t *testing.T) {
	p := place(t)
	first, err := p.Open(t.Context(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Open(t.Context(), store.Options{}); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("got %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := p.Open(t.Context(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

func TestAnotherNameOfTheSameFileDoesNotGetAroundTheLock(t *testing.T) {
	dir := t.TempDir()
	path, link, hard := filepath.Join(dir, "test.db"), filepath.Join(dir, "link.db"), filepath.Join(dir, "hard.db")
	first, err := sqlite.Open(t.Context(), path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if found, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "a b*.db")); len(found) != 1 {
		t.Errorf("found %q", found)
	}
}

func BenchmarkHoldAndSettle(b *testing.B) { storetest.Benchmark(b, place) }
