package store

import (
	"context"
	"database/sql"
	"errors"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ledger"
	"github.com/tollhouse-ai/gateway/store/internal/sqldb"
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

// Exists implements [billing.Accounts].
func (db *dbLedger) Exists(ctx context.Context, account string) (bool, error) {
	var one int
	return db.find(ctx, "SELECT 1 FROM account WHERE id = ?", []any{account}, &one)
}

// Balances implements [billing.Accounts].
func (db *dbLedger) Balances(ctx context.Context, after string, limit int) ([]billing.Balance, error) {
	page, err := collect(ctx, db.readers(), func(rows Row) (b billing.Balance, err error) {
		err = rows.Scan(&b.Account, &b.Posted, &b.Held)
		if db.options.Count {
			b.Posted, b.Held = 0, 0
		}
		return b, err
	}, "SELECT id, posted, held FROM account WHERE id > ? ORDER BY id LIMIT ?", after, limit)
	for i := range page { // not while the rows are read: a writer may wait for their connection
		if !db.options.Count {
			db.addMemory(&page[i])
		}
	}
	return page, db.unavailable(err)
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
	var young []*hold
	if db.memory != nil {
		young = db.memory.withoutRow() // first, since one of them may get its row while the rows are read
	}
	holds, err := db.heldBy(ctx, "TRUE")
	if err != nil {
		return nil, err
	}
	stored := make(map[string]bool, len(holds))
	for _, h := range holds {
		stored[h.id] = true
	}
	for _, h := range young {
		if !stored[h.id] {
			holds = append(holds, h)
		}
	}
	open := make([]billing.OpenHold, 0, len(holds))
	for _, held := range holds {
		h := *held // others read what is in memory
		if h.price == nil {
			if h.price, err = db.Price(ctx, h.version); err != nil {
				return nil, err
			}
		}
		available, err := db.left(ctx, &h)
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

// left is what the account and the budgets of a hold can still give.
func (db *DB) left(ctx context.Context, h *hold) (left billing.Money, err error) {
	left = billing.Unlimited
	if !h.counted {
		account, err := db.ledger.Balance(ctx, h.account)
		if err != nil {
			return 0, err
		}
		left = account.Posted - account.Held
	}
	budgets, now, err := db.budgetsOn(ctx, "id IN[n]", anys(h.budgets))
	for _, p := range budgets {
		left = min(left, p.Available(now))
	}
	return left, err
}

// reportTimeout is how long a report may take that sums or counts.
const reportTimeout = 2 * time.Second

// reportConn returns a connection for reads that may take long. There are few of them,
// separate from those that find keys and count limits. The caller closes it.
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
		return errLater("The sums were not ready within "+limit.String()+". Ask for a shorter time with since and until, page by page with limit if it is by key or account, or try again shortly.", err)
	}
	return db.unavailableOrCanceled(ctx, err)
}

// errLater is the answer to a question that the database cannot take now.
func errLater(message string, cause error) error {
	return &fault.Error{Code: fault.ServiceUnavailable, RetryAfter: time.Second, Message: message, Err: cause}
}

// usageGroup is what a row of usage_hour is the sum of.
type usageGroup struct {
	account, key, model, operation string
	hour                           int64 // its first nanosecond
	counted                        bool
}

// usageSums are the sums of one group: the requests, the flags, the amounts and the counts. A
// sum that does not fit becomes the largest number.
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
func addUsage(d sqldb.Dialect) string {
	var b strings.Builder
	b.WriteString("INSERT INTO usage_hour (account, hour, key_id, model, operation, counted, requests, estimated, anomaly, " + summedColumns + ") ROWS[tntttbnnnnnnnnnnnnnnnnn]" +
		" ON CONFLICT (account, hour, key_id, model, operation, counted) DO UPDATE SET requests = usage_hour.requests + EXCLUDED.requests," +
		" estimated = GREATEST(usage_hour.estimated, EXCLUDED.estimated), anomaly = GREATEST(usage_hour.anomaly, EXCLUDED.anomaly)")
	for name := range strings.SplitSeq(summedColumns, ", ") {
		b.WriteString(", " + name + " = usage_hour." + name + " + LEAST(EXCLUDED." + name + ", 9223372036854775807 - GREATEST(usage_hour." + name + ", 0))")
	}
	return d.Schema(b.String())
}

// groups says for each grouping what a row is called and summed over.
var groups = map[billing.GroupBy]string{
	"":              "model",
	billing.ByModel: "model",
	billing.ByKey:   "key_id",
	billing.ByDay:   "hour / 86400000000000",

	billing.ByAccount: "account",
}

// Usage implements [billing.Accounts]. It reads a row for each hour in which a key used a
// model (usage_hour), however many requests that were. For all accounts together it reads the
// sums of those rows (usage_total). So Since is rounded down and Until up to a whole hour of
// UTC. Sums that take longer than two seconds fail with fault.ServiceUnavailable, except those
// of a page (q.Limit).
func (db *dbLedger) Usage(ctx context.Context, q billing.Query) ([]billing.UsageRow, error) {
	if err := ledger.CheckGrouping(&q); err != nil {
		return nil, err
	}
	if q.Limit > 0 {
		return db.usagePage(ctx, q)
	}
	usage := []billing.UsageRow{}
	scan := func(rows Row) error {
		row, err := scanUsage(rows, q.By)
		usage = append(usage, row)
		return err
	}
	// In an order that is only known when all is summed: SQLite's driver can be
	// stopped on its way to the first row alone.
	columns, end := "SELECT "+groups[q.By]+", "+usageColumns(), " GROUP BY 1 ORDER BY 2"
	var err error
	if q.Account == "" && q.By != billing.ByKey && q.By != billing.ByAccount {
		err = db.report(ctx, reportTimeout, func(ctx context.Context, on session) error {
			from, args, err := db.allAccounts(ctx, on, q)
			if err != nil {
				return err
			}
			return forEach(ctx, on, scan, columns+from+end, args...)
		})
	} else {
		err = db.reportUsage(ctx, q, scan, columns+" FROM usage_hour WHERE hour >= ? AND hour < ?", end)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(usage, func(a, b billing.UsageRow) int { return strings.Compare(a.Group, b.Group) })
	return usage, nil
}

// usageColumns are the sums of a [billing.UsageRow].
func usageColumns() string {
	return "CAST(SUM(requests) AS BIGINT), MAX(estimated), MAX(anomaly), " + sums(append(strings.Split(countColumns, ", "), "charge")...)
}

// pageAccounts is how many accounts one query for a page reads.
const pageAccounts = 100

// usagePage reads the sums of some accounts after the others, until the page is full. It takes as
// long as it takes.
func (db *dbLedger) usagePage(ctx context.Context, q billing.Query) ([]billing.UsageRow, error) {
	conn, err := db.reportConn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // it goes back to its pool
	accounts := []string{q.Account}
	if q.Account != "" {
		if _, err := db.Balance(ctx, q.Account); err != nil {
			return nil, err
		}
	}
	by := groups[q.By]
	find := db.bulk("SELECT account, " + by + ", " + usageColumns() + " FROM (ROWS[tnn]) AS c CROSS JOIN usage_hour WHERE account = c.column1 AND hour >= c.column2 AND hour < c.column3 GROUP BY account, " + by)
	usage, first := []billing.UsageRow{}, true
	from, end := ledger.Hours(q)
	for last := q.After.Account; len(usage) < q.Limit && (q.Account == "" || first); first = false {
		err := verification{db.DB, ctx, conn}.read(func(on session) (err error) {
			if q.Account == "" {
				atLeast := ">"
				if first && q.By == billing.ByKey { // it may have more keys
					atLeast = ">="
				}
				if accounts, err = collect(ctx, on, scanOne[string], "SELECT id FROM account WHERE id "+atLeast+" ? ORDER BY id LIMIT ?", last, pageAccounts); err != nil {
					return err
				}
			}
			var args []any
			for _, name := range accounts {
				args = append(args, name, from, end)
			}
			return queryAll(ctx, on, find, args, func(rows Row) error {
				var account string
				row, err := scanUsage(rows, q.By, &account)
				if row.Account = account; q.IsAfter(&row) {
					usage = append(usage, row)
				}
				return err
			})
		})
		if err != nil {
			return nil, db.unavailableOrCanceled(ctx, err)
		}
		if len(accounts) == 0 {
			break
		}
		last = accounts[len(accounts)-1]
	}
	slices.SortFunc(usage, billing.CompareRows)
	return usage[:min(q.Limit, len(usage))], nil
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

// scanUsage reads a row of usageColumns after the group, and what is before the group.
func scanUsage(rows Row, by billing.GroupBy, before ...any) (billing.UsageRow, error) {
	var row billing.UsageRow
	var day int64
	group := any(&row.Group)
	if by == billing.ByDay {
		group = &day
	}
	u := &row.Usage
	t := make(totals, 13)
	if err := rows.Scan(append(append(before, group, &row.Requests, &u.Estimated, &u.Anomaly), t.scan()...)...); err != nil {
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

// half is what amounts are divided by before they are summed. The sums of both parts fit the
// integers of every database, whatever the amounts are.
const half = "4294967296"

// sums is a list of expressions that sum columns, two of each, for [totals.scan].
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
		all = append(all, &t[i].high, &t[i].low)
	}
	return all
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

// Backlog counts what is open. It reads that many rows, so call it only a few times a minute.
// Its error is fault.ServiceUnavailable.
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
