package router

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// verdict is what the end of an attempt means. The zero verdict says nothing of the
// channel, and that no other is asked.
type verdict struct {
	next           nextTry
	health         health
	wait           time.Duration // when the vendor wants the call back; 0 if it did not say
	unasked        bool          // the channel cannot say the request: it is passed over
	noModel        bool          // the vendor does not have the model, which is then in cooldown at the channel
	fatal, certain bool          // as in breaker.Failure
	key            string        // that the vendor refused, where another can serve
}

// modelCooldown is how long a model that a channel's vendor does not have is in cooldown at
// the channel, if another channel has it.
const modelCooldown = time.Minute

// nextTry is who may be asked next.
type nextTry uint8

const (
	giveUp      nextTry = iota
	nextChannel         // another channel
	nextKey             // the same channel with another key, and then another channel
	sameChannel         // the same if it is the only one, since nothing was sent; else another
)

// health is what the end of an attempt says of its channel's.
type health uint8

const (
	unknown health = iota
	healthy        // a vendor that refuses a caller's mistake works
	failed
)

// judge says what an attempt's error means for a call of op. Expensive operations that a
// vendor may bill although they failed are repeated only if it certainly accepted nothing
// (docs/reference/faults.md, row 7). docs/reference/upstreams.md has this table:
//
//	                                                texts, vectors,   images, speech,
//	the attempt ended in                            rankings          videos             channel
//	a refusal of a call that cannot be sent         other channel     other channel      unknown, and nothing is counted
//	a 429 to a call for a response that is kept     none                                 unknown
//	one of several keys was refused or limited      other key         other key          unknown
//	the key or the account was refused              other channel     other channel      failed
//	the request exceeds the rate limit by its size  other channel     other channel      healthy
//	a time-out before the request was sent          other channel     other channel      failed
//	a time-out after that                           none              none               failed
//	a model that the vendor does not have           other channel     other channel      the model is in cooldown there
//	the same, of a model that no channel names      none              none               healthy
//	a 4xx that is the caller's fault                none              none               healthy
//	no token counter (405, 501)                     none                                 healthy
//	an operation that the vendor lacks (501)        other channel     none               healthy
//	no connection                                   same or other     same or other      failed
//	429, 503, 529 before any work                   other channel     other channel      failed, or a cooldown
//	                                                                                     where it said for how long
//	any other: 5xx, a lost connection, no answer    other channel     none               failed
//
// A poll of a video is asked with another key at most: its driver repeats a GET that fails.
// The only channel of a model is asked again, once, after a cooldown that is no longer
// than the call may wait. Models that no channel names are as many as callers make up:
// they must cost neither attempts nor memory.
func judge(op upstream.Op, e *fault.Error, named bool) verdict {
	f, _ := upstream.FailureOf(e)
	status := e.HTTPStatus()
	if f.Status >= 400 {
		status = f.Status
	}
	v := verdict{next: nextChannel, health: failed, fatal: f.Fatal, certain: f.Fatal && !f.Ambiguous}
	if f.Refused && !f.Fatal && !f.Oversized {
		v.wait = e.RetryAfter
	}
	switch {
	case f.Unasked:
		v = verdict{unasked: true}
	case upstream.LimitOfStored(op, e):
		v = verdict{}
	case f.OtherKey:
		v.next, v.health, v.key = nextKey, unknown, f.Key
	case f.NoModel && named:
		v.noModel, v.fatal = true, false
	case f.NoModel:
		v = verdict{health: healthy}
	case f.Fatal:
	case f.Oversized:
		v.health = healthy
	case e.Code == fault.RequestTimeout && f.Status == 0:
		if f.Sent {
			v.next = giveUp
		}
	case upstream.CallersFault(status), counts(op) && refusesCounting[f.Status]:
		v.next, v.health = giveUp, healthy
	case !f.Sent && f.Status == 0:
		v.next = sameChannel
	case !f.Refused && !op.Repeatable():
		v.next = giveUp
	}
	if op == upstream.PollVideo && v.next != nextKey {
		v.next = giveUp // a driver repeats a GET by itself
	}
	if f.Status == http.StatusNotImplemented && v.health == failed {
		v.health = healthy // llama.cpp has only what it was started for, and any caller may ask for more
	}
	return v
}

// counts reports whether op counts the tokens of a text that is not made.
func counts(op upstream.Op) bool { return op == upstream.CountTokens || op == upstream.CountInput }

// refusesCounting are the statuses of a vendor that speaks the dialect and counts no
// tokens: the caller can be given an estimate.
var refusesCounting = map[int]bool{http.StatusMethodNotAllowed: true, http.StatusNotImplemented: true}

// prepareRetry prepares the next attempt after one that failed. It notes which channel is not
// asked again, and may spend of the retry budget and wait. It is false if there is to be no
// other attempt. The next one is at another channel, except that
//
//   - a channel whose key was refused is asked with its next key, and
//   - the only channel of a model is asked once more if nothing was sent, for instance because
//     it closed an idle connection. It is also asked once more if the vendor refused the call
//     and said when to come back, and the call can wait that long.
func (r *Router) prepareRetry(ctx context.Context, s *selection, a *attempt) bool {
	v, alone := a.verdict, len(s.routes) == 1
	keys := 1 // that are tried before another channel
	if alone {
		keys = maxAttempts - 1
	}
	switch maySame := alone && !s.retriedSame; {
	case v.next == giveUp:
		return false
	case v.next == nextKey && s.call.Key == "" && len(s.refusedKeys) < keys:
		s.refusedKeys = append(s.refusedKeys, v.key)
		s.paid = true // a refused key is not billed, and its breaker opens soon
	case maySame && v.next == sameChannel:
		s.retriedSame = true
	case maySame && v.wait > 0 && v.wait <= s.waitLeft && r.budget.spend():
		s.retriedSame, s.paid = true, true
		return s.sleep(ctx, v.wait)
	default:
		s.tried = append(s.tried, a.channel)
	}
	return true
}

// sleep waits, which counts against the call's MaxWait; false if the caller left.
func (s *selection) sleep(ctx context.Context, d time.Duration) bool {
	s.waitLeft -= d
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return !s.left(ctx) // both may have come
	case <-ctx.Done():
	case <-s.call.Caller:
	}
	return false
}

// left reports whether nobody waits for the answer any more: the call's context has ended,
// or its caller has disconnected.
func (s *selection) left(ctx context.Context) bool {
	select {
	case <-s.call.Caller:
		return true
	default:
		return ctx.Err() != nil
	}
}

const (
	maxAttempts = 3 // a call's first attempt and two more

	requestsPerRetry = 5                    // requests that earn one retry: 20 %
	maxSpent         = 3 * requestsPerRetry // what may be spent ahead
)

// retryBudget bounds retries to one for every five requests, plus three. So an outage of a vendor
// does not become three times the load (docs/reference/faults.md, row 7).
type retryBudget struct {
	spent atomic.Int64 // in requests, from 0 to maxSpent
}

// earn counts a request.
func (b *retryBudget) earn() {
	for v := b.spent.Load(); v > 0; v = b.spent.Load() {
		if b.spent.CompareAndSwap(v, v-1) {
			return
		}
	}
}

// spend pays for one retry; false if the budget does not allow it.
func (b *retryBudget) spend() bool {
	for v := b.spent.Load(); v+requestsPerRetry <= maxSpent; v = b.spent.Load() {
		if b.spent.CompareAndSwap(v, v+requestsPerRetry) {
			return true
		}
	}
	return false
}

// maxRetryAfter bounds the wait that an upstream can impose on our callers.
const maxRetryAfter = time.Hour

// faultOf turns whatever an Upstream returned into an error for the caller. A
// caller never sees an operator's trouble with a vendor, and a call that an upstream
// gave up by itself is no client that left.
func faultOf(err error) *fault.Error {
	var e *fault.Error
	f, found := upstream.FailureOf(err)
	switch ok := errors.As(err, &e); {
	case !ok, e.Code == fault.ClientGone, f.Fatal && e.Code != fault.NoChannel:
		e = f.Fault()
		if found {
			e.Err = err // f is a part of it
		}
	case e.RetryAfter > maxRetryAfter:
		e = e.With(func(e *fault.Error) { e.RetryAfter = maxRetryAfter })
	}
	return e
}

// contextError is the error of a call whose own context ended.
func contextError(ctx context.Context, err error) *fault.Error {
	e := fault.From(ctx.Err())
	var own *fault.Error
	if errors.As(context.Cause(ctx), &own) {
		e = own
	}
	return e.With(func(e *fault.Error) { e.Err = err })
}

// clientLeft is the error of a call whose caller disconnected before the next attempt. Nothing
// of that was sent, so there is nothing to pay for.
func clientLeft(ctx context.Context) *fault.Error {
	if ctx.Err() == nil { // the call would have gone on without its caller
		return fault.From(context.Canceled).With(func(e *fault.Error) { e.Err = &upstream.Failure{Err: context.Canceled} })
	}
	return contextError(ctx, &upstream.Failure{Err: ctx.Err()})
}
