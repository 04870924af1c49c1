//go:build unix

package crashtest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/store"
)

// audit compares the book with a database whose processes have all ended. It
// reads the tables beside the store, too: a store that deceives itself would
// deceive its callers alike.
type audit struct {
	*book
	ctx context.Context
	db  *store.DB
	raw *sql.DB
}

func (a audit) run() error {
	for _, part := range [...]func() error{
		a.nothingOpen, a.requests, a.journal, a.completeness, a.balances, a.answers, a.callers, a.invariants,
	} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

func (a audit) nothingOpen() error {
	open, err := a.db.OpenHolds(a.ctx)
	for _, h := range open {
		a.problem(leftOpen, "the hold %s of %s", h.ID, h.Amount)
	}
	return err
}

// requests takes the receipts of the requests that ran since the last audit.
func (a audit) requests() error {
	for _, id := range slices.Sorted(maps.Keys(a.running)) {
		h := a.running[id]
		r, err := a.db.Receipt(a.ctx, h.Account, id)
		found := !fault.Is(err, fault.NotFound)
		if h.settle == yes && h.receipt.Reason == billing.ReasonInternal {
			a.figures.add("overtaken", 1)
		}
		if found && err != nil {
			return err
		}
		a.request(h, r, found)
		delete(a.running, id)
		if found {
			a.ended[id] = r
			a.late = append(a.late, h.request)
			a.accounts[h.Account].charged += int64(r.Charge / billing.One)
		}
		if found && h.keep && r.Status == billing.Captured && r.Reason == billing.ReasonComplete {
			a.kept[id] = h.request
		}
	}
	return nil
}

// request compares one receipt with what the client knows.
func (a audit) request(h *history, r billing.Receipt, found bool) {
	ends, may := a.ends(h)
	switch {
	case !found && may:
	case !found:
		a.problem(lost, "%s is not there: %+v", h.ID, *h)
	case h.settle == yes && r != h.receipt:
		a.problem(lost, "%s was acknowledged as %+v and is %+v", h.ID, h.receipt, r)
	case !slices.ContainsFunc(ends, func(e end) bool { return e.is(h, r) }):
		a.problem(wrong, "%s ended as %+v, which is none of %+v: %+v", h.ID, r, ends, *h)
	}
}

// journal reads the entries that are new: each has to be known and the only one.
func (a audit) journal() error {
	rows, err := a.raw.QueryContext(a.ctx, "SELECT number, account, kind, reference, customer, credit, revenue, overrun FROM entry WHERE number > $1 ORDER BY number", a.read)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err tells
	for rows.Next() {
		var e entry
		if err := rows.Scan(&a.read, &e.account, &e.kind, &e.reference, &e.customer, &e.credit, &e.revenue, &e.overrun); err != nil {
			return err
		}
		a.entry(e)
	}
	return rows.Err()
}

// entry is one movement of money as the database has it.
type entry struct {
	account, kind, reference           string
	customer, credit, revenue, overrun billing.Money
}

func (a audit) entry(e entry) {
	if e.customer+e.credit+e.revenue+e.overrun != 0 {
		a.problem(wrong, "entry %+v", e)
	}
	switch owner := a.accounts[e.account]; {
	case owner == nil:
		a.problem(wrong, "entry of an account that nobody asked for: %+v", e)
	case e.kind == "opening":
		if owner.seen {
			a.problem(doubled, "entry %+v", e)
		}
		owner.seen = true
		a.equal(e, e.customer, units(opening(e.account)))
	case e.kind == "credit":
		a.grant(e)
	case e.kind == "capture":
		a.capture(e)
	}
}

func (a audit) equal(e entry, got, want billing.Money) {
	if got != want {
		a.problem(wrong, "entry %+v: %s, want %s", e, got, want)
	}
}

func (a audit) grant(e entry) {
	g := a.credits[e.reference]
	switch {
	case g == nil || g.Account != e.account:
		a.problem(wrong, "entry of a credit that nobody asked for: %+v", e)
		return
	case g.seen:
		a.problem(doubled, "entry %+v", e)
	}
	g.seen = true
	a.equal(e, e.customer, units(g.Amount))
}

func (a audit) capture(e entry) {
	r, ok := a.ended[e.reference]
	switch {
	case !ok || r.Account != e.account:
		a.problem(wrong, "entry of a capture that has no receipt: %+v", e)
		return
	case a.posted[e.reference]:
		a.problem(doubled, "entry %+v", e)
	}
	a.posted[e.reference] = true
	a.equal(e, -e.customer, r.Charge)
}

// completeness looks for what was acknowledged and has no entry, and for
// receipts that no request has.
func (a audit) completeness() error {
	for id, r := range a.ended {
		if r.Charge > 0 && !a.posted[id] {
			a.problem(lost, "the entry of %+v", r)
			a.posted[id] = true // say it once
		}
	}
	for _, g := range a.credits {
		if g.done && !g.seen {
			a.problem(lost, "credit %+v", *g)
		}
	}
	for name, o := range a.accounts {
		if (o.done || o.refused > 0) && !o.seen {
			a.problem(lost, "account %s", name)
		}
		if o.refused > 0 && o.refused == o.asks {
			a.problem(wrong, "account %s was never made by those who asked for it", name)
		}
	}
	var receipts int
	err := a.raw.QueryRowContext(a.ctx, "SELECT COUNT(*) FROM receipt").Scan(&receipts)
	if err == nil && receipts != len(a.ended) {
		a.problem(wrong, "%d receipts, want %d", receipts, len(a.ended))
	}
	return err
}

// balances compares every account with the sum that the client keeps.
func (a audit) balances() error {
	want := map[string]int64{}
	for name, o := range a.accounts {
		if o.seen {
			want[name] = opening(name) - o.charged
		}
	}
	for _, g := range a.credits {
		if g.seen {
			want[g.Account] += g.Amount
		}
	}
	names, err := a.db.AccountNames(a.ctx)
	if err != nil {
		return err
	}
	if len(names) != len(want) {
		a.problem(wrong, "%d accounts, want %d", len(names), len(want))
	}
	for name, n := range want {
		got, err := a.db.Balance(a.ctx, name)
		if err != nil {
			return fmt.Errorf("balance of %s: %w", name, err)
		}
		if got != (billing.Balance{Account: name, Posted: units(n)}) {
			a.problem(wrong, "account %s has %+v, want %d and nothing held", name, got, n)
		}
	}
	return nil
}

// answers compares the idempotent answers with the settlements that keep one.
func (a audit) answers() error {
	rows, err := a.raw.QueryContext(a.ctx, "SELECT request, state, body, receipt FROM answer")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err tells
	missing := maps.Clone(a.kept)
	for rows.Next() {
		var id, state, receipt string
		var body []byte
		if err := rows.Scan(&id, &state, &body, &receipt); err != nil {
			return err
		}
		if _, ok := a.kept[id]; !ok || state != "kept" {
			a.problem(wrong, "the answer of %s is %q, its receipt %+v", id, state, a.ended[id])
			continue
		}
		delete(missing, id)
		var r billing.Receipt
		if err := json.Unmarshal([]byte(receipt), &r); err != nil || r != a.ended[id] || string(body) != string(answerOf(id)) {
			a.problem(wrong, "the answer of %s: %q, %+v, %v", id, body, r, err)
		}
	}
	for id := range missing {
		a.problem(lost, "the answer of %s, whose receipt is %+v", id, a.ended[id])
		delete(a.kept, id) // say it once
	}
	return rows.Err()
}

// callers asks as later duplicates do: one gets the answer, one gets the key of
// a request that kept none.
func (a audit) callers() error {
	for id, r := range a.kept {
		got, err := a.db.Open(a.ctx, keyOf(r), idempotency.Content{1}, "a later one")
		if err != nil || got == nil || got.Receipt != a.ended[id] {
			a.problem(lost, "the answer of %s: %+v, %v", id, got, err)
		}
		break
	}
	for id, receipt := range a.ended {
		if _, kept := a.kept[id]; kept {
			continue
		}
		r := request{id, receipt.Account}
		if got, err := a.db.Open(a.ctx, keyOf(r), idempotency.Content{1}, "a later one"); err != nil || got != nil {
			a.problem(leftOpen, "the key of %s: %+v, %v", id, got, err)
		}
		return a.db.Free(a.ctx, keyOf(r), "a later one")
	}
	return nil
}

func (a audit) invariants() error {
	if err := a.db.Verify(a.ctx); err != nil {
		a.problem(wrong, "Verify: %v", err)
	}
	return nil
}
