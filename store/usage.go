package store

import (
	"math"
	"math/big"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
)

// usageGroup is what a row of usage_hour is the sum of.
type usageGroup struct {
	account, key, model, operation string
	hour                           int64 // its first nanosecond
	counted                        bool
}

// usageSums are the sums of one group: the requests, the flags, the amounts and
// the counts. One that does not fit is the largest number.
type usageSums [15]int64

// summedColumns are the columns of a receipt that usage_hour sums.
const summedColumns = "charge, overrun, " + countColumns

// add adds a receipt.
func (s *usageSums) add(r *billing.Receipt) {
	u := &r.Usage
	s[0]++
	s[1], s[2] = max(s[1], flag(u.Estimated)), max(s[2], flag(u.Anomaly))
	for i, n := range [...]int64{
		int64(r.Charge), int64(r.Overrun), u.Input, u.CachedInput, u.CacheWrite, u.Output, u.Reasoning,
		u.ImageInput, u.ImageOutput, u.Images, u.Seconds, u.Characters,
	} {
		s[i+3] += min(n, math.MaxInt64-s[i+3])
	}
}

// writeUsage adds the batch's receipts to the sums of their hour, one row for each
// group of them. A database that several processes share has a trigger for it.
func (b *batch) writeUsage() error {
	if b.db.dialect.Shared || len(b.settled) == 0 {
		return nil
	}
	groups := make(map[usageGroup]*usageSums)
	for i := range b.settled {
		r := &b.settled[i]
		g := usageGroup{r.Account, r.Key, r.Model, r.Operation, hourOf(r.SettledAt), r.counted}
		sums := groups[g]
		if sums == nil {
			sums = new(usageSums)
			groups[g] = sums
		}
		sums.add(&r.Receipt)
	}
	args := make([]any, 0, len(groups)*b.sql.addUsage.width)
	for g, sums := range groups {
		args = append(args, g.account, g.hour, g.key, g.model, g.operation, g.counted)
		for _, n := range sums {
			args = append(args, n)
		}
	}
	return b.tx.execAll(b.ctx, &b.sql.addUsage, args)
}

// hourOf is the first nanosecond of the hour of UTC that holds a moment.
func hourOf(at time.Time) int64 {
	hour := time.Hour.Nanoseconds()
	nanos := at.UnixNano()
	return nanos - (nanos%hour+hour)%hour
}

// addedUsage is what becomes of a row of usage_hour that is there already. A sum
// that does not fit is the largest number.
func addedUsage() string {
	var b strings.Builder
	b.WriteString(" ON CONFLICT (account, hour, key_id, model, operation, counted) DO UPDATE SET requests = usage_hour.requests + EXCLUDED.requests," +
		" estimated = MAX(usage_hour.estimated, EXCLUDED.estimated), anomaly = MAX(usage_hour.anomaly, EXCLUDED.anomaly)")
	for name := range strings.SplitSeq(summedColumns, ", ") {
		b.WriteString(", " + name + " = usage_hour." + name + " + MIN(EXCLUDED." + name + ", 9223372036854775807 - usage_hour." + name + ")")
	}
	return b.String()
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
