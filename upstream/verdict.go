package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// maxRetryAfter bounds the wait that an upstream can impose on our callers.
const maxRetryAfter = time.Hour

// repeatable are the operations of which a failed attempt, even one that the
// vendor may bill, is repeated on another channel (faults.md, row 7). All
// others are repeated only where certainly nothing was accepted.
var repeatable = map[Op]bool{ChatCompletion: true, Messages: true, CountTokens: true, Embeddings: true, PollVideo: true}

// uncounting are the statuses of a vendor that speaks the dialect and has no
// counter. That is no sign of ill health, nor worth an attempt of the budget: the
// caller can be given an estimate.
var noCounterStatuses = map[int]bool{http.StatusMethodNotAllowed: true, http.StatusNotImplemented: true}

// verdict is what the end of an attempt means.
type verdict struct {
	retry    bool          // another channel may be asked
	sameChannel   bool          // nothing left the house, so the same channel may be asked too
	otherKey bool          // the same channel can be asked with another key
	channelFailed     bool          // it counts against the channel
	fatal    bool          // the operator's key or account is at fault
	certain  bool          // and no request can have brought that about
	retryAfter     time.Duration // when the vendor wants the call back; 0 if it did not say
}

// judge tells what an attempt's error means for a call of op.
func judge(op Op, e *fault.Error) verdict {
	f, _ := failure(e)
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
	case callersFault(status), op == CountTokens && noCounterStatuses[f.Status]:
		return verdict{}
	}
	v := verdict{sameChannel: !f.Sent && f.Status == 0, channelFailed: true}
	v.retry = repeatable[op] || v.sameChannel || f.Refused
	if f.Refused {
		v.retryAfter, v.otherKey, v.channelFailed = e.RetryAfter, f.OtherKey, !f.OtherKey
	}
	return v
}

// failure is the Failure in err's chain; without one, the worst is assumed.
func failure(err error) (f *Failure, found bool) {
	if errors.As(err, &f) {
		return f, true
	}
	return &Failure{Sent: true, Err: err}, false
}

// faultOf turns whatever an Upstream returned into an error for the caller. An
// operator's trouble with a vendor is never told to a caller, and a call that
// an upstream gave up by itself is no client that left.
func faultOf(err error) *fault.Error {
	var e *fault.Error
	f, found := failure(err)
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

// gone is the error of a call whose own context ended.
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
