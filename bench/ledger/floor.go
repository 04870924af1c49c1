package main

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

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
// of the ledger around it.
func bare(ctx context.Context, o options, p place, n int) (float64, error) {
	db, err := p.bare(n)
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	for _, statement := range []string{"DROP TABLE IF EXISTS bare", "CREATE TABLE bare (n BIGINT)", "INSERT INTO bare VALUES (0)"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return 0, err
		}
	}
	add, err := conn.PrepareContext(ctx, "UPDATE bare SET n = n + 1")
	if err != nil {
		return 0, err
	}
	defer func() { _ = add.Close() }()
	return often(ctx, o, func() error { return step(ctx, add) })
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
