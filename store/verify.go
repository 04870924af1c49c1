package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/internal/sqldb"
)

// Verify checks these invariants, and names the first that does not hold, as
// fault.InternalError:
//
//	I1   the entries of an account sum to its posted balance, and each entry to zero
//	I2   0 ≤ held ≤ posted, on every account
//	I3   what is held is the sum of the open holds
//	I4   a hold has ended once: it is open, or has one receipt and at most one capture
//	I5   no hold is open long after its expiry
//	I6   no request is charged more than its hold and what was available
//	I7   credits, revenue and overrun are the sums of the entries
//	I9   every open video task has its hold, and none that has ended has one
//	I10  the sums of usage are those of the receipts, also of those that were moved into files
//	I11  a charge and its overrun are the receipt's units times its price, and each price
//	     row is what its version is the hash of
//	I12  each budget is what its last entry says, and has counted what its subject spent
//
// (I8 is about what clients were told, which no database can tell.) It reads every
// receipt and every entry, beside a store that runs, and takes as long as it takes.
//
// It reads a part at a time, each part in one short transaction: a long one would
// keep every dead version of the rows that all batches change, and slow down the
// whole database. Each part compares rows that one transaction writes together, so
// that what is settled meanwhile is never taken for damage. What is added after the
// start may be left to the next Verify.
//
// It fails with fault.ServiceUnavailable where others read for long already, and
// with fault.InternalError where the database answers and what it holds cannot be read.
func (db *dbLedger) Verify(ctx context.Context) error {
	conn, err := db.reportConn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it goes back to its pool
	broken, err := verification{db.DB, ctx, conn}.inconsistency()
	switch {
	case err != nil:
		return db.errUnreadable(ctx, err)
	case broken != "":
		return fault.New(fault.InternalError, "The ledger is inconsistent. "+broken)
	}
	return nil
}

// errUnreadable is what callers get where the ledger could not be read to its end. Unless
// the database is away, to try again would not help.
func (db *DB) errUnreadable(ctx context.Context, err error) error {
	waiting, cancel := context.WithTimeout(ctx, db.options.WaitTimeout)
	defer cancel()
	// The driver cannot place every error of a connection that is gone.
	if db.failure(err) != sqldb.Broken || db.reader.PingContext(waiting) != nil {
		return db.unavailableOrCanceled(ctx, err)
	}
	return fault.Wrap(fault.InternalError, "The gateway's database answers, but the ledger in it cannot be read. The server's log has what the database said.", err)
}

// snapshot is a transaction that reads one state and may take any time.
func (db *DB) snapshot(ctx context.Context, conn *sql.Conn) (*sql.Tx, error) {
	t, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: db.dialect.Snapshot, ReadOnly: true})
	if err != nil || db.dialect.NoTimeout == "" {
		return t, err
	}
	if _, err := t.ExecContext(ctx, db.dialect.NoTimeout); err != nil {
		return nil, errors.Join(err, t.Rollback())
	}
	return t, nil
}

// verification is one run of Verify.
type verification struct {
	db   *DB
	ctx  context.Context
	conn *sql.Conn
}

// inconsistency is the first invariant that does not hold, and for what; empty
// if all do. The order matters: a part trusts what those before it have checked.
func (v verification) inconsistency() (broken string, err error) {
	r := &recomputation{verification: v}
	for _, part := range [...]func() (string, error){v.current, v.journal, r.receipts, v.usage, v.totals, v.archives, r.checkBudgets, v.accounts} {
		if broken, err = part(); err != nil || broken != "" {
			return broken, err
		}
	}
	return "", nil
}

// read does its reading on one state of the database.
func (v verification) read(do func(q session) error) error {
	t, err := v.db.snapshot(v.ctx, v.conn)
	if err != nil {
		return err
	}
	defer func() { _ = t.Rollback() }() // it has changed nothing
	return do(session{v.db, t})
}

// find returns what the first check says that finds something. Each check reads a state of its
// own.
func (v verification) find(checks []check, args ...any) (broken string, err error) {
	for _, c := range checks {
		err := v.read(func(q session) (err error) {
			broken, err = c.find(v.ctx, q, args)
			return err
		})
		if err != nil || broken != "" {
			return broken, err
		}
	}
	return "", nil
}

// check is a query for rows that must not exist. Three texts or numbers of a row complete the
// message.
type check struct{ invariant, message, query string }

// find returns the message about the first row; empty if there is none.
func (c check) find(ctx context.Context, q session, args []any) (string, error) {
	var subject, got, want string
	err := q.queryRow(ctx, c.query+" LIMIT 1", args...).Scan(&subject, &got, &want)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return c.invariant + ": " + fmt.Sprintf(c.message, subject, got, want), err
}

// expiryGrace is how long after its expiry a hold may wait for the sweep.
const expiryGrace = 10 * time.Minute

// current checks what is open. It grows with what runs and with the number of
// accounts, not with what has been settled.
func (v verification) current() (string, error) {
	var now, archived int64
	err := v.read(func(q session) (err error) {
		if now, err = v.db.now(v.ctx, q); err == nil {
			archived, err = q.settingNumber(v.ctx, settingArchived)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	if archived > startOfDay(now-archiveAge.Nanoseconds()) { // receipts of those days would not be compared
		return "I10: receipts are said to have been archived up to " + timeAt(archived).Format(time.DateOnly) + ", and those of the last three days never are", nil
	}
	if broken, err := v.find(openChecks); err != nil || broken != "" {
		return broken, err
	}
	if broken, err := v.heldOfBudgets(); err != nil || broken != "" {
		return broken, err
	}
	return v.find(expiryChecks, now-expiryGrace.Nanoseconds())
}

var openChecks = []check{
	{"I2", "account %[1]q holds %[2]s of %[3]s",
		"SELECT id, held, posted FROM account WHERE held < 0 OR held > posted"},
	{"I4", "hold %[1]q is open and has a receipt (%[2]s, %[3]s)",
		"SELECT hold.id, hold.amount, receipt.status FROM hold JOIN receipt ON receipt.id = hold.id"},
	{"I9", "the video %[1]q has not ended (%[2]s), and its hold %[3]q has",
		"SELECT id, state, request_id FROM task WHERE NOT ended AND held AND NOT EXISTS (SELECT 1 FROM hold WHERE hold.id = task.request_id)"},
	{"I9", "the video %[1]q has ended (%[2]s), and its hold %[3]q has not",
		"SELECT task.id, state, request_id FROM hold CROSS JOIN task WHERE task.request_id = hold.id AND ended AND held"},
	{"I3", "hold %[1]q belongs to account %[2]q, which does not exist (%[3]s)",
		"SELECT id, account, amount FROM hold WHERE NOT EXISTS (SELECT 1 FROM account WHERE account.id = hold.account)"},
	{"I11", "hold %[1]q of account %[2]q is charged by the price row %[3]q, which is not there",
		"SELECT id, account, price FROM hold WHERE price <> '' AND NOT EXISTS (SELECT 1 FROM price WHERE version = hold.price)"},
	// The sums are of halves, which fit, whatever the amounts are.
	{"I3", "%[2]s is held on account %[1]q, its open holds do not sum to that%.0[3]s", "SELECT id, held, '' FROM account" +
		" LEFT JOIN (SELECT account AS whose, SUM(amount / " + half + ") AS high, SUM(amount % " + half + ") AS low FROM hold WHERE NOT counted" +
		" GROUP BY account) AS parts ON whose = id" +
		" WHERE " + differs("COALESCE(high, 0) - held / H", "COALESCE(low, 0) - held % H")},
	{"I12", "account %[1]q has %[3]s budgets, and says that it has %[2]s",
		"SELECT id, budgets, COALESCE(n, 0) FROM account LEFT JOIN (SELECT account, COUNT(*) AS n FROM budget WHERE NOT ended GROUP BY account) AS b ON b.account = id" +
			" WHERE budgets <> COALESCE(n, 0)"},
	{"I12", "the budget %[1]s on %[2]s of account %[3]q is not what was set last: set it again",
		"SELECT b.id, b.subject, b.account FROM budget AS b LEFT JOIN budget_entry AS e ON e.number = (SELECT MAX(number) FROM budget_entry AS m WHERE m.budget = b.id)" +
			" WHERE e.number IS NULL OR e.amount <> b.amount OR e.terms <> b.terms OR e.raised <> b.raised OR e.raised_until <> b.raised_until OR e.ended <> b.ended"},
	{"I12", "the budget %[1]s, to which there is an entry (%[2]s %[3]s), is not there",
		"SELECT budget, kind, amount FROM budget_entry WHERE NOT EXISTS (SELECT 1 FROM budget WHERE id = budget)"},
}

var expiryChecks = []check{
	{"I5", "hold %[1]q of account %[2]q should have ended at %[3]s",
		"SELECT id, account, expires_at FROM hold WHERE expires_at < ?"},
}

// differs is true for a sum, given in halves, that is not zero. The halves fit, whatever the
// amounts are; H is 2³².
func differs(high, low string) string {
	return strings.ReplaceAll("("+high+") * H + "+low+" <> 0", "H", half)
}

// verifyPage is how many rows one part of a walk reads.
const verifyPage = 10_000

// journal checks the entries, in the order of their numbers.
func (v verification) journal() (string, error) {
	return walk(v, "entry", "number", int64(math.MinInt64), func(before, end int64) (string, error) {
		return v.find(journalChecks, before, end)
	})
}

var journalChecks = []check{
	{"I1", "entry %[1]q does not sum to zero (%[2]s, %[3]s)",
		"SELECT reference, customer, credit FROM entry WHERE number > ? AND number <= ? AND " + differs("customer / H + credit / H", "customer % H + credit % H")},
	{"I1", "entry %[1]q belongs to account %[2]q, which does not exist (%[3]s)",
		"SELECT reference, account, kind FROM entry WHERE number > ? AND number <= ?" +
			" AND NOT EXISTS (SELECT 1 FROM account WHERE account.id = entry.account)"},
	{"I4", "entry %[1]q of account %[2]q is neither an opening nor a credit (%[3]s)",
		"SELECT reference, account, kind FROM entry WHERE number > ? AND number <= ? AND kind NOT IN ('opening', 'credit')"},
}

var receiptChecks = []check{
	{"I4", "request %[1]q was released and charged %[2]s and %[3]s",
		"SELECT id, charge, COALESCE(overrun, 0) FROM receipt WHERE id > ? AND id <= ? AND status <> 'captured' AND (charge <> 0 OR overrun <> 0)"},
	{"I6", "request %[1]q was charged %[2]s with an overrun of %[3]s",
		"SELECT id, charge, COALESCE(overrun, 0) FROM receipt WHERE id > ? AND id <= ? AND (charge < 0 OR overrun < 0)"},
	{"I10", "request %[1]q has other failed attempts than the %[2]s that it had (waste %[3]s)",
		"SELECT id, failed, wasted FROM receipt WHERE id > ? AND id <= ? AND failed IS NOT NULL AND (failed <> (SELECT COUNT(*) FROM attempt WHERE receipt = id) OR " +
			"(" + wasteOf("/") + ") * " + half + " + " + wasteOf("%") + " <> 0)"},
	{"I6", "request %[1]q was charged %[2]s of %[3]s",
		"SELECT id, charge, held FROM receipt WHERE id > ? AND id <= ? AND NOT counted AND charge > held AND charge - held > COALESCE(available, 0)"},
	{"I10", "request %[1]q belongs to account %[2]q, which does not exist (%[3]s)",
		"SELECT id, account, status FROM receipt WHERE id > ? AND id <= ? AND NOT EXISTS (SELECT 1 FROM account WHERE account.id = receipt.account)"},
}

// wasteOf is a half of what a receipt's attempts wasted, by the operator that gives it,
// less what the receipt says.
func wasteOf(operator string) string {
	part := operator + half
	return "(SELECT COALESCE(SUM(waste" + part + "), 0) FROM attempt WHERE receipt = id) - wasted" + part
}

// walk has check look at the rows that a table has at its start, some at a time in the order
// of their key: those after before and up to end. No key is as small as the first before.
func walk[K any](v verification, table, key string, before K, check func(before, end K) (string, error)) (string, error) {
	last, more, err := bound(v, "SELECT "+key+" FROM "+table+" ORDER BY "+key+" DESC LIMIT 1", before)
	if !more || err != nil {
		return "", err
	}
	next := "SELECT " + key + " FROM " + table + " WHERE " + key + " > ? AND " + key + " <= ? ORDER BY " + key + fmt.Sprintf(" LIMIT 1 OFFSET %d", verifyPage-1)
	for more {
		var end K
		if end, more, err = bound(v, next, last, before, last); err != nil {
			return "", err
		}
		if broken, err := check(before, end); err != nil || broken != "" {
			return broken, err
		}
		before = end
	}
	return "", nil
}

// bound is the key that a query finds; where it finds none it is otherwise, and
// found is false.
func bound[K any](v verification, query string, otherwise K, args ...any) (key K, found bool, err error) {
	err = v.read(func(q session) error { return q.queryRow(v.ctx, query, args...).Scan(&key) })
	if errors.Is(err, sql.ErrNoRows) {
		return otherwise, false, nil
	}
	return key, err == nil, err
}

// accounts compares every account with what made it so: its entries, and its charges,
// whose sums usage_hour has once they were compared with the receipts.
func (v verification) accounts() (string, error) {
	for after := ""; ; {
		var names []string
		err := v.read(func(q session) (err error) {
			names, err = collect(v.ctx, q, scanOne[string], "SELECT id FROM account WHERE id > ? ORDER BY id LIMIT ?", after, verifyPage/10)
			return err
		})
		if err != nil || len(names) == 0 {
			return "", err
		}
		if broken, err := v.positions(names); err != nil || broken != "" {
			return broken, err
		}
		after = names[len(names)-1]
	}
}

// positions compares accounts with their entries, and with their charges as usage_hour
// has them.
func (v verification) positions(names []string) (broken string, err error) {
	err = v.read(func(q session) error {
		entries, err := v.sumsOf(q, names, "entry", "TRUE", "customer", "credit")
		if err != nil {
			return err
		}
		charges, err := v.sumsOf(q, names, "usage_hour", "NOT counted", "charge", "overrun")
		if err != nil {
			return err
		}
		if broken, err = v.budgetsSpent(q, names); err != nil || broken != "" {
			return err
		}
		return queryAll(v.ctx, q, v.db.bulk("SELECT "+accountColumns+" FROM account WHERE id IN[t]"), anys(names), func(rows Row) error {
			a, err := scanAccount(rows)
			if err != nil || broken != "" {
				return err
			}
			e, c := entries[a.name], charges[a.name]
			for _, column := range [...]struct {
				invariant, name string
				got             billing.Money
				want            *big.Int
			}{
				{"I1", "posted", a.Posted, new(big.Int).Sub(e.of(0), c.of(0))},
				{"I7", "credited", a.Credited, new(big.Int).Neg(e.of(1))},
				{"I7", "revenue", a.Revenue, new(big.Int).Add(c.of(0), c.of(1))},
				{"I7", "overrun", a.Overrun, c.of(1)},
			} {
				if column.want.Cmp(big.NewInt(int64(column.got))) != 0 {
					broken = fmt.Sprintf("%s: the entries and charges of account %q do not sum to its %s, %d", column.invariant, a.name, column.name, column.got)
					break
				}
			}
			return nil
		})
	})
	return broken, err
}

// sumsOf sums columns of those rows of a table for which a condition holds, by account.
func (v verification) sumsOf(q session, names []string, table, condition string, columns ...string) (map[string]totals, error) {
	all := map[string]totals{}
	find := v.db.bulk("SELECT account, " + sums(columns...) + " FROM " + table + " WHERE " + condition + " AND account IN[t] GROUP BY account")
	err := queryAll(v.ctx, q, find, anys(names), func(rows Row) error {
		var name string
		t := make(totals, len(columns))
		err := rows.Scan(append([]any{&name}, t.scan()...)...)
		all[name] = t
		return err
	})
	return all, err
}

// usage compares usage_hour with the receipts, some hours at a time.
func (v verification) usage() (string, error) {
	for first, more := int64(math.MinInt64), true; more; {
		end, requests := first, int64(0)
		for more && requests < verifyPage {
			var n int64
			err := v.read(func(q session) error {
				return q.queryRow(v.ctx, "SELECT hour, CAST(SUM(requests) AS BIGINT) FROM usage_hour WHERE hour >= ? GROUP BY hour ORDER BY hour LIMIT 1", end).Scan(&end, &n)
			})
			if more = !errors.Is(err, sql.ErrNoRows); err != nil && more {
				return "", err
			}
			end, requests = end+time.Hour.Nanoseconds(), requests+n
		}
		if !more {
			end = math.MaxInt64
		}
		if broken, err := v.compareUsage(first, end); err != nil || broken != "" {
			return broken, err
		}
		first = end
	}
	return "", nil
}

// compareUsage compares what was settled from first, inclusive, to end, and not moved
// out by Archive: of those days usage_hour is all that there is, which accounts are
// compared with.
func (v verification) compareUsage(first, end int64) (string, error) {
	var kept, receipts map[usageGroup]usageSums
	err := v.read(func(q session) (err error) {
		archived, err := q.settingNumber(v.ctx, settingArchived)
		if err != nil {
			return err
		}
		first := max(first, archived)
		if kept, err = v.sumUsage(q, "usage_hour", "hour", "hour", "CAST(SUM(requests) AS BIGINT)", first, end); err != nil {
			return err
		}
		receipts, err = v.sumUsage(q, "receipt", "settled_at", hourColumn, "COUNT(*)", first, end)
		return err
	})
	if err != nil {
		return "", err
	}
	for g, sums := range receipts {
		if kept[g] != sums {
			return differentUsage(g), nil
		}
		delete(kept, g)
	}
	for g := range kept {
		return differentUsage(g), nil
	}
	return "", nil
}

// archives compares the files that receipts were moved into, and what is left in the
// database, with the usage of their days.
func (v verification) archives() (string, error) {
	var first, end int64
	err := v.read(func(q session) (err error) {
		if first, err = q.settingNumber(v.ctx, settingUnlisted); err == nil {
			end, err = q.settingNumber(v.ctx, settingArchived)
		}
		return err
	})
	for err == nil {
		var found bool
		if first, found, err = bound(v, "SELECT hour FROM usage_hour WHERE hour >= ? AND hour < ? ORDER BY hour LIMIT 1", first, first, end); err != nil || !found {
			break
		}
		day := startOfDay(first)
		if broken, err := v.archivedDay(day); err != nil || broken != "" {
			return broken, err
		}
		first = day + (24 * time.Hour).Nanoseconds()
	}
	return "", err
}

// archivedDay is archives for one day.
func (v verification) archivedDay(day int64) (broken string, err error) {
	err = v.read(func(q session) error {
		listed, err := v.db.listArchive(v.ctx, q, "day = ?", day)
		if err != nil {
			return err
		}
		kept, charges := int64(0), new(big.Int)
		for i := range listed {
			if !listed[i].finished {
				return nil // its receipts are being deleted, or will be
			}
			kept += listed[i].Receipts
			charges.Add(charges, listed[i].Charge)
		}
		end := day + (24 * time.Hour).Nanoseconds()
		var used, left int64
		usage, receipts := make(totals, 1), make(totals, 1)
		err = q.queryRow(v.ctx, "SELECT CAST(COALESCE(SUM(requests), 0) AS BIGINT), "+sums("charge")+" FROM usage_hour WHERE hour >= ? AND hour < ?", day, end).
			Scan(append([]any{&used}, usage.scan()...)...)
		if err == nil {
			err = q.queryRow(v.ctx, "SELECT COUNT(*), "+sums("charge")+" FROM receipt WHERE settled_at >= ? AND settled_at < ?", day, end).
				Scan(append([]any{&left}, receipts.scan()...)...)
		}
		if charges.Add(charges, receipts.of(0)); kept+left != used || charges.Cmp(usage.of(0)) != 0 {
			broken = fmt.Sprintf("I10: the files and receipts of %s have %d requests, and its usage %d", timeAt(day).Format(time.DateOnly), kept+left, used)
		}
		return err
	})
	return broken, err
}

func differentUsage(g usageGroup) string {
	return fmt.Sprintf("I10: the usage of account %q by key %q and model %q in the hour from %s is not the sum of its receipts",
		g.account, g.key, g.model, timeAt(g.hour).Format(time.RFC3339))
}

// hourColumn is the hour in which a receipt was settled, as usage_hour has it.
const hourColumn = "settled_at - ((settled_at % 3600000000000) + 3600000000000) % 3600000000000"

// sumUsage sums the rows of a table by their groups.
func (v verification) sumUsage(q session, table, at, hour, requests string, first, end int64) (map[usageGroup]usageSums, error) {
	all := map[usageGroup]usageSums{}
	err := forEach(v.ctx, q, func(rows Row) error {
		var g usageGroup
		var values usageSums
		t := make(totals, len(values)-3)
		err := rows.Scan(append([]any{&g.account, &g.hour, &g.key, &g.model, &g.operation, &g.counted, &values[0], &values[1], &values[2]}, t.scan()...)...)
		for i := range t {
			values[i+3] = t[i].capped()
		}
		all[g] = values
		return err
	}, "SELECT account, "+hour+", key_id, model, operation, counted, "+requests+", COALESCE(MAX(estimated), 0), COALESCE(MAX(anomaly), 0), "+
		sums(strings.Split(summedColumns, ", ")...)+" FROM "+table+" WHERE "+at+" >= ? AND "+at+" < ? GROUP BY 1, 2, 3, 4, 5, 6", first, end)
	return all, err
}
