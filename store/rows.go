package store

import (
	"context"
	"database/sql"
	"math/bits"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
)

// bulk is a statement over many rows of arguments.
type bulk struct {
	width  int      // arguments in a row
	kinds  string   // what each of them is, a letter for each
	arrays bool     // a column is one argument, however many rows there are
	texts  []string // otherwise: for 1, 2, 4 rows and so on
}

// arrays are, by the letter of what a column has, how it is an argument.
var arrays = map[rune]string{'t': "CAST(? AS TEXT[])", 'n': "CAST(? AS BIGINT[])", 'b': "CAST(? AS BOOLEAN[])", 'y': "CAST(? AS BYTEA[])"}

// maxArgs is how many arguments a statement gets where columns cannot be arrays.
// SQLite's driver finds each argument by going through all of them: with ten
// times as many a row takes several times as long.
const maxArgs = 32

// newBulk spells before, rows in the place of a subquery, after. The rows have
// the columns column1, column2 and so on.
func newBulk(d Dialect, before, row, after string) bulk {
	b := bulk{width: len(row), kinds: row, arrays: d.Arrays}
	if b.arrays {
		var columns, names []string
		for i, kind := range row {
			columns = append(columns, arrays[kind])
			names = append(names, "column"+strconv.Itoa(i+1))
		}
		b.texts = []string{before + "SELECT * FROM unnest(" + strings.Join(columns, ", ") + ") AS rows (" + strings.Join(names, ", ") + ")" + after}
		return b
	}
	values := "(" + strings.TrimSuffix(strings.Repeat("?, ", len(row)), ", ") + ")"
	for n := 1; n == 1 || n*len(row) <= maxArgs; n *= 2 {
		b.texts = append(b.texts, before+"VALUES "+strings.TrimSuffix(strings.Repeat(values+", ", n), ", ")+after)
	}
	return b
}

// newLookup spells before, which ends in a column, that the column is one of many
// values, and after. With an array every database goes to each value by index,
// however large it believes the table to be.
func newLookup(d Dialect, before string, kind rune, after string) bulk {
	if d.Arrays {
		return bulk{width: 1, kinds: string(kind), arrays: true, texts: []string{before + " = ANY(" + arrays[kind] + ")" + after}}
	}
	return newBulk(d, before+" IN (", string(kind), ")"+after)
}

// each calls do with statements and their part of args until all are used.
func (b *bulk) each(args []any, do func(query string, args []any) error) error {
	if b.arrays && len(args) > 0 {
		return do(b.texts[0], b.columns(args))
	}
	for left := len(args) / b.width; left > 0; left = len(args) / b.width {
		i := min(bits.Len(uint(left)), len(b.texts)) - 1
		n := b.width << i
		if err := do(b.texts[i], args[:n]); err != nil {
			return err
		}
		args = args[n:]
	}
	return nil
}

// columns are rows of arguments as an array for each column.
func (b *bulk) columns(args []any) []any {
	all := make([]any, b.width)
	for i := range all {
		switch b.kinds[i] {
		case 't':
			all[i] = column(args[i:], b.width, func(arg any) string { return arg.(string) })
		case 'y':
			all[i] = column(args[i:], b.width, func(arg any) []byte { return arg.([]byte) })
		case 'b':
			all[i] = column(args[i:], b.width, func(arg any) bool { return arg.(bool) })
		case 'n':
			all[i] = column(args[i:], b.width, func(arg any) int64 {
				if amount, ok := arg.(billing.Money); ok {
					return int64(amount)
				}
				return arg.(int64)
			})
		}
	}
	return all
}

// column is the first of every width args.
func column[T any](args []any, width int, value func(any) T) []T {
	all := make([]T, 0, len(args)/width+1)
	for i := 0; i < len(args); i += width {
		all = append(all, value(args[i]))
	}
	return all
}

// execAll runs a bulk statement, which has to change one row for each row of
// arguments: where it does not, another process was faster.
func (t *tx) execAll(ctx context.Context, b *bulk, args []any) error {
	var changed int64
	err := b.each(args, func(query string, args []any) error {
		n, err := t.execBulk(ctx, query, args)
		changed += n
		return err
	})
	if err == nil && changed != int64(len(args)/b.width) {
		err = errStale
	}
	return err
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
