package main

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/internal/adminapi"
)

// usageReport is the server's answer about usage.
type usageReport struct {
	Object string     `json:"object"`
	By     string     `json:"by"`
	Data   []usageRow `json:"data"`
}

// usageRow is one group. Of Model, Key and Day only the one that By names is set.
type usageRow struct {
	Model    string           `json:"model,omitempty"`
	Key      string           `json:"key,omitempty"`
	Day      string           `json:"day,omitempty"`
	Requests int64            `json:"requests"`
	Units    map[string]int64 `json:"units"`
	Charge   string           `json:"charge"`
}

func usageCommand(p *program) *command {
	c := newCommand("usage", "show what was used and charged")
	c.examples = []string{"tollhouse usage", "tollhouse usage --account acme --since 24h --by key"}
	of := newPeriod(p, c)
	by := c.flags.String("by", "model", "model, key or day")
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, _ []string) error {
		if !slices.Contains([]string{"model", "key", "day"}, *by) {
			return usagef("--by must be model, key or day, not %q", *by)
		}
		q := of.query()
		q.Set("by", *by)
		return showAnswer(ctx, cl, http.MethodGet, "/admin/v1/usage?"+q.Encode(), nil, usageTable)
	}
	return c
}

// usageTable has a column for each unit that occurs.
func usageTable(r usageReport) *table {
	occurring := map[string]bool{}
	for _, row := range r.Data {
		for unit := range row.Units {
			occurring[unit] = true
		}
	}
	units := slices.Sorted(maps.Keys(occurring))
	t := &table{head: []string{strings.ToUpper(r.By), "REQUESTS"}}
	for _, unit := range units {
		t.head = append(t.head, strings.ToUpper(unit))
	}
	t.head = append(t.head, "CHARGE")
	for _, row := range r.Data {
		cells := []any{row.Model + row.Key + row.Day, row.Requests}
		for _, unit := range units {
			cells = append(cells, row.Units[unit])
		}
		t.add(append(cells, row.Charge)...)
	}
	return t
}

func requestCommand(p *program) *command {
	c := newCommand("request", "show a request and its failed attempts", "ID")
	c.details = "ID is the X-Request-Id of the answer. A request is shown once it has ended."
	c.examples = []string{"tollhouse request req_06DJ4Q0V5XW2B3C4D5E6F7G8H9"}
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, args []string) error {
		return showAnswer(ctx, cl, http.MethodGet, "/admin/v1/requests/"+url.PathEscape(args[0]), nil, requestTable)
	}
	return c
}

// requestTable has a row for each field, then one for each failed attempt.
func requestTable(r adminapi.Request) *table {
	t := &table{head: []string{"REQUEST", r.ID}}
	t.add("created", time.Unix(r.CreatedAt, 0).UTC().Format(time.RFC3339))
	t.add("account", r.Account)
	t.add("key", r.Key)
	t.add("operation", r.Operation)
	t.add("model", r.Model)
	t.add("channel", r.Channel)
	t.add("status", r.Status)
	t.add("reason", r.Reason)
	for _, unit := range slices.Sorted(maps.Keys(r.Units)) {
		t.add(unit, r.Units[unit])
	}
	t.add("hold", r.Hold)
	t.add("charge", r.Charge.String()+" "+r.Currency)
	for _, a := range r.Attempts {
		status := a.Code
		if a.Status != 0 {
			status += " (upstream status " + strconv.Itoa(a.Status) + ")"
		}
		t.add("failed try", a.Channel+": "+status+" after "+(time.Duration(a.DurationMS)*time.Millisecond).String()+", waste "+a.Waste.String())
	}
	return t
}

func wasteCommand(p *program) *command {
	c := newCommand("waste", "show what failed attempts may have cost you")
	c.details = "A customer never pays for a failed attempt. BILLABLE are those that the vendor may bill all the same:\n" +
		"it got the request and did not refuse it. WASTE is the least that they cost, at your own prices."
	c.examples = []string{"tollhouse waste", "tollhouse waste --account acme --since 24h"}
	of := newPeriod(p, c)
	cl := newAdminCommand(p, c)
	c.run = func(ctx context.Context, _ []string) error {
		return showAnswer(ctx, cl, http.MethodGet, "/admin/v1/waste?"+of.query().Encode(), nil, wasteTable)
	}
	return c
}

func wasteTable(list adminapi.List[adminapi.Waste]) *table {
	t := &table{head: []string{"CHANNEL", "UPSTREAM MODEL", "FAILED", "BILLABLE", "WASTE"}}
	for _, w := range list.Data {
		t.add(w.Channel, w.Model, w.Failed, w.Billable, w.Waste)
	}
	return t
}

func ledgerVerify(p *program) *command {
	c := newCommand("ledger verify", "check that every entry of the ledger balances")
	c.examples = []string{"tollhouse ledger verify"}
	cl := newAdminCommand(p, c)
	cl.noLimit = true // it reads the whole ledger
	c.run = func(ctx context.Context, _ []string) error {
		var totals adminapi.Ledger
		if err := cl.do(ctx, http.MethodGet, "/admin/v1/ledger/verify", nil, &totals); err != nil {
			return err
		}
		err := cl.say(totals, "The ledger is sound: every entry balances, and every hold and receipt agrees with it.\n")
		if err != nil || cl.json || totals.Posted == "" { // an older server gives no totals
			return err
		}
		t := &table{head: []string{"ACCOUNTS", "POSTED", "HELD", "CREDITED", "REVENUE", "OVERRUN", "CURRENCY"}}
		t.add(totals.Accounts, totals.Posted, totals.Held, totals.Credited, totals.Revenue, totals.Overrun, totals.Currency)
		return t.write(p.stdout)
	}
	return c
}
