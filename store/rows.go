package store

import (
	"context"
	"database/sql"
	"math/bits"
	"strings"
)

// bulk is a statement over many rows of arguments, spelled for each power of
// two of rows, so that any number of rows takes few statements and few are ever
// prepared.
type bulk struct {
	width int // arguments in a row
	texts [bulkSizes]string
}

const bulkSizes = 9 // up to 256 rows

// newBulk spells before, rows with commas between them, after.
func newBulk(before, row, after string) bulk {
	b := bulk{width: strings.Count(row, "?")}
	for i := range b.texts {
		b.texts[i] = before + strings.TrimSuffix(strings.Repeat(row+",", 1<<i), ",") + after
	}
	return b
}

// each calls do with statements and their part of args until all are used.
func (b *bulk) each(args []any, do func(query string, args []any) error) error {
	for left := len(args) / b.width; left > 0; left = len(args) / b.width {
		i := min(bits.Len(uint(left))-1, bulkSizes-1)
		n := b.width << i
		if err := do(b.texts[i], args[:n]); err != nil {
			return err
		}
		args = args[n:]
	}
	return nil
}

// execAll runs a bulk statement, which has to change one row for each row of
// arguments: where it does not, another process was faster.
func (t *tx) execAll(ctx context.Context, b *bulk, args []any) error {
	return b.each(args, func(query string, args []any) error {
		changed, err := t.exec(ctx, query, args...)
		if err == nil && changed != int64(len(args)/b.width) {
			err = errStale
		}
		return err
	})
}

// queryAll calls scan for each row that a bulk query finds.
func (t *tx) queryAll(ctx context.Context, b *bulk, args []any, scan func(*sql.Rows) error) error {
	return b.each(args, func(query string, args []any) error {
		rows, err := t.query(ctx, query, args...)
		if err != nil {
			return err
		}
		return each(rows, scan)
	})
}

// each calls scan for each row and closes rows.
func each(rows *sql.Rows, scan func(*sql.Rows) error) error {
	defer func() { _ = rows.Close() }() // Err tells
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
