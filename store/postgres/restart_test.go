package postgres_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/pgtest"
	"github.com/tollhouse-ai/gateway/store"
)

// load is callers that hold and settle one unit again and again.
type load struct {
	*fixture
	next     atomic.Int64 // request id
	captured atomic.Int64
	served   chan struct{} // one for each settlement, while somebody listens
}

// begin makes a hold of the next request.
func (l *load) begin() (billing.Hold, error) {
	return l.reserve("acme", fmt.Sprint("r", l.next.Add(1)))
}

// call runs until stop is closed.
func (l *load) call(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		h, err := l.begin()
		if err != nil {
			l.wantAway(err)
			continue
		}
		if err := l.settle(h); err != nil {
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
		_, err := l.begin()
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
	f := newFixture(t, url, store.Options{WaitTimeout: time.Minute}, 1_000_000, "acme")
	must(t, f.Close())
	f.open(store.Options{WaitTimeout: 100 * time.Millisecond})
	return &load{fixture: f, served: make(chan struct{})}
}

func TestAPostgresThatStopsAndStartsUnderLoadRefusesMeanwhileAndLosesNothing(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t)
	l := newLoad(t, server.URL)
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() { l.call(stop) })
	}
	for _, mode := range []string{"fast", "immediate"} {
		l.wait(50)
		must(t, server.Stop(mode))
		l.wantRefused(5) // the callers may all wait for a settlement
		must(t, server.Start())
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
		h, err := l.begin()
		if err != nil {
			l.wantAway(err)
			in = -1
			continue
		}
		if _, err := l.Settle(l.t.Context(), h, billing.Usage{}); err != nil {
			l.t.Fatal(err)
		}
	}
	l.wantBalance("acme", 1_000_000-l.captured.Load())
	l.wantSound()
}
