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
