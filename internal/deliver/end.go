package deliver

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// ErrShutdown is the cause with which a shutdown cancels requests, and what their clients get.
var ErrShutdown = &fault.Error{
	Code: fault.ServiceUnavailable, RetryAfter: time.Second, Message: "The gateway is shutting down. Send the request again.",
}

// ErrCalledOff is why one part of a request ends when the rest of the request is over.
var ErrCalledOff = fault.New(fault.CalledOff, "The gateway called this part of the request off, as the rest of it was over.")

// CalledOff reports whether a part failed only because it was cancelled.
func CalledOff(err error) bool {
	return errors.Is(err, context.Canceled) || fault.Is(err, fault.CalledOff) || fault.Is(err, fault.ClientGone)
}

// CallersOwn reports whether err is the refusal of what the caller wrote. A refusal that can
// be about the operator's account counts too. A vendor that moderates one text of many has
// answered the same account for the others.
func CallersOwn(err error) bool {
	if err == nil || CalledOff(err) {
		return false
	}
	var f *upstream.Failure
	return upstream.CallersFault(fault.From(err).HTTPStatus()) || errors.As(err, &f) && f.Ambiguous
}

// An Ending is why a request ends that has no whole answer.
type Ending struct {
	Reason string // of its receipt
	Err    error  // what the client gets
	Gone   bool   // the client has disconnected
}

// EndOf says how a request ends whose answer failed with err. If ctx, the context of its work,
// has ended, that is why, and err only followed.
func EndOf(ctx, client context.Context, err error) Ending {
	cause := context.Cause(ctx)
	e := Ending{Reason: billing.ReasonUpstreamFailed, Err: err}
	switch {
	case errors.Is(cause, ErrShutdown):
		e.Reason, e.Err = billing.ReasonShutdown, ErrShutdown
	case cause != nil, fault.Is(err, fault.ClientGone):
		return Ending{billing.ReasonClientGone, ClientError(client), true}
	}
	if fault.Is(e.Err, fault.InternalError) {
		e.Reason = billing.ReasonInternal
	}
	return e
}

// ClientError is the error of a client that has disconnected: it wraps why its context ended.
// A client whose context has not ended has closed its answer.
func ClientError(client context.Context) *fault.Error {
	err, cause := client.Err(), context.Cause(client)
	var own *fault.Error
	switch {
	case errors.As(cause, &own):
		return own
	case cause != nil && !errors.Is(cause, err):
		err = errors.Join(err, cause)
	}
	return fault.From(cmp.Or(err, context.Canceled))
}

// Truncated is the error of an answer that could not be read to its end.
func Truncated(err error) error {
	var f *fault.Error
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, sse.ErrTooLarge):
		return upstream.BadAnswer("The upstream sent an event that the gateway does not take: "+err.Error()+".", err)
	case errors.Is(err, sse.ErrMarkup):
		return upstream.BadAnswer("The upstream answered a stream with a web page.", err)
	}
	return upstream.BadAnswer("The upstream's answer was cut off.", err)
}
