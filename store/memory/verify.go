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

// Verify checks the invariants I1 to I4, I6, I7, I10 and I12 of docs/reference/billing.md and names
// the first that does not hold, as fault.InternalError. I5 and I8 speak of expiry
// and of a disk, which a ledger in memory does not have. The checks of single
// captures (I4, I6) cover the receipts that are still kept, and I10 is checked while
// that are all; the others cover all credits and hours of usage. Every other call waits
// while it runs, some milliseconds for 100,000 of them.
func (l *memoryLedger) Verify(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, check := range [...]func() string{l.badSum, l.badHold, l.badReceipt, l.badBudget} {
		if broken := check(); broken != "" {
			return fault.New(fault.InternalError, "The ledger is inconsistent. "+broken)
		}
	}
	return nil
}

// badSum compares every account, and the sums of all, with its credits and its usage.
func (l *memoryLedger) badSum() string {
	var all ledger.Sums
	var requests int64
	for _, name := range slices.Sorted(maps.Keys(l.accounts)) {
		a := l.accounts[name]
		credited, charged := a.opening, billing.Money(0)
		for _, amount := range a.credits {
			credited += amount
		}
		for _, t := range a.usage {
			requests += t.requests
			charged += t.charge
			all.Revenue += t.charge + t.overrun
			all.Overrun += t.overrun
		}
		all.Credited += credited
		if a.balance != nil && credited-charged != a.balance.Posted {
			return fmt.Sprintf("I1: the credits and charges of account %q sum to %s, its balance is %s", name, credited-charged, a.balance.Posted)
		}
	}
	switch {
	case requests != int64(l.settled):
		return fmt.Sprintf("I4: %d requests were settled, and usage has %d", l.settled, requests)
	case !l.options.Count && all != l.sums:
		return "I7: the credits and charges of all accounts give other sums for the platform"
	}
	return ""
}

// badHold compares every balance with the open holds on it.
func (l *memoryLedger) badHold() string {
	held := map[*ledger.Balance]billing.Money{}
	owner := map[*ledger.Balance]string{}
	for _, a := range l.accounts {
		owner[a.balance] = a.name
	}
	for _, r := range l.requests {
		if !r.settled() {
			held[r.payer.Account] += r.receipt.Hold
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

// badReceipt finds settlements that contradict themselves, or the sums.
func (l *memoryLedger) badReceipt() string {
	all := ledger.Sums{Credited: l.sums.Credited}
	for _, q := range l.receipts {
		r := &q.receipt
		if r.Status != billing.Captured && (r.Charge > 0 || r.Overrun > 0) {
			return fmt.Sprintf("I4: request %q was released and charged %s", r.ID, r.Charge)
		}
		if !l.options.Count && r.Charge > r.Hold+q.available {
			return fmt.Sprintf("I6: request %q was charged %s of %s held and %s available", r.ID, r.Charge, r.Hold, q.available)
		}
		all.Revenue += r.Charge + r.Overrun
		all.Overrun += r.Overrun
	}
	if !l.options.Count && l.settled == len(l.receipts) && all != l.sums {
		return fmt.Sprintf("I10: the receipts sum to %s, usage to %s", all.Revenue, l.sums.Revenue)
	}
	return ""
}
