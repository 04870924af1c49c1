// Package webhook delivers events to the URLs that customers name: signed as
// Standard Webhooks says, to public hosts only, with retries for three days.
package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"
)

// The defaults of a Deliverer, and the limits that are fixed.
const (
	workers    = 16
	perHost    = 2
	poll       = 5 * time.Second
	lease      = time.Minute
	batch      = 128 // notices that are leased at once
	maxBatches = 64  // batches that are leased one after the other
	// attemptReserve is what must be left of a lease when an attempt begins:
	// the attempt, and time to write down what became of it.
	attemptReserve = timeout + 5*time.Second
	outboxTimeout  = 10 * time.Second // for an answer of the outbox
	minBackoff     = time.Second      // after the outbox did not answer
	maxBackoff     = 30 * time.Second
)

// Poster makes one attempt at a delivery. A Client is one.
type Poster interface {
	Post(ctx context.Context, d Delivery) Result
}

// DelivererOptions are a Deliverer's. Outbox and Client are needed.
type DelivererOptions struct {
	Outbox Outbox
	Client Poster
	// Owner names this process in leases; no other process may have the same.
	Owner    string
	Schedule Schedule
	Workers  int // attempts at the same time; 16 if zero
	PerHost  int // of them with one receiver, so that a slow one delays no other; 2 if zero
	// PerAccount is how many of them are for one account, so that one with many
	// slow receivers leaves workers to the others; three quarters of Workers if
	// zero.
	PerAccount int
	Poll       time.Duration    // how often the outbox is asked for what is due; 5 s if zero
	Lease      time.Duration    // how long a notice is this process's; one minute if zero
	Logger     *slog.Logger     // no log if nil
	Now        func() time.Time // time.Now if nil
	// Clock is that of the outbox, by which notices are dated; Now if nil.
	Clock func() time.Time
	// Attempted, when not nil, is told of every attempt that came to an end. It
	// must not block, and must be safe for concurrent use.
	Attempted func(ctx context.Context, t Attempt)
}

// Attempt is one attempt at a delivery, which has ended.
type Attempt struct {
	Notice Notice // as it was before
	Result
	Final    bool // no other attempt follows
	Duration time.Duration
}

// Deliverer delivers what an Outbox holds: each notice at least once, always with
// the same id and body.
type Deliverer struct {
	o    DelivererOptions
	wake chan struct{}
}

// NewDeliverer fails if an option that is needed is missing.
func NewDeliverer(o DelivererOptions) (*Deliverer, error) {
	if o.Outbox == nil || o.Client == nil {
		return nil, errors.New("a webhook deliverer needs an Outbox and a Client")
	}
	o.Workers, o.PerHost = cmp.Or(o.Workers, workers), cmp.Or(o.PerHost, perHost)
	o.PerAccount = cmp.Or(o.PerAccount, max(1, o.Workers*3/4))
	o.Poll, o.Lease = cmp.Or(o.Poll, poll), cmp.Or(o.Lease, lease)
	if o.Workers < 0 || o.PerHost < 0 || o.PerAccount < 0 || o.Poll < 0 || o.Lease <= attemptReserve {
		return nil, fmt.Errorf("a webhook deliverer's numbers must be positive, and its lease %s longer than %s, which a try may take", o.Lease, attemptReserve)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Clock == nil {
		o.Clock = o.Now
	}
	return &Deliverer{o: o, wake: make(chan struct{}, 1)}, nil
}

// Wake says that there is a new notice, so that it need not wait for the next
// poll. It never blocks, and may be called at any time by anybody.
func (d *Deliverer) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Run delivers until ctx ends, then cancels the attempts that are under way and
// waits for them. It logs and retries what fails, and returns nil. Only one Run
// may be active at a time.
func (d *Deliverer) Run(ctx context.Context) error {
	// A timer of 0 instead of the first look crashes Go 1.26's race detector,
	// where a test has two of them in one synctest bubble.
	r := &run{Deliverer: d, queue: newQueue(d.o.Workers, d.o.PerHost, d.o.PerAccount), ended: make(chan task, d.o.Workers), timer: time.NewTimer(d.o.Poll), more: true}
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
			r.timer.Reset(d.o.Poll)
		}
	}
	return nil
}

// run is the state of one Run.
type run struct {
	*Deliverer
	queue      *queue
	running    sync.WaitGroup
	ended      chan task // those whose attempt is over; has room for all that run
	timer      *time.Timer
	more       bool          // the outbox may have deliveries that are due
	backingOff bool          // the outbox failed, and is not called before the timer ends
	backoff    time.Duration // the last wait of backingOff
}

// fill leases deliveries while a worker is idle and nothing can start on it:
// deliveries that wait for busy receivers must not delay others.
func (r *run) fill(ctx context.Context) {
	for range maxBatches {
		if !r.more || r.backingOff || !r.queue.wantsWork() {
			return
		}
		var notices []Notice
		until := r.o.Now().Add(r.o.Lease)
		err := r.callOutbox(ctx, func(ctx context.Context) (err error) {
			notices, err = r.o.Outbox.Due(ctx, r.o.Owner, until, batch)
			return err
		})
		if err != nil {
			if ctx.Err() == nil {
				r.o.Logger.Warn("loading due webhooks failed", "error", err)
			}
			r.backingOff, r.backoff = true, min(max(2*r.backoff, minBackoff), maxBackoff)
			r.timer.Reset(r.backoff)
			return
		}
		r.backoff, r.more = 0, len(notices) >= batch
		for _, n := range notices {
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
	n := t.notice
	var secrets []Secret
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
	attempt := Attempt{Notice: n, Result: result, Final: true, Duration: now.Sub(began)}
	switch {
	case result.Outcome == Delivered:
		d.reportAttempt(ctx, attempt)
		d.record(ctx, t, func(ctx context.Context) error { return d.o.Outbox.Done(ctx, n.ID, d.o.Clock()) })
		return
	case result.Outcome != Gone && ctx.Err() != nil:
		return // the shutdown cancelled the attempt
	}
	tries := n.Tries + 1
	dated := d.o.Clock()
	next, more := d.o.Schedule.Next(tries, n.CreatedAt, dated)
	switch {
	case result.Outcome == Gone:
		next, more = time.Time{}, false
	case more:
		next = now.Add(next.Sub(dated))
	}
	attempt.Final = !more
	d.reportAttempt(ctx, attempt)
	d.o.Logger.Warn("webhook delivery failed", "id", n.ID, "account", n.Account, "host", t.host, "tries", tries,
		"outcome", string(result.Outcome), "reason", result.Reason, "final", !more, "next", next)
	d.record(ctx, t, func(ctx context.Context) error {
		return d.o.Outbox.Failed(ctx, n, next, result.Reason, !more)
	})
}

// reportAttempt passes an attempt to the hook of the options.
func (d *Deliverer) reportAttempt(ctx context.Context, t Attempt) {
	if d.o.Attempted != nil {
		d.o.Attempted(ctx, t)
	}
}

// post calls the client, and makes a failed attempt of its panic.
func (d *Deliverer) post(ctx context.Context, n Notice, secrets []Secret) (result Result) {
	defer func() {
		if p := recover(); p != nil {
			d.o.Logger.Error("webhook delivery panicked", "id", n.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			result = Result{Outcome: Retry, Reason: "the delivery failed within the gateway"}
		}
	}()
	return d.o.Client.Post(ctx, Delivery{ID: n.ID, URL: n.URL, Body: n.Body, At: d.o.Now(), Secrets: secrets})
}

// record writes the result of an attempt to the outbox, even if ctx has ended
// meanwhile. While the outbox fails it retries until the lease ends.
func (d *Deliverer) record(ctx context.Context, t task, write func(context.Context) error) {
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		err := d.callOutbox(context.WithoutCancel(ctx), write)
		if err == nil {
			return
		}
		d.o.Logger.Warn("recording webhook delivery failed", "id", t.notice.ID, "account", t.notice.Account, "error", err)
		wait := time.NewTimer(backoff)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		if !d.o.Now().Before(t.until) {
			return
		}
	}
}

// GiveUpAfter is how long a delivery is retried.
const GiveUpAfter = 3 * 24 * time.Hour

// delays are the waits after each failed attempt, as Standard Webhooks
// recommends them. The last attempt falls on the end of the three days.
var delays = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute,
	2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// Schedule says when a delivery is retried. The zero value is ready.
type Schedule struct {
	// Rand gives a number from 0 to n-1, so that deliveries that failed
	// together are not retried together; math/rand/v2's Int64N if nil.
	Rand func(n int64) int64
}

// Next is the time of the next attempt after so many that failed, of a delivery
// that is due since first; more is false after [GiveUpAfter]. A wait is up to a
// tenth shorter or longer than that of the table.
func (s Schedule) Next(tries int, first, now time.Time) (at time.Time, more bool) {
	end := first.Add(GiveUpAfter)
	if !now.Before(end) {
		return time.Time{}, false
	}
	random := s.Rand
	if random == nil {
		random = rand.Int64N
	}
	delay := delays[min(max(tries, 1), len(delays))-1]
	at = now.Add(delay - delay/10 + time.Duration(random(cmp.Or(int64(delay/5), 1))))
	if at.After(end) {
		at = end
	}
	return at, true
}
