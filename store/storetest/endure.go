package storetest

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store"
)

// enduring are the rules of a database that fails (faults.md, Crashes and money).
var enduring = map[string]func(bench){
	"WhicheverWriteFailsNothingIsLostAndNothingIsDoubled":    everyWriteFails,
	"ACommitThatLostItsAnswerMakesOneHoldAndOneCapture":      ambiguousCommit,
	"ACommitThatLostItsAnswerIsFoundAfterItsCallerHasLeft":   ambiguousAndLeft,
	"TenThousandOpenHoldsEndWithTheNextStart":                tenThousandHolds,
	"ADatabaseThatHangsIsServiceUnavailableAndNothingElse":   hangs,
	"AHoldThatHungIsGivenBackAndASettlementThatWaitedIsMade": hungAndBack,
}

// endings are how a COMMIT can end that has no answer.
var endings = []struct {
	name    string
	applied bool
	err     error
}{
	{"cut before it arrived", false, io.ErrUnexpectedEOF},
	{"cut after it was done", true, io.ErrUnexpectedEOF},
	{"not done, for a reason that says nothing", false, ErrFault},
	{"done, with an error that says nothing", true, ErrFault},
}

func ambiguousCommit(b bench) {
	b.account("acme", 100)
	for i, e := range endings {
		b.cut.FailCommit(e.applied, e.err)
		h, err := b.Reserve(b.t.Context(), b.charge(id(i), 4))
		if err != nil {
			b.t.Fatalf("hold, %s: %v", e.name, err)
		}
		left := billing.Money(100 - 3*i)
		b.wantBalance(left, 4)

		b.cut.FailCommit(e.applied, e.err)
		if err := b.Extend(b.t.Context(), h, images(1), billing.One); err != nil {
			b.t.Fatalf("extension, %s: %v", e.name, err)
		}
		b.wantBalance(left, 5)

		b.cut.FailCommit(e.applied, e.err)
		r := b.settle(h, 3)
		if again := b.settle(h, 4); again != r || r.Charge != 3*billing.One || r.Hold != 5*billing.One {
			b.t.Errorf("capture, %s: %+v, and again %+v", e.name, r, again)
		}
		b.wantBalance(left-3, 0)
		b.ok(b.Verify(b.t.Context()))
	}
	b.wantOpen(0)
}

// ambiguousAndLeft leaves no caller who would try again: what the next
// transaction finds has to be put right by the committer alone.
func ambiguousAndLeft(b bench) {
	b.account("acme", 100)
	open := b.reserve("open", 3)
	for i, e := range endings {
		gate := make(chan struct{})
		b.cut.FailCommit(e.applied, e.err)
		b.cut.Block(gate)
		ctx, cancel := context.WithCancel(b.t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			_, err := b.Reserve(ctx, b.charge(id(i), 4))
			if !fault.Is(err, fault.ClientGone) {
				b.t.Errorf("%s: got %v", e.name, err)
			}
		})
		b.cut.Blocked()
		cancel()
		all.Wait()
		close(gate)
		b.settle(b.reserve(id(i)+"last", 1), 0)
		b.settle(b.reserve(id(i)+"very last", 1), 0)
		b.wantBalance(100, 3)
		b.wantOpen(1)
	}
	b.settle(open, 2)
	b.wantBalance(98, 0)
}

func tenThousandHolds(b bench) {
	const callers = 500
	holds := int64(10_000)
	if testing.Short() {
		holds = 2_000
	}
	b.account("acme", holds)
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := caller; i < int(holds); i += callers {
				h, err := b.Reserve(b.t.Context(), b.charge(id(i), 1))
				if err == nil && i%2 == 0 {
					err = b.Extend(b.t.Context(), h, images(1), 0)
				}
				if err != nil {
					b.t.Error(err)
				}
			}
		})
	}
	all.Wait()
	b.wantBalance(billing.Money(holds), billing.Money(holds))
	b.die()
	start := time.Now()
	b = b.open(store.Options{})
	b.t.Logf("a start that ends %d holds took %s", holds, time.Since(start))
	b.wantOpen(0)
	b.wantBalance(billing.Money(holds/2), 0)
	rows, err := b.Usage(b.t.Context(), billing.Query{})
	if err != nil || len(rows) != 1 || rows[0].Charge != billing.Money(holds/2)*billing.One || rows[0].Usage.Images != holds/2 {
		b.t.Errorf("%+v, %v", rows, err)
	}
}

// hasty opens the database with little patience.
func (b bench) hasty() bench {
	b.t.Helper()
	b.die()
	return b.open(store.Options{WaitTimeout: time.Second})
}

// soon makes a hold, however often the bench runs out of patience. What it did not
// wait for is given back.
func (b bench) soon(name string, n int64) billing.Hold {
	b.t.Helper()
	for try := 0; ; try++ {
		h, err := b.Reserve(b.t.Context(), b.charge(fmt.Sprint(name, " ", try), n))
		if !fault.Is(err, fault.ServiceUnavailable) {
			b.ok(err)
			return h
		}
	}
}

// wantHung is the one answer of a database that is not there.
func (b bench) wantHung(name string, err error) {
	b.t.Helper()
	if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter <= 0 {
		b.t.Errorf("%s: got %v, want %s with a RetryAfter", name, err, fault.ServiceUnavailable)
	}
}

func hangs(b bench) {
	b.account("acme", 1_000)
	b = b.hasty()
	h := b.soon("running", 2)
	gate := make(chan struct{})
	b.cut.Block(gate)
	var all sync.WaitGroup
	for i := range 600 { // more than one batch
		all.Go(func() {
			_, err := b.Reserve(b.t.Context(), b.charge(id(i), 1))
			b.wantHung("Reserve", err)
		})
	}
	for name, ask := range b.changes(h) {
		all.Go(func() { b.wantHung(name, ask()) })
	}
	all.Wait()
	close(gate)
	b.settle(h, 2)
	b.settle(b.soon("last", 1), 0) // comes after all that was given back
	b.settle(b.soon("very last", 1), 0)
	b.wantBalance(998, 0)
	b.wantOpen(0)
}

// changes are the other operations, which nobody has waited for in the end and
// none of which moves money by itself.
func (b bench) changes(h billing.Hold) map[string]func() error {
	ctx := b.t.Context()
	return map[string]func() error{
		"Extend":        func() error { return b.Extend(ctx, h, images(1), 0) },
		"CreateAccount": func() error { return b.CreateAccount(ctx, "other", 0) },
		"SetBudget":     func() error { return b.SetBudget(ctx, "acme", "k2", new(billing.One)) },
		"Settle": func() error {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
			defer cancel()
			_, err := b.Settle(ctx, h, images(2))
			return err
		},
	}
}

func hungAndBack(b bench) {
	b.account("acme", 10)
	b = b.hasty()
	h := b.soon("running", 2)
	gate := make(chan struct{})
	b.cut.Block(gate)
	_, err := b.Reserve(b.t.Context(), b.charge("hung", 3))
	b.wantHung("Reserve", err)
	settled := make(chan billing.Receipt, 1)
	go func() { // of a stream that has ended, which can wait
		r, err := b.Settle(b.t.Context(), h, images(1))
		if err != nil {
			b.t.Error(err)
		}
		settled <- r
	}()
	close(gate)
	if r := <-settled; r.Charge != billing.One {
		b.t.Errorf("got %+v", r)
	}
	b.settle(b.soon("last", 1), 0)
	b.settle(b.soon("very last", 1), 0)
	b.wantBalance(9, 0)
	b.wantOpen(0)
}
