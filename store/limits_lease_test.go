package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/fault"
)

func acquire(t *testing.T, l auth.Limiter, p *auth.Principal, id string) auth.Lease {
	t.Helper()
	lease, _, err := l.Acquire(t.Context(), p, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func TestTheSlotsOfADeadNodeEnd(t *testing.T) {
	c := newCluster(t, 2)
	dead, alive := c.nodes[0], c.nodes[1]
	p := limited(auth.Limits{MaxConcurrent: 2})
	acquire(t, dead, p, "r1")
	acquire(t, alive, p, "r2")
	for range 4 { // the living renews, the dead does not
		c.advance(t, 14999*time.Millisecond/4, alive)
		if _, _, err := alive.Acquire(t.Context(), p, "r3", 0); !fault.Is(err, fault.RateLimitExceeded) {
			t.Fatalf("before 15 s are over: %v", err)
		}
	}
	c.advance(t, 10*time.Millisecond) // nobody has dropped the slot yet
	acquire(t, alive, p, "r4")
	if _, _, err := alive.Acquire(t.Context(), p, "r5", 0); !fault.Is(err, fault.RateLimitExceeded) {
		t.Errorf("the slot of the living node: %v", err)
	}
}

func TestSlotsThatTheDatabaseLostComeBack(t *testing.T) {
	c := newCluster(t, 2)
	p := limited(auth.Limits{MaxConcurrent: 1})
	lease := acquire(t, c.nodes[0], p, "r1")
	c.exec(t, "TRUNCATE limit_slot, limit_tally")
	c.advance(t, time.Second, c.nodes...)
	if _, _, err := c.nodes[1].Acquire(t.Context(), p, "r2", 0); !fault.Is(err, fault.RateLimitExceeded) {
		t.Errorf("the slot did not come back: %v", err)
	}
	lease.Release(0)
	acquire(t, c.nodes[1], p, "r3")
}

func TestNoSlotIsLeftWhereReleasesMeetRenewals(t *testing.T) {
	c := newCluster(t, 1)
	l := c.nodes[0]
	p := limited(auth.Limits{MaxConcurrent: 100})
	var stop atomic.Bool
	var renewals, requests sync.WaitGroup
	renewals.Go(func() {
		for !stop.Load() {
			if err := l.Renew(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
	for i := range 4 {
		requests.Go(func() {
			for k := range 50 {
				if lease, _, err := l.Acquire(context.Background(), p, fmt.Sprint(i, "-", k), 0); err == nil {
					lease.Release(0)
				} else {
					t.Error(err)
				}
			}
		})
	}
	requests.Wait()
	stop.Store(true)
	renewals.Wait()
	if n := c.count(t, "SELECT count(*) FROM limit_slot"); n != 0 {
		t.Errorf("%d slots are left", n)
	}
}
