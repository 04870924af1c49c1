package video

import (
	"context"
	"time"

	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/webhook"
)

// Store keeps tasks. Its implementations are safe for concurrent use; an error
// that is not a *fault.Error means that the store is unavailable.
//
// A Store that is also the gateway's billing.Meter takes a [CreateTask] with
// Reserve (billing.Charge.With) and a [Step] with Settle, each in one
// transaction with the money.
type Store interface {
	// Add makes a task, unless the key has as many open ones as it may
	// (fault.ConcurrencyExceeded) or submitted the same a moment ago
	// (fault.IdempotencyConflict, naming the task).
	Add(ctx context.Context, n CreateTask) error
	// Change applies a step to the task that has the step's Version; false if
	// another was faster. answer, which may be nil, is kept with it for
	// duplicates of the submission.
	Change(ctx context.Context, s Step, answer *idempotency.Record) (bool, error)
	// Drop forgets a task that no upstream took.
	Drop(ctx context.Context, id string) error
	// Find is the account's task by its id or its upstream's; nil if there is
	// none.
	Find(ctx context.Context, account, id string) (*Task, error)
	// Claim leases at most n open tasks that nobody has leased to owner until
	// the given time, those that were polled longest ago first, and renews the
	// leases that owner has already. It returns all tasks that are owner's now.
	Claim(ctx context.Context, owner string, until time.Time, n int) ([]*Task, error)
	// Purge forgets the tasks whose PurgeAt has passed; it returns how many.
	Purge(ctx context.Context, now time.Time) (int, error)
}

// Clock is a [Store] with a clock of its own. The processes that share the
// store use it to decide when a task ends and when its record is purged;
// without it each uses its own clock. It is safe for concurrent use.
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

// Step is one change of a task's. It is a billing.Record: one that ends a task
// becomes durable with its settlement, and so does its webhook delivery.
type Step struct {
	Task Task // as it is afterwards, Version included: the stored one is one less
	// Delivery is the webhook delivery of the task's end; nil for none.
	Delivery *webhook.Delivery
}

// RecordKind is "video.step".
func (Step) RecordKind() string { return "video.step" }

// Drop forgets a task that no upstream took. It is a billing.Record, which
// becomes durable with the settlement of the task's hold.
type Drop struct{ ID string }

// RecordKind is "video.drop".
func (Drop) RecordKind() string { return "video.drop" }
