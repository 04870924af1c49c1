// Package ratelimit has the rules of rate limits that a limiter in memory (package auth)
// and one in a database (package store) share. They say when a quota refuses, in which
// words, and what is left of several quotas. The limiters themselves only count.
package ratelimit

import (
	"fmt"
	"math"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// Quota is the limits of a key or an account, and what is used of them. A limit of 0 means no
// limit.
type Quota struct {
	Whose string // "key" or "account", for the message

	RPM, TPM, MaxConcurrent int64

	Requests int64         // in this minute
	Tokens   int64         // in this minute
	Left     time.Duration // of the minute
}

// RefuseRequest is why the quota refuses a request that it has counted; nil if it
// does not.
func (q *Quota) RefuseRequest() error {
	if q.RPM <= 0 || q.Requests <= q.RPM {
		return nil
	}
	return errReached(q.Left, "The limit of this %s is reached: %d requests per minute (rpm).", q.Whose, q.RPM)
}

// FitsTokens reports whether the tokens still fit into the minute. A request without tokens,
// such as one for an image, fits even if the minute's tokens are overdrawn.
func (q *Quota) FitsTokens(tokens int64) bool {
	return q.TPM <= 0 || tokens == 0 || (!q.neverFits(tokens) && q.Tokens <= q.TPM-tokens)
}

// neverFits reports tokens that fit into no minute, so that waiting does not help.
func (q *Quota) neverFits(tokens int64) bool { return q.TPM > 0 && tokens > q.TPM }

// ErrTokens refuses tokens that do not fit.
func (q *Quota) ErrTokens(tokens int64) error {
	if q.neverFits(tokens) {
		return &fault.Error{
			Code: fault.RateLimitExceeded,
			Message: fmt.Sprintf("This request may use %d tokens, input and output together, and this %s only %d tokens per minute (tpm): it fits in no minute. Shorten the input or lower the bound on the output.",
				tokens, q.Whose, q.TPM),
			RetryAfter: max(q.Left, time.Second),
			Retry:      fault.RetryNo,
		}
	}
	return errReached(q.Left, "The limit of this %s is reached: %d tokens per minute (tpm), of which %d are left and this request may use %d.",
		q.Whose, q.TPM, max(q.TPM-q.Tokens, 0), tokens)
}

// ErrSlots refuses a request while as many run as may.
func (q *Quota) ErrSlots() error {
	return errReached(time.Second, "The limit of this %s is reached: %d requests at once (max_concurrent).", q.Whose, q.MaxConcurrent)
}

// errReached is the 429 of a limit that gives way with time.
func errReached(wait time.Duration, format string, args ...any) error {
	wait = max(wait, time.Second)
	return &fault.Error{
		Code:       fault.RateLimitExceeded,
		Message:    fmt.Sprintf(format, args...) + fmt.Sprintf(" Try again in %.0f s.", math.Ceil(wait.Seconds())),
		RetryAfter: wait,
	}
}

// Window is one limit in the minute. Limit 0 means unlimited.
type Window struct {
	Limit     int64
	Remaining int64
	Reset     time.Duration // until the minute ends
}

// Remaining is what is left of quotas for the rest of the minute: of each limit that
// of the quota which leaves less.
func Remaining(quotas []Quota) (requests, tokens Window) {
	for i := range quotas {
		q := &quotas[i]
		requests.narrow(q.RPM, q.Requests, q.Left)
		tokens.narrow(q.TPM, q.Tokens, q.Left)
	}
	return requests, tokens
}

// narrow makes w the window of another limit if that one leaves less.
func (w *Window) narrow(limit, used int64, left time.Duration) {
	remaining := max(limit-used, 0)
	if limit > 0 && (w.Limit == 0 || remaining < w.Remaining) {
		*w = Window{Limit: limit, Remaining: remaining, Reset: left}
	}
}

// Add adds two counts; b must not be negative. The sum stays within [0, MaxInt64]: a count too
// large to hold is as good as the largest.
func Add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return max(a+b, 0)
}
