package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// Verify checks the invariants I1 to I4, I6 and I7 of docs/billing.md and names
// the first that does not hold, as fault.InternalError. I5 and I8 speak of expiry
// and of a disk, which a ledger in memory does not have. The checks of single
// captures (I4, I6) cover the entries and receipts that are still kept; older
// entries take part as the opening sums into which they were folded. Every
// other call waits while it runs, some milliseconds for 100,000 entries.
func (l *memoryLedger) Verify(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, check := range [...]func() string{l.badEntry, l.badSum, l.badHold, l.badReceipt} {
		if broken := check(); broken != "" {
			return fault.New(fault.InternalError, "The ledger is inconsistent. "+broken)
		}
	}
	return nil
}

// badEntry checks each kept entry by itself and against its request.
func (l *memoryLedger) badEntry() string {
	for n, e := range l.journal.entries.all {
		if e.sum() != 0 {
			return fmt.Sprintf("I1: entry %q sums to %s", e.reference, e.sum())
		}
		if e.request == nil {
			continue
		}
		r := &e.request.receipt
		if e.request.entry != n || r.Status != billing.Captured || r.Charge != -e.customer || r.Overrun != -e.overrun {
			return fmt.Sprintf("I4: entry %q is not the one capture of its hold", e.reference)
		}
		if r.Charge > e.held+e.available || e.held != r.Hold {
			return fmt.Sprintf("I6: request %q was charged %s of %s held and %s available", e.reference, r.Charge, e.held, e.available)
		}
	}
	return ""
}

// badSum replays the journal and compares.
func (l *memoryLedger) badSum() string {
	totals, customers := l.journal.opening, map[*account]billing.Money{}
	for _, e := range l.journal.entries.all {
		totals, _ = totals.plus(e.legs)
		customers[e.account] += e.customer
	}
	if totals != l.journal.totals {
		return "I7: replaying the journal gives other totals for the platform"
	}
	if totals.sum() != 0 {
		return fmt.Sprintf("I1: all entries sum to %s", totals.sum())
	}
	for _, name := range slices.Sorted(maps.Keys(l.accounts)) {
		a := l.accounts[name]
		if sum := a.opening + customers[a]; a.balance != nil && sum != a.balance.Posted {
			return fmt.Sprintf("I1: the entries of account %q sum to %s, its balance is %s", name, sum, a.balance.Posted)
		}
	}
	return ""
}

// badHold compares every balance with the open holds on it.
func (l *memoryLedger) badHold() string {
	held := map[*ledger.Balance]billing.Money{}
	owner := map[*ledger.Balance]string{}
	for _, a := range l.accounts {
		owner[a.balance] = a.name
		for _, budget := range a.budgets {
			owner[budget] = a.name
		}
	}
	for _, r := range l.requests {
		if !r.settled() {
			held[r.payer.Account] += r.receipt.Hold
			held[r.payer.Budget] += r.receipt.Hold
			owner[r.payer.Budget] = r.account.name
		}
	}
	delete(owner, nil) // bounds nothing
	for p, name := range owner {
		if p.Held < 0 || p.Held > p.Posted {
			return fmt.Sprintf("I2: %s of %s is held on account %q", p.Held, p.Posted, name)
		}
		if p.Held != held[p] {
			return fmt.Sprintf("I3: %s is held on account %q, its open holds sum to %s", p.Held, name, held[p])
		}
	}
	return ""
}

// badReceipt finds settlements that say more or less than the journal.
func (l *memoryLedger) badReceipt() string {
	for _, r := range l.receipts.all {
		paid := r.receipt.Charge > 0 || r.receipt.Overrun > 0
		if paid && r.receipt.Status != billing.Captured {
			return fmt.Sprintf("I4: request %q was released and charged %s", r.receipt.ID, r.receipt.Charge)
		}
		if !l.options.Count && paid != (r.entry != 0) {
			return fmt.Sprintf("I4: request %q and the journal disagree on whether it was captured", r.receipt.ID)
		}
	}
	return ""
}
