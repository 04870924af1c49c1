package router

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// repeatable are the operations of which a failed attempt, even one that the
// vendor may bill, is repeated on another channel (docs/faults.md, row 7). All
// others are repeated only where certainly nothing was accepted.
var repeatable = map[upstream.Op]bool{upstream.ChatCompletion: true, upstream.Messages: true, upstream.CountTokens: true, upstream.Embeddings: true, upstream.PollVideo: true}

// noCounterStatuses are those of a vendor that speaks the dialect and counts no
// tokens. They do not count against the channel and are not worth a retry: the
// caller can be given an estimate.
var noCounterStatuses = map[int]bool{http.StatusMethodNotAllowed: true, http.StatusNotImplemented: true}

// verdict is what the end of an attempt means.
type verdict struct {
	retry         bool          // another channel may be asked
	sameChannel   bool          // nothing was sent, so the same channel may be asked too
	otherKey      bool          // the same channel can be asked with another key
	channelFailed bool          // it counts against the channel
	fatal         bool          // the operator's key or account is at fault
	certain       bool          // and no request can have brought that about
	retryAfter    time.Duration // when the vendor wants the call back; 0 if it did not say
}

// judge says what an attempt's error means for a call of op.
func judge(op upstream.Op, e *fault.Error) verdict {
	f, _ := upstream.FailureOf(e)
	status := e.HTTPStatus()
	if f.Status >= 400 {
		status = f.Status
	}
	switch {
	case f.Fatal:
		return verdict{retry: true, channelFailed: !f.OtherKey, otherKey: f.OtherKey, fatal: true, certain: !f.Ambiguous}
	case f.Oversized:
		return verdict{retry: true}
	case e.Code == fault.RequestTimeout && f.Status == 0:
		return verdict{retry: !f.Sent, channelFailed: true}
	case upstream.CallersFault(status), op == upstream.CountTokens && noCounterStatuses[f.Status]:
		return verdict{}
	}
	v := verdict{sameChannel: !f.Sent && f.Status == 0, channelFailed: true}
	v.retry = repeatable[op] || v.sameChannel || f.Refused
	if f.Refused {
		v.retryAfter, v.otherKey, v.channelFailed = e.RetryAfter, f.OtherKey, !f.OtherKey
	}
	return v
}

// payForRetry spends the budget of one retry, once.
func (t *routing) payForRetry(b *retryBudget) bool {
	if !t.paid {
		t.paid = b.spend()
	}
	return t.paid
}

// prepareRetry prepares the next attempt after one at c that failed; false if there
// is to be none. A channel is asked again if it has another key, and the only one of a
// model where nothing was sent, for instance because it closed an idle
// connection, or if the vendor refused the call and wants it back at once.
func (r *Router) prepareRetry(ctx context.Context, t *routing, c *channel, v verdict) bool {
	switch mayRetrySame := len(t.routes) == 1 && !t.retriedSame; {
	case !v.retry:
		return false
	case v.otherKey && t.keyRetries < t.maxKeyRetries():
		t.keyRetries++
		t.paid = true // a refused key is not billed, and its breaker opens soon
	case mayRetrySame && v.sameChannel:
		t.retriedSame = true
	case mayRetrySame && v.retryAfter > 0 && v.retryAfter <= t.waitLeft && t.payForRetry(r.budget):
		t.retriedSame = true
		return t.sleep(ctx, v.retryAfter)
	default:
		t.tried[t.triedCount] = c
		t.triedCount++
	}
	return true
}

// maxKeyRetries is how often a call tries another key, before another channel if
// there is one.
func (t *routing) maxKeyRetries() int {
	if len(t.routes) == 1 {
		return maxAttempts - 1
	}
	return 1
}

// sleep waits, which counts against the call's MaxWait; false if the caller left.
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

const (
	maxAttempts = 3 // a call's first attempt and two more

	requestsPerRetry = 5                    // requests that earn one retry: 20 %
	maxSpent         = 3 * requestsPerRetry // what may be spent ahead
)

// retryBudget bounds retries to a fifth of the requests and three, so that an outage
// of a vendor does not become three times the load (docs/faults.md, row 7).
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
			e.Err = err // of which f is a part
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

// panicked is the error of an upstream that panicked. The stack is for the log.
func panicked(value any, stack []byte) *fault.Error {
	return fault.Wrap(fault.InternalError, "The gateway failed to handle the request.",
		fmt.Errorf("panic in an upstream: %v\n%s", value, stack))
}

// clientLeft is the error of a call whose caller left while it waited: nothing was
// sent, so that there is nothing to pay for.
func clientLeft(ctx context.Context) *fault.Error {
	return contextError(ctx, &upstream.Failure{Err: ctx.Err()})
}
