package gateway

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// guard turns a panic of an authenticator, a meter, a limiter or an upstream
// into an internal error. Defer it. The stack goes to the log only.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = panicked(p)
	}
}

func panicked(p any) error {
	return fault.Wrap(fault.InternalError, "The gateway failed to handle the request.",
		fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
}

// storeError makes a store's own error a 503: it says nothing about the caller.
func storeError(err error) error {
	if err == nil {
		return nil
	}
	f := fault.From(err)
	if f.Code != fault.InternalError {
		return f
	}
	return unavailable(err)
}

// unavailable is the 503 of a store that does not answer.
func unavailable(err error) error {
	return &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second, Err: err,
		Message: "The gateway's store is not available. Send the request again.",
	}
}
