//go:build unix

package crashtest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/store"
)

// request is what is asked for in one request.
type request struct{ ID, Account string }

// credit is an amount given to an account.
type credit struct {
	Account, Reference string
	Amount             int64
}

// The kinds of an event of a child that uses the ledger.
const (
	created  = "create"
	credited = "credit"
	bounded  = "budget"
	reserved = "reserve"
	extended = "extend"
	settled  = "settle"
	repeated = "repeat" // a settlement that was acknowledged before
)

// useLedger is a child that works on a ledger. It ends early, and in order, when
// its standard input ends.
func useLedger(t task, k *killer) int {
	ctx := context.Background()
	db, err := t.open(ctx, store.Options{Wrap: k.wrap})
	if err != nil {
		k.out.report(event{Kind: broken, ID: "open", Error: err.Error()})
		return 1
	}
	k.phase.Store(serving)
	k.out.report(event{Kind: opened})
	if t.Postgres {
		go func() { _ = db.Run(ctx) }() // it ends with the process
	}
	if t.Workers > 0 {
		runWorkers(ctx, db, t, k.out)
	}
	if err := db.Close(); err != nil {
		k.out.report(event{Kind: broken, ID: "close", Error: err.Error()})
	}
	k.out.report(event{Kind: finished})
	return 0
}

func runWorkers(ctx context.Context, db *store.DB, t task, out *reporter) {
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	first := newWorker(db, t, out, 0)
	for _, name := range t.Accounts {
		first.create(ctx, name)
	}
	first.bound(ctx)
	first.budgets(ctx)
	var all sync.WaitGroup
	for i := range t.Workers {
		w := newWorker(db, t, out, i+1)
		all.Go(func() {
			for range t.Ops {
				select {
				case <-stop:
					return
				default:
					w.step(ctx)
				}
			}
		})
	}
	all.Wait()
}

// worker is one caller of the store.
type worker struct {
	db     *store.DB
	out    *reporter
	task   task
	random *rand.Rand
	name   string
	count  int
	price  *billing.Price
	last   request // that was settled
}

func newWorker(db *store.DB, t task, out *reporter, number int) *worker {
	// A unit is an image; what the other costs makes the price a new one.
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Image, Amount: "1"}, billing.Rate{Unit: billing.Second, Amount: fmt.Sprint(1 + t.Seed%1_000_000)})
	if err != nil {
		os.Exit(5)
	}
	return &worker{
		db: db, out: out, task: t, random: rand.New(rand.NewPCG(t.Seed, uint64(number))), name: fmt.Sprintf("%s-%d", t.Prefix, number), price: price,
	}
}

// ask reports what is asked for, asks for it, and reports what came of it. Errors
// that are none of those that are allowed are a defect.
func (w *worker) ask(e event, allowed []fault.Code, do func() (*billing.Receipt, error)) bool {
	w.out.report(e)
	r, err := do()
	answer := event{Kind: e.Kind, Done: true, ID: e.ID, Account: e.Account, N: e.N, More: e.More, Receipt: r}
	if err != nil {
		answer.Code, answer.Error = fault.From(err).Code, err.Error()
		if !slices.Contains(allowed, answer.Code) {
			answer.Kind, answer.Error = broken, e.Kind+": "+answer.Error
		}
	}
	w.out.report(answer)
	return err == nil
}

// step does one operation, chosen at random.
func (w *worker) step(ctx context.Context) {
	switch n := w.random.IntN(100); {
	case n < 40:
		w.call(ctx, w.account(), w.random.IntN(2) == 0)
	case n < 60:
		w.stream(ctx)
	case n < 68:
		w.fail(ctx)
	case n < 77:
		w.abandon(ctx)
	case n < 87:
		w.credit(ctx)
	case n < 89:
		w.create(ctx, fmt.Sprintf("new-%s-%d", w.name, w.next()))
	case n < 91:
		w.bound(ctx)
	case n < 95:
		w.call(ctx, poor, false)
	default:
		w.again(ctx)
	}
}

// The accounts of every database. The poor one has too little for all that is
// asked of it; the others never run short, so that a charge is what was used.
const (
	poor    = "poor"
	little  = 10
	plenty  = 10_000_000
	bounder = "bounded" // a key with a budget
)

// opening is what an account starts with.
func opening(name string) int64 {
	if name == poor || strings.HasPrefix(name, "new-") {
		return little
	}
	return plenty
}

func (w *worker) next() int {
	w.count++
	return w.count
}

// account is one of those that never run short.
func (w *worker) account() string { return w.task.Accounts[w.random.IntN(len(w.task.Accounts)-1)] }

func images(n int64) billing.Usage { return billing.Usage{Images: n} }

// units is an amount of money.
func units(n int64) billing.Money { return billing.Money(n) * billing.One }

// answerOf is the body of an idempotent answer.
func answerOf(id string) []byte { return []byte("the answer to " + id) }

// keyOf is the idempotency key of a request.
func keyOf(r request) idempotency.Key {
	return idempotency.Key{Account: r.Account, Operation: "image", Key: "key of " + r.ID}
}

// begin makes a hold, with an idempotency key or without.
func (w *worker) begin(ctx context.Context, account string, n int64, keep bool) (request, billing.Hold, bool) {
	r := request{fmt.Sprintf("%s-%d", w.name, w.next()), account}
	key := "k1"
	if w.random.IntN(4) == 0 {
		key = bounder
	}
	var with []billing.Record
	if keep {
		with = append(with, idempotency.Claim{Key: keyOf(r), Content: idempotency.Content{1}})
	}
	var h billing.Hold
	made := w.ask(event{Kind: reserved, ID: r.ID, Account: account, N: n, Keep: keep}, []fault.Code{fault.InsufficientBalance, fault.IdempotencyConflict},
		func() (_ *billing.Receipt, err error) {
			h, err = w.db.Ledger().Reserve(ctx, billing.HoldRequest{
				Account: account, Key: key, RequestID: r.ID, Operation: "image", Model: "painter", Price: w.price, Bound: images(n),
				With: with,
			})
			return nil, err
		})
	return r, h, made
}

// extend keeps a checkpoint of n units. It is refused where others ended the
// hold of a process that was too slow for its lease.
func (w *worker) extend(ctx context.Context, r request, h billing.Hold, n, more int64) bool {
	return w.ask(event{Kind: extended, ID: r.ID, Account: r.Account, N: n, More: more}, w.overtaken(), func() (*billing.Receipt, error) {
		return nil, w.db.Ledger().Extend(ctx, h, images(n), units(more))
	})
}

func (w *worker) overtaken() []fault.Code {
	if w.task.Postgres {
		return []fault.Code{fault.InternalError}
	}
	return nil
}

func (w *worker) settle(ctx context.Context, r request, h billing.Hold, n int64, keep bool) {
	with := []billing.Record{billing.Outcome{Reason: billing.ReasonComplete}}
	if keep {
		with = append(with, idempotency.Record{Key: keyOf(r), Content: idempotency.Content{1}, Header: http.Header{"X": {"y"}}, Body: answerOf(r.ID)})
	}
	done := w.ask(event{Kind: settled, ID: r.ID, Account: r.Account, N: n}, nil, func() (*billing.Receipt, error) {
		receipt, err := w.db.Ledger().Settle(ctx, h, images(n), with...)
		return &receipt, err
	})
	if done {
		w.last = r
	}
}

// call is a request with one answer. Sometimes it costs more than was held.
func (w *worker) call(ctx context.Context, account string, keep bool) {
	n := 1 + w.random.Int64N(5)
	r, h, ok := w.begin(ctx, account, n, keep)
	if !ok {
		return
	}
	used := 1 + w.random.Int64N(n)
	if account != poor && w.random.IntN(10) == 0 {
		used = n + 1 + w.random.Int64N(3)
	}
	w.settle(ctx, r, h, used, keep)
}

// stream is a request with checkpoints.
func (w *worker) stream(ctx context.Context) {
	keep := w.random.IntN(3) == 0
	r, h, ok := w.begin(ctx, w.account(), 2, keep)
	n := int64(0)
	for range 1 + w.random.IntN(3) {
		n += 1 + w.random.Int64N(2)
		ok = ok && w.extend(ctx, r, h, n, w.random.Int64N(3))
	}
	if ok {
		w.settle(ctx, r, h, n+w.random.Int64N(2), keep)
	}
}

// fail is a request that costs nothing in the end.
func (w *worker) fail(ctx context.Context) {
	keep := w.random.IntN(2) == 0
	if r, h, ok := w.begin(ctx, w.account(), 3, keep); ok {
		w.settle(ctx, r, h, 0, keep)
	}
}

// abandon leaves a hold open for the recovery: with a checkpoint or without.
func (w *worker) abandon(ctx context.Context) {
	r, h, ok := w.begin(ctx, w.account(), 4, w.random.IntN(2) == 0)
	if ok && w.random.IntN(2) == 0 {
		w.extend(ctx, r, h, 1+w.random.Int64N(5), w.random.Int64N(2))
	}
}

// credit gives something, or again what an earlier process gave, or meant to.
func (w *worker) credit(ctx context.Context) {
	c := credit{w.task.Accounts[w.random.IntN(len(w.task.Accounts))], fmt.Sprintf("%s-%d", w.name, w.next()), 1 + w.random.Int64N(9)}
	if len(w.task.Credits) > 0 && w.random.IntN(3) == 0 {
		c = w.task.Credits[w.random.IntN(len(w.task.Credits))]
	}
	w.ask(event{Kind: credited, ID: c.Reference, Account: c.Account, N: c.Amount}, nil, func() (*billing.Receipt, error) {
		return nil, w.db.Ledger().Credit(ctx, c.Account, units(c.Amount), c.Reference)
	})
}

// create adds an account. That it is there already is an answer, too: an
// earlier process may have ended before it was told.
func (w *worker) create(ctx context.Context, name string) {
	w.ask(event{Kind: created, ID: name, Account: name, N: opening(name)}, []fault.Code{fault.InvalidRequest}, func() (*billing.Receipt, error) {
		return nil, w.db.Ledger().CreateAccount(ctx, name, units(opening(name)))
	})
}

func (w *worker) bound(ctx context.Context) {
	limit := units(plenty)
	account := w.account()
	w.ask(event{Kind: bounded, Account: account}, nil, func() (*billing.Receipt, error) {
		return nil, w.db.Ledger().SetBudget(ctx, account, bounder, &limit)
	})
}

// fortwo is a period that begins anew some times while a process runs.
const fortwo = billing.Period("2s")

// budgets puts budgets on each account before any request, or finds them there: one for ever and
// one with windows.
func (w *worker) budgets(ctx context.Context) {
	for _, account := range w.task.Accounts {
		for _, every := range []billing.Period{"", fortwo} {
			w.ask(event{Kind: bounded, Account: account}, nil, func() (*billing.Receipt, error) {
				_, err := w.db.Ledger().PutBudget(ctx, account, billing.AccountSubject(account), billing.BudgetSpec{Limit: units(plenty), Every: every}, billing.By{Actor: w.name})
				return nil, err
			})
		}
	}
}

// again settles a request that has ended, by another amount, and asks for a
// hold by its id: the first changes nothing, the second is refused.
func (w *worker) again(ctx context.Context) {
	r := w.last
	if len(w.task.Again) > 0 && w.random.IntN(2) == 0 {
		r = w.task.Again[w.random.IntN(len(w.task.Again))]
	}
	if r.ID == "" {
		return
	}
	w.ask(event{Kind: repeated, ID: r.ID, Account: r.Account}, nil, func() (*billing.Receipt, error) {
		receipt, err := w.db.Ledger().Settle(ctx, billing.Hold{ID: r.ID, Account: r.Account}, images(9), billing.Outcome{Reason: billing.ReasonComplete})
		return &receipt, err
	})
	if r != w.last && !w.task.Postgres {
		return // what an earlier process ended is refused at the end, which would meet the other workers' settlements
	}
	_, err := w.db.Ledger().Reserve(ctx, billing.HoldRequest{Account: r.Account, Key: "k1", RequestID: r.ID, Operation: "image", Model: "painter", Price: w.price, Bound: images(1)})
	if fault.From(err) == nil || fault.From(err).Code != fault.InternalError {
		w.out.report(event{Kind: broken, ID: r.ID, Error: fmt.Sprintf("a request id was taken twice: %v", err)})
	}
}
