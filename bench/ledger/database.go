package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// database is a kind of database that is measured. Each run has an empty one.
type database struct {
	name  string
	open  func(ctx context.Context, n int, o store.Options) (*store.DB, error)
	bare  func(n int) (*sql.DB, error) // one with nothing of the store in it
	close func() error
}

// patience is long: what is measured is how fast a ledger is that refuses nobody.
const patience = time.Minute

func onSQLite(o options) database {
	file := func(n int) string { return filepath.Join(o.dir, fmt.Sprint(n, ".db")) }
	return database{
		name: "SQLite",
		open: func(ctx context.Context, n int, o store.Options) (*store.DB, error) {
			return sqlite.Open(ctx, file(n), o)
		},
		bare: func(n int) (*sql.DB, error) {
			return sql.Open("sqlite", file(n)+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
		},
		close: func() error { return nil },
	}
}

func onPostgres(o options) (database, error) {
	server := &pgtest.Server{URL: os.Getenv("TOLLHOUSE_TEST_POSTGRES")}
	stop := func() error { return nil }
	if server.URL == "" {
		var err error
		if server, err = pgtest.Start(); err != nil {
			return database{}, err
		}
		stop = func() error { return server.Stop("immediate") }
	}
	address := server.URL
	if o.delay > 0 {
		far, hangUp, err := pgtest.Between(server.URL, delayed(o.delay/2))
		if err != nil {
			return database{}, errors.Join(err, stop())
		}
		near := stop
		address, stop = far, func() error { return errors.Join(hangUp(), near()) }
	}
	admin, err := sql.Open("pgx", server.URL)
	if err != nil {
		return database{}, errors.Join(err, stop())
	}
	return database{
		name: "Postgres",
		open: func(ctx context.Context, n int, o store.Options) (*store.DB, error) {
			name := fmt.Sprintf("bench_%d_%d", os.Getpid(), n)
			if _, err := admin.ExecContext(ctx, "CREATE SCHEMA "+name); err != nil {
				return nil, err
			}
			return postgres.Open(ctx, with(address, "search_path", name), o)
		},
		bare:  func(int) (*sql.DB, error) { return sql.Open("pgx", with(address, "synchronous_commit", "on")) },
		close: func() error { return errors.Join(admin.Close(), stop()) },
	}, nil
}

// delayed moves what one side of a connection sends to the other some time later.
func delayed(by time.Duration) func(to, from net.Conn, answers bool) {
	type part struct {
		due  time.Time
		data []byte
	}
	return func(to, from net.Conn, _ bool) {
		parts := make(chan part, 1_024)
		go func() {
			defer close(parts)
			for {
				data := make([]byte, 32<<10)
				n, err := from.Read(data)
				if err != nil {
					return
				}
				parts <- part{time.Now().Add(by), data[:n]}
			}
		}()
		for p := range parts {
			sleep(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				_ = from.Close()
			}
		}
	}
}

// sleep is [time.Sleep] to a tenth of a millisecond: that one may be a whole one late
// in a process that waits for its connections.
func sleep(d time.Duration) {
	if d > 0 {
		t := syscall.NsecToTimespec(d.Nanoseconds())
		_ = syscall.Nanosleep(&t, nil) // a signal makes it shorter
	}
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
