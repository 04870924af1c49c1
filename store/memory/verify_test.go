package memory

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
)

// usedLedger has an open hold, a captured and a released request, and a
// journal of which the oldest entry is folded.
func usedLedger(t *testing.T) *memoryLedger {
	t.Helper()
	ctx := context.Background()
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Image, Amount: "1"})
	if err != nil {
		t.Fatal(err)
	}
	l := NewLedger(LedgerOptions{Receipts: 3, Now: func() time.Time { return time.Unix(1e9, 0) }})
	budget := 9 * billing.One
	steps := []error{
		l.CreateAccount(ctx, "acme", 10*billing.One),
		l.SetBudget(ctx, "acme", "k1", &budget),
		l.Credit(ctx, "acme", billing.One, "invoice 1"),
	}
	for _, r := range []struct {
		id   string
		used int64 // -1: not settled
	}{{"released", 0}, {"captured", 2}, {"open", -1}, {"overrun", 9}} {
		h, err := l.Reserve(ctx, billing.HoldRequest{Account: "acme", Key: "k1", RequestID: r.id, Price: price, Bound: billing.Usage{Images: 1}})
		steps = append(steps, err)
		if r.used >= 0 {
			_, err = l.Settle(ctx, h, billing.Usage{Images: r.used})
			steps = append(steps, err)
		}
	}
	if i := slices.IndexFunc(steps, func(err error) bool { return err != nil }); i >= 0 {
		t.Fatal(steps[i])
	}
	return l.(*memoryLedger)
}

func TestVerifyNamesTheInvariantThatABrokenLedgerBreaks(t *testing.T) {
	for _, c := range []struct {
		name, want string
		corrupt    func(*memoryLedger)
	}{
		{"a balance out of nothing", "I1", func(l *memoryLedger) { l.accounts["acme"].balance.Posted++ }},
		{"a lopsided entry", "I1", func(l *memoryLedger) { l.journal.entries.items[0].credit++ }},
		{"an opening sum of one account only", "I1", func(l *memoryLedger) { l.accounts["acme"].opening++ }},
		{"lopsided totals", "I1", func(l *memoryLedger) { l.journal.opening.revenue++; l.journal.totals.revenue++ }},
		{"totals that no entry explains", "I7", func(l *memoryLedger) { l.journal.totals.revenue++ }},
		{"more held than posted", "I2", func(l *memoryLedger) { l.accounts["acme"].balance.Held += 100 * billing.One }},
		{"less than nothing held", "I2", func(l *memoryLedger) { l.accounts["acme"].balance.Held = -1 }},
		{"a hold without a request", "I3", func(l *memoryLedger) { delete(l.requests, "open") }},
		{"a request without its hold", "I3", func(l *memoryLedger) { l.requests["open"].receipt.Hold++ }},
		{"a budget without its hold", "I3", func(l *memoryLedger) { l.accounts["acme"].budgets["k1"].Held-- }},
		{"an overdrawn budget", "I2", func(l *memoryLedger) { l.accounts["acme"].budgets["k1"].Posted = -1 }},
		{"a capture of another amount", "I4", func(l *memoryLedger) { l.requests["captured"].receipt.Charge-- }},
		{"another overrun", "I4", func(l *memoryLedger) { l.requests["overrun"].receipt.Overrun++ }},
		{"a captured hold that says released", "I4", func(l *memoryLedger) { l.requests["captured"].receipt.Status = billing.Released }},
		{"a second capture", "I4", func(l *memoryLedger) {
			l.journal.post(l.journal.entries.items[l.journal.entries.index(l.requests["captured"].entry)])
		}},
		{"a charge without an entry", "I4", func(l *memoryLedger) { l.requests["released"].receipt.Charge = 1 }},
		{"a free capture without an entry", "I4", func(l *memoryLedger) {
			l.requests["released"].receipt.Status, l.requests["released"].receipt.Charge = billing.Captured, 1
		}},
		{"a released charge whose entry was folded", "I4", func(l *memoryLedger) {
			for i := range int64(3) {
				l.credit(l.accounts["acme"], 1+billing.Money(i), "invoice 2")
			}
			l.requests["captured"].receipt.Status = billing.Released
		}},
		{"an entry without a charge", "I4", func(l *memoryLedger) { l.requests["released"].entry = 1 }},
		{"a charge beyond hold and available", "I6", func(l *memoryLedger) {
			for i := range l.journal.entries.items {
				l.journal.entries.items[i].available = 0
			}
		}},
		{"a hold that grew after the capture", "I6", func(l *memoryLedger) { l.requests["captured"].receipt.Hold++ }},
	} {
		l := usedLedger(t)
		if err := l.Verify(context.Background()); err != nil {
			t.Fatalf("before: %v", err)
		}
		c.corrupt(l)
		if err := l.Verify(context.Background()); err == nil || !strings.Contains(err.Error(), " "+c.want+": ") {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

func TestARingKeepsTheNewestInOrder(t *testing.T) {
	r := ring[int]{limit: 3}
	for i := 1; i <= 8; i++ {
		dropped, full := r.push(i)
		if full != (i > 3) || dropped != max(0, i-3) {
			t.Errorf("pushing %d dropped %d, %v", i, dropped, full)
		}
		var kept []int
		for n, item := range r.all {
			if n != uint64(item) {
				t.Errorf("item %d has number %d", item, n)
			}
			kept = append(kept, item)
		}
		if len(kept) != min(i, 3) || kept[0] != max(1, i-2) || !slices.IsSorted(kept) {
			t.Errorf("after %d: %v", i, kept)
		}
	}
}
