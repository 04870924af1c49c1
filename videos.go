package gateway

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/hop"
	"github.com/tollhouse-ai/gateway/internal/quota"
	"github.com/tollhouse-ai/gateway/internal/webhook"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// VideoOptions say how video tasks are asked after and kept. The zero value is
// the documented default.
type VideoOptions struct {
	// Poll is how often an upstream is asked how a young task goes; one that
	// takes long is asked less often, at least once a minute. Zero means 5 s.
	Poll time.Duration
	// Retention is how long the record of a task is kept that has ended; zero
	// means 7 days.
	Retention time.Duration
	// DuplicateWindow is how long a submission that repeats an accepted one is
	// taken for a mistake; zero means 5 s, negative never.
	DuplicateWindow time.Duration
	// MaxWaiting is how many callers wait for videos at one time, by `wait` or
	// [Gateway.WaitVideo]. Whoever finds no room is told at once how the video is,
	// and asks again later. Zero means as many as calls may run
	// ([Admission.MaxCalls]), but at most 4,096; negative means as many as come.
	MaxWaiting int
	// AllowPrivate allows webhooks with http, any port and private addresses.
	AllowPrivate bool
	// Ended, when not nil, is told of every task that this process has seen
	// end, once it is settled. It must not block, and must be safe for
	// concurrent use.
	Ended func(r *video.Response)
}

func (o *VideoOptions) setDefaults(calls int) {
	const waiters = 4096 // each of which reads its task from the store at every poll
	if o.Poll <= 0 {
		o.Poll = 5 * time.Second
	}
	if o.Retention <= 0 {
		o.Retention = 7 * 24 * time.Hour
	}
	if o.DuplicateWindow == 0 {
		o.DuplicateWindow = 5 * time.Second
	}
	if o.MaxWaiting == 0 {
		if o.MaxWaiting = waiters; calls > 0 {
			o.MaxWaiting = min(calls, waiters)
		}
	}
}

// videos is the life of tasks after their submission.
type videos struct {
	g             *Gateway
	store         video.Store
	transactional bool   // the meter is the store: tasks change with the money
	owner         string // of this process's leases
	clock         *taskClock

	mu             sync.Mutex
	polled         map[string]time.Time      // when this process last asked after a task
	polling        map[string]*pollResult    // who is being asked now
	watched        atomic.Int64              // tasks that Run looks after
	prices         map[string]*billing.Price // by version, of submissions by this process
	retrying       int                       // steps that Run has in hand
	pending        []pendingWrite            // steps that the store did not take yet
	submittedTasks []*video.Task             // submitted by this process since Run last looked
	waiting        quota.Count               // callers who wait for a task's end
	wake           chan struct{}             // a task or a step is new
	wakeDeliverer  func()                    // a notice may be new
}

// pollResult is one look at the upstream that several callers wait for.
type pollResult struct {
	done chan struct{}
	task *video.Task
	err  error
}

// pendingWrite is a step on its way to the store.
type pendingWrite struct {
	step   video.Step
	answer *idempotency.Record
}

func newVideos(g *Gateway) *videos {
	meter, same := g.options.Meter.(video.Store)
	clock := &taskClock{own: g.options.Now}
	clock.store, _ = g.options.Tasks.(video.Clock)
	return &videos{
		clock: clock,
		g:     g, store: g.options.Tasks, transactional: same && meter == g.options.Tasks, owner: g.options.NewID("node_"),
		polled: map[string]time.Time{}, polling: map[string]*pollResult{}, prices: map[string]*billing.Price{},
		wake: make(chan struct{}, 1), wakeDeliverer: func() {},
	}
}

// newNotices delivers what the store of tasks tells.
func newNotices(g *Gateway, outbox webhook.Outbox) (*webhook.Deliverer, error) {
	d, err := webhook.NewDeliverer(webhook.DelivererOptions{
		Outbox: outbox, Client: webhook.NewClient(webhook.Options{AllowPrivate: g.options.Video.AllowPrivate, Now: g.options.Now}),
		Owner: g.videos.owner, Logger: g.options.Logger, Now: g.options.Now, Clock: g.videos.clock.read, Tried: g.emitNoticeTried,
	})
	if err == nil {
		g.videos.wakeDeliverer = d.Wake
	}
	return d, err
}

// remember keeps the price that a task pins: it may be replaced before the task
// has ended.
func (v *videos) remember(p *billing.Price) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.prices[p.Version()] = p
}

// Pricer is a Meter that knows the prices by which it has made holds.
type Pricer interface {
	// Price is that of a version. It is safe for concurrent use.
	Price(ctx context.Context, version string) (*billing.Price, error)
}

// price is the one that a task pinned.
func (v *videos) price(ctx context.Context, t *video.Task) (*billing.Price, error) {
	v.mu.Lock()
	p, known := v.prices[t.PriceVersion]
	v.mu.Unlock()
	book, ok := v.g.options.Meter.(Pricer)
	switch {
	case known || t.PriceVersion == "":
		return p, nil
	case ok:
		return book.Price(ctx, t.PriceVersion)
	}
	return nil, fmt.Errorf("the price %s is not known any more", t.PriceVersion)
}

// find is an account's task; the 404 of the API if it has none.
func (v *videos) find(ctx context.Context, account, id string) (_ *video.Task, err error) {
	defer guard(&err)
	t, err := v.store.Find(ctx, account, id)
	if err != nil {
		return nil, storeError(err)
	}
	if t == nil {
		return nil, video.ErrNotFound(id)
	}
	return t, nil
}

// show is an account's task, asked after if that was not done for a while. A
// task whose upstream does not answer is shown as it is known.
func (v *videos) show(ctx context.Context, account, id string) (*video.Task, error) {
	t, err := v.find(ctx, account, id)
	if err != nil || !v.due(t, v.g.options.Video.Poll) {
		return t, err
	}
	ctx, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	if fresh, err := v.refresh(ctx, t, v.g.options.Video.Poll); err == nil {
		return fresh, nil
	}
	return t, nil
}

// showTimeout is how long a caller waits for an upstream's word of a task.
const showTimeout = 5 * time.Second

// due reports whether a task is open and was not asked after for an interval.
func (v *videos) due(t *video.Task, interval time.Duration) bool {
	if t.State.Terminal() {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.overdue(t, interval)
}

// overdue is due of an open task; the caller holds the lock.
func (v *videos) overdue(t *video.Task, interval time.Duration) bool {
	if last, here := v.polled[t.ID]; here {
		return v.g.options.Now().Sub(last) >= interval
	}
	last := t.PolledAt
	if last.IsZero() {
		last = t.CreatedAt
	}
	return v.clock.last().Sub(last) >= interval
}

// refresh asks how a task goes. Callers who ask at the same time share one look;
// one who comes when it has just ended gets what it found.
func (v *videos) refresh(ctx context.Context, t *video.Task, interval time.Duration) (*video.Task, error) {
	v.mu.Lock()
	r, running := v.polling[t.ID]
	if !running && !v.overdue(t, interval) {
		v.mu.Unlock()
		return v.find(ctx, t.Account, t.ID)
	}
	if !running {
		r = &pollResult{done: make(chan struct{})}
		v.polling[t.ID] = r
		go v.poll(context.WithoutCancel(ctx), t, r)
	}
	v.mu.Unlock()
	select {
	case <-r.done:
		return r.task, r.err
	case <-ctx.Done():
		return nil, fault.From(ctx.Err())
	}
}

// pollTimeout bounds one question to an upstream.
const pollTimeout = 30 * time.Second

// waitForPolls waits for the looks that are under way. Others may begin meanwhile, by
// callers who ask.
func (v *videos) waitForPolls() {
	v.mu.Lock()
	looks := slices.Collect(maps.Values(v.polling))
	v.mu.Unlock()
	for _, r := range looks {
		<-r.done
	}
}

func (v *videos) poll(ctx context.Context, t *video.Task, r *pollResult) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	r.task, r.err = v.advance(ctx, t)
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.polling, t.ID)
	v.polled[t.ID] = v.g.options.Now() // also of one that ended: who read it before must not ask again
	close(r.done)
}

// submitTimeout is how long a submission may take: one that is older was made by a
// process that is gone.
const submitTimeout = time.Hour

// advance takes a task one step on, if there is one.
func (v *videos) advance(ctx context.Context, t *video.Task) (_ *video.Task, err error) {
	defer guard(&err)
	now, err := v.clock.now(ctx)
	if err != nil {
		return nil, storeError(err)
	}
	if m, ended := t.Expire(now); ended {
		if t.UpstreamID != "" { // a last look, so that a success that came too late is reported
			if data, err := v.askUpstream(ctx, t); err == nil {
				if last, err := t.Advance(data, now); err == nil {
					m = last
				}
			}
		}
		return v.commit(ctx, t, m)
	}
	switch {
	case t.State == video.Submitting && now.Sub(t.CreatedAt) > submitTimeout:
		return v.commit(ctx, t, video.Transition{Task: t.MarkUnknown("", now), Changed: true})
	case t.State == video.Submitting, t.State == video.Unknown:
		return t, nil // there is nobody to ask
	}
	data, err := v.askUpstream(ctx, t)
	if err != nil {
		return nil, err
	}
	m, err := t.Advance(data, now)
	if m.Strange != "" && m.Changed {
		v.g.options.Logger.Warn("a video's upstream said something unexpected", "task", t.ID, "channel", t.Channel, "word", clip(m.Strange))
	}
	if err != nil {
		return nil, err
	}
	return v.commit(ctx, t, m)
}

// askUpstream is what the task's upstream says of it.
func (v *videos) askUpstream(ctx context.Context, t *video.Task) (data []byte, err error) {
	call := &upstream.Call{
		Op: upstream.PollVideo, Model: t.Model, Channel: t.Channel, TaskID: t.UpstreamID, RequestID: t.RequestID, Account: t.Account,
		Accept: func(ctx context.Context, r *upstream.Reply) (*upstream.Reply, error) {
			buf := new(bytes.Buffer)
			in := limitedReader{limit: video.MaxAnswer}
			err := in.readAll(ctx, buf, r.Body)
			data = buf.Bytes()
			return r, err
		},
	}
	v.g.observer.watchAttempts(call)
	reply, err := v.g.routes.Load().router.Do(hop.NewContext(ctx, v.g.trail), call)
	if err != nil {
		return nil, err
	}
	_ = reply.Body.Close()
	return data, nil
}
