package store

import (
	"context"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// usageGroup is what a row of usage_hour is the sum of.
type usageGroup struct {
	account, key, model, operation string
	hour                           int64 // its first nanosecond
	counted                        bool
}

// usageSums are the sums of one group: the requests, the flags, the amounts and
// the counts. One that does not fit is the largest number.
type usageSums [17]int64

// summedColumns are the columns of a receipt that usage_hour sums.
const summedColumns = "charge, overrun, " + countColumns

// add adds a receipt.
func (s *usageSums) add(r *billing.Receipt) {
	u := &r.Usage
	s[0]++
	s[1], s[2] = max(s[1], flag(u.Estimated)), max(s[2], flag(u.Anomaly))
	s[3], s[4] = ledger.AddCapped(s[3], int64(r.Charge)), ledger.AddCapped(s[4], int64(r.Overrun))
	for i, n := range counts(u) {
		s[i+5] = ledger.AddCapped(s[i+5], *n)
	}
}

// counts are those of a usage in the order of countColumns.
func counts(u *billing.Usage) [12]*int64 {
	return [...]*int64{
		&u.Input, &u.CachedInput, &u.CacheWrite, &u.Output, &u.Reasoning,
		&u.ImageInput, &u.ImageOutput, &u.Images, &u.Seconds, &u.Characters, &u.SearchUnits, &u.Requests,
	}
}

// writeUsage adds the batch's receipts to the sums of their hour, one row for each
// group of them. No other process has these rows locked: the batch has their accounts.
func (b *batch) writeUsage() {
	if len(b.settled) == 0 {
		return
	}
	groups := make(map[usageGroup]*usageSums)
	for i := range b.settled {
		r := &b.settled[i]
		g := usageGroup{r.Account, r.Key, r.Model, r.Operation, ledger.HourOf(r.SettledAt), r.counted}
		sums := groups[g]
		if sums == nil {
			sums = new(usageSums)
			groups[g] = sums
		}
		sums.add(&r.Receipt)
	}
	args := make([]any, 0, len(groups)*(6+len(usageSums{})))
	for g, sums := range groups {
		args = append(args, g.account, g.hour, g.key, g.model, g.operation, g.counted)
		for _, n := range sums {
			args = append(args, n)
		}
	}
	b.write(b.db.addUsage, args)
}

// addUsage is a statement that adds sums to rows of usage_hour. A sum that does not
// fit is the largest number.
func addUsage(d Dialect) string {
	var b strings.Builder
	b.WriteString("INSERT INTO usage_hour (account, hour, key_id, model, operation, counted, requests, estimated, anomaly, " + summedColumns + ") ROWS[tntttbnnnnnnnnnnnnnnnnn]" +
		" ON CONFLICT (account, hour, key_id, model, operation, counted) DO UPDATE SET requests = usage_hour.requests + EXCLUDED.requests," +
		" estimated = GREATEST(usage_hour.estimated, EXCLUDED.estimated), anomaly = GREATEST(usage_hour.anomaly, EXCLUDED.anomaly)")
	for name := range strings.SplitSeq(summedColumns, ", ") {
		b.WriteString(", " + name + " = usage_hour." + name + " + LEAST(EXCLUDED." + name + ", 9223372036854775807 - usage_hour." + name + ")")
	}
	return d.Schema(b.String())
}

// groups says for each grouping what a row is called and summed over.
var groups = map[billing.GroupBy]string{
	"":              "model",
	billing.ByModel: "model",
	billing.ByKey:   "key_id",
	billing.ByDay:   "hour / 86400000000000",
}

// Usage implements [billing.Accounts]. It reads a row for each hour in which a key used
// a model (usage_hour), however many requests that were; so Since is rounded down and
// Until up to a whole hour of UTC. Sums that take longer than two seconds all the same
// are given up with fault.ServiceUnavailable.
func (db *dbLedger) Usage(ctx context.Context, q billing.Query) ([]billing.UsageRow, error) {
	if err := ledger.CheckGrouping(q.By); err != nil {
		return nil, err
	}
	usage := []billing.UsageRow{}
	// In an order that is only known when all is summed: SQLite's driver can be
	// stopped on its way to the first row alone.
	err := db.reportUsage(ctx, q, func(rows Row) error {
		row, err := scanUsage(rows, q.By)
		usage = append(usage, row)
		return err
	}, "SELECT "+groups[q.By]+", CAST(SUM(requests) AS BIGINT), MAX(estimated), MAX(anomaly), "+sums(append(strings.Split(countColumns, ", "), "charge")...)+
		" FROM usage_hour WHERE hour >= ? AND hour < ?", " GROUP BY 1 ORDER BY 2")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(usage, func(a, b billing.UsageRow) int { return strings.Compare(a.Group, b.Group) })
	return usage, nil
}

// Waste implements [billing.Accounts], rounded and bounded in time as Usage is.
func (db *dbLedger) Waste(ctx context.Context, q billing.Query) ([]billing.WasteRow, error) {
	waste := []billing.WasteRow{}
	err := db.reportUsage(ctx, q, func(rows Row) error {
		var r billing.WasteRow
		t := make(totals, 2)
		err := rows.Scan(append([]any{&r.Channel, &r.Model, &r.Failed}, t.scan()...)...)
		r.Billable, r.Waste = t[0].capped(), billing.Money(t[1].capped())
		waste = append(waste, r)
		return err
	}, "SELECT channel, model, COUNT(*), "+sums("billable", "waste")+" FROM attempt WHERE settled_at >= ? AND settled_at < ?",
		" GROUP BY 1, 2 ORDER BY 1, 2")
	if err != nil {
		return nil, err
	}
	return waste, nil
}

// reportUsage calls scan for each row of a query about the time and the account of
// q. The query up to its GROUP BY ends in a condition on the first moment and on the
// one after the last.
func (db *dbLedger) reportUsage(ctx context.Context, q billing.Query, scan func(Row) error, query, groupBy string) error {
	first, end := ledger.Hours(q)
	args := []any{first, end}
	if q.Account != "" {
		if _, err := db.Balance(ctx, q.Account); err != nil {
			return err
		}
		query, args = query+" AND account = ?", append(args, q.Account)
	}
	return db.report(ctx, reportTimeout, func(ctx context.Context, on session) error {
		return forEach(ctx, on, scan, query+groupBy, args...)
	})
}

func scanUsage(rows Row, by billing.GroupBy) (billing.UsageRow, error) {
	var row billing.UsageRow
	var day int64
	group := any(&row.Group)
	if by == billing.ByDay {
		group = &day
	}
	u := &row.Usage
	t := make(totals, 13)
	if err := rows.Scan(append([]any{group, &row.Requests, &u.Estimated, &u.Anomaly}, t.scan()...)...); err != nil {
		return row, err
	}
	for i, count := range counts(u) {
		*count = t[i].capped()
	}
	row.Charge = billing.Money(t[len(t)-1].capped())
	if by == billing.ByDay {
		row.Group = time.Unix(day*86400, 0).UTC().Format(time.DateOnly)
	}
	return row, nil
}

// half is what amounts are divided by to be summed: the sums of both parts fit
// the integers of every database, whatever the amounts are.
const half = "4294967296"

// sums is a list of expressions that sum columns, for [sum.parts] to scan.
func sums(columns ...string) string {
	var all []string
	for _, c := range columns {
		all = append(all,
			"CAST(COALESCE(SUM("+c+" / "+half+"), 0) AS BIGINT)",
			"CAST(COALESCE(SUM("+c+" % "+half+"), 0) AS BIGINT)")
	}
	return strings.Join(all, ", ")
}

// sum is an exact sum of amounts or counts, of any size.
type sum struct{ high, low int64 } // of a column, in halves

// parts are what the two expressions of a column are scanned into.
func (s *sum) parts() []any { return []any{&s.high, &s.low} }

func (s *sum) total() *big.Int {
	total := new(big.Int).Lsh(big.NewInt(s.high), 32)
	return total.Add(total, big.NewInt(s.low))
}

// capped is the sum, or the largest int64 where it does not fit.
func (s *sum) capped() int64 {
	total := s.total()
	if !total.IsInt64() {
		return int64(billing.Unlimited)
	}
	return total.Int64()
}

// totals are the sums of some columns.
type totals []sum

// of is the sum of the nth column; 0 if there was no row.
func (t totals) of(n int) *big.Int {
	if t == nil {
		return new(big.Int)
	}
	return t[n].total()
}

// scan are what the sums are scanned into.
func (t totals) scan() (all []any) {
	for i := range t {
		all = append(all, t[i].parts()...)
	}
	return all
}
