package storetest

import (
	"context"
	"flag"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store/memory"
)

// recorder is a test that records whether it failed.
type recorder struct {
	testing.TB
	failed atomic.Bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Failed() bool          { return r.failed.Load() }
func (r *recorder) Fail()                 { r.failed.Store(true) }
func (r *recorder) FailNow()              { r.Fail(); runtime.Goexit() }
func (r *recorder) Errorf(string, ...any) { r.Fail() }
func (r *recorder) Fatalf(string, ...any) { r.FailNow() }
func (r *recorder) Fatal(...any)          { r.FailNow() }

// defective is a ledger of which single operations are wrong.
type defective struct {
	memory.Ledger
	reserve func(*billing.HoldRequest)
	extend  func(more *billing.Money)
	settle  func(*billing.Usage)
	credit  func(amount *billing.Money, reference *string)
}

func (d *defective) Reserve(ctx context.Context, r billing.HoldRequest) (billing.Hold, error) {
	if d.reserve != nil {
		d.reserve(&r)
	}
	return d.Ledger.Reserve(ctx, r)
}

func (d *defective) Extend(ctx context.Context, h billing.Hold, soFar billing.Usage, more billing.Money) error {
	if d.extend != nil {
		d.extend(&more)
	}
	return d.Ledger.Extend(ctx, h, soFar, more)
}

func (d *defective) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	if d.settle != nil {
		d.settle(&u)
	}
	return d.Ledger.Settle(ctx, h, u, with...)
}

func (d *defective) Credit(ctx context.Context, account string, amount billing.Money, reference string) error {
	if d.credit != nil {
		d.credit(&amount, &reference)
	}
	return d.Ledger.Credit(ctx, account, amount, reference)
}

// An oracle that cannot fail proves nothing.
func TestTheModelFindsAPlantedDefect(t *testing.T) {
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "0s"} { // nobody reads the failures
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	var credits atomic.Int64
	for name, d := range map[string]defective{
		"none":                                 {},
		"a settlement takes one unit too much": {settle: func(u *billing.Usage) { u.Characters++ }},
		"a large settlement takes one too little":   {settle: func(u *billing.Usage) { u.Characters -= u.Characters / 100 }},
		"a hold is of one unit less":                {reserve: func(r *billing.HoldRequest) { r.Bound.Characters -= min(r.Bound.Characters, 1) }},
		"a hold ignores what cannot be bounded":     {reserve: func(r *billing.HoldRequest) { r.Firm = billing.Usage{} }},
		"a hold of unknown length takes everything": {reserve: func(r *billing.HoldRequest) { r.Usual = billing.Usage{} }},
		"a hold is on another key's budget":         {reserve: func(r *billing.HoldRequest) { r.Key = "k3" }},
		"an extension adds nothing":                 {extend: func(more *billing.Money) { *more = min(*more, 0) }},
		"a credit counts each time": {credit: func(_ *billing.Money, reference *string) {
			*reference += string(rune('a' + credits.Add(1)%26))
		}},
		"a credit of one unit more": {credit: func(amount *billing.Money, _ *string) { *amount += 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{TB: t}
			for tries := 0; !r.Failed() && (tries == 0 || name != "none" && tries < 20); tries++ { // a rare one may not be met at once
				done := make(chan struct{})
				go func() { // which a failure ends
					defer close(done)
					checkModelAlone(r, func(o memory.LedgerOptions) Ledger {
						d := d
						d.Ledger = memory.NewLedger(o)
						return &d
					})
				}()
				<-done
			}
			if r.Failed() != (name != "none") {
				t.Errorf("found: %t", r.Failed())
			}
		})
	}
}
