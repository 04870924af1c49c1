// Package outage makes the error that a client gets when a store of the gateway fails.
package outage

import (
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// Error returns the client's error for err, which a store returned. A fault of the store
// itself becomes a 503, since it says nothing about the request. Error returns nil for nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	f := fault.From(err)
	if f.Code != fault.InternalError {
		return f
	}
	return New(err)
}

// New returns the 503 for a store that does not answer; err says why.
func New(err error) error {
	return &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second, Err: err,
		Message: "The gateway's store is not available. Send the request again.",
	}
}
