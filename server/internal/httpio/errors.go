package httpio

import (
	"net/http"
	"strconv"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// RetryAfter is how long a client is to wait before it tries again, at most
// longest, whatever an upstream said. It is 0 where nobody knows, and where the
// same request would fail again without a change by the client's owner.
func RetryAfter(f *fault.Error, longest time.Duration) time.Duration {
	switch f.HTTPStatus() {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return 0
	}
	return min(max(f.RetryAfter, 0), longest)
}

// Seconds are a time to wait in whole seconds, as Retry-After has them.
func Seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// SetErrorHeaders sets the headers of every error that a client reads: how to
// authenticate, and when to try again.
func SetErrorHeaders(h http.Header, f *fault.Error, longest time.Duration) {
	if f.HTTPStatus() == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if wait := RetryAfter(f, longest); wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(Seconds(wait), 10))
	}
}
