package storetest

import (
	"context"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// storing are the rules of a ledger that is in a database.
var storing = map[string]func(bench){
	"ACallerThatHasHungUpGetsNoHold":                                       hungUp,
	"AClosedStoreIsAway":                                                   closedIsAway,
	"AHoldThatTheDatabaseRefusesHarmsNoOtherInItsBatch":                    poisonHarmsItself,
	"AHoldMadeForACallerWhoDidNotWaitIsGivenBackOnceTheDatabaseIsBackThen": impatient,
	"ACreditWhoseCallerLeftIsNotSaidToBeRefused":                           notKnown,
	"AClockThatFailsDoesNotLeaveMoneyHalfMoved":                            failingClock,
	"EveryReceiptCanBeComputedAgainFromWhatIsStored":                       computedAgain,
	"ALedgerThatCountedBeforeIsSoundWhenItIsPrepaid":                       countedBefore,
}

func hungUp(b bench) {
	b.account("acme", 10)
	ctx, cancel := context.WithCancel(b.t.Context())
	cancel()
	for i := range 20 {
		if h, err := b.Reserve(ctx, b.charge(id(i), 1)); err == nil {
			b.settle(h, 0) // the committer was faster
		} else if !fault.Is(err, fault.ClientGone) {
			b.t.Errorf("got %v", err)
		}
	}
	b.settle(b.reserve("last", 1), 0) // what was in the queue is done
	b.settle(b.reserve("very last", 1), 0)
	b.wantBalance(10, 0)
}

func closedIsAway(b bench) {
	b.account("acme", 10)
	h := b.reserve("r1", 4)
	b.ok(b.Close())
	_, err := b.Reserve(b.t.Context(), b.charge("r2", 1))
	b.wantAway(err)
	_, err = b.Settle(b.t.Context(), h, images(1))
	b.wantAway(err)
	b.wantAway(b.Extend(b.t.Context(), h, images(1), 0))
	_, err = b.Balance(b.t.Context(), "acme")
	b.wantAway(err)
	_, err = b.Usage(b.t.Context(), billing.Query{})
	b.wantAway(err)
	b.wantAway(b.Ping(b.t.Context()))
	b.cut.Cut() // there is nothing left to verify
}

// wantAway fails unless err says when to come back.
func (b bench) wantAway(err error) {
	b.t.Helper()
	if f := fault.From(err); f == nil || f.Code != fault.ServiceUnavailable || f.HTTPStatus() != 503 || f.RetryAfter <= 0 {
		b.t.Errorf("got %v, want 503 and when to come back", err)
	}
}

func poisonHarmsItself(b bench) {
	if !b.place.Shared {
		b.t.Skip("SQLite takes any text")
	}
	b.account("acme", 100)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			charge := b.charge(id(i), 1)
			if i%4 == 0 {
				charge.Model = []string{"no\x00text", "no\xfftext"}[i/4%2]
			}
			_, err := b.Reserve(b.t.Context(), charge)
			if (err != nil) != (i%4 == 0) || (err != nil && !fault.Is(err, fault.InvalidRequest)) {
				b.t.Errorf("request %d: %v", i, err)
			}
		})
	}
	all.Wait()
	b.wantOpen(30)
	b.wantBalance(100, 30)
}

// notKnown is a credit whose caller leaves while the database is at it.
func notKnown(b bench) {
	b.account("acme", 10)
	slow := make(chan struct{})
	b.cut.Block(slow)
	ctx, cancel := context.WithCancel(b.t.Context())
	told := make(chan error)
	go func() { told <- b.Credit(ctx, "acme", billing.One, "invoice 1") }()
	b.cut.Blocked()
	cancel()
	if err := <-told; !fault.Is(err, fault.ServiceUnavailable) || !strings.Contains(err.Error(), "not known") {
		b.t.Errorf("got %v", err)
	}
	close(slow)
	b.ok(b.Credit(b.t.Context(), "acme", billing.One, "invoice 1"))
	b.wantBalance(11, 0)
}

func impatient(b bench) {
	b.account("acme", 10)
	slow := make(chan struct{})
	b.cut.Block(slow)
	ctx, cancel := context.WithCancel(b.t.Context())
	var all sync.WaitGroup
	for i := range 5 {
		all.Go(func() {
			if _, err := b.Reserve(ctx, b.charge(id(i), 1)); !fault.Is(err, fault.ClientGone) {
				b.t.Errorf("got %v", err)
			}
		})
	}
	b.cut.Blocked()
	cancel()
	all.Wait()
	close(slow)
	b.settle(b.reserve("last", 1), 0)
	b.settle(b.reserve("very last", 1), 0)
	b.wantBalance(10, 0)
	b.wantOpen(0)
}

func failingClock(b bench) {
	b.account("acme", 10)
	h := b.reserve("r1", 4)
	b.clock.fail.Store(true)
	_, err := b.Settle(b.t.Context(), h, images(1))
	b.wantCode(err, fault.InternalError)
	b.clock.fail.Store(false)
	b.wantBalance(10, 4)
	b.settle(h, 1)
	b.wantBalance(9, 0)
}

func computedAgain(b bench) {
	b.account("acme", 1_000)
	prices := []*billing.Price{nil, b.price, price(b.t,
		billing.Rate{Unit: billing.Image, Amount: "0.000000001"}, billing.Rate{Unit: billing.Input, Amount: "0.15"},
		billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "0.1"})}
	for i := range 12 {
		charge := b.charge(id(i), 3)
		charge.Price = prices[i%3]
		h, err := b.Reserve(b.t.Context(), charge)
		b.ok(err)
		_, err = b.Settle(b.t.Context(), h, billing.Usage{Images: int64(i), Input: int64(7 * i), Seconds: 2, Variant: "720p"})
		b.ok(err)
	}
	b = b.crash() // what is remembered is not what is stored
	for i := range 12 {
		r, err := b.Receipt(b.t.Context(), "acme", id(i))
		b.ok(err)
		p, err := b.Price(b.t.Context(), r.PriceVersion)
		b.ok(err)
		if cost, err := p.Cost(r.Usage); err != nil || cost != r.Charge+r.Overrun {
			b.t.Errorf("%+v: computed again it is %s, %v", r, cost, err)
		}
	}
}

func countedBefore(b bench) {
	b = b.counting()
	b.settle(b.reserve("r1", 3), 3)
	b.reserve("r2", 3)
	b = b.crash()
	b.wantBalance(0, 0)
	b.ok(b.Credit(b.t.Context(), "acme", 2*billing.One, "invoice 1"))
	b.settle(b.reserve("r3", 2), 2)
	b.wantBalance(0, 0)
	b.ok(b.Verify(b.t.Context()))
}
