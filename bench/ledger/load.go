package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/store"
)

// load is callers who each hold and settle, one request after the other.
type load struct {
	kind              string // as in the flag -kinds
	callers, accounts int
}

// result is what was measured of a load.
type result struct {
	pairs    float64       // each second
	p50, p99 time.Duration // of holds
	whole    time.Duration // the median that a request waits for both
	cpu      time.Duration // of this process, for a pair
	commits  float64       // each second
	each     float64       // operations in one of them
}

// commits counts transactions.
type commits struct{ number, operations atomic.Int64 }

func (c *commits) add(of store.Commit) {
	c.number.Add(1)
	c.operations.Add(int64(of.Operations))
}

// makeID is how requests get their ids: as the gateway makes them, which follow each
// other in time and so in the database's indexes, or without order.
var makeID = map[string]func() string{
	"gateway": func() string { return fmt.Sprintf("req_%010X", time.Now().UnixMilli()) + rand.Text()[:16] },
	"random":  func() string { return "req_" + rand.Text() },
}

// chat is a small answer of a cheap model.
var chat = billing.Usage{Input: 700, CachedInput: 300, Output: 150, Reasoning: 50}

func charge(account int) (billing.HoldRequest, error) {
	price, err := billing.NewPrice(
		billing.Rate{Unit: billing.Input, Amount: "0.60"}, billing.Rate{Unit: billing.CachedInput, Amount: "0.15"},
		billing.Rate{Unit: billing.Output, Amount: "2.50"})
	return billing.HoldRequest{
		Account: fmt.Sprint("account-", account), Key: "key_1", Operation: "chat", Model: "delta-k3", Price: price,
		Bound: billing.Usage{Input: 1_000, Output: 4_096}, Least: billing.Usage{Input: 1_000, Output: 1},
	}, err
}

// fire runs a load for a while on a database without accounts.
func fire(ctx context.Context, db *store.DB, l load, o options, count *commits) (result, error) {
	for n := range l.accounts {
		if err := db.Ledger().CreateAccount(ctx, fmt.Sprint("account-", n), 1_000_000*billing.One); err != nil {
			return result{}, err
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	var one sync.Mutex
	var over atomic.Bool
	holds, wholes := make([][]time.Duration, l.callers), make([][]time.Duration, l.callers)
	commits, operations := count.number.Load(), count.operations.Load()
	before, began := used(), time.Now()
	time.AfterFunc(o.each, func() { over.Store(true) })
	for n := range l.callers {
		all.Go(func() {
			c := caller{db: db, id: makeID[o.ids], pause: o.pause, stays: l.kind == "holds", keyed: l.kind == "keyed"}
			if l.kind == "alone" {
				c.one = &one
			}
			if err := c.work(ctx, n%l.accounts, &over); err != nil {
				cancel(err)
			}
			holds[n], wholes[n] = c.holds, c.wholes
		})
	}
	all.Wait()
	took, cpu := time.Since(began), used()-before
	commits, operations = count.number.Load()-commits, count.operations.Load()-operations
	times, whole := slices.Sorted(slices.Values(slices.Concat(holds...))), slices.Sorted(slices.Values(slices.Concat(wholes...)))
	if err := context.Cause(ctx); err != nil || len(times) == 0 {
		return result{}, err
	}
	return result{
		pairs: float64(len(times)) / took.Seconds(), cpu: cpu / time.Duration(len(times)),
		commits: float64(commits) / took.Seconds(), each: float64(operations) / float64(max(commits, 1)),
		p50: times[len(times)/2], p99: times[len(times)*99/100], whole: whole[len(whole)/2],
	}, nil
}

// caller is one of them.
type caller struct {
	db    *store.DB
	id    func() string
	one   *sync.Mutex // nil where operations may share a commit
	pause time.Duration
	stays bool // what is held
	keyed bool // each request has a key of its own

	holds, wholes []time.Duration
}

func (c *caller) work(ctx context.Context, account int, over *atomic.Bool) error {
	request, err := charge(account)
	answer := bytes.Repeat([]byte("a"), 300) // what is kept of a request with a key
	for err == nil && !over.Load() {
		request.RequestID = c.id()
		var key idempotency.Key
		end := []billing.Record{billing.Outcome{Reason: billing.ReasonComplete, Channel: "main"}}
		if c.keyed {
			key = idempotency.Key{Account: request.Account, Operation: request.Operation, Key: rand.Text()}
			request.With = []billing.Record{idempotency.Claim{Key: key}}
			end = append(end, idempotency.Record{Key: key, Header: http.Header{"Content-Type": {"application/json"}}, Body: answer})
		}
		began := time.Now()
		var h billing.Hold
		err = c.do(func() (err error) {
			if c.keyed {
				if _, err := c.db.Ledger().Lookup(ctx, key, idempotency.Content{}); err != nil {
					return err
				}
			}
			h, err = c.db.Ledger().Reserve(ctx, request)
			return err
		})
		held := time.Since(began)
		if c.pause > 0 {
			time.Sleep(c.pause)
		}
		began = time.Now()
		if err == nil && !c.stays {
			err = c.do(func() error {
				_, err := c.db.Ledger().Settle(ctx, h, chat, end...)
				return err
			})
		}
		c.holds, c.wholes = append(c.holds, held), append(c.wholes, held+time.Since(began))
	}
	return err
}

func (c *caller) do(operation func() error) error {
	if c.one != nil {
		c.one.Lock()
		defer c.one.Unlock()
	}
	return operation()
}

// used is the CPU time of this process, user and system.
func used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
