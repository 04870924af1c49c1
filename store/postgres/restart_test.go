package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/postgres"
)

// load is callers that hold and settle one unit again and again.
type load struct {
	store.Ledger
	*store.DB
	t        *testing.T
	price    *billing.Price
	next     atomic.Int64 // request id
	captured atomic.Int64
	served   chan struct{} // one for each settlement, while somebody listens
}

// reserve makes one hold of one unit.
func (l *load) reserve() (billing.Hold, error) {
	return l.Reserve(context.Background(), billing.HoldRequest{
		Account: "acme", Key: "k1", RequestID: fmt.Sprint("r", l.next.Add(1)), Operation: "image", Model: "painter",
		Price: l.price, Bound: billing.Usage{Images: 1},
	})
}

// call runs until stop is closed.
func (l *load) call(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		h, err := l.reserve()
		if err != nil {
			l.wantAway(err)
			continue
		}
		if _, err := l.Settle(context.Background(), h, billing.Usage{Images: 1}); err != nil {
			l.t.Errorf("Settle: %v", err)
		}
		l.captured.Add(1)
		select {
		case l.served <- struct{}{}:
		default:
		}
	}
}

// wantAway is the only error that a caller may see.
func (l *load) wantAway(err error) {
	if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter <= 0 {
		l.t.Errorf("Reserve: %v", err)
	}
}

// wantRefused asks for n holds and gets none.
func (l *load) wantRefused(n int) {
	for range n {
		_, err := l.reserve()
		l.wantAway(err)
	}
}

// wait returns when n more were served.
func (l *load) wait(n int) {
	l.t.Helper()
	for range n {
		select {
		case <-l.served:
		case <-time.After(time.Minute):
			l.t.Fatal("no more callers were served")
		}
	}
}

func newLoad(t *testing.T, url string) *load {
	t.Helper()
	patient, err := postgres.Open(t.Context(), url, store.Options{WaitTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(patient.Ledger().CreateAccount(t.Context(), "acme", 1_000_000*billing.One), patient.Close()); err != nil {
		t.Fatal(err)
	}
	db, err := postgres.Open(t.Context(), url, store.Options{WaitTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Image, Amount: "1"})
	if err != nil {
		t.Fatal(err)
	}
	return &load{Ledger: db.Ledger(), DB: db, t: t, price: price, served: make(chan struct{})}
}

func TestAPostgresThatStopsAndStartsUnderLoadRefusesMeanwhileAndLosesNothing(t *testing.T) {
	server, err := pgtest.Start()
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("NOT TESTED, no Postgres: %v", err)
	}
	t.Cleanup(func() { _ = server.Stop("immediate") })
	l := newLoad(t, server.URL)
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() { l.call(stop) })
	}
	for _, mode := range []string{"fast", "immediate"} {
		l.wait(50)
		if err := server.Stop(mode); err != nil {
			t.Fatal(err)
		}
		l.wantRefused(5) // the callers may all wait for a settlement
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
	}
	l.wait(50)
	close(stop)
	callers.Wait()
	l.check()
}

// check finds exactly what was acknowledged.
func (l *load) check() {
	l.t.Helper()
	for in := 0; in < 2; in++ { // one after the other, after what was given back
		h, err := l.reserve()
		if err != nil {
			l.wantAway(err)
			in = -1
			continue
		}
		if _, err := l.Settle(l.t.Context(), h, billing.Usage{}); err != nil {
			l.t.Fatal(err)
		}
	}
	got, err := l.Balance(l.t.Context(), "acme")
	want := billing.Balance{Account: "acme", Posted: billing.Money(1_000_000-l.captured.Load()) * billing.One}
	if err != nil || got != want {
		l.t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if err := l.Verify(l.t.Context()); err != nil {
		l.t.Error(err)
	}
}
