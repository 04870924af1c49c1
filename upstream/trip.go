package upstream

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// patienceAtLimit is how long a call without a MaxWait of its own waits.
const patienceAtLimit = time.Second

// trip is one call's way through a Router.
type trip struct {
	call   *Call
	routes []route
	named  bool // its one channel is asked whatever its state is
	again  bool // its one channel was asked once more
	keyed  int  // times that a channel was asked with another key
	paid   bool // for the attempt that comes next
	count  int  // of tried
	tried  [maxAttempts]*channel
	left   time.Duration // of its patience
	since  time.Time     // it has its seat
}

func (t *trip) wasTried(c *channel) bool { return slices.Contains(t.tried[:t.count], c) }

// limited reports whether the call counts against a channel's limits: a vendor
// counts what it makes, not who asks how far a video is.
func (t *trip) limited() bool { return t.call.Op != PollVideo }

// seat finds a call its next place, and waits for one if need be. extra says that
// it is not the call's first. For a caller who has left there is none: nobody is
// asked, so that nothing is paid.
func (r *Router) seat(ctx context.Context, t *trip, extra bool) (seat, *fault.Error) {
	var room [4]candidate
	for {
		if ctx.Err() != nil {
			return seat{}, unsentTo(ctx)
		}
		now := r.now()
		all, best := t.candidates(room[:0], now)
		if len(all) == 0 {
			return seat{}, fault.New(fault.NoChannel, "No upstream channel serves this model.")
		}
		if best == barred {
			return seat{}, fault.Wrap(fault.NoChannel, messages[fault.NoChannel], &Failure{Err: errors.New("every channel is paused")})
		}
		if extra && (!t.paid && alone(all, best) || !t.pay(r.budget)) {
			return seat{}, fault.New(fault.NoChannel, messages[fault.NoChannel])
		}
		if best.limited() {
			s, ok, refusal := r.await(ctx, t, slices.Clone(all), best) // room stays on the stack
			if ok || refusal != nil {
				return s, refusal
			}
			continue
		}
		if s, ok := t.sit(draw(first(all, best), t.call.Stream, now, r.rand), now); ok {
			t.paid, t.since = false, now
			return s, nil
		}
	}
}

// pay pays for an extra attempt, once.
func (t *trip) pay(b *budget) bool {
	if !t.paid {
		t.paid = b.spend()
	}
	return t.paid
}

// another prepares the next attempt after one at c that failed; false if there is
// to be none. A channel is asked again if it has another key, and the only one of a
// model where nothing was sent, for instance because it closed an idle
// connection, or if the vendor refused the call and wants it back at once.
func (r *Router) another(ctx context.Context, t *trip, c *channel, v verdict) bool {
	switch alone := len(t.routes) == 1 && !t.again; {
	case !v.again:
		return false
	case v.otherKey && t.keyed < t.otherKeys():
		t.keyed++
		t.paid = true // nobody bills a refused key, and it rests soon
	case alone && v.unsent:
		t.again = true
	case alone && v.wait > 0 && v.wait <= t.left && t.pay(r.budget):
		t.again = true
		return t.sleep(ctx, v.wait)
	default:
		t.tried[t.count] = c
		t.count++
	}
	return true
}

// otherKeys is how often a call tries another key, before another channel if
// there is one.
func (t *trip) otherKeys() int {
	if len(t.routes) == 1 {
		return maxAttempts - 1
	}
	return 1
}

// sleep waits and takes it off the trip's patience; false if the caller left.
func (t *trip) sleep(ctx context.Context, d time.Duration) bool {
	t.left -= d
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
func alone(all []candidate, best standing) bool {
	for i := range all {
		if all[i].standing == best && !all[i].alone {
			return false
		}
	}
	return true
}
