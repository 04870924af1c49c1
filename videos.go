package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
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
	// AllowPrivate allows webhooks with http, any port and private addresses.
	AllowPrivate bool
	// Ended, when not nil, is told of every task that this process has seen
	// end, once it is settled. It must not block, and must be safe for
	// concurrent use.
	Ended func(r *video.Response)
}

func (o *VideoOptions) setDefaults() {
	if o.Poll <= 0 {
		o.Poll = 5 * time.Second
	}
	if o.Retention <= 0 {
		o.Retention = 7 * 24 * time.Hour
	}
	if o.DuplicateWindow == 0 {
		o.DuplicateWindow = 5 * time.Second
	}
}

// videos is the life of tasks after their submission.
type videos struct {
	g             *Gateway
	store         video.Store
	transactional bool   // the meter is the store: tasks change with the money
	owner         string // of this process's leases

	mu      sync.Mutex
	polled  map[string]time.Time      // when this process last asked after a task
	asking  map[string]*refresh       // who is being asked now
	prices  map[string]*billing.Price // by version, of submissions by this process
	pending []keeping                 // steps that the store did not take yet
	fresh   []*video.Task             // submitted by this process since Run last looked
	wake    chan struct{}             // a task or a step is new
	notice  func()                    // a notice may be new
}

// refresh is one look at the upstream that several callers wait for.
type refresh struct {
	done chan struct{}
	task *video.Task
	err  error
}

// keeping is a step on its way to the store.
type keeping struct {
	step   video.Step
	answer *idempotency.Record
}

func newVideos(g *Gateway) *videos {
	meter, same := g.options.Meter.(video.Store)
	return &videos{
		g: g, store: g.options.Tasks, transactional: same && meter == g.options.Tasks, owner: g.options.NewID("node_"),
		polled: map[string]time.Time{}, asking: map[string]*refresh{}, prices: map[string]*billing.Price{},
		wake: make(chan struct{}, 1), notice: func() {},
	}
}

// newNotices delivers what the store of tasks tells.
func newNotices(g *Gateway, outbox webhook.Outbox) (*webhook.Deliverer, error) {
	d, err := webhook.NewDeliverer(webhook.DelivererOptions{
		Outbox: outbox, Client: webhook.NewClient(webhook.Options{AllowPrivate: g.options.Video.AllowPrivate, Now: g.options.Now}),
		Owner: g.videos.owner, Logger: g.options.Logger, Now: g.options.Now,
	})
	if err == nil {
		g.videos.notice = d.Wake
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
		return nil, away(err)
	}
	if t == nil {
		return nil, video.Unfound(id)
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
	if fresh, err := v.refresh(ctx, t); err == nil {
		return fresh, nil
	}
	return t, nil
}

// due reports whether a task is open and was not asked after for an interval.
func (v *videos) due(t *video.Task, interval time.Duration) bool {
	if t.State.Terminal() {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	last := v.polled[t.ID]
	if last.IsZero() {
		last = t.PolledAt
	}
	if last.IsZero() {
		last = t.CreatedAt
	}
	return v.g.options.Now().Sub(last) >= interval
}

// refresh asks how a task goes. Callers who ask at the same time share one look.
func (v *videos) refresh(ctx context.Context, t *video.Task) (*video.Task, error) {
	v.mu.Lock()
	r, running := v.asking[t.ID]
	if !running {
		r = &refresh{done: make(chan struct{})}
		v.asking[t.ID] = r
		go v.look(context.WithoutCancel(ctx), t, r)
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

func (v *videos) look(ctx context.Context, t *video.Task, r *refresh) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	r.task, r.err = v.advance(ctx, t)
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.asking, t.ID)
	if r.err == nil && r.task.State.Terminal() {
		delete(v.polled, t.ID)
	} else {
		v.polled[t.ID] = v.g.options.Now()
	}
	close(r.done)
}

// abandoned is how long a submission may take: one that is older was made by a
// process that is gone.
const abandoned = time.Hour

// advance takes a task one step on, if there is one.
func (v *videos) advance(ctx context.Context, t *video.Task) (_ *video.Task, err error) {
	defer guard(&err)
	now := v.g.options.Now()
	if m, ended := t.Expire(now); ended {
		return v.commit(ctx, t, m)
	}
	switch {
	case t.State == video.Submitting && now.Sub(t.CreatedAt) > abandoned:
		return v.commit(ctx, t, video.Move{Task: t.Lose("", now), Changed: true})
	case t.State == video.Submitting, t.State == video.Unknown:
		return t, nil // there is nobody to ask
	}
	data, err := v.ask(ctx, t)
	if err != nil {
		return nil, err
	}
	m, err := t.Advance(data, now)
	if m.Strange != "" {
		v.g.options.Logger.Warn("a video's upstream said something unexpected", "task", t.ID, "channel", t.Channel, "word", clip(m.Strange))
	}
	if err != nil {
		return nil, err
	}
	return v.commit(ctx, t, m)
}

// ask is what the task's upstream says of it.
func (v *videos) ask(ctx context.Context, t *video.Task) (data []byte, err error) {
	reply, err := v.g.routes.Load().router.Do(ctx, &upstream.Call{
		Op: upstream.PollVideo, Model: t.Model, Channel: t.Channel, TaskID: t.UpstreamID, RequestID: t.RequestID,
		Accept: func(_ context.Context, r *upstream.Reply) (*upstream.Reply, error) {
			buf := new(bytes.Buffer)
			err := readAll(buf, r.Body, v.g.options.MaxAnswer)
			data = buf.Bytes()
			return r, err
		},
	})
	if err != nil {
		return nil, err
	}
	_ = reply.Body.Close()
	return data, nil
}

// commit makes a move durable: the end of a task with its settlement and its
// notice. Whoever was faster is right.
func (v *videos) commit(ctx context.Context, t *video.Task, m video.Move) (*video.Task, error) {
	if m.Late {
		v.g.options.Logger.Warn("a video succeeded after it had expired, and is not charged", "task", t.ID, "account", t.Account)
	}
	next := m.Task
	switch {
	case !m.Changed:
		return &next, nil
	case !next.State.Terminal():
		if _, err := v.store.Change(ctx, video.Step{Task: next}, nil); err != nil {
			return nil, err
		}
		return &next, nil
	}
	now := v.g.options.Now()
	next.PurgeAt = now.Add(v.g.options.Video.Retention)
	step := video.Step{Task: next, Notice: next.NoticeOf(v.g.options.NewID("evt_"), now)}
	receipt, first, err := v.settle(ctx, step)
	if err != nil {
		return nil, err
	}
	if !first {
		return v.find(ctx, t.Account, t.ID)
	}
	if step.Notice != nil {
		v.notice()
	}
	v.tell(&next, receipt)
	return &next, nil
}

// reasons are why the hold of a task ended.
var reasons = map[video.State]string{
	video.Succeeded: billing.ReasonComplete, video.Failed: billing.ReasonUpstreamFailed,
	video.Cancelled: billing.ReasonUpstreamFailed, video.Expired: billing.ReasonExpired,
}

// settle ends the task's hold together with the task. first is false where
// another had ended it before.
func (v *videos) settle(ctx context.Context, step video.Step) (r billing.Receipt, first bool, err error) {
	t := &step.Task
	p, err := v.price(ctx, t)
	if err != nil {
		return r, false, err
	}
	hold := billing.Hold{ID: t.RequestID, Account: t.Account, Key: t.Key, Operation: string(upstream.SubmitVideo), Model: t.Model, Price: p}
	with := []billing.Record{billing.Outcome{Reason: reasons[t.State], Channel: t.Channel}}
	if v.transactional {
		with = append(with, step)
	}
	r, err = v.g.options.Meter.Settle(ctx, hold, t.Spent(p), with...)
	if err != nil {
		return r, false, err
	}
	if v.transactional {
		now, err := v.store.Find(ctx, t.Account, t.ID)
		return r, err == nil && now != nil && now.State == t.State && now.UpdatedAt.Equal(t.UpdatedAt), err
	}
	first, err = v.store.Change(ctx, step, nil)
	return r, first, err
}

// tell gives the end of a task to the program that embeds the gateway.
func (v *videos) tell(t *video.Task, r billing.Receipt) {
	v.g.options.Logger.Info("video", "task", t.ID, "request_id", t.RequestID, "account", t.Account, "key", t.Key,
		"model", t.Model, "channel", t.Channel, "outcome", string(t.State), "charge", r.Charge.String())
	if v.g.options.Video.Ended == nil {
		return
	}
	response, err := t.Response()
	if err != nil && response == nil {
		return
	}
	response.RequestID, response.Charge = t.RequestID, r.Charge
	defer func() {
		if p := recover(); p != nil {
			v.g.options.Logger.Error("VideoOptions.Ended failed", "task", t.ID, "error", panicked(p))
		}
	}()
	v.g.options.Video.Ended(response)
}

// keep makes a step durable. If the store is away it is tried again by Run, and
// false is returned.
func (v *videos) keep(ctx context.Context, step video.Step, answer *idempotency.Record) bool {
	limit := newGrace(ctx, v.g.options.SettleTimeout)
	defer limit.end()
	_, err := v.change(limit, keeping{step, answer})
	if err == nil {
		v.submitted(step.Task)
		return true
	}
	v.mu.Lock()
	v.pending = append(v.pending, keeping{step, answer})
	v.mu.Unlock()
	v.g.options.Logger.Error("a step of a video is not durable", "task", step.Task.ID, "upstream_id", step.Task.UpstreamID, "error", err)
	v.roused()
	return false
}

func (v *videos) change(ctx context.Context, k keeping) (_ bool, err error) {
	defer guard(&err)
	return v.store.Change(ctx, k.step, k.answer)
}

// keepAgain tries the steps again that the store did not take.
func (v *videos) keepAgain(ctx context.Context) {
	v.mu.Lock()
	pending := v.pending
	v.pending = nil
	v.mu.Unlock()
	for i, k := range pending {
		_, err := v.change(ctx, k)
		f := fault.From(err)
		switch {
		case err == nil:
			v.submitted(k.step.Task)
		case f.Code != fault.ServiceUnavailable && f.Code != fault.InternalError && f.Code != fault.ClientGone:
			v.g.options.Logger.Error("a step of a video is given up", "task", k.step.Task.ID, "upstream_id", clip(k.step.Task.UpstreamID), "error", err)
		default: // the store is away still
			v.mu.Lock()
			v.pending = append(pending[i:len(pending):len(pending)], v.pending...)
			v.mu.Unlock()
			return
		}
	}
}

// submitted has Run look after a task, if it runs.
func (v *videos) submitted(t video.Task) {
	const most = 10_000 // what Run, if it runs, finds in the store
	v.mu.Lock()
	if len(v.fresh) < most {
		v.fresh = append(v.fresh, &t)
	}
	v.mu.Unlock()
	v.roused()
}

// drop forgets a task that no upstream took, where the settlement did not.
func (v *videos) drop(ctx context.Context, id string) {
	limit := newGrace(ctx, v.g.options.SettleTimeout)
	defer limit.end()
	if err := v.store.Drop(limit, id); err != nil {
		v.g.options.Logger.Error("a refused video was not forgotten", "task", id, "error", err)
	}
}

// roused has Run look at what is new.
func (v *videos) roused() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// errDraining ends those who wait for a video when the gateway shuts down.
var errDraining = errors.New("the gateway is shutting down")

// watch yields a task as it is and at each change, until it has ended or ctx
// does.
func (v *videos) watch(ctx context.Context, account, id string) iter.Seq2[*video.Task, error] {
	return func(yield func(*video.Task, error) bool) {
		last := video.State("")
		for {
			t, err := v.show(ctx, account, id)
			switch {
			case err != nil:
				yield(nil, err)
				return
			case t.State.Public() != last && !yield(t, nil), t.State.Terminal():
				return
			}
			last = t.State.Public()
			timer := time.NewTimer(v.g.options.Video.Poll)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				yield(nil, fault.From(ctx.Err()))
				return
			}
			if v.g.Draining() {
				yield(nil, fault.Wrap(fault.ServiceUnavailable, errShuttingDown.Message, errDraining))
				return
			}
		}
	}
}
