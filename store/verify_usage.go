package store

import (
	"database/sql"
	"fmt"
	"math"
	"strings"
	"time"
)

// hourColumn is the hour in which a receipt was settled, as usage_hour has it.
const hourColumn = "settled_at - ((settled_at % 3600000000000) + 3600000000000) % 3600000000000"

// usage compares what usage_hour has of accounts with their receipts.
func (v verification) usage(names []string) (broken string, err error) {
	sizes, err := v.sizes(names)
	if err != nil {
		return "", err
	}
	var few []string
	total := int64(0)
	for i, name := range names {
		if sizes[name] > verifyPage {
			if broken, err = v.usageByHours(name); err != nil || broken != "" {
				return broken, err
			}
		} else {
			few, total = append(few, name), total+sizes[name]
		}
		if total > verifyPage || i == len(names)-1 {
			if broken, err = v.compareUsage(few, math.MinInt64, math.MaxInt64); err != nil || broken != "" {
				return broken, err
			}
			few, total = nil, 0
		}
	}
	return "", nil
}

// sizes are how many receipts the accounts should have.
func (v verification) sizes(names []string) (map[string]int64, error) {
	sizes := make(map[string]int64, len(names))
	find := newLookup(v.db.dialect, "SELECT account, CAST(SUM(requests) AS BIGINT) FROM usage_hour WHERE account", 't', " GROUP BY account")
	err := v.read(func(q querier) error {
		return find.each(anys(names), func(query string, args []any) error {
			rows, err := q.query(v.ctx, query, args...)
			if err != nil {
				return err
			}
			return each(rows, func(rows *sql.Rows) error {
				var name string
				var n int64
				err := rows.Scan(&name, &n)
				sizes[name] = n
				return err
			})
		})
	})
	return sizes, err
}

// usageByHours compares the usage of an account that has much, some hours at a
// time.
func (v verification) usageByHours(name string) (string, error) {
	type hour struct{ first, requests int64 }
	var hours []hour
	err := v.read(func(q querier) error {
		rows, err := q.query(v.ctx, "SELECT hour, CAST(SUM(requests) AS BIGINT) FROM usage_hour WHERE account = ? GROUP BY hour ORDER BY hour", name)
		if err != nil {
			return err
		}
		return each(rows, func(rows *sql.Rows) error {
			var h hour
			err := rows.Scan(&h.first, &h.requests)
			hours = append(hours, h)
			return err
		})
	})
	if err != nil {
		return "", err
	}
	first, total := int64(math.MinInt64), int64(0)
	for _, h := range hours {
		if total += h.requests; total < verifyPage {
			continue
		}
		end := h.first + time.Hour.Nanoseconds()
		if broken, err := v.compareUsage([]string{name}, first, end); err != nil || broken != "" {
			return broken, err
		}
		first, total = end, 0
	}
	return v.compareUsage([]string{name}, first, math.MaxInt64)
}

// compareUsage compares what was settled from first, inclusive, to end.
func (v verification) compareUsage(names []string, first, end int64) (string, error) {
	var kept, receipts map[usageGroup]usageSums
	err := v.read(func(q querier) (err error) {
		if kept, err = v.sumUsage(q, "usage_hour", "hour", "hour", "CAST(SUM(requests) AS BIGINT)", names, first, end); err != nil {
			return err
		}
		receipts, err = v.sumUsage(q, "receipt", "settled_at", hourColumn, "COUNT(*)", names, first, end)
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

func differentUsage(g usageGroup) string {
	return fmt.Sprintf("I10: the usage of account %q by key %q and model %q in the hour from %s is not the sum of its receipts",
		g.account, g.key, g.model, timeAt(g.hour).Format(time.RFC3339))
}

// sumUsage sums the rows of a table by their groups.
func (v verification) sumUsage(q querier, table, at, hour, requests string, names []string, first, end int64) (map[usageGroup]usageSums, error) {
	find := newLookup(v.db.dialect, "SELECT account, "+hour+", key_id, model, operation, counted, "+requests+", MAX(estimated), MAX(anomaly), "+
		sums(strings.Split(summedColumns, ", ")...)+" FROM "+table+" WHERE "+at+" >= ? AND "+at+" < ? AND account", 't', " GROUP BY 1, 2, 3, 4, 5, 6")
	all := map[usageGroup]usageSums{}
	err := find.each(anys(names), func(query string, args []any) error {
		rows, err := q.query(v.ctx, query, append([]any{first, end}, args...)...)
		if err != nil {
			return err
		}
		return each(rows, func(rows *sql.Rows) error {
			var g usageGroup
			var values usageSums
			var totals [len(values) - 3]sum
			scanned := []any{&g.account, &g.hour, &g.key, &g.model, &g.operation, &g.counted, &values[0], &values[1], &values[2]}
			for i := range totals {
				scanned = append(scanned, totals[i].parts()...)
			}
			err := rows.Scan(scanned...)
			for i := range totals {
				values[i+3] = totals[i].capped()
			}
			all[g] = values
			return err
		})
	})
	return all, err
}
