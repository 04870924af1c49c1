package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tollhouse-ai/gateway/store"
)

// round is one of everything on one database: what the disk and the database
// do at best, then each load.
type round struct {
	disk, bare float64
	trip       time.Duration // to the database and back
	results    []result
}

// measure takes turns between the floors and the loads and writes the tables.
func measure(ctx context.Context, o options, out, progress io.Writer) error {
	header(out, o)
	if o.only != "postgres" {
		if err := measureOn(ctx, o, onSQLite(o), out, progress); err != nil {
			return err
		}
	}
	if o.only == "sqlite" {
		return nil
	}
	p, err := onPostgres(o)
	if err != nil {
		fmt.Fprintln(out, "\nPostgres was NOT measured:", err)
		return nil
	}
	return measureOn(ctx, o, p, out, progress)
}

func measureOn(ctx context.Context, o options, p database, out, progress io.Writer) (err error) {
	defer func() { err = errors.Join(err, p.close()) }()
	loads := o.loads()
	var rounds []round
	for n := range o.rounds {
		fmt.Fprintf(progress, "%s, round %d of %d\n", p.name, n+1, o.rounds)
		r, err := once(ctx, o, p, loads, n*(len(loads)+1))
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		rounds = append(rounds, r)
	}
	return write(out, p.name, loads, rounds)
}

// loads are those of every round.
func (o options) loads() (all []load) {
	for kind := range strings.SplitSeq(o.kinds, ",") {
		for _, accounts := range o.accounts {
			for _, callers := range o.callers {
				if callers >= accounts {
					all = append(all, load{kind: kind, callers: callers, accounts: accounts})
				}
			}
		}
	}
	return all
}

func once(ctx context.Context, o options, p database, loads []load, n int) (r round, err error) {
	if r.disk, err = disk(ctx, o); err != nil {
		return r, err
	}
	if r.bare, r.trip, err = bare(ctx, o, p, n); err != nil {
		return r, err
	}
	for i, l := range loads {
		got, err := on(ctx, o, p, l, n+1+i)
		if err != nil {
			return r, err
		}
		r.results = append(r.results, got)
	}
	return r, nil
}

// on runs a load on a database of its own, and verifies the ledger after it.
func on(ctx context.Context, o options, p database, l load, n int) (r result, err error) {
	var count commits
	db, err := p.open(ctx, n, store.Options{WaitTimeout: patience, Committed: count.add})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if r, err = fire(ctx, db, l, o, &count); err != nil {
		return r, err
	}
	return r, db.Ledger().Verify(ctx)
}

// median is the middle one of what of gives for each of all.
func median[A any, T cmp.Ordered](all []A, of func(A) T) T {
	var values []T
	for _, a := range all {
		values = append(values, of(a))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// disk is how often a second the disk takes 4 KiB for good, written over what
// is there, as the log of a database is.
func disk(ctx context.Context, o options) (float64, error) {
	f, err := os.Create(filepath.Join(o.dir, "floor"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	page := make([]byte, 4<<10)
	const pages = 256
	n := 0
	for ; n < pages; n++ {
		if _, err := f.WriteAt(page, int64(n*len(page))); err != nil {
			return 0, err
		}
	}
	return often(ctx, o, func() error {
		n++
		if _, err := f.WriteAt(page, int64(n%pages*len(page))); err != nil {
			return err
		}
		return syscall.Fdatasync(int(f.Fd()))
	})
}

// bare is how often a second the database commits one changed row, with nothing
// of the ledger around it, and how long it takes to answer what needs no disk.
func bare(ctx context.Context, o options, p database, n int) (commits float64, trip time.Duration, err error) {
	db, err := p.bare(n)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range []string{"DROP TABLE IF EXISTS bare", "CREATE TABLE bare (n BIGINT)", "INSERT INTO bare VALUES (0)"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return 0, 0, err
		}
	}
	var rates [2]float64
	for i, statement := range []string{"UPDATE bare SET n = n + 1", "SELECT 1"} {
		prepared, err := conn.PrepareContext(ctx, statement)
		if err != nil {
			return 0, 0, err
		}
		defer func() { _ = prepared.Close() }()
		if rates[i], err = often(ctx, o, func() error { return step(ctx, prepared) }); err != nil {
			return 0, 0, err
		}
	}
	return rates[0], time.Duration(float64(time.Second) / rates[1]), nil
}

func step(ctx context.Context, s *sql.Stmt) error {
	_, err := s.ExecContext(ctx)
	return err
}

// often is how often a second do can be done, one after the other.
func often(ctx context.Context, o options, do func() error) (float64, error) {
	began := time.Now()
	n := 0
	for ; time.Since(began) < o.each/2; n++ {
		if err := do(); err != nil {
			return 0, err
		}
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(began).Seconds(), nil
}
