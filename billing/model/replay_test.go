package model

import (
	"context"
	"fmt"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/memory"
)

// ledger is what every ledger can do.
type ledger interface {
	billing.Meter
	billing.Accounts
}

// subject is the ledger in memory, which has to do what the model does. That those
// in databases do what it does, is shown by storetest's random operations, which
// also lose the answers of COMMITs and crash.
type subject struct {
	ledger
	t      *testing.T
	price  *billing.Price
	traces int
}

// run is one trace on an account of its own.
type run struct {
	*subject
	world *world
	name  string
	holds [requests]billing.Hold
	steps []step
}

// point is a place on a trace.
type point struct {
	by    step
	state state
}

// replay follows every trace of a world up to a length.
func (x *subject) replay(w world, length int) {
	first := w.start()
	x.walk(&w, &first, length, nil)
	if err := x.Verify(context.Background()); err != nil {
		x.t.Error(err)
	}
}

func (x *subject) walk(w *world, s *state, length int, trace []point) {
	moved := false
	if length > 0 {
		w.next(s, func(p step, t state) {
			if t == *s || x.t.Failed() {
				return
			}
			moved = true
			x.walk(w, &t, length-1, append(trace, point{p, t}))
		})
	}
	if !moved && !x.t.Failed() {
		x.follow(w, trace)
	}
}

// follow takes the steps of one trace, and compares after each.
func (x *subject) follow(w *world, trace []point) {
	x.traces++
	r := &run{subject: x, world: w, name: fmt.Sprint("a", x.traces)}
	if err := x.CreateAccount(context.Background(), r.name, billing.Money(w.balance)*billing.One); err != nil {
		x.t.Fatal(err)
	}
	before := w.start()
	for _, p := range trace {
		r.steps = append(r.steps, p.by)
		r.do(&before, p)
		r.compare(&p.state)
		before = p.state
	}
}

// do takes one step of the model on the real ledger. What only the model tells
// apart is nothing here.
func (r *run) do(before *state, p point) {
	ctx := context.Background()
	i := max(p.by.request, 0)
	switch p.by.verb {
	case "holds":
		h, err := r.Reserve(ctx, r.charge(i))
		r.want(err, "")
		r.holds[i] = h
	case "no hold":
		_, err := r.Reserve(ctx, r.charge(i))
		r.want(err, fault.InsufficientBalance)
	case "extends":
		r.want(r.Extend(ctx, r.holds[i], billing.Usage{Images: p.state.request[i].soFar}, more*billing.One), "")
	case "settles":
		_, err := r.Settle(ctx, r.holds[i], billing.Usage{Images: before.request[i].cost})
		r.want(err, "")
	case "the credit is posted, its answer is lost", "the credit is posted and acknowledged":
		r.want(r.Credit(ctx, r.name, credited*billing.One, "invoice"), "")
	}
}

func (r *run) charge(i int8) billing.HoldRequest {
	c := billing.HoldRequest{
		Account: r.name, Key: "k1", RequestID: r.id(int(i)), Model: "painter", Price: r.price,
		Bound: billing.Usage{Images: held},
	}
	if r.world.usual > 0 {
		c.Usual, c.Least = billing.Usage{Images: r.world.usual}, billing.Usage{Images: 1}
	}
	return c
}

func (r *run) id(i int) string { return fmt.Sprint(r.name, "r", i+1) }

func (r *run) want(err error, code fault.Code) {
	if (code == "" && err != nil) || (code != "" && !fault.Is(err, code)) {
		r.t.Fatalf("got %v, want %q, after %v", err, code, r.steps)
	}
}

// compare looks at all that the ledger tells of a trace's account.
func (r *run) compare(s *state) {
	ctx := context.Background()
	balance, err := r.Balance(ctx, r.name)
	want := billing.Balance{Account: r.name, Posted: units(s.account.Posted), Held: units(s.account.Held)}
	if err != nil || balance != want {
		r.t.Fatalf("%+v, %v, want %+v, after %v", balance, err, want, r.steps)
	}
	for i := range r.world.requests {
		r.compareReceipt(i, &s.request[i])
	}
}

func (r *run) compareReceipt(i int, q *request) {
	ctx := context.Background()
	got, err := r.Receipt(ctx, r.name, r.id(i))
	if q.status == open {
		r.want(err, fault.NotFound)
		return
	}
	r.want(err, "")
	status := map[status]string{captured: billing.Captured, released: billing.Released}[q.status]
	if got.Status != status || got.Usage.Images != q.used || got.Hold != units(q.amount) || got.Charge != units(q.charge) || got.Overrun != units(q.overrun) {
		r.t.Fatalf("receipt %+v, want %+v, after %v", got, q, r.steps)
	}
	if again, err := r.Settle(ctx, billing.Hold{ID: r.id(i)}, billing.Usage{Images: 1}); err != nil || again != got {
		r.t.Fatalf("settled again: %+v, %v, want %+v, after %v", again, err, got, r.steps)
	}
}

func units(n int64) billing.Money { return billing.Money(n) * billing.One }

// alone is a world of one process, whose traces a real ledger can follow.
var alone = world{requests: 2, nodes: 1, balance: 3, credits: 1, costs: []int64{0, 1, 4}, extends: 1}

// unsure is one whose requests do not say how long their answers may be. Its
// balances are even, since a model has no half units.
var unsure = world{requests: 2, nodes: 1, balance: 4, credits: 1, usual: 1, costs: []int64{0, 2}}

func TestTheLedgerInMemoryFollowsEveryTraceOfTheModel(t *testing.T) {
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Image, Amount: "1"})
	if err != nil {
		t.Fatal(err)
	}
	for name, w := range map[string]world{"known lengths": alone, "unknown lengths": unsure} {
		t.Run(name, func(t *testing.T) {
			x := &subject{ledger: memory.NewLedger(memory.LedgerOptions{}), t: t, price: price}
			x.replay(w, 9)
			t.Logf("%d traces", x.traces)
		})
	}
}
