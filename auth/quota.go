package auth

import (
	"fmt"
	"math"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// tally is what one key, or one account, has used and holds. Its shard's lock
// guards it.
type tally struct {
	requests int64 // in the shard's minute
	tokens   int64 // in the shard's minute; never negative
	running  int64 // open leases
}

// quota is a tally with the limits that hold for it now.
type quota struct {
	*tally
	limits Limits
	whose  string // "key" or "account", for the message
}

// countRequest counts a request, also one that it refuses.
func (q quota) countRequest(left time.Duration) error {
	q.requests++
	if limit := q.limits.RPM; limit > 0 && q.requests > limit {
		return refused(left, "The limit of this %s is reached: %d requests per minute (rpm).", q.whose, limit)
	}
	return nil
}

// refuse says why a request of so many tokens may not run; nil if it may. It
// counts nothing. A request without tokens, such as one for an image, may run
// in a minute whose tokens are overdrawn.
func (q quota) refuse(tokens int64, left time.Duration) error {
	tpm, slots := q.limits.TPM, q.limits.MaxConcurrent
	switch {
	case tpm > 0 && tokens > tpm:
		return refusedForGood(left, q.whose, tokens, tpm)
	case tpm > 0 && tokens > 0 && q.tokens > tpm-tokens:
		return refused(left, "The limit of this %s is reached: %d tokens per minute (tpm), of which %d are left and this request may use %d.",
			q.whose, tpm, max(tpm-q.tokens, 0), tokens)
	case slots > 0 && q.running >= slots:
		return refused(time.Second, "The limit of this %s is reached: %d requests at once (max_concurrent).", q.whose, slots)
	}
	return nil
}

// refused is the 429 of a limit that gives way with time.
func refused(wait time.Duration, format string, args ...any) *fault.Error {
	wait = max(wait, time.Second)
	return &fault.Error{
		Code:       fault.RateLimitExceeded,
		Message:    fmt.Sprintf(format, args...) + fmt.Sprintf(" Try again in %.0f s.", math.Ceil(wait.Seconds())),
		RetryAfter: wait,
	}
}

// refusedForGood is the 429 of a request that is larger than a whole minute's
// tokens, so that waiting does not help.
func refusedForGood(left time.Duration, whose string, tokens, limit int64) *fault.Error {
	return &fault.Error{
		Code: fault.RateLimitExceeded,
		Message: fmt.Sprintf("This request may use %d tokens, input and output together, and this %s only %d tokens per minute (tpm): it fits in no minute. Shorten the input or lower the bound on the output.",
			tokens, whose, limit),
		RetryAfter: max(left, time.Second),
		Retry:      fault.RetryNo,
	}
}

// stateOf is what is left of the quotas for the rest of the minute.
func stateOf(quotas []quota, left time.Duration) State {
	var s State
	for _, q := range quotas {
		s.Requests.narrow(q.limits.RPM, q.requests, left)
		s.Tokens.narrow(q.limits.TPM, q.tokens, left)
	}
	return s
}

// narrow makes w the window of another limit if that one leaves less.
func (w *Window) narrow(limit, used int64, left time.Duration) {
	remaining := max(limit-used, 0)
	if limit > 0 && (w.Limit == 0 || remaining < w.Remaining) {
		*w = Window{Limit: limit, Remaining: remaining, Reset: left}
	}
}
