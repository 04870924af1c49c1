package video

import (
	"fmt"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
)

// Repeats reports whether a submission of the same request at now is taken for a
// mistake: the task is still being submitted, or was accepted within the window.
// What decides is the task that exists; whether the fingerprints are the same is
// for the caller.
func (t *Task) Repeats(now time.Time, window time.Duration) bool {
	if window <= 0 {
		return false
	}
	since := t.AcceptedAt
	if since.IsZero() {
		since = t.CreatedAt
	}
	return t.State == Submitting || now.Sub(since) < window
}

// Repeated is the conflict of a submission that repeats that of the task.
func Repeated(t *Task) error {
	return &fault.Error{
		Code: fault.IdempotencyConflict, Retry: fault.RetryNo,
		Message: fmt.Sprintf("The same request made the task %q a moment ago. Poll that one, or send an Idempotency-Key with each request that is meant to make another.", t.PublicID()),
	}
}

// TooMany is the refusal of a key that has as many open tasks as it may.
func TooMany(most int64) error {
	return fault.New(fault.ConcurrencyExceeded, fmt.Sprintf("The key has %d video tasks that have not ended, which is as many as it may have. Wait until one has ended.", most))
}

// ErrNotFound is the 404 of a task that does not exist, or not for the account, or
// not any more.
func ErrNotFound(id string) error {
	return &fault.Error{Code: fault.ResourceNotFound, Param: "id", Message: fmt.Sprintf("There is no video task %q.", clip(id, 100))}
}
