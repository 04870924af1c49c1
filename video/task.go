package video

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/webhook"
)

// The families' names, as a [Task] has them. A model that no table describes
// has none: the checks that are common to all are made, and its request passes
// through.
const (
	FamilyBeta  = "beta"
	FamilyGamma = "gamma"
)

// Task is one video from its submission to its purge. It is a plain value.
type Task struct {
	ID         string // ours: "vid_…"
	Account    string // whose it is
	Key        string // the id of the key that submitted it
	RequestID  string // of the submission: the id of its hold and receipt
	Model      string // public id
	Family     string // "beta", "gamma" or empty for a model that no table describes
	Channel    string // which channel took it, and is asked how it goes
	UpstreamID string // the vendor's id; empty until it is known

	State   State
	Version int64 // grows by one with each change

	CreatedAt time.Time
	// AcceptedAt is when an upstream took it; zero while that is not known.
	AcceptedAt time.Time
	UpdatedAt  time.Time
	ExpiresAt  time.Time // when the upstream is to end it; the gateway itself does so later (docs/guides/video.md)
	PurgeAt    time.Time // when the record is forgotten; zero while it is open

	PriceVersion string // of the price that its hold pinned; empty for a free model

	Bound       billing.Usage  // what was priced: what success costs, or for tokens the most
	Tokens      bool           // the price is for tokens: success costs what the upstream reports
	Open        bool           // the upstream chose length or resolution: success costs what it made, at most Bound
	Seed        jsontext.Value // of the request; nil if it gave none
	WebhookURL  string         // of the request
	Answer      jsontext.Value // the upstream's last word in the public form; nil before the first
	Failure     *Failure       // of a task that failed or expired
	Fingerprint [32]byte       // of key and request, for the duplicate window

	PolledAt time.Time // when the upstream was last asked
}

// Failure says why a task failed.
type Failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// State is where a task is in its life.
type State string

// The states. Submitting and Unknown are inside only: the public word of both is
// "queued".
const (
	Submitting State = "submitting" // the upstream is being asked to take it
	Unknown    State = "unknown"    // whether the upstream took it is not known, and it is not asked again
	Queued     State = "queued"
	Processing State = "processing"
	Running    State = "running"
	Succeeded  State = "succeeded"
	Failed     State = "failed"
	Cancelled  State = "cancelled"
	Expired    State = "expired"
)

// Terminal reports whether the state never changes any more.
func (s State) Terminal() bool {
	switch s {
	case Succeeded, Failed, Cancelled, Expired:
		return true
	}
	return false
}

// PublicID is the id that the caller knows. For the gamma family and for models without a
// table it is the upstream's, once that is known; otherwise ours.
func (t *Task) PublicID() string {
	if t.Family == FamilyBeta || t.UpstreamID == "" {
		return t.ID
	}
	return t.UpstreamID
}

// Repeats reports whether a submission of the same request at now counts as a mistake. The
// task is still being submitted, or was accepted within the window. It looks only at the task
// that exists; the caller compares the fingerprints.
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

// ErrDuplicate is the conflict of a submission that repeats that of the task.
func ErrDuplicate(t *Task) error {
	return &fault.Error{
		Code: fault.IdempotencyConflict, Retry: fault.RetryNo,
		Message: fmt.Sprintf("The same request made the task %q a moment ago. Poll that one, or send an Idempotency-Key with each request that is meant to make another.", t.PublicID()),
	}
}

// ErrTooManyTasks is the refusal of a key that has as many open tasks as it may.
func ErrTooManyTasks(most int64) error {
	return fault.New(fault.ConcurrencyExceeded, fmt.Sprintf("The key has %d video tasks that have not ended, which is as many as it may have. Wait until one has ended.", most))
}

// Store keeps tasks. Implementations are safe for concurrent use. An error that is not a
// *fault.Error means that the store is unavailable.
//
// A Store that is also the gateway's billing.Meter takes a [CreateTask] with Reserve
// (billing.HoldRequest.With) and a [Step] with Settle. Each is one transaction with the money.
type Store interface {
	// Add makes a task. It fails with fault.ConcurrencyExceeded if the key has reached its
	// limit of open tasks. If the key submitted the same request a moment ago, it fails with
	// fault.IdempotencyConflict, which names the task.
	Add(ctx context.Context, n CreateTask) error
	// Change applies a step to the task whose Version is one less than the step's. It returns
	// false if another process changed the task first. It keeps answer, which may be nil, for
	// duplicates of the submission.
	Change(ctx context.Context, s Step, answer *idempotency.Record) (bool, error)
	// Drop forgets a task that no upstream took.
	Drop(ctx context.Context, id string) error
	// Find is the account's task by its id or its upstream's; nil if there is
	// none.
	Find(ctx context.Context, account, id string) (*Task, error)
	// Claim leases at most n open tasks to owner until the given time. It takes tasks that no
	// process has leased, the least recently polled first, and renews owner's leases. It returns
	// all tasks that owner now has.
	Claim(ctx context.Context, owner string, until time.Time, n int) ([]*Task, error)
	// Purge forgets the tasks whose PurgeAt has passed; it returns how many.
	Purge(ctx context.Context, now time.Time) (int, error)
}

// Clock is a [Store] with a clock. The processes that share the store use that clock to decide
// when a task ends and when its record is purged. Without it each process uses its own. It is
// safe for concurrent use.
type Clock interface {
	// Now is the time of the store.
	Now(ctx context.Context) (time.Time, error)
}

// CreateTask is a task to be made. It is a billing.Record: with the hold of the
// task, both become durable or neither does.
type CreateTask struct {
	Task   Task
	Most   int64         // open tasks that the key may have, this one included; 0 means no limit
	Window time.Duration // the duplicate window; 0 means none
	// Retried says that the request has an idempotency key, so that the duplicate
	// window does not apply.
	Retried bool
}

// RecordKind is "video.new".
func (CreateTask) RecordKind() string { return "video.new" }

// Step is one change of a task. It is a billing.Record: a step that ends a task becomes
// durable with its settlement, and so does its webhook delivery.
type Step struct {
	Task Task // as it is afterwards, Version included: the stored one is one less
	// Delivery is the webhook delivery of the task's end. It may be nil.
	Delivery *webhook.Delivery
}

// RecordKind is "video.step".
func (Step) RecordKind() string { return "video.step" }

// Drop forgets a task that no upstream took. It is a billing.Record, which
// becomes durable with the settlement of the task's hold.
type Drop struct{ ID string }

// RecordKind is "video.drop".
func (Drop) RecordKind() string { return "video.drop" }
