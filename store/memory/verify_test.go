package memory

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/ledger"
)

// usedLedger has an open hold, a captured and a released request, and one that cost
// more than there was.
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
		{"a credit that no balance has", "I1", func(l *memoryLedger) { l.accounts["acme"].credits["invoice 1"]++ }},
		{"an opening credit that no balance has", "I1", func(l *memoryLedger) { l.accounts["acme"].opening++ }},
		{"a charge that no balance has", "I1", func(l *memoryLedger) {
			l.accounts["acme"].usage[tallyKey{key: "k1", hour: ledger.HourOf(l.now())}].charge++
		}},
		{"a gift that no credit explains", "I7", func(l *memoryLedger) { l.sums.Credited++ }},
		{"an earning that no charge explains", "I7", func(l *memoryLedger) { l.sums.Revenue++ }},
		{"a loss that no overrun explains", "I7", func(l *memoryLedger) { l.sums.Overrun++ }},
		{"more held than posted", "I2", func(l *memoryLedger) { l.accounts["acme"].balance.Held += 100 * billing.One }},
		{"less than nothing held", "I2", func(l *memoryLedger) { l.accounts["acme"].balance.Held = -1 }},
		{"a hold without a request", "I3", func(l *memoryLedger) { delete(l.requests, "open") }},
		{"a request without its hold", "I3", func(l *memoryLedger) { l.requests["open"].receipt.Hold++ }},
		{"a budget without its hold", "I3", func(l *memoryLedger) { l.accounts["acme"].budgets[billing.KeySubject("k1")][0].Held-- }},
		{"a budget that counted more than its key was charged", "I12", func(l *memoryLedger) {
			l.accounts["acme"].budgets[billing.KeySubject("k1")][0].Spent += 100 * billing.One
		}},
		{"a capture of another amount", "I10", func(l *memoryLedger) { l.requests["captured"].receipt.Charge-- }},
		{"another overrun", "I10", func(l *memoryLedger) { l.requests["overrun"].receipt.Overrun++ }},
		{"a captured hold that says released", "I4", func(l *memoryLedger) { l.requests["captured"].receipt.Status = billing.Released }},
		{"a released hold that was charged", "I4", func(l *memoryLedger) { l.requests["released"].receipt.Charge = 1 }},
		{"a settlement that usage does not count", "I4", func(l *memoryLedger) { l.settled++ }},
		{"a charge beyond hold and available", "I6", func(l *memoryLedger) { l.requests["overrun"].available = 0 }},
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
