package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/operation"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/internal/outage"
	"github.com/tollhouse-ai/gateway/internal/quota"
	"github.com/tollhouse-ai/gateway/internal/retryqueue"
	"github.com/tollhouse-ai/gateway/internal/via"
	"github.com/tollhouse-ai/gateway/internal/videopoll"
	deliverer "github.com/tollhouse-ai/gateway/internal/webhook"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
	"github.com/tollhouse-ai/gateway/webhook"
)

// VideoOptions say how video tasks are polled and kept. The zero value is the
// documented default.
type VideoOptions struct {
	// Poll is how often a young task is polled; one that takes long is polled less
	// often, at least once a minute. Zero means 5 s.
	Poll time.Duration
	// Retention is how long the record of a task is kept that has ended; zero
	// means 7 days.
	Retention time.Duration
	// DuplicateWindow is how long a submission that repeats an accepted one is
	// taken for a mistake; zero means 5 s, negative never.
	DuplicateWindow time.Duration
	// MaxWaiting is how many callers wait for videos at one time, by `wait` or
	// [Gateway.WaitVideo]. One more gets the record as it is at once, and polls later.
	// Zero means as many as calls may run
	// ([Admission.MaxCalls]), but at most 4,096; negative means as many as come.
	MaxWaiting int
	// AllowPrivate allows webhooks with http, any port and private addresses.
	AllowPrivate bool
	// Ended, when not nil, is called with the record of every task that this process
	// has seen end, once it is settled. It must not block, and must be safe for
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

// videos keeps tasks from their submission to their end. Each step of a task is one
// of videoop.Apply; this type makes it durable, with the money and the webhook.
type videos struct {
	g             *Gateway
	store         video.Store
	transactional bool   // the meter is the store: tasks change with the money
	owner         string // of this process's leases
	clock         *videoop.Clock
	writes        *retryqueue.Queue[pendingWrite] // steps that the store did not take yet
	poller        *videopoll.Poller
	waiting       quota.Count // callers who wait for a task's end
	wakeDeliverer func()      // a webhook delivery may be new

	mu     sync.Mutex
	prices map[string]*billing.Price // by version, of submissions by this process
}

// pendingWrite is a step of a submission, and what duplicates of it get.
type pendingWrite struct {
	step   video.Step
	answer *idempotency.Record
}

func newVideos(g *Gateway) *videos {
	meter, same := g.options.Meter.(video.Store)
	v := &videos{
		g: g, store: g.options.Tasks, transactional: same && meter == g.options.Tasks, owner: g.options.NewID("node_"),
		prices: map[string]*billing.Price{}, wakeDeliverer: func() {},
	}
	var storeTime func(context.Context) (time.Time, error)
	if store, ok := g.options.Tasks.(video.Clock); ok {
		storeTime = func(ctx context.Context) (_ time.Time, err error) {
			defer fault.Recover(&err)
			return store.Now(ctx)
		}
	}
	v.clock = videoop.NewClock(storeTime, g.options.Now)
	v.writes = retryqueue.New(retryqueue.Options{
		Size: 10_000, AtOnce: 16,
		Backoff: retryqueue.Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second, Rand: rand.Int64N},
	}, v.writeAgain)
	v.poller = videopoll.New(videopoll.Options{
		Store: v.store, Owner: v.owner, Poll: g.options.Video.Poll, Now: g.options.Now, Clock: v.clock, Logger: g.options.Logger,
		Advance: v.advance, Find: v.find, Failed: v.pollFailed,
	})
	return v
}

// newDeliverer makes the deliverer of the webhooks that the store of tasks has, nil
// if it has none.
func newDeliverer(g *Gateway) *deliverer.Deliverer {
	outbox, ok := g.options.Tasks.(webhook.Outbox)
	if !ok {
		return nil
	}
	clock := g.videos.clock
	client := deliverer.NewClient(deliverer.Options{AllowPrivate: g.options.Video.AllowPrivate, Now: g.options.Now})
	d := deliverer.NewDeliverer(deliverer.DelivererOptions{
		Outbox: outbox, Post: client.Post, Owner: g.videos.owner, Logger: g.options.Logger,
		Now: g.options.Now, Attempted: g.emitDeliveryTried,
		Clock: func() time.Time {
			ctx, cancel := context.WithTimeout(context.Background(), videopoll.Timeout)
			defer cancel()
			if now, err := clock.Now(ctx); err == nil {
				return now
			}
			return clock.Last()
		},
	})
	g.videos.wakeDeliverer = d.Wake
	return d
}

// submit submits a video. The task and its hold are durable before an upstream is
// asked, and stay until the task ends. A client that disconnects does not stop it.
// A submission that an upstream may have taken is not repeated, since that could
// make a second video: the task ends when its time is over.
func (c *call) submit(v *videoop.Request) (*Response, error) {
	v, err := c.resolveDrafts(v)
	if err != nil {
		return nil, err
	}
	task, err := c.createTask(v)
	if err != nil {
		return nil, err
	}
	reply, err := c.send(v.Outgoing(0))
	if err != nil && videoop.NotTaken(err) {
		err = c.fail(err)
		c.g.videos.drop(c.ctx, task.ID)
		return nil, err
	}
	header, event := http.Header{}, videoop.Event{Kind: videoop.Lost, Channel: c.lastChannel()}
	if err == nil {
		report, _ := videoop.ReadSubmission(reply.Accepted.(*operation.Answer).Body) // which ReadAnswer has checked
		header, event = resultHeader(reply, 0), videoop.Event{Kind: videoop.Accepted, Channel: reply.Channel, Report: report}
		c.model.announce(header)
	}
	header["Content-Type"] = []string{"application/json"}
	c.hold.Leave() // it is the task's from now on
	c.channel = event.Channel
	step := videoop.Apply(task, event, c.g.videos.clock.Last()).Task
	record := videoop.Record(&step)
	kept := c.answerRecord(header, record)
	durable := c.g.videos.persist(c.ctx, pendingWrite{video.Step{Task: step}, kept})
	switch {
	case err != nil:
		return nil, unknownOutcome(task, err)
	case !durable:
		return nil, unknownOutcome(task, errNotKept)
	}
	return c.respond(Response{Status: c.info.Status, Header: header, Body: record, Dropped: reply.Dropped, task: &step}), nil
}

// unknownOutcome is the error of a submission of which it is not known whether an
// upstream took it.
func unknownOutcome(t *video.Task, err error) error {
	return &fault.Error{
		Code: fault.RequestTimeout, Err: err, Retry: fault.RetryNo, // an SDK that repeats it would make a second job
		Message: fmt.Sprintf("It is not known whether the upstream took the video. It is not asked again: GET /v1/videos/generations/%s tells what becomes of it, and nothing is charged unless it succeeds.", t.ID),
	}
}

// errNotKept is why the caller gets an error for a task that an upstream took.
var errNotKept = errors.New("the store is away; the step is tried again")

// resolveDrafts is the request with the ids of its upstream in the place of the drafts
// that the video continues. Each must be a task of the account.
func (c *call) resolveDrafts(v *videoop.Request) (*videoop.Request, error) {
	drafts := v.DraftTasks()
	ids := make(map[string]string, len(drafts))
	for _, id := range drafts {
		t, err := c.g.videos.find(c.ctx, c.principal.Account, id)
		switch {
		case err != nil:
			return nil, err
		case t.UpstreamID == "":
			return nil, fault.Invalid("content", fmt.Sprintf("The draft %q cannot be continued: no upstream has it, or not yet.", clip(id)))
		case c.only != "" && c.only != t.Channel:
			return nil, fault.Invalid("content", "The drafts were made by different upstreams, which cannot continue each other's.")
		}
		ids[id], c.only = t.UpstreamID, t.Channel
	}
	return v.WithDraftTasks(ids)
}

// holdMargin is how much longer a task's hold lasts than the task can.
const holdMargin = time.Hour

// createTask makes the hold and the task, both or neither.
func (c *call) createTask(v *videoop.Request) (_ *video.Task, err error) {
	defer fault.Recover(&err)
	videos := c.g.videos
	bound, err := v.Bound(c.price)
	if err != nil {
		return nil, err
	}
	now, err := videos.clock.Now(c.ctx)
	if err != nil {
		return nil, outage.Error(err)
	}
	t := v.Task(bound, now)
	t.ID, t.RequestID = c.g.options.NewID("vid_"), c.id
	t.Account, t.Key, t.PriceVersion = c.principal.Account, c.principal.Key, c.price.Version()
	t.Fingerprint = v.Fingerprint(c.principal.Key)
	n := video.CreateTask{
		Task: t, Most: c.principal.Limits.MaxConcurrentVideos,
		Window: max(c.g.options.Video.DuplicateWindow, 0), Retried: c.idempotencyKey != "",
	}
	videos.remember(c.price)
	o := c.order()
	o.Wanted.Until = c.g.options.Now().Add(videoop.End(&t).Sub(now) + holdMargin) // which is by this process's clock
	if videos.transactional {
		o.Wanted.With, o.AtEnd = []billing.Record{n}, []billing.Record{video.Drop{ID: t.ID}}
	} else if err := videos.store.Add(c.ctx, n); err != nil { // its refusals come before that of the balance
		return nil, outage.Error(err)
	}
	if err := c.reserve(o); err != nil {
		videos.drop(c.ctx, t.ID)
		return nil, err
	}
	return &t, nil
}

// drop deletes a task that no upstream took, if the settlement did not do that.
func (v *videos) drop(ctx context.Context, id string) {
	if v.transactional {
		return
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), v.g.options.SettleTimeout)
	defer cancel()
	if err := v.store.Drop(limit, id); err != nil {
		v.g.options.Logger.Error("deleting rejected video task failed", "task", id, "error", err)
	}
}

// persist makes the step of a submission durable. If the store does not answer, it
// returns false, and Run writes the step again.
func (v *videos) persist(ctx context.Context, w pendingWrite) bool {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), v.g.options.SettleTimeout)
	defer cancel()
	t := &w.step.Task
	err := v.write(limit, w)
	if err == nil {
		v.submitted(*t)
		return true
	}
	queued := v.writes.Add(t.Account, w)
	v.g.options.Logger.Error("a step of a video is not durable", "task", t.ID, "upstream_id", t.UpstreamID, "queued", queued, "error", err)
	return false
}

// writeAgain is one more try of [videos.persist]. What the store refuses, rather
// than does not answer, is given up.
func (v *videos) writeAgain(ctx context.Context, w pendingWrite, _ int) error {
	ctx, cancel := context.WithTimeout(ctx, v.g.options.SettleTimeout)
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
	v.g.options.Logger.Error("a step of a video is given up", "task", w.step.Task.ID, "upstream_id", clip(w.step.Task.UpstreamID), "error", err)
	return nil
}

// write writes a step to the store. If another process has given the submission
// up meanwhile, the step is applied on top of that, since a video that an upstream
// took must not be forgotten.
func (v *videos) write(ctx context.Context, w pendingWrite) (err error) {
	defer fault.Recover(&err)
	made, err := v.store.Change(ctx, w.step, w.answer)
	if err != nil || made {
		return err
	}
	want := &w.step.Task
	stored, err := v.store.Find(ctx, want.Account, want.ID)
	if err != nil {
		return err
	}
	if stored == nil || stored.UpstreamID != "" || want.UpstreamID == "" || stored.State.Terminal() {
		v.g.options.Logger.Error("a step of a video came too late", "task", want.ID, "state", string(want.State), "upstream_id", clip(want.UpstreamID))
		return nil
	}
	want.Version = stored.Version + 1
	_, err = v.store.Change(ctx, w.step, w.answer)
	return err
}

// pendingCount is the number of steps that the store has not taken yet.
func (v *videos) pendingCount() int { return v.writes.Len() }

// submitted tells of a task that an upstream took, or may have taken.
func (v *videos) submitted(t video.Task) {
	v.poller.Submitted(&t)
	v.emitTaskMoved(context.Background(), video.Submitting, &t, nil, false)
}

// remember keeps the price of a task, which a reload may replace before the task
// ends.
func (v *videos) remember(p *billing.Price) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.prices[p.Version()] = p
}

// pricer is a Meter that knows the prices by which it has made holds.
type pricer interface {
	// Price is that of a version. It is safe for concurrent use.
	Price(ctx context.Context, version string) (*billing.Price, error)
}

// price is the price by which a task's hold was made.
func (v *videos) price(ctx context.Context, t *video.Task) (*billing.Price, error) {
	v.mu.Lock()
	p, known := v.prices[t.PriceVersion]
	v.mu.Unlock()
	prices, ok := v.g.options.Meter.(pricer)
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
func (v *videos) commit(ctx context.Context, t *video.Task, m videoop.Transition) (*video.Task, error) {
	if m.Late {
		v.g.options.Logger.Warn("a video succeeded after it had expired, and is not charged", "task", t.ID, "account", t.Account)
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
		first, err = v.store.Change(ctx, step, nil)
	} else {
		now := v.clock.Last()
		next.PurgeAt = now.Add(v.g.options.Video.Retention)
		step = video.Step{Task: next, Delivery: videoop.Delivery(&next, v.g.options.NewID("evt_"), now)}
		receipt, first, err = v.settle(ctx, step)
	}
	switch {
	case err != nil:
		return nil, err
	case !first:
		return v.find(ctx, t.Account, t.ID)
	case step.Delivery != nil:
		v.wakeDeliverer()
	}
	if receipt != nil {
		v.reportEnd(&next, receipt)
	}
	v.emitTaskMoved(ctx, t.State, &next, receipt, m.Late)
	return &next, nil
}

// reasons are why the hold of a task ended.
var reasons = map[video.State]string{
	video.Succeeded: billing.ReasonComplete, video.Failed: billing.ReasonUpstreamFailed,
	video.Cancelled: billing.ReasonUpstreamFailed, video.Expired: billing.ReasonExpired,
}

// settle ends the task's hold together with the task. first is false if another
// process had ended it before.
func (v *videos) settle(ctx context.Context, step video.Step) (_ *billing.Receipt, first bool, err error) {
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
	r, err := v.g.options.Meter.Settle(ctx, hold, videoop.BilledUsage(t, p), with...)
	if err != nil {
		return nil, false, err
	}
	if !v.transactional {
		first, err = v.store.Change(ctx, step, nil)
		return &r, first, err
	}
	now, err := v.store.Find(ctx, t.Account, t.ID)
	return &r, err == nil && now != nil && now.State == t.State && now.UpdatedAt.Equal(t.UpdatedAt), err
}

// reportEnd logs the end of a task and calls VideoOptions.Ended.
func (v *videos) reportEnd(t *video.Task, r *billing.Receipt) {
	ended := RequestEvent{
		ID: t.RequestID, Account: t.Account, Key: t.Key, Op: upstream.SubmitVideo, Model: clip(t.Model), Channel: t.Channel,
		Outcome: string(t.State), Receipt: r,
	}
	v.g.options.Logger.LogAttrs(context.Background(), slog.LevelInfo, "video",
		ended.attrs([]slog.Attr{slog.String("task", t.ID)}, r.Charge.String())...)
	if v.g.options.Video.Ended == nil {
		return
	}
	response, err := videoop.Response(t)
	if err != nil && response == nil {
		return
	}
	response.RequestID, response.Charge = t.RequestID, r.Charge
	defer func() {
		if p := recover(); p != nil {
			v.g.options.Logger.Error("VideoOptions.Ended failed", "task", t.ID, "error", fault.FromPanic(p))
		}
	}()
	v.g.options.Video.Ended(response)
}

// find is a task of the account; a 404 if it has none by that id.
func (v *videos) find(ctx context.Context, account, id string) (_ *video.Task, err error) {
	defer fault.Recover(&err)
	t, err := v.store.Find(ctx, account, id)
	switch {
	case err != nil:
		return nil, outage.Error(err)
	case t == nil:
		return nil, videoop.NotFound(id)
	}
	return t, nil
}

// showTimeout is how long a client waits for the poll of a task.
const showTimeout = 5 * time.Second

// show is a task of the account, polled if that was not done for a while. If its
// upstream does not answer, it is the task as it was last seen.
func (v *videos) show(ctx context.Context, account, id string) (*video.Task, error) {
	t, err := v.find(ctx, account, id)
	if err != nil || !v.poller.Due(t) {
		return t, err
	}
	ctx, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	if fresh, err := v.poller.Refresh(ctx, t); err == nil {
		return fresh, nil
	}
	return t, nil
}

// advance brings a task one step on: by its time, or by what its upstream says. One
// whose time is over is polled a last time, so that a success that came too late is
// reported.
func (v *videos) advance(ctx context.Context, t *video.Task) (_ *video.Task, err error) {
	defer fault.Recover(&err)
	now, err := v.clock.Now(ctx)
	if err != nil {
		return nil, outage.Error(err)
	}
	m := videoop.Apply(t, videoop.Event{Kind: videoop.Tick}, now)
	if t.UpstreamID == "" { // there is no upstream to poll
		return v.commit(ctx, t, m)
	}
	report, err := v.askUpstream(ctx, t)
	switch {
	case err == nil:
		m = videoop.Apply(t, videoop.Event{Kind: videoop.Polled, Report: report}, now)
	case !m.Changed:
		return nil, err
	}
	if m.UnknownStatus != "" && m.Changed {
		v.g.options.Logger.Warn("a video's upstream said something unexpected", "task", t.ID, "channel", t.Channel, "word", clip(m.UnknownStatus))
	}
	return v.commit(ctx, t, m)
}

// askUpstream is what the upstream says of the task.
func (v *videos) askUpstream(ctx context.Context, t *video.Task) (r videoop.Report, err error) {
	var data bytes.Buffer
	call := &upstream.Call{
		Op: upstream.PollVideo, Model: t.Model, Channel: t.Channel, TaskID: t.UpstreamID, RequestID: t.RequestID, Account: t.Account,
		Accept: func(ctx context.Context, r *upstream.Reply) (*upstream.Reply, error) {
			data.Reset()
			in := limitedReader{limit: videoop.MaxAnswer}
			return r, in.readAll(ctx, &data, r.Body)
		},
	}
	v.g.observers.watchAttempts(call)
	reply, err := v.g.catalog.Load().router.Do(&via.Context{Context: ctx, Trail: v.g.trail}, call)
	if err != nil {
		return r, err
	}
	_ = reply.Body.Close()
	return videoop.ReadPoll(t, data.Bytes())
}

// waitFor is how long a submission with `wait` is answered at the latest.
const waitFor = time.Minute

// waited replaces the record of a submission with `wait` by the one at the end of
// its task, or by the last one seen when the time is over or the client leaves,
// and keeps the record if too many wait. That is never an error: the video was taken,
// and a client that got an error would submit it again.
func (c *call) waited(ctx context.Context) {
	c.release() // nothing runs here any more
	ctx, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	for t, err := range c.g.videos.watch(ctx, c.response.task.Account, c.response.task.ID) {
		if err != nil {
			return // the record as it stood
		}
		c.response.Body = videoop.Record(t)
	}
}

// The reasons why a caller does not wait for a video, or not any more.
var (
	errShutdown       = errors.New("the gateway is shutting down")
	errTooManyWaiting = &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: 5 * time.Second,
		Message: "Too many requests are waiting for videos. The task continues; poll it later.",
	}
)

// watch yields a task as it is and at each change, until it or ctx has ended. If
// too many callers wait, it yields the task as it is and errTooManyWaiting.
func (v *videos) watch(ctx context.Context, account, id string) iter.Seq2[*video.Task, error] {
	return func(yield func(*video.Task, error) bool) {
		t, err := v.show(ctx, account, id)
		if err != nil {
			yield(nil, err)
			return
		}
		if !yield(t, nil) || t.State.Terminal() {
			return
		}
		most := int64(v.g.options.Video.MaxWaiting)
		if most < 0 {
			most = math.MaxInt64
		}
		if !v.waiting.Take(1, most) {
			yield(nil, errTooManyWaiting)
			return
		}
		defer v.waiting.Give(1)
		for !t.State.Terminal() {
			last := videoop.PublicState(t.State)
			if err = v.waitPoll(ctx); err == nil {
				t, err = v.show(ctx, account, t.ID)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if videoop.PublicState(t.State) != last && !yield(t, nil) {
				return
			}
		}
	}
}

// waitPoll waits between two polls of a caller that watches a task. Its error says
// why there is no further poll.
func (v *videos) waitPoll(ctx context.Context) error {
	select {
	case <-time.After(v.g.options.Video.Poll):
	case <-ctx.Done():
		return fault.From(ctx.Err())
	}
	if v.g.ShuttingDown() {
		return fault.Wrap(fault.ServiceUnavailable, errShuttingDown.Message, errShutdown)
	}
	return nil
}

// run polls the tasks of this process until ctx ends, and writes the steps again
// that the store did not take. What an upstream took must be stored: at the end every
// step is tried once more, before the last polls are waited for, and again after them.
func (v *videos) run(ctx context.Context) {
	var writing sync.WaitGroup
	writing.Go(func() {
		v.writes.Run(ctx)
		v.writes.Drain(ctx, v.g.options.SettleTimeout)
	})
	v.poller.Run(ctx)
	writing.Wait()
	v.writes.Drain(ctx, v.g.options.SettleTimeout)
}

// pollFailed logs that a task could not be polled.
func (v *videos) pollFailed(t *video.Task, err error) {
	v.g.options.Logger.Warn("polling video task failed", "task", t.ID, "channel", t.Channel, "error", redactError(err))
}
