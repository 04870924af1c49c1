package store

import (
	"context"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// usage_total has the sums of all accounts together, so that a report about all of them
// does not read a row for each key. An hour is summed from usage_hour when it is over, and a
// day with its last hour: settlements write nothing for it. Two settings say how far that is.
const (
	// settingSummed is the end of the last hour that was summed, in nanoseconds since 1970.
	settingSummed = "summed"
	// settingSumming is the end of the hours that may be summed now, less a part of an hour that
	// makes each of its values unique. It is set before the hours are read. A batch that settles
	// into such an hour moves both settings back to it.
	settingSumming = "summing"
)

const (
	// summedAfter is how long after its end an hour is summed: by then nothing is settled
	// into it where clocks agree.
	summedAfter = time.Minute
	// sumEvery is how often a process looks whether an hour is over.
	sumEvery = time.Minute
)

// totalGroup is what a row of usage_total is the sum of.
type totalGroup struct {
	span, first      int64 // of how many hours, from which nanosecond on
	model, operation string
	counted          bool
}

// hourSums is the state of a process that sums hours.
type hourSums struct {
	mu      sync.Mutex
	ready   int64 // the value of settingSumming to whose hours no batch writes any more
	waiting int64 // the value for which that is not known yet
	until   int64 // the transaction before which all have to end first
}

// sumHoursUntil sums hours that are over until ctx ends. What goes wrong is logged and tried
// again.
func (db *DB) sumHoursUntil(ctx context.Context) {
	ticker := time.NewTicker(sumEvery)
	defer ticker.Stop()
	for {
		if err := db.SumHours(ctx); err != nil && ctx.Err() == nil {
			db.options.Logger.Warn("summing hours of usage failed", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// SumHours sums the hours of usage that are over for reports about all accounts. Run does it once
// a minute. On a database that several processes share it leaves them to the next call while a
// transaction runs that may still change them.
func (db *DB) SumHours(ctx context.Context) error {
	db.sums.mu.Lock()
	defer db.sums.mu.Unlock()
	for {
		more, err := db.sumDay(ctx)
		if err != nil || !more {
			return db.unavailableOrCanceled(ctx, err)
		}
	}
}

// sumDay sums the hours of one day, and reports whether there may be more to sum.
func (db *DB) sumDay(ctx context.Context) (more bool, err error) {
	conn, err := db.reportConn(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }() // it goes back to its pool
	v := verification{db, ctx, conn}
	var now, summed, summing int64
	err = v.read(func(q session) (err error) {
		if now, err = db.now(ctx, q); err != nil {
			return err
		}
		if summed, err = q.settingNumber(ctx, settingSummed); err == nil {
			summing, err = q.settingNumber(ctx, settingSumming)
		}
		return err
	})
	if err != nil {
		return false, err
	}
	end := ledger.HourOf(timeAt(now).Add(-summedAfter))
	first, found, err := bound(v, "SELECT hour FROM usage_hour WHERE hour >= ? AND hour < ? ORDER BY hour LIMIT 1", int64(0), summed, end)
	if err != nil || !found {
		return false, err
	}
	if summed > math.MinInt64 && startOfDay(summed) < summed && startOfDay(summed) < startOfDay(first) {
		first = summed // the rest of its day has no usage, and the day has its sum to get
	}
	if summing <= end-time.Hour.Nanoseconds() {
		if summing, err = db.announceSums(ctx, end); err != nil {
			return false, err
		}
	}
	if ready, err := db.sums.isReady(v, summing); err != nil || !ready {
		return false, err
	}
	day, from := startOfDay(first), first
	stop := min(day+(24*time.Hour).Nanoseconds(), end)
	if isDay(day, stop) { // its sum is made of all its hours
		from = day
	}
	var hours map[totalGroup]usageSums
	err = v.read(func(q session) (err error) {
		hours, err = v.hoursIn(q, "usage_hour", "1, hour", "hour >= ? AND hour < ?", from, stop)
		return err
	})
	if err != nil {
		return false, err
	}
	if isDay(day, stop) {
		addDay(hours, day)
	}
	maps.DeleteFunc(hours, func(g totalGroup, _ usageSums) bool { return g.span == 1 && g.first < first }) // they are there
	return db.writeSums(ctx, hours, summing, first, stop)
}

// announceSums sets settingSumming, and returns its value.
func (db *DB) announceSums(ctx context.Context, end int64) (summing int64, err error) {
	err = db.update(ctx, func(b *batch) error {
		summing = end - (b.now%time.Hour.Nanoseconds()+time.Hour.Nanoseconds())%time.Hour.Nanoseconds()
		b.summing = &summing
		return b.tx.write(b.ctx, putSetting, settingSumming, strconv.FormatInt(summing, 10))
	})
	return summing, err
}

// isReady reports whether no batch writes to the hours before a value of settingSumming any
// more without moving it back. That is so when all transactions have ended that may have begun
// before it was set.
func (s *hourSums) isReady(v verification, summing int64) (bool, error) {
	d := v.db.dialect
	if !d.Shared || s.ready == summing {
		return true, nil
	}
	var oldest, next int64
	if err := v.read(func(q session) error {
		return q.queryRow(v.ctx, "SELECT "+d.OldestTransaction+", "+d.NextTransaction).Scan(&oldest, &next)
	}); err != nil {
		return false, err
	}
	if s.waiting != summing {
		s.waiting, s.until = summing, next
	}
	if oldest < s.until {
		return false, nil
	}
	s.ready = summing
	return true, nil
}

// writeSums replaces the sums of the hours from first to stop, and those of their day, unless
// a batch has settled into one of them since.
func (db *DB) writeSums(ctx context.Context, all map[totalGroup]usageSums, summing, first, stop int64) (written bool, err error) {
	var args []any
	for g, sums := range all {
		args = append(args, g.span, g.first, g.model, g.operation, g.counted)
		for _, n := range sums {
			args = append(args, n)
		}
	}
	err = db.update(ctx, func(b *batch) error {
		lock := ""
		if db.dialect.Shared {
			lock = " FOR UPDATE"
		}
		var now string
		if _, err := b.tx.find(b.ctx, "SELECT value FROM setting WHERE name = ?"+lock, []any{settingSumming}, &now); err != nil {
			return err
		}
		if written = now == strconv.FormatInt(summing, 10); !written {
			return nil
		}
		if err := b.tx.write(b.ctx, "DELETE FROM usage_total WHERE span = 1 AND first >= ? AND first < ? OR span = 24 AND first = ?", first, stop, startOfDay(first)); err != nil {
			return err
		}
		if err := b.tx.writeBulk(b.ctx, "INSERT INTO usage_total (span, first, model, operation, counted, requests, estimated, anomaly, "+summedColumns+") ROWS[nnttbnnnnnnnnnnnnnnnnn]", args, true); err != nil {
			return err
		}
		return b.tx.write(b.ctx, putSetting, settingSummed, strconv.FormatInt(stop, 10))
	})
	return written, err
}

func isDay(first, end int64) bool { return end-first == (24 * time.Hour).Nanoseconds() }

// addDay adds the sums of a whole day to those of its hours.
func addDay(hours map[totalGroup]usageSums, first int64) {
	days := map[totalGroup]usageSums{}
	for g, sums := range hours {
		g.span, g.first = 24, first
		day := days[g]
		day.merge(&sums)
		days[g] = day
	}
	maps.Copy(hours, days)
}

// merge adds the sums of another group.
func (s *usageSums) merge(o *usageSums) {
	for i, n := range o {
		if i == 1 || i == 2 { // flags
			s[i] = max(s[i], n)
		} else {
			s[i] = ledger.AddCapped(s[i], n)
		}
	}
}

// writeLateUsage moves the sums of all accounts back to the hour of the batch, if that was summed
// already or is about to be: the clock was set back.
func (b *batch) writeLateUsage() {
	summing := b.db.summing.Load()
	if b.db.dialect.Shared {
		summing = b.summingRead
	}
	hour := ledger.HourOf(timeAt(b.now))
	if len(b.settled) == 0 || hour >= summing || b.err != nil {
		return
	}
	b.summing = &hour
	b.err = b.tx.write(b.ctx, "UPDATE setting SET value = ? WHERE name IN ('"+settingSummed+"', '"+settingSumming+"') AND CAST(value AS BIGINT) > ?", strconv.FormatInt(hour, 10), hour)
}

// hoursIn sums rows of a table by their groups. span is the first two columns of a group.
func (v verification) hoursIn(q session, table, span, condition string, args ...any) (map[totalGroup]usageSums, error) {
	all := map[totalGroup]usageSums{}
	return all, forEach(v.ctx, q, func(rows Row) error {
		var g totalGroup
		var values usageSums
		t := make(totals, len(values)-3)
		err := rows.Scan(append([]any{&g.span, &g.first, &g.model, &g.operation, &g.counted, &values[0], &values[1], &values[2]}, t.scan()...)...)
		for i := range t {
			values[i+3] = t[i].capped()
		}
		all[g] = values
		return err
	}, "SELECT "+span+", model, operation, counted, CAST(SUM(requests) AS BIGINT), MAX(estimated), MAX(anomaly), "+sums(strings.Split(summedColumns, ", ")...)+
		" FROM "+table+" WHERE "+condition+" GROUP BY 1, 2, 3, 4, 5", args...)
}

// totals compares usage_total with usage_hour, a day at a time.
func (v verification) totals() (string, error) {
	for first := int64(math.MinInt64); ; {
		next, any := int64(math.MaxInt64), false
		for _, query := range [...]string{
			"SELECT hour FROM usage_hour WHERE hour >= ? ORDER BY hour LIMIT 1",
			"SELECT first FROM usage_total WHERE span = 1 AND first >= ? ORDER BY first LIMIT 1",
			"SELECT first FROM usage_total WHERE span = 24 AND first >= ? ORDER BY first LIMIT 1",
		} {
			hour, found, err := bound(v, query, int64(math.MaxInt64), first)
			if err != nil {
				return "", err
			}
			next, any = min(next, hour), any || found
		}
		if !any {
			return "", nil
		}
		day := startOfDay(next)
		if broken, err := v.totalsOf(day); err != nil || broken != "" {
			return broken, err
		}
		first = day + (24 * time.Hour).Nanoseconds()
	}
}

// totalsOf is totals for one day.
func (v verification) totalsOf(day int64) (broken string, err error) {
	err = v.read(func(q session) error {
		summed, err := q.settingNumber(v.ctx, settingSummed)
		if err != nil {
			return err
		}
		stop := min(day+(24*time.Hour).Nanoseconds(), max(summed, day))
		want, err := v.hoursIn(q, "usage_hour", "1, hour", "hour >= ? AND hour < ?", day, stop)
		if err != nil {
			return err
		}
		kept := "span = 1 AND first >= ? AND first < ?"
		if isDay(day, stop) {
			addDay(want, day)
			kept = "span IN (1, 24) AND first >= ? AND first < ?"
		}
		got, err := v.hoursIn(q, "usage_total", "span, first", kept, day, stop)
		if err == nil && !maps.Equal(want, got) {
			broken = "I10: the sums of all accounts on " + timeAt(day).Format(time.DateOnly) + " are not those of the accounts"
		}
		return err
	})
	return broken, err
}

// allAccounts are the rows for a report about all accounts, with the columns of usage_hour: what
// was summed by the day and by the hour, and the hours since.
func (db *DB) allAccounts(ctx context.Context, on session, q billing.Query) (from string, args []any, err error) {
	summed, err := on.settingNumber(ctx, settingSummed)
	first, end := ledger.Hours(q)
	cut := min(max(first, summed), end)
	days, stop := first, first // the whole days, from and until
	if cut > first {
		stop = startOfDay(cut)
		if first > math.MinInt64 && startOfDay(first) != first {
			days = startOfDay(first) + (24 * time.Hour).Nanoseconds()
		}
	}
	if stop < days { // none
		days, stop = first, first
	}
	const columns = "model, operation, counted, requests, estimated, anomaly, " + summedColumns
	part := func(hour, table string) string { return "SELECT " + hour + ", " + columns + " FROM " + table }
	from = " FROM (" + part("first AS hour", "usage_total WHERE span = 24 AND first >= ? AND first < ?") +
		" UNION ALL " + part("first", "usage_total WHERE span = 1 AND first >= ? AND first < ?") +
		" UNION ALL " + part("first", "usage_total WHERE span = 1 AND first >= ? AND first < ?") +
		" UNION ALL " + part("hour", "usage_hour WHERE hour >= ? AND hour < ?") + ") AS parts"
	return from, []any{days, stop, first, days, stop, cut, cut, end}, err
}
