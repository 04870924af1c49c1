// Package gatewaytest makes a gateway for a test: with the simulator as its vendor, a ledger in
// memory, and money. No network and no key are needed:
//
//	g := gatewaytest.New(t)
//	answer, err := g.Chat(t.Context(), &chat.Request{Model: gatewaytest.Model, …})
//	…
//	charges := gatewaytest.Charges(t) // what the test has cost so far
//
// [New] takes functions that edit the options. One that sets Upstream to a sim.Script says what
// the model answers:
//
//	g := gatewaytest.New(t, func(o *gateway.Options) {
//		o.Upstream = sim.Script(sim.Step{Text: "The first answer."}, sim.Step{Err: fault.UpstreamRateLimit})
//	})
package gatewaytest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// Model is a model with a price: 1.00 for a million tokens of input, and 2.00 of output. Any
// other model is free.
const Model = "test-model"

// Credit is the money that the account "local" begins with.
const Credit = 1_000 * billing.One

// New returns a gateway that runs until the test ends: [gateway.Gateway.Run] runs beside it. It
// bills the account "local", which is that of calls without a principal in their context and
// has [Credit]. Each edit changes the options, in order, before the gateway is made.
//
// New ends the test if the options contradict each other. When the test ends, New's cleanup
// closes the gateway. The test fails if the ledger's sums do not hold then, or if a request
// still holds money.
func New(t testing.TB, edit ...func(*gateway.Options)) *gateway.Gateway {
	t.Helper()
	ledger := memory.NewLedger(memory.LedgerOptions{})
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Input, Amount: "1.00"}, billing.Rate{Unit: billing.Output, Amount: "2.00"})
	if err == nil {
		err = ledger.CreateAccount(t.Context(), "local", Credit)
	}
	if err != nil {
		t.Fatal(err)
	}
	o := gateway.Options{
		Upstream: sim.New(sim.Options{}), Meter: ledger,
		Prices: billing.NewPriceList(map[string]*billing.Price{Model: price}),
	}
	for _, change := range edit {
		change(&o)
	}
	r := record(t)
	o.Observe = append(slices.Clip(o.Observe), gateway.Observer{End: r.end, Event: r.event})
	g, err := gateway.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = g.Run(ctx) })
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Errorf("closing the gateway: %v", err)
		}
		stop()
		running.Wait()
		check(t, g.Meter())
	})
	return g
}

// check fails the test if the sums of a ledger do not hold, or if a request still holds money.
func check(t testing.TB, meter billing.Meter) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if ledger, ok := meter.(memory.Ledger); ok {
		if err := ledger.Verify(ctx); err != nil {
			t.Error(err)
		}
		open, err := ledger.OpenHolds(ctx)
		if err != nil {
			t.Error(err)
		}
		for _, h := range open {
			t.Errorf("request %s (%s) still holds %s", h.ID, h.Operation, h.Amount)
		}
	}
}

// Charges returns the receipts of the gateways that [New] made for the test, in the order in
// which they were settled. A request has one when its answer has returned, a stream when it has
// ended, and a video when its task has. A request that was refused before its hold has none,
// and a released one has a charge of zero. In a subtest Charges also finds the gateways of the
// tests around it.
func Charges(t testing.TB) []billing.Receipt {
	t.Helper()
	for name := t.Name(); ; {
		if found, ok := tests.Load(name); ok {
			return found.(*receipts).list()
		}
		end := strings.LastIndexByte(name, '/')
		if end < 0 {
			t.Fatal("gatewaytest: Charges of a test without a gateway: make one with gatewaytest.New(t)")
			return nil
		}
		name = name[:end]
	}
}

// tests has the receipts of every running test that has a gateway, by its name: all that
// Charges gets is the test.
var tests sync.Map

// receipts are those of one test.
type receipts struct {
	mu  sync.Mutex
	all []billing.Receipt
}

// record returns the receipts of the test, which are forgotten when it ends.
func record(t testing.TB) *receipts {
	name := t.Name()
	found, before := tests.LoadOrStore(name, &receipts{})
	if !before {
		t.Cleanup(func() { tests.Delete(name) })
	}
	return found.(*receipts)
}

// list copies the receipts.
func (r *receipts) list() []billing.Receipt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// add adds a receipt; nil is none.
func (r *receipts) add(one *billing.Receipt) {
	if one == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, *one)
}

// end adds the receipt of a request that has ended.
func (r *receipts) end(_ context.Context, e *gateway.RequestEvent) { r.add(e.Receipt) }

// event adds the receipt of a video, or of a request that was settled late.
func (r *receipts) event(_ context.Context, e gateway.Event) {
	switch e := e.(type) {
	case gateway.TaskMoved:
		r.add(e.Receipt)
	case gateway.CaptureRetried:
		r.add(e.Receipt)
	}
}
