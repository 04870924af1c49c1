package model

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// ledger is what every ledger can do.
type ledger interface {
	billing.Meter
	billing.Accounts
}

// subject is a real ledger, which has to do what the model does.
type subject struct {
	ledger
	t      *testing.T
	cut    *sqlhook.Faults // nil where nothing can be lost
	reopen func()          // what was closed
	close  func()
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

// replay follows every trace of a world up to a length, and to the end of the
// recovery if that is cut off there.
func (x *subject) replay(w world, length int) {
	first := w.start()
	x.walk(&w, &first, length, nil)
	if err := x.Verify(context.Background()); err != nil {
		x.t.Error(err)
	}
}

func (x *subject) walk(w *world, s *state, length int, trace []point) {
	moved := false
	if length > 0 || s.recovers() {
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
	for i, p := range trace {
		r.steps = append(r.steps, p.by)
		r.do(&before, p, trace[i+1:])
		if !p.state.recovers() {
			r.compare(&p.state)
		}
		before = p.state
	}
	for i, q := range before.request {
		if q.hold {
			_, _ = x.Settle(context.Background(), r.holds[i], billing.Usage{}) // so that the database stays small
		}
	}
}

// do takes one step of the model on the real ledger. What only the model tells
// apart is nothing here.
func (r *run) do(before *state, p point, rest []point) {
	ctx := context.Background()
	i := max(p.by.request, 0)
	switch p.by.verb {
	case "holds":
		r.lose(rest)
		h, err := r.Reserve(ctx, r.charge(i))
		r.want(err, "")
		r.holds[i] = h
	case "no hold":
		_, err := r.Reserve(ctx, r.charge(i))
		r.want(err, fault.InsufficientBalance)
	case "extends":
		r.lose(rest)
		r.want(r.Extend(ctx, r.holds[i], billing.Usage{Images: int64(p.state.request[i].soFar)}, more*billing.One), "")
	case "settles":
		r.lose(rest)
		_, err := r.Settle(ctx, r.holds[i], billing.Usage{Images: int64(before.request[i].cost)})
		r.want(err, "")
	case "the credit is posted, its answer is lost", "the credit is posted and acknowledged":
		r.want(r.Credit(ctx, r.name, credited*billing.One, "invoice"), "")
	case "holds" + unknown, "extends" + unknown, "settles" + unknown:
		r.cut.FailCommit(false, io.ErrUnexpectedEOF) // the next one, which is this once more
	case "crash":
		r.close()
	case "it starts again":
		r.reopen()
	}
}

// lose makes the COMMIT of the next call lose its answer, if the trace says so.
func (r *run) lose(rest []point) {
	for _, p := range rest {
		switch p.by.verb {
		case "the answer of its COMMIT is lost":
			r.cut.FailCommit(true, io.ErrUnexpectedEOF)
			return
		case "it hears that it is done", "crash":
			return
		}
	}
}

func (r *run) charge(i int8) billing.Charge {
	c := billing.Charge{
		Account: r.name, Key: "k1", RequestID: r.id(int(i)), Model: "painter", Price: r.price,
		Bound: billing.Usage{Images: held},
	}
	if r.world.usual > 0 {
		c.Usual, c.Least = billing.Usage{Images: int64(r.world.usual)}, billing.Usage{Images: 1}
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
	want := billing.Balance{Account: r.name, Posted: units(s.account.posted), Held: units(s.account.held)}
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
	if got.Status != status || got.Usage.Images != int64(q.used) || got.Hold != units(q.amount) || got.Charge != units(q.charge) || got.Overrun != units(q.overrun) {
		r.t.Fatalf("receipt %+v, want %+v, after %v", got, q, r.steps)
	}
	if again, err := r.Settle(ctx, billing.Hold{ID: r.id(i)}, billing.Usage{Images: 1}); err != nil || again != got {
		r.t.Fatalf("settled again: %+v, %v, want %+v, after %v", again, err, got, r.steps)
	}
}

func units(n int8) billing.Money { return billing.Money(n) * billing.One }

func newSubject(t *testing.T) *subject {
	t.Helper()
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Image, Amount: "1"})
	if err != nil {
		t.Fatal(err)
	}
	return &subject{t: t, price: price}
}

// alone is a world of one process, whose traces a real ledger can follow.
var alone = world{requests: 2, nodes: 1, balance: 3, credits: 1, costs: []int8{0, 1, 4}, extends: 1, eager: true}

// unsure is one whose requests do not say how long their answers may be. Its
// balances are even, since a model has no half units.
var unsure = world{requests: 2, nodes: 1, balance: 4, credits: 1, usual: 1, costs: []int8{0, 2}, eager: true}

func TestTheLedgerInMemoryFollowsEveryTraceOfTheModel(t *testing.T) {
	for name, w := range map[string]world{"known lengths": alone, "unknown lengths": unsure} {
		t.Run(name, func(t *testing.T) {
			x := newSubject(t)
			x.ledger = memory.NewLedger(memory.LedgerOptions{})
			x.replay(w, 9)
			t.Logf("%d traces", x.traces)
		})
	}
}

func TestTheLedgerOnSQLiteFollowsEveryTraceOfTheModel(t *testing.T) {
	lossy, mortal := alone, alone
	lossy.costs = []int8{0, 4}
	lossy.left = allowance{losses: 1}
	mortal.requests, mortal.left = 1, allowance{crashes: 1}
	for _, c := range []struct {
		name   string
		world  world
		length int
	}{{"two requests, one lost answer", lossy, 6}, {"one request, one crash", mortal, 7}, {"two requests of unknown length", unsure, 5}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // they wait for the disk
			x := onSQLite(t)
			x.replay(c.world, c.length)
			t.Logf("%d traces", x.traces)
		})
	}
}

// onSQLite is a ledger that can be closed without a last word.
func onSQLite(t *testing.T) *subject {
	x := newSubject(t)
	path := filepath.Join(t.TempDir(), "test.db")
	var db *store.DB
	x.reopen = func() {
		x.cut = &sqlhook.Faults{}
		opened, err := sqlite.Open(context.Background(), path, store.Options{Wrap: x.cut.Wrap})
		if err != nil {
			t.Fatal(err)
		}
		db, x.ledger = opened, opened
	}
	x.close = func() {
		x.cut.Cut()
		_ = db.Close() // it cannot reach the database any more
	}
	x.reopen()
	t.Cleanup(func() { _ = db.Close() })
	return x
}
