package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
)

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
