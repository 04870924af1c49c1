package billingtest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// newService returns a service offline: a simulated vendor and a ledger in memory, with one
// customer.
func newService(t *testing.T, credit billing.Money, o sim.Options) (*Service, memory.Ledger) {
	t.Helper()
	ledger := memory.NewLedger(memory.LedgerOptions{})
	if err := ledger.CreateAccount(t.Context(), "alice", credit); err != nil {
		t.Fatal(err)
	}
	service, err := NewService(sim.New(o), ledger)
	if err != nil {
		t.Fatal(err)
	}
	// Whatever a test did: the sums hold, and no request kept money back.
	t.Cleanup(func() {
		if err := ledger.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		if open, err := ledger.OpenHolds(context.Background()); err != nil || len(open) > 0 {
			t.Errorf("%d requests still hold money", len(open))
		}
	})
	return service, ledger
}

func balance(t *testing.T, ledger memory.Ledger) billing.Money {
	t.Helper()
	b, err := ledger.Balance(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	return b.Available()
}

func TestAnAnswerCostsExactlyItsTokens(t *testing.T) {
	// Fill makes the answer exactly as long as it may be: 50 tokens. The
	// simulator counts 5 in "Is the gate open?".
	service, ledger := newService(t, billing.One, sim.Options{Fill: true})
	_, charge, err := service.Answer(t.Context(), "alice", "Is the gate open?", 50)
	if err != nil {
		t.Fatal(err)
	}
	const want = 5*1_000 + 50*4_000 // nano-units: 1.00 and 4.00 per million tokens
	if charge != want {
		t.Errorf("charged %s, want %s", charge, billing.Money(want))
	}
	if got := balance(t, ledger); got != billing.One-want {
		t.Errorf("%s left, want %s", got, billing.One-want)
	}
}

func TestACustomerWithoutMoneyGets402AndNoVendorIsAsked(t *testing.T) {
	asked := 0
	service, _ := newService(t, 1, sim.Options{Fault: func(*upstream.Call) sim.Fault { asked++; return sim.Fault{} }})
	_, _, err := service.Answer(t.Context(), "alice", "Is the gate open?", 50)
	if !errors.Is(err, fault.InsufficientBalance) || fault.From(err).HTTPStatus() != 402 {
		t.Errorf("got %v, want a 402", err)
	}
	if asked > 0 {
		t.Errorf("the vendor was asked %d times for a customer who cannot pay", asked)
	}
}

func TestAnAnswerThatTheVendorFailsToGiveIsFree(t *testing.T) {
	service, ledger := newService(t, billing.One, sim.Options{Fault: func(*upstream.Call) sim.Fault { return sim.Fault{Status: 500} }})
	if _, _, err := service.Answer(t.Context(), "alice", "Is the gate open?", 50); err == nil {
		t.Error("a vendor's 500 became an answer")
	}
	if got := balance(t, ledger); got != billing.One {
		t.Errorf("%s left, want everything", got)
	}
}

func TestManyAtOnceNeverSpendMoreThanThereIs(t *testing.T) {
	// 100 answers cost more than this, however short they are.
	const credit = billing.One / 2_000
	service, ledger := newService(t, credit, sim.Options{Fill: true})
	var spent, refused atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			_, charge, err := service.Answer(t.Context(), "alice", "Is the gate open?", 50)
			spent.Add(int64(charge))
			if errors.Is(err, fault.InsufficientBalance) {
				refused.Add(1)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if left := balance(t, ledger); left+billing.Money(spent.Load()) != credit {
		t.Errorf("%s spent and %s left of %s", billing.Money(spent.Load()), left, credit)
	}
	if n := refused.Load(); n == 0 || n == 100 {
		t.Errorf("%d of 100 were refused", n)
	}
}
