// Package webhook sends webhook deliveries to the URLs that customers name: signed
// as Standard Webhooks says, to public hosts only, with retries for three days.
package webhook

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/internal/retryqueue"
	"github.com/tollhouse-ai/gateway/webhook"
)

// The limits of a Deliverer.
const (
	workers    = 16              // attempts at the same time
	perHost    = 2               // of them with one receiver, so that a slow one delays no other
	perAccount = workers * 3 / 4 // of them for one account, so that one with many slow receivers leaves workers to others
	poll       = 5 * time.Second // how often the outbox is asked for what is due
	lease      = time.Minute     // how long a delivery is this process's
	batch      = 128             // deliveries that are leased at once
	maxBatches = 64              // batches that are leased one after the other
	// attemptReserve is what must be left of a lease when an attempt begins: the
	// attempt, and time to record its result.
	attemptReserve = timeout + 5*time.Second
	outboxTimeout  = 10 * time.Second // of one call of the outbox
)

// DelivererOptions are a Deliverer's. All but Attempted and Rand are needed.
type DelivererOptions struct {
	Outbox webhook.Outbox
	// Post makes one attempt, as that of a [Client] does.
	Post func(ctx context.Context, d webhook.Delivery, at time.Time, secrets []webhook.Secret) Result
	// Owner names this process in leases; no other process may have the same.
	Owner  string
	Logger *slog.Logger
	Now    func() time.Time
	Clock  func() time.Time // that of the outbox, by which deliveries are dated
	// Attempted, when not nil, is called after every attempt. It must not block, and
	// must be safe for concurrent use.
	Attempted func(ctx context.Context, t Attempt)
	// Rand returns a number from 0 to n-1, so that deliveries that failed together
	// are not retried together; math/rand/v2's Int64N if nil.
	Rand func(n int64) int64
}

// Attempt is one attempt at a delivery, which has ended.
type Attempt struct {
	Delivery webhook.Delivery // as it was before
	Result
	Final    bool // no other attempt follows
	Duration time.Duration
}

// Deliverer delivers what an Outbox holds: each delivery at least once, always with
// the same id and body.
type Deliverer struct {
	o    DelivererOptions
	wake chan struct{}
}

// NewDeliverer returns a deliverer that has yet to be started with Run.
func NewDeliverer(o DelivererOptions) *Deliverer {
	if o.Rand == nil {
		o.Rand = rand.Int64N
	}
	return &Deliverer{o: o, wake: make(chan struct{}, 1)}
}

// Wake says that there is a new delivery, so that it need not wait for the next
// poll. It never blocks, and is safe for concurrent use.
func (d *Deliverer) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Run delivers until ctx ends, then cancels the attempts that are under way and
// waits for them. It logs and retries what fails. Only one Run may be active at a
// time.
func (d *Deliverer) Run(ctx context.Context) {
	// A timer of 0 instead of the first poll crashes Go 1.26's race detector,
	// where a test has two of them in one synctest bubble.
	r := &run{
		Deliverer: d, queue: newQueue(workers, perHost, perAccount), ended: make(chan task, workers),
		timer: time.NewTimer(poll), more: true, backoff: outboxBackoff(),
	}
	defer r.running.Wait()
	defer r.timer.Stop()
	for ctx.Err() == nil {
		r.fill(ctx)
		select {
		case <-ctx.Done():
		case t := <-r.ended:
			r.queue.done(t)
			r.start(ctx)
		case <-d.wake:
			r.more = true
		case <-r.timer.C:
			r.more, r.backingOff = true, false
			r.timer.Reset(poll)
		}
	}
}

// run is the state of one Run.
type run struct {
	*Deliverer
	queue      *queue
	running    sync.WaitGroup
	ended      chan task // those whose attempt is over; has room for all that run
	timer      *time.Timer
	more       bool // the outbox may have deliveries that are due
	backingOff bool // the outbox failed, and is not called before the timer ends
	backoff    retryqueue.Backoff
}

// fill leases deliveries while a worker is idle and nothing can start on it:
// deliveries that wait for busy receivers must not delay others.
func (r *run) fill(ctx context.Context) {
	for range maxBatches {
		if !r.more || r.backingOff || !r.queue.wantsWork() {
			return
		}
		var due []webhook.Delivery
		until := r.o.Now().Add(lease)
		err := r.callOutbox(ctx, func(ctx context.Context) (err error) {
			due, err = r.o.Outbox.Due(ctx, r.o.Owner, until, batch)
			return err
		})
		if err != nil {
			if ctx.Err() == nil {
				r.o.Logger.Warn("loading due webhooks failed", "error", err)
			}
			r.backingOff = true
			r.timer.Reset(r.backoff.Next())
			return
		}
		r.backoff.Reset()
		r.more = len(due) >= batch
		for _, n := range due {
			r.queue.add(task{n, host(n.URL), until}, r.o.Now())
		}
		r.start(ctx)
	}
}

// start begins every attempt that may begin.
func (r *run) start(ctx context.Context) {
	for ctx.Err() == nil {
		t, ok := r.queue.next(r.o.Now().Add(attemptReserve))
		if !ok {
			return
		}
		r.running.Go(func() {
			defer func() { r.ended <- t }()
			r.attempt(ctx, t)
		})
	}
}

// callOutbox makes one call of the outbox, and makes an error of its panic.
func (d *Deliverer) callOutbox(ctx context.Context, call func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the outbox panicked: %v\n%s", p, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, outboxTimeout)
	defer cancel()
	return call(ctx)
}

// attempt makes one attempt and records its result. Where the result is unknown
// or cannot be recorded, the delivery is retried when its lease has ended.
func (d *Deliverer) attempt(ctx context.Context, t task) {
	n := t.delivery
	var secrets []webhook.Secret
	err := d.callOutbox(ctx, func(ctx context.Context) (err error) {
		secrets, err = d.o.Outbox.Secrets(ctx, n.Account)
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			d.o.Logger.Warn("loading webhook secrets failed", "id", n.ID, "account", n.Account, "error", err)
		}
		return
	}
	began := d.o.Now()
	result := d.post(ctx, n, secrets)
	now := d.o.Now()
	if ctx.Err() != nil && result.Outcome != Delivered && result.Outcome != Gone {
		return // the shutdown cancelled the attempt
	}
	var next time.Time
	more := false
	if result.Outcome != Delivered && result.Outcome != Gone {
		dated := d.o.Clock()
		if next, more = nextAttempt(n.Tries+1, n.CreatedAt, dated, d.o.Rand); more {
			next = now.Add(next.Sub(dated)) // by this process's clock, as the outbox has it
		}
	}
	if d.o.Attempted != nil {
		d.o.Attempted(ctx, Attempt{Delivery: n, Result: result, Final: !more, Duration: now.Sub(began)})
	}
	if result.Outcome == Delivered {
		d.record(ctx, t, func(ctx context.Context) error { return d.o.Outbox.Done(ctx, n.ID, d.o.Clock()) })
		return
	}
	d.o.Logger.Warn("webhook delivery failed", "id", n.ID, "account", n.Account, "host", t.host, "tries", n.Tries+1,
		"outcome", string(result.Outcome), "reason", result.Reason, "final", !more, "next", next)
	d.record(ctx, t, func(ctx context.Context) error { return d.o.Outbox.Failed(ctx, n, next, result.Reason, !more) })
}

// post makes the attempt, and a failed one of its panic.
func (d *Deliverer) post(ctx context.Context, n webhook.Delivery, secrets []webhook.Secret) (result Result) {
	defer func() {
		if p := recover(); p != nil {
			d.o.Logger.Error("webhook delivery panicked", "id", n.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			result = Result{Outcome: Retry, Reason: "the delivery failed within the gateway"}
		}
	}()
	return d.o.Post(ctx, n, d.o.Now(), secrets)
}

// outboxBackoff is the wait after a call of the outbox that failed.
func outboxBackoff() retryqueue.Backoff {
	return retryqueue.Backoff{First: time.Second, Most: 30 * time.Second}
}

// record writes the result of an attempt to the outbox, even if ctx has ended. While the
// outbox fails, it retries until the lease ends and keeps the worker busy: nothing more is
// sent whose result could not be recorded.
func (d *Deliverer) record(ctx context.Context, t task, write func(context.Context) error) {
	for backoff := outboxBackoff(); ; {
		err := d.callOutbox(context.WithoutCancel(ctx), write)
		if err == nil {
			return
		}
		d.o.Logger.Warn("recording webhook delivery failed", "id", t.delivery.ID, "account", t.delivery.Account, "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff.Next()):
		}
		if !d.o.Now().Before(t.until) {
			return
		}
	}
}

// giveUpAfter is how long a delivery is retried.
const giveUpAfter = 3 * 24 * time.Hour

// delays are the waits after each failed attempt, as Standard Webhooks
// recommends them. The last attempt falls on the end of the three days.
var delays = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute,
	2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// nextAttempt returns the time of the attempt after tries failures, of a delivery that is due
// since first. more is false after giveUpAfter. A wait is up to a tenth shorter or longer than
// in the table.
func nextAttempt(tries int, first, now time.Time, random func(n int64) int64) (at time.Time, more bool) {
	end := first.Add(giveUpAfter)
	if !now.Before(end) {
		return time.Time{}, false
	}
	delay := delays[min(max(tries, 1), len(delays))-1]
	at = now.Add(delay - delay/10 + time.Duration(random(cmp.Or(int64(delay/5), 1))))
	if at.After(end) {
		at = end
	}
	return at, true
}
