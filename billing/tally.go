package billing

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// tallyKey is what the sums of one account are kept by.
type tallyKey struct {
	key, model string
	hour       int64 // since 1970, UTC
}

// tally is the sum of the requests that were settled in one hour.
type tally struct {
	requests int64
	usage    Usage
	charge   Money
}

func (t *tally) add(v tally) {
	t.requests += v.requests
	t.usage = t.usage.Add(v.usage)
	t.usage.Variant = "" // a sum has none
	t.charge = sum(t.charge, v.charge)
}

// tally counts one settled request.
func (a *account) tally(r *Receipt) {
	k := tallyKey{key: r.Key, model: r.Model, hour: hourOf(r.SettledAt)}
	t := a.usage[k]
	if t == nil {
		t = &tally{}
		a.usage[k] = t
	}
	t.add(tally{requests: 1, usage: r.Usage, charge: r.Charge})
}

func hourOf(t time.Time) int64 { return t.Truncate(time.Hour).Unix() / 3600 }

// groups says what each grouping calls a row.
var groups = map[GroupBy]func(tallyKey) string{
	"":      func(k tallyKey) string { return k.model },
	ByModel: func(k tallyKey) string { return k.model },
	ByKey:   func(k tallyKey) string { return k.key },
	ByDay:   func(k tallyKey) string { return time.Unix(k.hour*3600, 0).UTC().Format(time.DateOnly) },
}

// Usage sums settled requests, released ones too, by the time they were
// settled; rows are sorted by group. Sums are kept by the hour: Since is rounded
// down and Until up to a whole hour of UTC. An empty By means [ByModel], an
// unknown one is fault.InvalidRequest; an unknown account is fault.NotFound
// unless the ledger only counts.
func (l *Ledger) Usage(_ context.Context, q Query) ([]UsageRow, error) {
	group := groups[q.By]
	if group == nil {
		return nil, fault.Invalid("by", fmt.Sprintf("Usage is grouped by %q, %q or %q.", ByModel, ByKey, ByDay))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	accounts, err := l.asked(q)
	if err != nil {
		return nil, err
	}
	sums := map[string]*tally{}
	for _, a := range accounts {
		a.sum(q, group, sums)
	}
	return rows(sums), nil
}

// asked are the accounts that a query is about. A ledger that only counts has an
// account of every name; one that was not used yet is none of them.
func (l *Ledger) asked(q Query) (map[string]*account, error) {
	if q.Account == "" {
		return l.accounts, nil
	}
	a, err := l.account(q.Account)
	switch {
	case err == nil:
		return map[string]*account{q.Account: a}, nil
	case l.options.Count:
		return nil, nil
	}
	return nil, err
}

// sum adds what q selects to sums.
func (a *account) sum(q Query, group func(tallyKey) string, sums map[string]*tally) {
	first, end := q.hours()
	for k, t := range a.usage {
		if k.hour < first || k.hour >= end {
			continue
		}
		name := group(k)
		if sums[name] == nil {
			sums[name] = &tally{}
		}
		sums[name].add(*t)
	}
}

// hours are the first hour of the query and the one after its last.
func (q Query) hours() (first, end int64) {
	first, end = math.MinInt64, math.MaxInt64
	if !q.Since.IsZero() {
		first = hourOf(q.Since)
	}
	if !q.Until.IsZero() {
		end = hourOf(q.Until.Add(time.Hour - 1))
	}
	return first, end
}

func rows(sums map[string]*tally) []UsageRow {
	rows := make([]UsageRow, 0, len(sums))
	for name, t := range sums {
		rows = append(rows, UsageRow{Group: name, Requests: t.requests, Usage: t.usage, Charge: t.charge})
	}
	slices.SortFunc(rows, func(a, b UsageRow) int { return strings.Compare(a.Group, b.Group) })
	return rows
}
