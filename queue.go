package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/idempotency"
)

// pending is a capture that could not be made durable when its call ended.
type pending struct {
	hold    billing.Hold
	usage   billing.Usage
	outcome billing.Outcome
	answer  *idempotency.Record // for duplicates of the request; may be nil
	with    []billing.Record    // more that is durable with it, where the meter keeps it
	tries   int
	told    <-chan struct{} // closed when the Observer knows that it waits
}

// queue holds pending captures. It is bounded: what does not fit is left to
// the ledger's own recovery of open holds.
type queue struct {
	mu    sync.Mutex
	items []pending
	wake  chan struct{}
}

const queueLimit = 10_000

// add queues p; false if the queue is full.
func (q *queue) add(p pending) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) >= queueLimit {
		return false
	}
	q.items = append(q.items, p)
	if q.wake != nil {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
	return true
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

func (q *queue) head() (pending, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return pending{}, false
	}
	return q.items[0], true
}

// drop removes the head; again puts it back at the end, so that one capture
// that keeps failing does not stop the others.
func (q *queue) drop(again bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if again {
		q.items[0].tries++
		q.items = append(q.items, q.items[0])
	}
	q.items = q.items[1:]
}

// run retries the head until it succeeds, with a growing pause, until ctx ends.
func (q *queue) run(ctx context.Context, try func(context.Context, pending) error) {
	const first, most = 100 * time.Millisecond, 5 * time.Second
	q.mu.Lock()
	q.wake = make(chan struct{}, 1)
	wake := q.wake
	q.mu.Unlock()
	pause := first
	for {
		p, ok := q.head()
		if !ok {
			select {
			case <-ctx.Done():
				return
			case <-wake:
				continue
			}
		}
		failed := try(ctx, p) != nil
		q.drop(failed)
		if !failed {
			pause = first
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			pause = min(2*pause, most)
		}
	}
}
