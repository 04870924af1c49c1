package upstream

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// patienceAtLimit is how long a call without a MaxWait of its own waits.
const defaultMaxWait = time.Second

// trip is one call's way through a Router.
type routing struct {
	call   *Call
	routes []route
	pinned  bool // its one channel is asked whatever its state is
	retriedSame  bool // its one channel was asked once more
	keyRetries  int  // times that a channel was asked with another key
	paid   bool // for the attempt that comes next
	triedCount  int  // of tried
	tried  [maxAttempts]*channel
	waitLeft   time.Duration // of its patience
	acquiredAt  time.Time     // it has its seat
}

func (t *routing) wasTried(c *channel) bool { return slices.Contains(t.tried[:t.triedCount], c) }

// limited reports whether the call counts against a channel's limits: a vendor
// counts what it makes, not who asks how far a video is.
func (t *routing) countsAgainstLimits() bool { return t.call.Op != PollVideo }

// seat finds a call its next place, and waits for one if need be. extra says that
// it is not the call's first. For a caller who has left there is none: nobody is
// asked, so that nothing is paid.
func (r *Router) acquire(ctx context.Context, t *routing, extra bool) (lease, *fault.Error) {
	var room [4]candidate
	for {
		if ctx.Err() != nil {
			return lease{}, clientLeft(ctx)
		}
		now := r.now()
		all, best := t.candidates(room[:0], now)
		if len(all) == 0 {
			return lease{}, fault.New(fault.NoChannel, "No upstream channel serves this model.")
		}
		if best == excluded {
			return lease{}, fault.Wrap(fault.NoChannel, messages[fault.NoChannel], &Failure{Err: errors.New("every channel is paused")})
		}
		if extra && (!t.paid && accountOnly(all, best) || !t.payForRetry(r.budget)) {
			return lease{}, fault.New(fault.NoChannel, messages[fault.NoChannel])
		}
		if best.isAtLimit() {
			s, ok, refusal := r.waitForLimits(ctx, t, slices.Clone(all), best) // room stays on the stack
			if ok || refusal != nil {
				return s, refusal
			}
			continue
		}
		if s, ok := t.acquire(pick(ofAvailability(all, best), t.call.Stream, now, r.rand), now); ok {
			t.paid, t.acquiredAt = false, now
			return s, nil
		}
	}
}

// pay pays for an extra attempt, once.
func (t *routing) payForRetry(b *retryBudget) bool {
	if !t.paid {
		t.paid = b.spend()
	}
	return t.paid
}

// another prepares the next attempt after one at c that failed; false if there is
// to be none. A channel is asked again if it has another key, and the only one of a
// model where nothing was sent, for instance because it closed an idle
// connection, or if the vendor refused the call and wants it back at once.
func (r *Router) prepareRetry(ctx context.Context, t *routing, c *channel, v verdict) bool {
	switch alone := len(t.routes) == 1 && !t.retriedSame; {
	case !v.retry:
		return false
	case v.otherKey && t.keyRetries < t.maxKeyRetries():
		t.keyRetries++
		t.paid = true // nobody bills a refused key, and it rests soon
	case alone && v.sameChannel:
		t.retriedSame = true
	case alone && v.retryAfter > 0 && v.retryAfter <= t.waitLeft && t.payForRetry(r.budget):
		t.retriedSame = true
		return t.sleep(ctx, v.retryAfter)
	default:
		t.tried[t.triedCount] = c
		t.triedCount++
	}
	return true
}

// otherKeys is how often a call tries another key, before another channel if
// there is one.
func (t *routing) maxKeyRetries() int {
	if len(t.routes) == 1 {
		return maxAttempts - 1
	}
	return 1
}

// sleep waits and takes it off the trip's patience; false if the caller left.
func (t *routing) sleep(ctx context.Context, d time.Duration) bool {
	t.waitLeft -= d
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil // both may have come
	case <-ctx.Done():
		return false
	}
}

// alone reports whether the best that are left are tired for the call's account
// alone: the extra attempts, which are everybody's, are not for it to spend there.
func accountOnly(all []candidate, best availability) bool {
	for i := range all {
		if all[i].availability == best && !all[i].accountOnly {
			return false
		}
	}
	return true
}
