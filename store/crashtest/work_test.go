//go:build unix

package crashtest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/childproc"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// step does one operation, chosen by the dice.
func (w *worker) step(ctx context.Context) {
	switch n := w.dice.IntN(100); {
	case n < 40:
		w.call(ctx, w.account(), w.dice.IntN(2) == 0)
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
func (w *worker) account() string { return w.task.Accounts[w.dice.IntN(len(w.task.Accounts)-1)] }

func images(n int64) billing.Usage { return billing.Usage{Images: n} }

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
	if w.dice.IntN(4) == 0 {
		key = bounder
	}
	var with []billing.Record
	if keep {
		with = append(with, idempotency.Claim{Key: keyOf(r), Content: idempotency.Content{1}})
	}
	var h billing.Hold
	made := w.ask(event{Kind: reserved, ID: r.ID, Account: account, N: n}, []fault.Code{fault.InsufficientBalance, fault.IdempotencyConflict},
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
	done := w.ask(event{Kind: settled, ID: r.ID, Account: r.Account, N: n, Keep: keep}, nil, func() (*billing.Receipt, error) {
		receipt, err := w.db.Ledger().Settle(ctx, h, images(n), with...)
		return &receipt, err
	})
	if done {
		w.last = r
	}
}

// call is a request with one answer. Sometimes it costs more than was held.
func (w *worker) call(ctx context.Context, account string, keep bool) {
	n := 1 + w.dice.Int64N(5)
	r, h, ok := w.begin(ctx, account, n, keep)
	if !ok {
		return
	}
	used := 1 + w.dice.Int64N(n)
	if account != poor && w.dice.IntN(10) == 0 {
		used = n + 1 + w.dice.Int64N(3)
	}
	w.settle(ctx, r, h, used, keep)
}

// stream is a request with checkpoints.
func (w *worker) stream(ctx context.Context) {
	keep := w.dice.IntN(3) == 0
	r, h, ok := w.begin(ctx, w.account(), 2, keep)
	n := int64(0)
	for range 1 + w.dice.IntN(3) {
		n += 1 + w.dice.Int64N(2)
		ok = ok && w.extend(ctx, r, h, n, w.dice.Int64N(3))
	}
	if ok {
		w.settle(ctx, r, h, n+w.dice.Int64N(2), keep)
	}
}

// fail is a request that costs nothing in the end.
func (w *worker) fail(ctx context.Context) {
	keep := w.dice.IntN(2) == 0
	if r, h, ok := w.begin(ctx, w.account(), 3, keep); ok {
		w.settle(ctx, r, h, 0, keep)
	}
}

// abandon leaves a hold open for the recovery: with a checkpoint or without.
func (w *worker) abandon(ctx context.Context) {
	r, h, ok := w.begin(ctx, w.account(), 4, w.dice.IntN(2) == 0)
	if ok && w.dice.IntN(2) == 0 {
		w.extend(ctx, r, h, 1+w.dice.Int64N(5), w.dice.Int64N(2))
	}
}

// credit gives something, or again what an earlier process gave, or meant to.
func (w *worker) credit(ctx context.Context) {
	c := credit{w.task.Accounts[w.dice.IntN(len(w.task.Accounts))], fmt.Sprintf("%s-%d", w.name, w.next()), 1 + w.dice.Int64N(9)}
	if len(w.task.Credits) > 0 && w.dice.IntN(3) == 0 {
		c = w.task.Credits[w.dice.IntN(len(w.task.Credits))]
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

// again settles a request that has ended, by another amount, and asks for a
// hold by its id: the first changes nothing, the second is refused.
func (w *worker) again(ctx context.Context) {
	r := w.last
	if len(w.task.Again) > 0 && w.dice.IntN(2) == 0 {
		r = w.task.Again[w.dice.IntN(len(w.task.Again))]
	}
	if r.ID == "" {
		return
	}
	w.ask(event{Kind: repeated, ID: r.ID, Account: r.Account}, nil, func() (*billing.Receipt, error) {
		receipt, err := w.db.Ledger().Settle(ctx, billing.Hold{ID: r.ID, Account: r.Account}, images(9), billing.Outcome{Reason: billing.ReasonComplete})
		return &receipt, err
	})
	_, err := w.db.Ledger().Reserve(ctx, billing.HoldRequest{Account: r.Account, Key: "k1", RequestID: r.ID, Operation: "image", Model: "painter", Price: w.price, Bound: images(1)})
	if fault.From(err) == nil || fault.From(err).Code != fault.InternalError {
		w.voice.Say(event{Kind: broken, ID: r.ID, Error: fmt.Sprintf("a request id was taken twice: %v", err)})
	}
}

// place is where a database is.
type place struct {
	Postgres bool
	Where    string // an address of Postgres, or a path
}

func (p place) open(ctx context.Context, o store.Options) (*store.DB, error) {
	o.Lease = lease
	o.WaitTimeout = 30 * time.Second // a slow machine is not what is tested
	if p.Postgres {
		return postgres.Open(ctx, p.Where, o)
	}
	return sqlite.Open(ctx, p.Where, o)
}

// lease is short, so that the holds of a dead process soon end. A process that
// is too slow for it loses its holds to the others, which is no defect.
const lease = 150 * time.Millisecond

// task is what a child is told.
type task struct {
	place
	Seed    uint64
	Prefix  string        // of all its request ids
	Workers int           // how many work at once
	Ops     int           // how many operations each of them does
	Point   string        // where it ends itself; empty for nowhere
	Nth     int64         // the how manieth time it comes by
	Delay   time.Duration // how long after that, at a point that has a length

	Accounts []string  // that there shall be
	Again    []request // of earlier rounds, to be settled once more
	Credits  []credit  // of earlier rounds, to be given once more
}

// request is what is asked for in one request.
type request struct{ ID, Account string }

// credit is an amount given to an account.
type credit struct {
	Account, Reference string
	Amount             int64
}

// event is what a child says: before each call to the store what it asks for,
// and with Done what came of it.
type event struct {
	Kind    string
	Done    bool             `json:",omitempty"`
	ID      string           `json:",omitempty"` // of the request, credit, account or point
	Account string           `json:",omitempty"`
	N       int64            `json:",omitempty"` // units: of the hold, so far, of the charge, of the credit
	More    int64            `json:",omitempty"` // units that are added to the hold
	Keep    bool             `json:",omitempty"` // with an idempotent answer
	Receipt *billing.Receipt `json:",omitempty"`
	Code    fault.Code       `json:",omitempty"` // of the error
	Error   string           `json:",omitempty"`
}

// The kinds of an event.
const (
	opened   = "opened"   // the store is open
	finished = "finished" // all is done, and the store was closed
	killed   = "killed"   // the child ends itself now
	unnamed  = "unnamed"  // a statement that writes has no fault point
	broken   = "broken"   // the store gave an error that it must not give
	created  = "create"
	credited = "credit"
	bounded  = "budget"
	reserved = "reserve"
	extended = "extend"
	settled  = "settle"
	repeated = "repeat" // a settlement that was acknowledged before
	folded   = "folded" // a checkpoint of the database's log was done before the kill
)

// voice writes events.
type voice = childproc.Voice
