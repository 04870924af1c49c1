// Package videotask keeps the task of a video from its submission to its end. The task is
// created with its hold, polled, and ended with its settlement and its webhook. The caller
// asks the vendors, between [Tasks.Due] or [Tasks.Show] and [Poll.End].
package videotask

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/money"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/internal/outage"
	"github.com/tollhouse-ai/gateway/internal/retryqueue"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// Options are a Tasks's. All of them are needed.
type Options struct {
	Store     video.Store
	Meter     billing.Meter
	Money     *money.Money     // makes holds with Meter
	Owner     string           // of this process's leases
	Poll      time.Duration    // how often a young task is polled
	Retention time.Duration    // how long the record of a task is kept that has ended
	Window    time.Duration    // how long a submission that repeats an accepted one is a conflict; 0 for never
	Timeout   time.Duration    // of one write of a submission's step
	Now       func() time.Time // of this process, by which leases and intervals go
	NewID     func(prefix string) string
	Logger    *slog.Logger
	// Moved gets each step of a task that this process has made durable. It is called by
	// several goroutines at a time.
	Moved func(ctx context.Context, m Moved)
}

// Moved is a step in the life of a task.
type Moved struct {
	Task    *video.Task
	From    video.State
	Receipt *billing.Receipt // what the video cost; nil unless the task has ended
	Late    bool             // the video was made after its task had expired
	Webhook bool             // a delivery is due
}

// Tasks are the tasks of videos. It is safe for concurrent use.
type Tasks struct {
	Options
	transactional bool           // the meter is the store: tasks change with the money
	clock         *videoop.Clock // of the store, by which tasks go
	writes        *retryqueue.Queue[write]

	wake            chan struct{} // a task is new
	watched         atomic.Int64
	claimed, purged time.Time // by Due

	mu     sync.Mutex                // guards what follows
	prices map[string]*billing.Price // by version, of submissions by this process
	active bool                      // Due runs
	tasks  map[string]*entry
	claims int // of the store, begun so far
	swept  time.Time
}

// New makes a Tasks.
func New(o Options) *Tasks {
	meter, same := o.Meter.(video.Store)
	v := &Tasks{
		Options: o, transactional: same && meter == o.Store, prices: make(map[string]*billing.Price),
		wake: make(chan struct{}, 1), tasks: make(map[string]*entry),
	}
	var storeTime func(context.Context) (time.Time, error)
	if store, ok := o.Store.(video.Clock); ok {
		storeTime = func(ctx context.Context) (_ time.Time, err error) {
			defer fault.Recover(&err)
			return store.Now(ctx)
		}
	}
	v.clock = videoop.NewClock(storeTime, o.Now)
	v.writes = retryqueue.New(retryqueue.Options{
		Size: 10_000, AtOnce: 16,
		Backoff: retryqueue.Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second, Rand: rand.Int64N},
	}, v.writeAgain)
	return v
}

// Time returns the time of the store, by which tasks go. If the store does not answer, it is
// extrapolated from the last answer.
func (v *Tasks) Time() time.Time {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	if now, err := v.clock.Now(ctx); err == nil {
		return now
	}
	return v.clock.Last()
}

// Pending returns how many steps of submissions the store has not taken yet.
func (v *Tasks) Pending() int { return v.writes.Len() }

// Find returns a task of the account. The error is a 404 if it has none by that id.
func (v *Tasks) Find(ctx context.Context, account, id string) (_ *video.Task, err error) {
	defer fault.Recover(&err)
	t, err := v.Store.Find(ctx, account, id)
	switch {
	case err != nil:
		return nil, outage.Error(err)
	case t == nil:
		return nil, videoop.NotFound(id)
	}
	return t, nil
}

// Submission is a request for a video that no upstream has got yet.
type Submission struct {
	Request *videoop.Request
	Price   *billing.Price // of the model; nil if it has none
	Most    int64          // open tasks of the key; 0 for any number
	Retried bool           // it has an idempotency key, so that a repeated one is no mistake
}

// holdMargin is how much longer a task's hold lasts than the task can.
const holdMargin = time.Hour

// Create makes a task and its hold, both or neither. The hold deletes the task with its
// settlement, unless it is left to the task ([money.Hold.Leave]). See [money.Money.Hold] for
// the error; it is also a 409 for a submission that repeats an accepted one, or a 429.
func (v *Tasks) Create(ctx context.Context, s Submission, o money.Order, h *money.Hold) (_ *video.Task, err error) {
	defer fault.Recover(&err)
	bound, err := s.Request.Bound(s.Price)
	if err != nil {
		return nil, err
	}
	now, err := v.clock.Now(ctx)
	if err != nil {
		return nil, outage.Error(err)
	}
	t := s.Request.Task(bound, now)
	t.ID, t.RequestID = v.NewID("vid_"), o.Wanted.RequestID
	t.Account, t.Key, t.PriceVersion = o.Payer.Account, o.Payer.Key, s.Price.Version()
	t.Fingerprint = s.Request.Fingerprint(t.Key)
	n := video.CreateTask{Task: t, Most: s.Most, Window: v.Window, Retried: s.Retried}
	v.mu.Lock()
	v.prices[t.PriceVersion] = s.Price // a reload may replace it before the task ends
	v.mu.Unlock()
	o.Wanted.Until = v.Now().Add(videoop.End(&t).Sub(now) + holdMargin) // by this process's clock
	if v.transactional {
		o.Wanted.With, o.AtEnd = []billing.Record{n}, []billing.Record{video.Drop{ID: t.ID}}
	} else if err := v.Store.Add(ctx, n); err != nil { // its refusals come before that of the balance
		return nil, outage.Error(err)
	}
	if err := v.Money.Hold(ctx, o, h); err != nil {
		v.Drop(ctx, t.ID)
		return nil, err
	}
	return &t, nil
}

// Drop deletes a task that no upstream took, if its settlement did not do that.
func (v *Tasks) Drop(ctx context.Context, id string) {
	if v.transactional {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), v.Timeout)
	defer cancel()
	if err := v.Store.Drop(ctx, id); err != nil {
		v.Logger.Error("deleting rejected video task failed", "task", id, "error", err)
	}
}

// Sent returns the task as it is after its submission: an upstream took it, or nobody knows
// whether one did. See [Tasks.Keep].
func (v *Tasks) Sent(t *video.Task, e videoop.Event) *video.Task {
	m := videoop.Apply(t, e, v.clock.Last())
	return &m.Task
}

// Keep makes the step of a submission durable, and what repeated requests get. If the store
// does not answer, it returns false, and Due writes the step again.
func (v *Tasks) Keep(ctx context.Context, t *video.Task, answer *idempotency.Record) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), v.Timeout)
	defer cancel()
	w := write{video.Step{Task: *t}, answer}
	err := v.write(ctx, w)
	if err == nil {
		v.submitted(*t)
		return true
	}
	queued := v.writes.Add(t.Account, w)
	v.Logger.Error("a step of a video is not durable", "task", t.ID, "upstream_id", t.UpstreamID, "queued", queued, "error", err)
	return false
}

// write is a step of a submission, and what repeated requests get.
type write struct {
	step   video.Step
	answer *idempotency.Record
}

// writeAgain is one more try of [Tasks.Keep]. A step that the store refuses is given up; a
// step that it does not answer is retried.
func (v *Tasks) writeAgain(ctx context.Context, w write, _ int) error {
	ctx, cancel := context.WithTimeout(ctx, v.Timeout)
	defer cancel()
	err := v.write(ctx, w)
	if err == nil {
		v.submitted(w.step.Task)
		return nil
	}
	switch fault.From(err).Code {
	case fault.ServiceUnavailable, fault.InternalError, fault.ClientGone, fault.RequestTimeout:
		return err
	}
	v.Logger.Error("a step of a video is given up", "task", w.step.Task.ID, "upstream_id", clip(w.step.Task.UpstreamID), "error", err)
	return nil
}

// write writes a step to the store. If another process has given the submission up meanwhile,
// the step is applied on top: a video that an upstream took must not be forgotten.
func (v *Tasks) write(ctx context.Context, w write) (err error) {
	defer fault.Recover(&err)
	made, err := v.Store.Change(ctx, w.step, w.answer)
	if err != nil || made {
		return err
	}
	want := &w.step.Task
	stored, err := v.Store.Find(ctx, want.Account, want.ID)
	if err != nil {
		return err
	}
	if stored == nil || stored.UpstreamID != "" || want.UpstreamID == "" || stored.State.Terminal() {
		v.Logger.Error("a step of a video came too late", "task", want.ID, "state", string(want.State), "upstream_id", clip(want.UpstreamID))
		return nil
	}
	want.Version = stored.Version + 1
	_, err = v.Store.Change(ctx, w.step, w.answer)
	return err
}

// submitted reports a task that an upstream took, or may have taken, and has it polled.
func (v *Tasks) submitted(t video.Task) {
	v.hand(&t)
	v.Moved(context.Background(), Moved{Task: &t, From: video.Submitting})
}

// pricer is a Meter that knows the prices by which it has made holds.
type pricer interface {
	// Price is that of a version. It is safe for concurrent use.
	Price(ctx context.Context, version string) (*billing.Price, error)
}

// price is the price by which a task's hold was made.
func (v *Tasks) price(ctx context.Context, t *video.Task) (*billing.Price, error) {
	v.mu.Lock()
	p, known := v.prices[t.PriceVersion]
	v.mu.Unlock()
	prices, ok := v.Meter.(pricer)
	switch {
	case known || t.PriceVersion == "":
		return p, nil
	case ok:
		return prices.Price(ctx, t.PriceVersion)
	}
	return nil, fmt.Errorf("the price %s is not known any more", t.PriceVersion)
}

// commit makes a transition durable: the end of a task together with its
// settlement and its webhook. If another process was faster, its result counts.
func (v *Tasks) commit(ctx context.Context, t *video.Task, m videoop.Transition) (*video.Task, error) {
	if m.Late {
		v.Logger.Warn("a video succeeded after it had expired, and is not charged", "task", t.ID, "account", t.Account)
	}
	next := m.Task
	if !m.Changed {
		return &next, nil
	}
	step := video.Step{Task: next}
	var receipt *billing.Receipt
	var first bool
	var err error
	if !next.State.Terminal() {
		first, err = v.Store.Change(ctx, step, nil)
	} else {
		now := v.clock.Last()
		next.PurgeAt = now.Add(v.Retention)
		step = video.Step{Task: next, Delivery: videoop.Delivery(&next, v.NewID("evt_"), now)}
		receipt, first, err = v.settle(ctx, step)
	}
	switch {
	case err != nil:
		return nil, err
	case !first:
		return v.Find(ctx, t.Account, t.ID)
	}
	v.Moved(ctx, Moved{Task: &next, From: t.State, Receipt: receipt, Late: m.Late, Webhook: step.Delivery != nil})
	return &next, nil
}

// reasons are why the hold of a task ended.
var reasons = map[video.State]string{
	video.Succeeded: billing.ReasonComplete, video.Failed: billing.ReasonUpstreamFailed,
	video.Cancelled: billing.ReasonUpstreamFailed, video.Expired: billing.ReasonExpired,
}

// settle ends the task's hold together with the task. first is false if another
// process had ended it before.
func (v *Tasks) settle(ctx context.Context, step video.Step) (_ *billing.Receipt, first bool, err error) {
	t := &step.Task
	p, err := v.price(ctx, t)
	if err != nil {
		return nil, false, err
	}
	hold := billing.Hold{ID: t.RequestID, Account: t.Account, Key: t.Key, Operation: string(upstream.SubmitVideo), Model: t.Model, Price: p}
	with := []billing.Record{billing.Outcome{Reason: reasons[t.State], Channel: t.Channel}}
	if v.transactional {
		with = append(with, step)
	}
	r, err := v.Meter.Settle(ctx, hold, videoop.BilledUsage(t, p), with...)
	if err != nil {
		return nil, false, err
	}
	if !v.transactional {
		first, err = v.Store.Change(ctx, step, nil)
		return &r, first, err
	}
	now, err := v.Store.Find(ctx, t.Account, t.ID)
	return &r, err == nil && now != nil && now.State == t.State && now.UpdatedAt.Equal(t.UpdatedAt), err
}

// clip bounds a text from outside for the log.
func clip(s string) string {
	const most = 256
	return safetext.Clean(safetext.Truncate(s, most))
}
