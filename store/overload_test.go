package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/sqlhook"
	"github.com/tollhouse-ai/gateway/store"
	"github.com/tollhouse-ai/gateway/store/sqlite"
)

// caller makes whole calls: a claim if they are keyed, a hold, a settlement.
type caller struct {
	store.Ledger
	t     *testing.T
	keyed bool
	price *billing.Price
	next  atomic.Int64
}

func newCaller(t *testing.T, db *store.DB, keyed bool) *caller {
	t.Helper()
	price := priceOf(t, billing.Image, "1")
	must(t, db.Ledger().CreateAccount(t.Context(), "acme", 1_000_000*billing.One))
	return &caller{Ledger: db.Ledger(), t: t, keyed: keyed, price: price}
}

// call makes one; false if it was refused.
func (c *caller) call(ctx context.Context) bool {
	id := fmt.Sprintf("r%09d", c.next.Add(1))
	key, with := onceKey(id), []billing.Record{billing.Outcome{Reason: billing.ReasonComplete}}
	var claims []billing.Record
	if c.keyed {
		claims = append(claims, claimOf(key))
		with = append(with, idempotency.Record{Key: key, Content: idempotency.Content{1}, Body: []byte("x")})
	}
	h, err := c.Reserve(ctx, billing.HoldRequest{
		Account: "acme", Key: "k1", RequestID: id, Operation: "image", Model: "painter", Price: c.price, Bound: billing.Usage{Images: 1}, With: claims,
	})
	if err != nil {
		c.wantRefused("Reserve", err)
		return false
	}
	settling, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := c.Settle(settling, h, billing.Usage{Images: 1}, with...); err != nil {
		c.t.Errorf("a settlement was not made in time: %v", err)
		return false
	}
	return true
}

func (c *caller) wantRefused(name string, err error) {
	if f := fault.From(err); !fault.Is(err, fault.ServiceUnavailable) || f.RetryAfter <= 0 {
		c.t.Errorf("%s: %v, want %s with a RetryAfter", name, err, fault.ServiceUnavailable)
	}
}

// The time is the bubble's: what the store does is free, and the database takes a
// millisecond for each statement that writes.
func TestAtThreeTimesTheLoadThatTheDatabaseTakesMostOfWhatItTakesIsServed(t *testing.T) {
	for _, keyed := range []bool{false, true} {
		t.Run(fmt.Sprint("keyed ", keyed), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			synctest.Test(t, func(t *testing.T) {
				faults := &sqlhook.Faults{}
				db, err := sqlite.Open(t.Context(), path, store.Options{Wrap: faults.Wrap})
				must(t, err)
				c := newCaller(t, db, keyed)
				faults.Slow(time.Millisecond)
				const seconds = 6
				var all sync.WaitGroup
				var served atomic.Int64
				full, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
				defer cancel()
				for range 256 { // as many as keep it busy
					all.Go(func() {
						for full.Err() == nil {
							if c.call(context.Background()) {
								served.Add(1)
							}
						}
					})
				}
				all.Wait()
				capacity := served.Swap(0) / seconds
				start := time.Now()
				second := func() int64 { return int64(time.Since(start) / time.Second) }
				every := time.Second / time.Duration(3*capacity)
				for second() < 2*seconds {
					all.Go(func() {
						if c.call(context.Background()) && second() >= seconds && second() < 2*seconds {
							served.Add(1)
						}
					})
					time.Sleep(every)
				}
				all.Wait()
				if got := served.Load() / seconds; got*100 < capacity*80 {
					t.Errorf("%d calls a second were served, want 80 %% of the %d that the database takes", got, capacity)
				} else {
					t.Logf("%d of %d a second", got, capacity)
				}
				faults.Slow(0)
				if b, err := db.Ledger().Balance(t.Context(), "acme"); err != nil || b.Held != 0 {
					t.Errorf("%+v, %v, want nothing held", b, err)
				}
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
