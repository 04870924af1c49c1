package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// Balance is one account's position; fault.NotFound if there is no such
// account. Where the ledger only counts every account exists and is at zero.
func (db *DB) Balance(ctx context.Context, account string) (billing.Balance, error) {
	ctx, cancel := db.readContext(ctx)
	defer cancel()
	balance := billing.Balance{Account: account}
	if db.options.Count {
		return balance, nil
	}
	err := db.readers().queryRow(ctx, "SELECT posted, held FROM account WHERE id = ?", account).Scan(&balance.Posted, &balance.Held)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return billing.Balance{}, errNoAccount(account)
	case err != nil:
		return billing.Balance{}, db.unavailable(err)
	}
	return balance, nil
}

// Totals implements [billing.Accounts].
func (db *DB) Totals(ctx context.Context) (billing.Totals, error) {
	var t billing.Totals
	var posted, held, credited, revenue, overrun sum
	scanned := []any{&t.Accounts}
	for _, s := range [...]*sum{&posted, &held, &credited, &revenue, &overrun} {
		scanned = append(scanned, s.parts()...)
	}
	conn, err := db.reportConn(ctx)
	if err != nil {
		return t, err
	}
	defer func() { _ = conn.Close() }() // it goes back to its pool
	err = verification{db, ctx, conn}.read(func(q querier) error {
		return q.queryRow(ctx, "SELECT COUNT(*), "+sums("posted", "held", "credited", "revenue", "overrun")+" FROM account").Scan(scanned...)
	})
	t.Posted, t.Held, t.Credited, t.Revenue, t.Overrun = posted.total(), held.total(), credited.total(), revenue.total(), overrun.total()
	return t, db.unavailableOrCanceled(ctx, err)
}

// Receipt is the settled end of one request; fault.NotFound if the account has
// none by that id, or if the request is still running.
func (db *DB) Receipt(ctx context.Context, account, id string) (billing.Receipt, error) {
	return db.receipt(ctx, id, "id = ? AND account = ?", id, account)
}

// receipt is the one for which a condition is true.
func (db *DB) receipt(ctx context.Context, id, condition string, args ...any) (billing.Receipt, error) {
	ctx, cancel := db.readContext(ctx)
	defer cancel()
	rows, err := db.readers().query(ctx, "SELECT "+receiptColumns+" FROM receipt WHERE "+condition, args...)
	if err != nil {
		return billing.Receipt{}, db.unavailable(err)
	}
	var found []billing.Receipt
	err = each(rows, func(rows *sql.Rows) error {
		r, err := scanReceipt(rows)
		found = append(found, r)
		return err
	})
	switch {
	case err != nil:
		return billing.Receipt{}, db.unavailable(err)
	case len(found) == 0:
		return billing.Receipt{}, errNoReceipt(id)
	}
	return found[0], nil
}

func errNoReceipt(id string) error {
	return fault.New(fault.NotFound, fmt.Sprintf("There is no receipt %.64q.", id))
}

// OpenHolds are the requests that have not been settled, sorted by id.
func (db *DB) OpenHolds(ctx context.Context) ([]billing.OpenHold, error) {
	holds, err := db.heldBy(ctx, "TRUE")
	if err != nil {
		return nil, err
	}
	open := make([]billing.OpenHold, 0, len(holds))
	for _, h := range holds {
		if h.price, err = db.Price(ctx, h.version); err != nil {
			return nil, err
		}
		available, err := db.left(ctx, h)
		if err != nil {
			return nil, err
		}
		open = append(open, billing.OpenHold{Hold: h.asHold(available), CreatedAt: timeAt(h.created), SoFar: h.soFar})
	}
	slices.SortFunc(open, func(a, b billing.OpenHold) int { return strings.Compare(a.ID, b.ID) })
	return open, nil
}

// heldBy are the open holds for which a condition is true.
func (db *DB) heldBy(ctx context.Context, condition string, args ...any) (holds []*hold, err error) {
	rows, err := db.readers().query(ctx, "SELECT "+holdColumns+" FROM hold WHERE "+condition, args...)
	if err == nil {
		err = each(rows, func(rows *sql.Rows) error {
			h, err := scanHold(rows)
			holds = append(holds, h)
			return err
		})
	}
	return holds, db.unavailable(err)
}

// left is what the account and the budget of a hold can still give.
func (db *DB) left(ctx context.Context, h *hold) (billing.Money, error) {
	ctx, cancel := db.readContext(ctx)
	defer cancel()
	if db.options.Count {
		return billing.Unlimited, nil
	}
	var left billing.Money
	err := db.readers().queryRow(ctx, "SELECT MIN(available) FROM ("+
		"SELECT posted - held AS available FROM account WHERE id = ? UNION ALL SELECT posted - held FROM budget WHERE id = ?) AS purses",
		h.account, h.budget).Scan(&left)
	return left, db.unavailable(err)
}

// groups says for each grouping what a row is called and summed over.
var groups = map[billing.GroupBy]string{
	"":              "model",
	billing.ByModel: "model",
	billing.ByKey:   "key_id",
	billing.ByDay:   "hour / 86400000000000",
}

// Usage sums settled requests, released ones too, by the time they were
// settled; rows are sorted by group. Since is rounded down and Until up to a
// whole hour of UTC, since that is what sums are kept by (usage_hour): a question
// reads a row for each hour in which a key used a model, however many requests
// that were. Sums that take longer than two seconds all the same are given up with
// fault.ServiceUnavailable. An empty By means billing.ByModel, an unknown one is
// fault.InvalidRequest; an unknown account is fault.NotFound unless the ledger
// only counts.
func (db *DB) Usage(ctx context.Context, q billing.Query) ([]billing.UsageRow, error) {
	group, known := groups[q.By]
	if !known {
		return nil, fault.Invalid("by", fmt.Sprintf("Usage is grouped by %q, %q or %q.", billing.ByModel, billing.ByKey, billing.ByDay))
	}
	whose, args := "", []any{}
	if q.Account != "" {
		if _, err := db.Balance(ctx, q.Account); err != nil {
			return nil, err
		}
		whose, args = "account = ? AND ", append(args, q.Account)
	}
	first, end := hours(q)
	usage := []billing.UsageRow{}
	err := db.report(ctx, usageLimit, func(ctx context.Context, on querier) error {
		// In an order that is only known when all is summed: SQLite's driver can be
		// stopped on its way to the first row alone.
		rows, err := on.query(ctx, "SELECT "+group+", CAST(SUM(requests) AS BIGINT), MAX(estimated), MAX(anomaly), "+sums(append(counts(), "charge")...)+
			" FROM usage_hour WHERE "+whose+"hour >= ? AND hour < ? GROUP BY 1 ORDER BY 2", append(args, first, end)...)
		if err != nil {
			return err
		}
		return each(rows, func(rows *sql.Rows) error {
			row, err := scanUsage(rows, q.By)
			usage = append(usage, row)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(usage, func(a, b billing.UsageRow) int { return strings.Compare(a.Group, b.Group) })
	return usage, nil
}

func counts() []string { return strings.Split(countColumns, ", ") }

// hours are the first moment of the query and the one after its last.
func hours(q billing.Query) (first, end int64) {
	first, end = math.MinInt64, math.MaxInt64
	if !q.Since.IsZero() {
		first = unixNanos(q.Since.UTC().Truncate(time.Hour))
	}
	if !q.Until.IsZero() {
		end = unixNanos(q.Until.UTC().Add(time.Hour - 1).Truncate(time.Hour))
	}
	return first, end
}

func scanUsage(rows *sql.Rows, by billing.GroupBy) (billing.UsageRow, error) {
	var row billing.UsageRow
	var day int64
	group := any(&row.Group)
	if by == billing.ByDay {
		group = &day
	}
	u := &row.Usage
	scanned := []any{group, &row.Requests, &u.Estimated, &u.Anomaly}
	var totals [11]sum
	for i := range totals {
		scanned = append(scanned, totals[i].parts()...)
	}
	if err := rows.Scan(scanned...); err != nil {
		return row, err
	}
	for i, count := range [...]*int64{
		&u.Input, &u.CachedInput, &u.CacheWrite, &u.Output, &u.Reasoning,
		&u.ImageInput, &u.ImageOutput, &u.Images, &u.Seconds, &u.Characters, (*int64)(&row.Charge),
	} {
		*count = totals[i].capped()
	}
	if by == billing.ByDay {
		row.Group = time.Unix(day*86400, 0).UTC().Format(time.DateOnly)
	}
	return row, nil
}

// addAttempts notes the tries that failed before a request ended, with its receipt.
func (b *batch) addAttempts(h *hold, r *billing.Receipt, failed []billing.Attempt) {
	for i := range failed {
		a := attempt{receipt: r, number: int64(i + 1), Attempt: failed[i]}
		a.Waste = a.Cost(h.price)
		b.attempts = append(b.attempts, a)
	}
}

// attempt is a row of a failed try.
type attempt struct {
	receipt *billing.Receipt
	number  int64 // from 1
	billing.Attempt
}

func (b *batch) writeAttempts() error {
	args := make([]any, 0, len(b.attempts)*b.sql.insertAttempt.width)
	for i := range b.attempts {
		a := &b.attempts[i]
		used := ""
		if !a.Used.IsZero() {
			var err error
			if used, err = formatUsage(a.Used); err != nil {
				return err
			}
		}
		args = append(args, a.receipt.ID, a.number, a.receipt.Account, a.Channel, a.Model, a.Code, int64(a.Status),
			flag(a.Billable), used, a.Waste, unixNanos(a.StartedAt), a.Duration.Nanoseconds(), a.receipt.SettledAt.UnixNano())
	}
	return b.tx.execAll(b.ctx, &b.sql.insertAttempt, args)
}

// Request is the settled end of a request of any account, with the tries that
// failed before; fault.NotFound if there is none by that id, or if it is still
// running.
func (db *DB) Request(ctx context.Context, id string) (billing.Receipt, []billing.Attempt, error) {
	ctx, cancel := db.readContext(ctx)
	defer cancel()
	r, err := db.receipt(ctx, id, "id = ?", id)
	if err != nil {
		return billing.Receipt{}, nil, err
	}
	rows, err := db.readers().query(ctx, "SELECT channel, model, code, status, billable, used, waste, started_at, duration"+
		" FROM attempt WHERE receipt = ? ORDER BY number", id)
	var attempts []billing.Attempt
	if err == nil {
		err = each(rows, func(rows *sql.Rows) error {
			a, err := scanAttempt(rows)
			attempts = append(attempts, a)
			return err
		})
	}
	return r, attempts, db.unavailable(err)
}

func scanAttempt(rows *sql.Rows) (a billing.Attempt, err error) {
	var used string
	var started, duration, billable int64
	if err = rows.Scan(&a.Channel, &a.Model, &a.Code, &a.Status, &billable, &used, &a.Waste, &started, &duration); err != nil {
		return a, err
	}
	a.StartedAt, a.Duration, a.Billable = timeAt(started), time.Duration(duration), billable != 0
	a.Used, err = parseUsage(used)
	return a, err
}

// Waste sums failed tries by channel and upstream model. Since and Until are
// rounded as those of Usage, and sums that take longer than two seconds are given
// up in the same way.
func (db *DB) Waste(ctx context.Context, q billing.Query) ([]billing.WasteRow, error) {
	whose, args := "", []any{}
	if q.Account != "" {
		if _, err := db.Balance(ctx, q.Account); err != nil {
			return nil, err
		}
		whose, args = "account = ? AND ", append(args, q.Account)
	}
	first, end := hours(q)
	waste := []billing.WasteRow{}
	err := db.report(ctx, usageLimit, func(ctx context.Context, on querier) error {
		rows, err := on.query(ctx, "SELECT channel, model, COUNT(*), "+sums("billable", "waste")+
			" FROM attempt WHERE "+whose+"settled_at >= ? AND settled_at < ? GROUP BY 1, 2 ORDER BY 1, 2", append(args, first, end)...)
		if err != nil {
			return err
		}
		return each(rows, func(rows *sql.Rows) error {
			var r billing.WasteRow
			var billable, cost sum
			err := rows.Scan(append(append([]any{&r.Channel, &r.Model, &r.Failed}, billable.parts()...), cost.parts()...)...)
			r.Billable, r.Waste = billable.capped(), billing.Money(cost.capped())
			waste = append(waste, r)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return waste, nil
}

// usageLimit is how long sums of usage may take (faults.md, row 37).
const usageLimit = 2 * time.Second

// reportConn is a connection for what may read for long. There are few of them, and
// they are none of those that find keys and count limits. The caller closes it.
func (db *DB) reportConn(ctx context.Context) (*sql.Conn, error) {
	waiting, cancel := context.WithTimeout(ctx, db.options.WaitTimeout)
	defer cancel()
	conn, err := db.reports.Conn(waiting)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, errLater("The gateway had no database connection free for a lengthy look into its books. Try again shortly.", err)
	}
	return conn, db.unavailableOrCanceled(ctx, err)
}

// report does what reads for long, and does not let it take longer than limit.
func (db *DB) report(ctx context.Context, limit time.Duration, do func(context.Context, querier) error) error {
	conn, err := db.reportConn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // it goes back to its pool
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = do(bounded, reading{db, conn})
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
	return Stats{Holds: int(c.holds.Load()), Waiting: len(c.queue), Away: c.down != nil}
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

// backlogLimit is how long the counts of a Backlog may take.
const backlogLimit = 2 * time.Second

// Backlog counts what is open. It reads as many rows as are open, and is for a
// few times a minute. Its error is fault.ServiceUnavailable.
func (db *DB) Backlog(ctx context.Context) (Backlog, error) {
	b := Backlog{Tasks: map[string]int64{}}
	err := db.report(ctx, backlogLimit, func(ctx context.Context, q querier) error {
		rows, err := q.query(ctx, "SELECT state, COUNT(*) FROM task WHERE NOT ended GROUP BY state")
		if err != nil {
			return err
		}
		err = each(rows, func(rows *sql.Rows) error {
			var state string
			var n int64
			err := rows.Scan(&state, &n)
			b.Tasks[state] = n
			return err
		})
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

// committed tells of a transaction.
func (c *committer) committed(ops int, took time.Duration, err error) {
	if tell := c.db.options.Committed; tell != nil {
		tell(Commit{Operations: ops, Took: took, Err: err})
	}
}
