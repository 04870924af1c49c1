package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// Verify checks the invariants I1 to I7 of ledger.md on one consistent state of
// the database, and that every open video has its hold and none has that has
// ended (I9). It names the first that does not hold, as fault.InternalError.
// (I8 speaks of what clients were told.) It reads every receipt and every
// entry, beside a store that runs, and takes as long as it takes. It fails with
// fault.ServiceUnavailable where others read for long already, and with
// fault.InternalError where the database answers and what it holds cannot be read.
func (db *DB) Verify(ctx context.Context) error {
	conn, err := db.lengthy(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it goes back to its pool
	broken, err := db.inconsistency(ctx, conn)
	switch {
	case err != nil:
		return db.unread(ctx, err)
	case broken != "":
		return fault.New(fault.InternalError, "The ledger is inconsistent. "+broken)
	}
	return nil
}

// inconsistency is the first invariant that does not hold, and for what; empty
// if all do.
func (db *DB) inconsistency(ctx context.Context, conn *sql.Conn) (string, error) {
	t, err := db.snapshot(ctx, conn)
	if err != nil {
		return "", err
	}
	defer func() { _ = t.Rollback() }() // it has changed nothing
	q := reading{db, t}
	now, err := db.now(ctx, q)
	if err != nil {
		return "", err
	}
	for _, check := range db.checks(now) {
		broken, err := check.find(ctx, q)
		if err != nil {
			return "", err
		}
		if broken != "" {
			return check.invariant + ": " + broken, nil
		}
	}
	return "", nil
}

// unread is what callers get where the books were not read to their end. Unless
// the database is away, to try again would not help.
func (db *DB) unread(ctx context.Context, err error) error {
	waiting, cancel := context.WithTimeout(ctx, db.options.Patience)
	defer cancel()
	// The driver cannot place every error of a connection that is gone.
	if db.failure(err) != Broken || db.reader.PingContext(waiting) != nil {
		return db.unavailable(ctx, err)
	}
	return fault.Wrap(fault.InternalError, "The gateway's database answers, but the ledger in it cannot be read. The server's log has what the database said.", err)
}

// snapshot is a transaction that reads one state and may take any time.
func (db *DB) snapshot(ctx context.Context, conn *sql.Conn) (*sql.Tx, error) {
	t, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: db.dialect.Snapshot, ReadOnly: true})
	if err != nil || db.dialect.Unhurried == "" {
		return t, err
	}
	if _, err := t.ExecContext(ctx, db.dialect.Unhurried); err != nil {
		return nil, errors.Join(err, t.Rollback())
	}
	return t, nil
}

// check is a query for what must not be: rows of up to three texts or numbers,
// which complete the message.
type check struct {
	invariant, message string
	query              string
	args               []any
}

// find is the message about the first row, empty if there is none.
func (c check) find(ctx context.Context, q querier) (string, error) {
	var subject, got, want string
	err := q.queryRow(ctx, c.query+" LIMIT 1", c.args...).Scan(&subject, &got, &want)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return fmt.Sprintf(c.message, subject, got, want), err
}

// grace is how long after its expiry a hold may wait for the sweep.
const grace = 10 * time.Minute

// checks are the invariants as queries.
func (db *DB) checks(now int64) []check {
	all := []check{
		{"I1", "entry %[1]q does not sum to zero (%[2]s, %[3]s)",
			"SELECT reference, customer, credit FROM entry WHERE " + differs(
				"customer / H + credit / H + revenue / H + overrun / H", "customer % H + credit % H + revenue % H + overrun % H"), nil},
		{"I2", "account %[1]q holds %[2]s of %[3]s",
			"SELECT id, held, posted FROM account WHERE held < 0 OR held > posted", nil},
		{"I2", "the budget of key %[1]q holds %[2]s of %[3]s",
			"SELECT key_id, held, posted FROM budget WHERE held < 0 OR held > posted", nil},
		{"I4", "hold %[1]q is open and has a receipt (%[2]s, %[3]s)",
			"SELECT hold.id, hold.amount, receipt.status FROM hold JOIN receipt ON receipt.id = hold.id", nil},
		{"I4", "entry %[1]q is not the one capture of its hold (%[2]s, receipt %[3]s)",
			"SELECT entry.reference, entry.customer, COALESCE(receipt.status, 'missing') FROM entry LEFT JOIN receipt ON receipt.id = entry.reference" +
				" WHERE entry.kind = 'capture' AND (receipt.id IS NULL OR receipt.status <> 'captured' OR receipt.account <> entry.account" +
				" OR receipt.charge <> -entry.customer OR receipt.overrun <> -entry.overrun)", nil},
		{"I4", "hold %[1]q was captured %[2]s times, for %[3]s at most",
			"SELECT reference, COUNT(*), MAX(revenue) FROM entry WHERE kind = 'capture' GROUP BY reference HAVING COUNT(*) > 1", nil},
		{"I4", "request %[1]q was released and charged %[2]s and %[3]s",
			"SELECT id, charge, overrun FROM receipt WHERE status <> 'captured' AND (charge <> 0 OR overrun <> 0)", nil},
		{"I5", "hold %[1]q of account %[2]q should have ended at %[3]s",
			"SELECT id, account, expires_at FROM hold WHERE expires_at < ?", []any{now - grace.Nanoseconds()}},
		{"I9", "the video %[1]q has not ended (%[2]s), and its hold %[3]q has",
			"SELECT id, state, request_id FROM task WHERE NOT ended AND held AND request_id NOT IN (SELECT id FROM hold)", nil},
		{"I9", "the video %[1]q has ended (%[2]s), and its hold %[3]q has not",
			"SELECT task.id, state, request_id FROM hold JOIN task ON task.request_id = hold.id WHERE ended AND held", nil},
		{"I6", "request %[1]q was charged %[2]s of %[3]s",
			"SELECT reference, -customer, held FROM entry WHERE kind = 'capture' AND -customer - held > available", nil},
		{"I6", "request %[1]q was captured for another hold (%[2]s) than its receipt tells (%[3]s)",
			"SELECT reference, entry.held, receipt.held FROM entry JOIN receipt ON receipt.id = entry.reference WHERE kind = 'capture' AND entry.held <> receipt.held", nil},
	}
	return append(all, sumChecks()...)
}

// sumChecks compare what every account and budget has with what made it so.
func sumChecks() []check {
	all := []check{
		{"I1", "entry %[1]q belongs to account %[2]q, which does not exist (%[3]s)",
			"SELECT reference, account, kind FROM entry WHERE account NOT IN (SELECT id FROM account)", nil},
		{"I3", "hold %[1]q belongs to account %[2]q, which does not exist (%[3]s)",
			"SELECT id, account, amount FROM hold WHERE account NOT IN (SELECT id FROM account)", nil},
		{"I4", "request %[1]q was charged %[2]s and %[3]s, and the journal does not know of it",
			"SELECT id, charge, overrun FROM receipt WHERE NOT counted AND (charge <> 0 OR overrun <> 0)" +
				" AND id NOT IN (SELECT reference FROM entry WHERE kind = 'capture')", nil},
		sumCheck("I3", "%[2]s is held on account %[1]q, its open holds do not sum to that", "account", "id", "held", "hold", "account", "amount"),
		sumCheck("I3", "%[2]s is held on budget %[1]s, its open holds do not sum to that", "budget", "id", "held", "hold", "budget", "amount"),
	}
	for _, replay := range []struct{ invariant, column, leg string }{
		{"I1", "posted", "customer"}, {"I7", "credited", "-credit"}, {"I7", "revenue", "revenue"}, {"I7", "overrun", "-overrun"},
	} {
		all = append(all, sumCheck(replay.invariant, "the entries of account %[1]q do not sum to its "+replay.column+", %[2]s",
			"account", "id", replay.column, "entry", "account", replay.leg))
	}
	return all
}

// sumCheck finds the rows of a table whose column is not the sum over the rows
// of another table that refer to it.
func sumCheck(invariant, message, table, id, column, from, of, leg string) check {
	return check{invariant, message + "%.0[3]s",
		"SELECT " + id + ", " + column + ", '' FROM " + table +
			" LEFT JOIN (SELECT " + of + " AS whose, SUM((" + leg + ") / " + half + ") AS high, SUM((" + leg + ") % " + half + ") AS low FROM " + from +
			" GROUP BY " + of + ") AS parts ON whose = " + id +
			" WHERE " + differs("COALESCE(high, 0) - "+column+" / H", "COALESCE(low, 0) - "+column+" % H"), nil}
}

// differs is true for a sum, given in halves, that is not zero. The halves fit
// whatever the amounts are; H is 2³².
func differs(high, low string) string {
	return strings.ReplaceAll("("+high+") * H + "+low+" <> 0", "H", half)
}
