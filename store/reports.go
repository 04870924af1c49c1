package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// Balance implements [billing.Reports]. Where the ledger only counts every account exists
// and is at zero.
func (db *dbLedger) Balance(ctx context.Context, account string) (billing.Balance, error) {
	balance := billing.Balance{Account: account}
	if db.options.Count {
		return balance, nil
	}
	found, err := db.find(ctx, "SELECT posted, held FROM account WHERE id = ?", []any{account}, &balance.Posted, &balance.Held)
	switch {
	case err != nil:
		return billing.Balance{}, err
	case !found:
		return billing.Balance{}, ledger.ErrNoAccount(account)
	}
	db.addMemory(&balance)
	return balance, nil
}

// addMemory adds to a balance what is held in memory.
func (db *DB) addMemory(b *billing.Balance) {
	if db.memory != nil {
		now := db.memory.balance(b.Account, ledger.Balance{Posted: b.Posted, Held: b.Held})
		b.Posted, b.Held = now.Posted, now.Held
	}
}

// Totals implements [billing.Accounts].
func (db *dbLedger) Totals(ctx context.Context) (billing.Totals, error) {
	var t billing.Totals
	sum := make(totals, 5)
	err := db.sumAll(ctx, "SELECT COUNT(*), "+sums("posted", "held", "credited", "revenue", "overrun")+" FROM account", nil, append([]any{&t.Accounts}, sum.scan()...)...)
	t.Posted, t.Held, t.Credited, t.Revenue, t.Overrun = sum.of(0), sum.of(1), sum.of(2), sum.of(3), sum.of(4)
	if db.memory != nil {
		t.Held.Add(t.Held, db.memory.total())
	}
	return t, err
}

// sumAll reads a row of sums, which may take any time.
func (db *DB) sumAll(ctx context.Context, query string, args []any, to ...any) error {
	conn, err := db.reportConn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it goes back to its pool
	err = verification{db, ctx, conn}.read(func(q session) error { return q.queryRow(ctx, query, args...).Scan(to...) })
	return db.unavailableOrCanceled(ctx, err)
}

// Receipt implements [billing.Reports].
func (db *dbLedger) Receipt(ctx context.Context, account, id string) (billing.Receipt, error) {
	return db.receipt(ctx, id, "id = ? AND account = ?", id, account)
}

// receipt is the one for which a condition is true.
func (db *dbLedger) receipt(ctx context.Context, id, condition string, args ...any) (billing.Receipt, error) {
	scan := func(rows Row) (billing.Receipt, error) { return scanReceipt(rows) }
	found, err := list(ctx, db.DB, scan, "SELECT "+receiptColumns+" FROM receipt WHERE "+condition, args...)
	switch {
	case err != nil:
		return billing.Receipt{}, err
	case len(found) == 0:
		return billing.Receipt{}, ledger.ErrNoReceipt(id)
	}
	return found[0], nil
}

// Request implements [billing.Accounts].
func (db *dbLedger) Request(ctx context.Context, id string) (billing.Receipt, []billing.Attempt, error) {
	r, err := db.receipt(ctx, id, "id = ?", id)
	if err != nil {
		return billing.Receipt{}, nil, err
	}
	scan := func(rows Row) (billing.Attempt, error) { return scanAttempt(rows) }
	attempts, err := list(ctx, db.DB, scan, "SELECT "+attemptFields+" FROM attempt WHERE receipt = ? ORDER BY number", id)
	return r, attempts, err
}

// attemptFields are the columns of a failed attempt in the order in which they are scanned.
const attemptFields = "channel, model, code, status, billable, used, waste, started_at, duration"

// scanAttempt reads a row of attemptFields, and what follows into more.
func scanAttempt(rows Row, more ...any) (a billing.Attempt, err error) {
	var used string
	var started, duration, billable int64
	if err = rows.Scan(append([]any{&a.Channel, &a.Model, &a.Code, &a.Status, &billable, &used, &a.Waste, &started, &duration}, more...)...); err != nil {
		return a, err
	}
	a.StartedAt, a.Duration, a.Billable = timeAt(started), time.Duration(duration), billable != 0
	a.Used, err = parseUsage(used)
	return a, err
}

// OpenHolds implements [Ledger].
func (db *dbLedger) OpenHolds(ctx context.Context) ([]billing.OpenHold, error) {
	holds, err := db.heldBy(ctx, "TRUE")
	if err != nil {
		return nil, err
	}
	if db.memory != nil {
		holds = append(holds, db.memory.withoutRow()...)
	}
	open := make([]billing.OpenHold, 0, len(holds))
	for _, h := range holds {
		if h.price == nil {
			if h.price, err = db.Price(ctx, h.version); err != nil {
				return nil, err
			}
		}
		available, err := db.left(ctx, h)
		if err != nil {
			return nil, err
		}
		soFar, _ := parseUsage(h.checkpoint) // the end of the hold fails if it is damaged
		open = append(open, billing.OpenHold{Hold: h.asHold(available), CreatedAt: timeAt(h.created), SoFar: soFar})
	}
	slices.SortFunc(open, func(a, b billing.OpenHold) int { return strings.Compare(a.ID, b.ID) })
	return open, nil
}

// heldBy are the open holds for which a condition is true.
func (db *DB) heldBy(ctx context.Context, condition string, args ...any) ([]*hold, error) {
	holds, err := collect(ctx, db.readers(), scanHold, "SELECT "+holdColumns+" FROM hold WHERE "+condition, args...)
	return holds, db.unavailable(err)
}

// left is what the account and the budget of a hold can still give.
func (db *DB) left(ctx context.Context, h *hold) (left billing.Money, err error) {
	if db.options.Count {
		return billing.Unlimited, nil
	}
	account, err := db.ledger.Balance(ctx, h.account)
	if err != nil || h.budget == 0 {
		return account.Posted - account.Held, err
	}
	p := budget{id: h.budget, of: ownKey{h.account, h.key}}
	_, err = db.find(ctx, "SELECT posted, held FROM budget WHERE id = ?", []any{h.budget}, &p.Posted, &p.Held)
	if db.memory != nil {
		p.Balance = db.memory.budget(&p)
	}
	return min(account.Posted-account.Held, p.Available()), err
}

// reportTimeout is how long a report may take that sums or counts.
const reportTimeout = 2 * time.Second

// reportConn is a connection for what may read for long. There are few of them, and
// they are none of those that find keys and count limits. The caller closes it.
func (db *DB) reportConn(ctx context.Context) (*sql.Conn, error) {
	waiting, cancel := context.WithTimeout(ctx, db.options.WaitTimeout)
	defer cancel()
	conn, err := db.reports.Conn(waiting)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, errLater("No database connection was free for this report. Try again shortly.", err)
	}
	return conn, db.unavailableOrCanceled(ctx, err)
}

// report does what reads for long, and does not let it take longer than limit.
func (db *DB) report(ctx context.Context, limit time.Duration, do func(context.Context, session) error) error {
	conn, err := db.reportConn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it goes back to its pool
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = do(bounded, session{db, conn})
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		return errLater("The sums were not ready within "+limit.String()+". Ask for a shorter time with since and until, or try again shortly.", err)
	}
	return db.unavailableOrCanceled(ctx, err)
}

// errLater is the answer to a question that the database cannot take now.
func errLater(message string, cause error) error {
	return &fault.Error{Code: fault.ServiceUnavailable, RetryAfter: time.Second, Message: message, Err: cause}
}

// Commit is one transaction of the committer, for Options.Committed.
type Commit struct {
	Operations int // that it did together, without those that were put off
	Took       time.Duration
	Err        error // why it failed; nil if it is durable or had nothing to write
}

// committed tells of a transaction.
func (c *committer) committed(ops int, took time.Duration, err error) {
	if tell := c.db.options.Committed; tell != nil {
		tell(Commit{Operations: ops, Took: took, Err: err})
	}
}

// Stats are numbers of this process, read without asking the database.
type Stats struct {
	Holds   int  // open holds of this process, as the last commit left them
	Waiting int  // operations that wait for the committer
	Away    bool // the database did not take the last transaction
}

// Stats tells what the store is about. It is safe for concurrent use.
func (db *DB) Stats() Stats {
	c := db.committer
	c.mu.Lock()
	defer c.mu.Unlock()
	holds := int(c.openHolds.Load())
	if db.memory != nil {
		holds = db.memory.count()
	}
	return Stats{Holds: holds, Waiting: len(c.queue), Away: c.down != nil}
}

// Backlog is what the database, whichever processes share it, has not brought to
// an end.
type Backlog struct {
	Tasks   map[string]int64 // open tasks of videos by state
	Notices int64            // webhooks that wait to be delivered
	// Oldest is when the one of them was written that waits for longest; zero if
	// none does.
	Oldest time.Time
}

// Backlog counts what is open. It reads as many rows as are open, and is for a
// few times a minute. Its error is fault.ServiceUnavailable.
func (db *DB) Backlog(ctx context.Context) (Backlog, error) {
	b := Backlog{Tasks: map[string]int64{}}
	err := db.report(ctx, reportTimeout, func(ctx context.Context, q session) error {
		err := forEach(ctx, q, func(rows Row) error {
			var state string
			var n int64
			err := rows.Scan(&state, &n)
			b.Tasks[state] = n
			return err
		}, "SELECT state, COUNT(*) FROM task WHERE NOT ended GROUP BY state")
		if err != nil {
			return err
		}
		var oldest int64
		err = q.queryRow(ctx, "SELECT COUNT(*), COALESCE(MIN(created_at), 0) FROM notice WHERE state = 'waiting'").Scan(&b.Notices, &oldest)
		b.Oldest = timeOrZero(oldest)
		return err
	})
	return b, err
}
