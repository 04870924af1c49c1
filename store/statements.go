package store

import (
	"context"
	"database/sql"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store/internal/sqldb"
)

// The columns of a row, in the order in which they are scanned and written.
const (
	accountColumns = "id, posted, held, credited, revenue, overrun, budgets"
	budgetColumns  = "id, account, subject, terms, amount, raised, raised_until, ended, begins, since, spent, held"
	holdColumns    = "id, node, account, budgets, key_id, operation, model, price, amount, so_far, created_at, expires_at, counted"
	countColumns   = "input, cached_input, cache_write, output, reasoning, image_input, image_output, image, second, character, search_unit, request"
	attemptColumns = "receipt, number, account, channel, model, code, status, billable, used, waste, started_at, duration, settled_at"
	entryColumns   = "account, kind, reference, customer, credit, created_at"
)

// The columns of a receipt as they are written: those of every receipt, and those that most do
// not need.
const (
	plainColumns = "id, account, key_id, operation, model, status, price_number, held, charge, reason, channel, created_at, settled_at, counted, input, cached_input, output, reasoning"
	rareColumns  = "overrun, available, cache_write, image_input, image_output, image, second, character, search_unit, request, variant, estimated, zero, anomaly, failed, wasted"
)

// receiptColumns are the columns of a receipt in the order in which they are scanned.
const receiptColumns = "id, account, key_id, operation, model, status, COALESCE((SELECT version FROM price WHERE number = price_number), ''), held, charge, COALESCE(overrun, 0), reason, channel, created_at, settled_at," +
	" COALESCE(input, 0), COALESCE(cached_input, 0), COALESCE(cache_write, 0), COALESCE(output, 0), COALESCE(reasoning, 0), COALESCE(image_input, 0), COALESCE(image_output, 0)," +
	" COALESCE(image, 0), COALESCE(second, 0), COALESCE(character, 0), COALESCE(search_unit, 0), COALESCE(request, 0), COALESCE(variant, ''), COALESCE(estimated, 0), COALESCE(zero, 0), COALESCE(anomaly, 0)"

// spellings are the statements as the dialect spells them, by how they are written.
type spellings struct{ single, bulk sync.Map }

// text is a statement, written with ? for its arguments, as the dialect spells
// it. Statements hold no other question marks.
func (db *DB) text(query string) string {
	if !db.dialect.Numbered {
		return query
	}
	if known, ok := db.spellings.single.Load(query); ok {
		return known.(string)
	}
	numbered := numbered(query)
	db.spellings.single.Store(query, numbered)
	return numbered
}

func numbered(query string) string {
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(query, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		query = after
	}
}

// bulk is a statement over many rows of arguments. It is written with ROWS[kinds] for the
// rows, whose columns are column1, column2 and so on, or with IN[kind] after a column that has
// one of many values. The kinds are a letter for each column, as in arrays.
type bulk struct {
	kinds  string
	arrays bool     // a column is one argument, however many rows there are
	texts  []string // otherwise: for 1, 2, 4 rows and so on
}

// arrays are, by the letter of what a column has, how it is an argument.
var arrays = map[rune]string{'t': "CAST(? AS TEXT[])", 'n': "CAST(? AS BIGINT[])", 'b': "CAST(? AS BOOLEAN[])", 'y': "CAST(? AS BYTEA[])"}

// maxArgs is how many arguments a statement gets where columns cannot be arrays.
// SQLite's driver finds each argument by going through all of them: with ten
// times as many a row takes several times as long.
const maxArgs = 32

// bulk spells a statement once.
func (db *DB) bulk(query string) *bulk {
	if known, ok := db.spellings.bulk.Load(query); ok {
		return known.(*bulk)
	}
	b := newBulk(db.dialect, query)
	db.spellings.bulk.Store(query, b)
	return b
}

func newBulk(d sqldb.Dialect, query string) *bulk {
	if !d.Shared { // one process has the database for itself
		query = strings.ReplaceAll(query, " FOR UPDATE", "")
	}
	before, rest, isRows := strings.Cut(query, "ROWS[")
	if !isRows {
		before, rest, _ = strings.Cut(query, "IN[")
	}
	kinds, after, _ := strings.Cut(rest, "]")
	b := &bulk{kinds: kinds, arrays: d.Arrays}
	if b.arrays {
		var columns, names []string
		for i, kind := range kinds {
			columns = append(columns, arrays[kind])
			names = append(names, "column"+strconv.Itoa(i+1))
		}
		rows := "SELECT * FROM unnest(" + strings.Join(columns, ", ") + ") AS rows (" + strings.Join(names, ", ") + ")"
		if !isRows { // every database goes to each value by index, however large it believes the table to be
			rows = "= ANY(" + columns[0] + ")"
		}
		b.texts = []string{before + rows + after}
		return b
	}
	row := "(" + strings.TrimSuffix(strings.Repeat("?, ", len(kinds)), ", ") + ")"
	if !strings.HasPrefix(query, "SELECT ") {
		b.texts = []string{eachRow(before, row, after, isRows)}
		return b
	}
	for n := 1; n == 1 || n*len(kinds) <= maxArgs; n *= 2 {
		rows := "VALUES " + strings.TrimSuffix(strings.Repeat(row+", ", n), ", ")
		if !isRows {
			rows = "IN (" + rows + ")"
		}
		b.texts = append(b.texts, before+rows+after)
	}
	return b
}

// eachRow spells a write for one row. SQLite runs it several times faster than it makes and
// joins a table of the rows.
func eachRow(before, row, after string, isRows bool) string {
	if !isRows {
		return before + "= " + row + after
	}
	if in, found := strings.CutSuffix(before, "IN ("); found {
		return in + "= " + row + strings.TrimPrefix(after, ")")
	}
	if update, found := strings.CutSuffix(before, " FROM ("); found {
		return strings.ReplaceAll(update+strings.TrimPrefix(after, ") AS c"), "c.column", "?")
	}
	return before + "VALUES " + row + after
}

// each calls do with statements and their part of args until all are used.
func (b *bulk) each(args []any, do func(query string, args []any) error) error {
	if b.arrays && len(args) > 0 {
		return do(b.texts[0], b.columns(args))
	}
	width := len(b.kinds)
	for left := len(args) / width; left > 0; left = len(args) / width {
		i := min(bits.Len(uint(left)), len(b.texts)) - 1
		n := width << i
		if err := do(b.texts[i], args[:n]); err != nil {
			return err
		}
		args = args[n:]
	}
	return nil
}

// columns are rows of arguments as an array for each column.
func (b *bulk) columns(args []any) []any {
	width := len(b.kinds)
	all := make([]any, width)
	for i := range all {
		switch b.kinds[i] {
		case 't':
			all[i] = column(args[i:], width, func(arg any) string { return arg.(string) })
		case 'y':
			all[i] = column(args[i:], width, func(arg any) []byte { return arg.([]byte) })
		case 'b':
			all[i] = column(args[i:], width, func(arg any) bool { return arg.(bool) })
		case 'n':
			all[i] = column(args[i:], width, func(arg any) int64 {
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

// assigned sets columns to those of the rows "c" from the nth on.
func assigned(columns string, n int) string {
	names := strings.Split(columns, ", ")
	for i, name := range names {
		names[i] = name + " = c.column" + strconv.Itoa(n+i)
	}
	return strings.Join(names, ", ")
}

// source is what the committer's transaction and a session have in common.
// Statements are written with ? for their arguments.
type source interface {
	query(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// queryAll calls scan for each row that a bulk query finds.
func queryAll(ctx context.Context, q source, b *bulk, args []any, scan func(Row) error) error {
	return b.each(args, func(query string, args []any) error { return forEach(ctx, q, scan, query, args...) })
}

// forEach calls scan for each row that a query finds.
func forEach(ctx context.Context, q source, scan func(Row) error, query string, args ...any) error {
	rows, err := q.query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err tells
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// collect is what scan makes of each row that a query finds; nil if it finds none.
func collect[T any](ctx context.Context, q source, scan func(Row) (T, error), query string, args ...any) ([]T, error) {
	var all []T
	err := forEach(ctx, q, func(rows Row) error {
		one, err := scan(rows)
		all = append(all, one)
		return err
	}, query, args...)
	if err != nil {
		return nil, err
	}
	return all, nil
}

// scanOne reads a row of one column.
func scanOne[T any](rows Row) (v T, err error) {
	err = rows.Scan(&v)
	return v, err
}

// sortedKeys are the keys of a set as arguments, in the order in which rows are locked.
func sortedKeys[V any](set map[string]V) []any {
	keys := make([]any, 0, len(set))
	for key := range set {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	return keys
}

// anys are values as arguments.
func anys[T any](values []T) []any {
	all := make([]any, len(values))
	for i, v := range values {
		all[i] = v
	}
	return all
}
