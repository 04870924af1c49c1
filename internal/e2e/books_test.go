package e2e

import (
	"database/sql"
	"testing"

	_ "modernc.org/sqlite" // the driver that reads the files

	"github.com/tollhouse-ai/gateway/billing"
)

// books are the database, read past the program.
type books struct {
	t  testing.TB
	db *sql.DB
}

func openBooks(t testing.TB, store string) books {
	t.Helper()
	driver, source := "pgx", store
	if path, ok := isFile(store); ok {
		driver, source = "sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(10000)"
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return books{t, db}
}

// receipt is a row of the table receipt.
type receipt struct {
	id, account, key, model, status, price, reason string
	held, charge, overrun, created                 int64
	usage                                          billing.Usage
}

// receipts are all of them, by id.
func (b books) receipts() map[string]receipt {
	b.t.Helper()
	rows, err := b.db.QueryContext(b.t.Context(), `SELECT id, account, key_id, model, status, price, reason, held, charge, overrun, created_at,
		input, cached_input, cache_write, output, reasoning, image_input, image_output, image, second, character, variant FROM receipt`)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	all := map[string]receipt{}
	for rows.Next() {
		var r receipt
		u := &r.usage
		if err := rows.Scan(&r.id, &r.account, &r.key, &r.model, &r.status, &r.price, &r.reason, &r.held, &r.charge, &r.overrun, &r.created,
			&u.Input, &u.CachedInput, &u.CacheWrite, &u.Output, &u.Reasoning, &u.ImageInput, &u.ImageOutput, &u.Images, &u.Seconds, &u.Characters, &u.Variant); err != nil {
			b.t.Fatal(err)
		}
		all[r.id] = r
	}
	if err := rows.Err(); err != nil {
		b.t.Fatal(err)
	}
	return all
}

// number is the one number that a query gives.
func (b books) number(query string) (n int64) {
	b.t.Helper()
	if err := b.db.QueryRowContext(b.t.Context(), query).Scan(&n); err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// open is how many holds are open.
func (b books) open() int64 {
	b.t.Helper()
	return b.number("SELECT COUNT(*) FROM hold")
}

// captured are the receipts that were charged.
func (b books) captured() map[string]receipt {
	b.t.Helper()
	all := b.receipts()
	for id, r := range all {
		if r.status != billing.Captured {
			delete(all, id)
		}
	}
	return all
}
