package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// database is a kind of database that is measured. Each run has an empty one.
type database struct {
	name  string
	open  func(ctx context.Context, n int) (*store.DB, error)
	bare  func(n int) (*sql.DB, error) // one with nothing of the store in it
	close func() error
}

// patience is long: what is measured is how fast a ledger is that refuses nobody.
var patience = store.Options{WaitTimeout: time.Minute}

func onSQLite(o options) database {
	file := func(n int) string { return filepath.Join(o.dir, fmt.Sprint(n, ".db")) }
	return database{
		name: "SQLite",
		open: func(ctx context.Context, n int) (*store.DB, error) { return sqlite.Open(ctx, file(n), patience) },
		bare: func(n int) (*sql.DB, error) {
			return sql.Open("sqlite", file(n)+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
		},
		close: func() error { return nil },
	}
}

func onPostgres() (database, error) {
	server := &pgtest.Server{URL: os.Getenv("TOLLHOUSE_TEST_POSTGRES")}
	stop := func() error { return nil }
	if server.URL == "" {
		var err error
		if server, err = pgtest.Start(); err != nil {
			return database{}, err
		}
		stop = func() error { return server.Stop("immediate") }
	}
	admin, err := sql.Open("pgx", server.URL)
	if err != nil {
		return database{}, errors.Join(err, stop())
	}
	return database{
		name: "Postgres",
		open: func(ctx context.Context, n int) (*store.DB, error) {
			name := fmt.Sprintf("bench_%d_%d", os.Getpid(), n)
			if _, err := admin.ExecContext(ctx, "CREATE SCHEMA "+name); err != nil {
				return nil, err
			}
			return postgres.Open(ctx, with(server.URL, "search_path", name), patience)
		},
		bare:  func(int) (*sql.DB, error) { return sql.Open("pgx", with(server.URL, "synchronous_commit", "on")) },
		close: func() error { return errors.Join(admin.Close(), stop()) },
	}, nil
}

// with is an address with one more setting.
func with(address, name, value string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" {
		return address + " " + name + "=" + value
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}
