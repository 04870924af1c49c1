package store

import (
	"context"
	"database/sql"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
)

// statements are those that the committer runs in bulk, or whose text depends
// on the dialect.
type statements struct {
	renewLease, register, markDead, deleteNode                     string
	accounts, currentBudgets, budgets, holds, endHolds, receipts   bulk
	updateAccount, insertAccount, updateBudget                     bulk
	insertHold, updateHold, insertReceipt, insertEntry             bulk
	addUsage                                                       bulk
	insertAttempt                                                  bulk
	claimed, dropAnswer, insertClaim, keepAnswer, freeClaims       bulk
	accountsOfHolds, unlockedHolds, unlockedAccounts, accountNames bulk

	tasks, taskOf, openTasks, recentTasks, submittedTasks bulk
	insertTask, updateTask, deleteTask, leaseTask         bulk
	insertNotice, leaseNotice                             bulk
}

// The columns of a row, in the order in which they are scanned and written.
const (
	accountColumns = "id, posted, held, credited, revenue, overrun, budgets"
	budgetColumns  = "id, account, key_id, posted, held"
	holdColumns    = "id, node, account, budget, key_id, operation, model, price, amount, so_far, created_at, expires_at, counted"
	receiptColumns = "id, account, key_id, operation, model, status, price, held, charge, overrun, reason, channel, created_at, settled_at, " + usageColumns
	usageColumns   = countColumns + ", variant, estimated, zero, anomaly"
	countColumns   = "input, cached_input, cache_write, output, reasoning, image_input, image_output, image, second, character"
	attemptColumns = "receipt, number, account, channel, model, code, status, billable, used, waste, started_at, duration, settled_at"
	entryColumns   = "account, kind, reference, customer, credit, revenue, overrun, held, available, created_at"
)

func newStatements(d Dialect) *statements {
	// A lease that ended while the database was down tells nothing before its
	// holder had the time to renew it. One of 0 was given back.
	clock, old := d.Clock, " AND lease_until + ? < "+d.Clock
	others := " AND lease_until < " + d.Clock + " AND (lease_until = 0 OR lease_until >= " + d.Started + " OR " + d.Started + " + ? < " + d.Clock + ")"
	if clock == "" { // no other process can be alive, or come back
		clock, others, old = "0", " AND ? > 0", " AND ? > 0"
	}
	s := &statements{
		renewLease: "UPDATE node SET lease_until = " + clock + " + ? WHERE id = ? AND NOT dead",
		register:   "INSERT INTO node (commits, lease_until, dead, started_at) VALUES (1, " + clock + " + ?, FALSE, ?) RETURNING id, " + clock,
		markDead:   "UPDATE node SET dead = TRUE WHERE NOT dead AND id <> ?" + others,
		deleteNode: "DELETE FROM node WHERE dead AND id = ?" + old + " AND id NOT IN (SELECT node FROM hold)",

		accounts:       newLookup(d, "SELECT "+accountColumns+" FROM account WHERE id", 't', " ORDER BY id"+d.Lock),
		currentBudgets: newBulk(d, "SELECT "+budgetColumns+" FROM budget WHERE NOT ended AND (account, key_id) IN (", "tt", ")"),
		budgets:        newLookup(d, "SELECT "+budgetColumns+" FROM budget WHERE id", 'n', ""),
		holds:          newLookup(d, "SELECT "+holdColumns+" FROM hold WHERE id", 't', ""),
		endHolds:       newLookup(d, "DELETE FROM hold WHERE id", 't', " RETURNING "+holdColumns),
		receipts:       newLookup(d, "SELECT "+receiptColumns+" FROM receipt WHERE id", 't', ""),

		// A balance is changed by a difference, and the result must be a legal balance:
		// nothing that was decided in memory gets past these guards.
		updateAccount: newBulk(d, "UPDATE account SET posted = posted + c.column2, held = held + c.column3, credited = credited + c.column4,"+
			" revenue = revenue + c.column5, overrun = overrun + c.column6, budgets = budgets + c.column7 FROM (", "tnnnnnn",
			") AS c WHERE id = c.column1 AND posted + c.column2 >= held + c.column3 AND held + c.column3 >= 0"),
		updateBudget: newBulk(d, "UPDATE budget SET posted = posted + c.column2, held = held + c.column3 FROM (", "nnn",
			") AS c WHERE id = c.column1 AND posted + c.column2 >= held + c.column3 AND held + c.column3 >= 0"),
		updateHold: newBulk(d, "UPDATE hold SET amount = c.column2, so_far = c.column3, expires_at = c.column4 FROM (", "tntn", ") AS c WHERE id = c.column1"),

		insertAccount: newBulk(d, "INSERT INTO account ("+accountColumns+", created_at) ", "tnnnnnnn", ""),
		insertHold:    newBulk(d, "INSERT INTO hold ("+holdColumns+") ", "tntnttttntnnb", ""),
		insertReceipt: newBulk(d, "INSERT INTO receipt ("+receiptColumns+", counted) ", "tttttttnnnttnnnnnnnnnnnntnnnb", ""),
		addUsage:      newBulk(d, "INSERT INTO usage_hour (account, hour, key_id, model, operation, counted, requests, estimated, anomaly, "+summedColumns+") ", "tntttb"+strings.Repeat("n", len(usageSums{})), addedUsage()),
		insertAttempt: newBulk(d, "INSERT INTO attempt ("+attemptColumns+") ", "tnttttnntnnnn", ""),
		insertEntry:   newBulk(d, "INSERT INTO entry ("+entryColumns+") ", "tttnnnnnnn", ""),
	}
	s.ofTasks(d)
	s.ofLocks(d)
	s.ofAnswers(d)
	return s
}

// ofTasks are the statements about videos.
func (s *statements) ofTasks(d Dialect) {
	const all = "SELECT " + taskColumns + " FROM task WHERE "
	s.tasks = newLookup(d, all+"id", 't', " ORDER BY id"+d.Lock)
	s.taskOf = newLookup(d, all+"NOT ended AND request_id", 't', " ORDER BY id"+d.Lock)
	s.openTasks = newBulk(d, "SELECT account, key_id, COUNT(*) FROM task WHERE NOT ended AND (account, key_id) IN (", "tt", ") GROUP BY account, key_id")
	s.recentTasks = newBulk(d, "SELECT "+taskColumns+" FROM (", "tn", ") AS c JOIN task ON fingerprint = c.column1 AND noted_at > c.column2")
	s.submittedTasks = newLookup(d, all+"state = 'submitting' AND fingerprint", 't', "")

	s.insertTask = newBulk(d, "INSERT INTO task ("+taskColumns+", owner, lease_until) ", submittedKinds+livingKinds+"tn", "")
	// The version is a guard as those of the balances are.
	s.updateTask = newBulk(d, "UPDATE task SET "+assigned(livingColumns, 3)+" FROM (", "tn"+livingKinds,
		") AS c WHERE id = c.column1 AND version = c.column2 AND NOT ended")
	s.deleteTask = newLookup(d, "DELETE FROM task WHERE id", 't', "")
	s.leaseTask = newBulk(d, "UPDATE task SET owner = c.column2, lease_until = c.column3 FROM (", "ttn", ") AS c WHERE id = c.column1")

	s.insertNotice = newBulk(d, "INSERT INTO notice ("+noticeColumns+", owner, lease_until) ", noticeKinds+"tn", "")
	s.leaseNotice = newBulk(d, "UPDATE notice SET owner = c.column2, lease_until = c.column3 FROM (", "ttn", ") AS c WHERE id = c.column1")
}

// assigned sets columns to those of the rows "c" from the nth on.
func assigned(columns string, n int) string {
	var b strings.Builder
	for name := range strings.SplitSeq(columns, ", ") {
		fmt.Fprintf(&b, "%s = c.column%d, ", name, n)
		n++
	}
	return strings.TrimSuffix(b.String(), ", ")
}

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
func queryAll(ctx context.Context, q querier, b *bulk, args []any, scan func(*sql.Rows) error) error {
	return b.each(args, func(query string, args []any) error { return forEach(ctx, q, scan, query, args...) })
}

// forEach calls scan for each row that a query finds.
func forEach(ctx context.Context, q querier, scan func(*sql.Rows) error, query string, args ...any) error {
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
func collect[T any](ctx context.Context, q querier, scan func(*sql.Rows) (T, error), query string, args ...any) ([]T, error) {
	var all []T
	err := forEach(ctx, q, func(rows *sql.Rows) error {
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
func scanOne[T any](rows *sql.Rows) (v T, err error) {
	err = rows.Scan(&v)
	return v, err
}
