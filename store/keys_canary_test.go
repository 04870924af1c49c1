package store_test

import (
	"bytes"
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

// live does everything that involves a key, and returns what must be nowhere:
// the key itself. marker is something that must be there, so that the search
// can fail.
func live(t *testing.T, db *store.DB) (token, marker string) {
	t.Helper()
	k, secret, err := auth.NewKey(auth.KeyOptions{Account: "acme", Name: "canary-name", Models: []string{"m"}})
	if err != nil {
		t.Fatal(err)
	}
	token = secret.Reveal()
	owned, ownedSecret, err := auth.NewKey(auth.KeyOptions{Account: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	keys := &auth.Keys{Store: &auth.Cached{Store: db}}
	for _, err := range []error{
		db.CreateAccount(t.Context(), "acme", billing.One), db.Add(t.Context(), k), db.Replace(t.Context(), []auth.Key{owned}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []string{token, ownedSecret.Reveal()} {
		if _, err := keys.Authenticate(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	once := onceKey("k")
	if _, err := db.Open(t.Context(), once, idempotency.Content{1}, "r1"); err != nil {
		t.Fatal(err)
	}
	spend(t, db, "r1", billing.Usage{Input: 5}, idempotency.Record{Key: once, Body: []byte("answer")})
	if err := db.SetDisabled(t.Context(), k.ID, true); err != nil {
		t.Fatal(err)
	}
	return token, "canary-name"
}

// spellings are the ways in which a key might be written down.
func spellings(token string) []string {
	return []string{token, strings.TrimPrefix(token, "sk-"), strings.ToUpper(strings.TrimPrefix(token, "sk-"))}
}

func TestNoKeyIsInAnyFileOfTheDatabase(t *testing.T) {
	dir := t.TempDir()
	db := opened(t)(sqlite.Open(t.Context(), filepath.Join(dir, "test.db"), store.Options{}))
	token, marker := live(t, db)
	found := false
	search := func() {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			found = found || bytes.Contains(content, []byte(marker))
			for _, s := range spellings(token) {
				if bytes.Contains(content, []byte(s)) {
					t.Errorf("%s holds a key", path)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	search() // the log too, which is folded into the file at the end
	_ = db.Close()
	search()
	if !found {
		t.Error("the search finds nothing")
	}
}

func TestNoKeyIsInAnyTableOfTheDatabase(t *testing.T) {
	dsn := storetest.Postgres(t)
	db := opened(t)(postgres.Open(t.Context(), dsn, store.Options{}))
	l, err := store.NewLimiter(db)
	if err != nil {
		t.Fatal(err)
	}
	token, marker := live(t, db)
	if _, _, err := l.Acquire(t.Context(), limited(auth.Limits{TPM: 9, MaxConcurrent: 9}), "r", 1); err != nil {
		t.Fatal(err)
	}
	pool, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	found, tables := false, 0
	for _, table := range strings.Fields(cell(t, pool, "SELECT string_agg(quote_ident(table_name), ' ') FROM information_schema.tables WHERE table_schema = current_schema()")) {
		tables++
		rows := cell(t, pool, "SELECT COALESCE(string_agg(r::text, ' '), '') FROM "+table+" AS r")
		found = found || strings.Contains(rows, marker)
		for _, s := range spellings(token) {
			if strings.Contains(rows, s) {
				t.Errorf("table %s holds a key", table)
			}
		}
	}
	if !found || tables < 10 {
		t.Errorf("the search finds nothing in %d tables", tables)
	}
}

func cell(t *testing.T, pool *sql.DB, query string) (s string) {
	t.Helper()
	if err := pool.QueryRowContext(t.Context(), query).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}
