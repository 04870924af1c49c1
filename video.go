package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/internal/quota"
	"github.com/tollhouse-ai/gateway/internal/videoapi"
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

// videos keeps tasks from their submission to their end.
type videos struct {
	g             *Gateway
	store         video.Store
	transactional bool   // the meter is the store: tasks change with the money
	owner         string // of this process's leases
	clock         *taskClock

	mu             sync.Mutex
	polled         map[string]time.Time      // when this process last polled a task
	polling        map[string]*pollResult    // polls that run now, by task
	watched        atomic.Int64              // tasks that Run polls
	prices         map[string]*billing.Price // by version, of submissions by this process
	retrying       int                       // steps that Run writes again now
	pending        []pendingWrite            // steps that the store did not take yet
	submittedTasks []*video.Task             // submitted by this process and not yet known to Run
	waiting        quota.Count               // callers who wait for a task's end
	wake           chan struct{}             // a task or a step is new
	wakeDeliverer  func()                    // a webhook delivery may be new
}

// pollResult is one poll of an upstream, for which several callers may wait.
type pollResult struct {
	done chan struct{}
	task *video.Task
	err  error
}

// pendingWrite is a step of a task that the store has not taken yet.
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

// newDeliverer makes the deliverer of the webhooks that the store of tasks has, nil
// if it has none.
func newDeliverer(g *Gateway) *deliverer.Deliverer {
	outbox, ok := g.options.Tasks.(webhook.Outbox)
	if !ok {
		return nil
	}
	client := deliverer.NewClient(deliverer.Options{AllowPrivate: g.options.Video.AllowPrivate, Now: g.options.Now})
	d := deliverer.NewDeliverer(deliverer.DelivererOptions{
		Outbox: outbox, Post: client.Post, Owner: g.videos.owner, Logger: g.options.Logger,
		Now: g.options.Now, Clock: g.videos.clock.read, Attempted: g.emitNoticeTried,
	})
	g.videos.wakeDeliverer = d.Wake
	return d
}

// submission is a request for a video on its way to an upstream.
type submission struct {
	*videoapi.Request
	price *billing.Price // of the model; nil if it has none
}

// submit submits a video. The task and its hold are durable before an upstream is
// asked, and stay until the task ends. A client that disconnects does not stop it.
func (c *call) submit(v *submission) (*Response, error) {
	if err := c.resolveDrafts(v); err != nil {
		return nil, err
	}
	task, err := c.createTask(v)
	if err != nil {
		return nil, err
	}
	c.with = []billing.Record{video.Drop{ID: task.ID}} // whatever ends the hold here, but an upstream that took it
	body, view := c.op.prepare(c.op, c.hold, 0)
	reply, err := c.send(body, view)
	switch {
	case err == nil:
		c.channel = reply.Channel
		return c.acceptTask(v, task, reply)
	case refused(err):
		return nil, c.reject(task, err)
	}
	return nil, c.markUnknown(task, err)
}

// resolveDrafts replaces the drafts that the video continues by their upstream's
// ids. Each must be a task of the account.
func (c *call) resolveDrafts(v *submission) error {
	drafts := v.DraftTasks()
	if len(drafts) == 0 {
		return nil
	}
	ids := make(map[string]string, len(drafts))
	for _, id := range drafts {
		t, err := c.x.g.videos.find(c.ctx, c.x.principal.Account, id)
		if err != nil {
			return err
		}
		switch {
		case t.UpstreamID == "":
			return fault.Invalid("content", fmt.Sprintf("The draft %q cannot be continued: no upstream has it, or not yet.", clip(id)))
		case c.only != "" && c.only != t.Channel:
			return fault.Invalid("content", "The drafts were made by different upstreams, which cannot continue each other's.")
		}
		ids[id], c.only = t.UpstreamID, t.Channel
	}
	r, err := v.WithDraftTasks(ids)
	if err == nil {
		v.Request = r
	}
	return err
}

// errNotKept is why the caller gets an error for a task that an upstream took.
var errNotKept = errors.New("the store is away; the step is tried again")

// holdMargin is how much longer a task's hold lasts than the task can.
const holdMargin = time.Hour

// createTask makes the hold and the task, both or neither.
func (c *call) createTask(v *submission) (_ *video.Task, err error) {
	defer guard(&err)
	x := c.x
	bound, err := v.Bound(v.price)
	if err != nil {
		return nil, err
	}
	now, err := x.g.videos.clock.now(c.ctx)
	if err != nil {
		return nil, storeError(err)
	}
	t := v.Task(bound, now)
	t.ID, t.RequestID = x.g.options.NewID("vid_"), x.id
	t.Account, t.Key, t.PriceVersion = x.principal.Account, x.principal.Key, v.price.Version()
	t.Fingerprint = v.Fingerprint(x.principal.Key)
	n := video.CreateTask{
		Task: t, Most: x.principal.Limits.MaxConcurrentVideos,
		Window: max(x.g.options.Video.DuplicateWindow, 0), Retried: x.idempotencyKey != "",
	}
	x.g.videos.remember(v.price)
	charge := c.holdRequest()
	charge.Until = x.g.options.Now().Add(videoapi.End(&t).Sub(now) + holdMargin) // which is by this process's clock
	if x.g.videos.transactional {
		charge.With = []billing.Record{n}
	}
	if !x.g.videos.transactional { // its refusals come before that of the balance
		if err := x.g.videos.store.Add(c.ctx, n); err != nil {
			return nil, storeError(err)
		}
	}
	if err := c.reserve(charge); err != nil {
		if !x.g.videos.transactional {
			x.g.videos.drop(c.ctx, t.ID)
		}
		return nil, err
	}
	return &t, nil
}

// refused reports whether it is certain that no upstream has taken the video.
func refused(err error) bool {
	f := fault.From(err)
	var how *upstream.Failure
	if !errors.As(err, &how) {
		status := f.HTTPStatus()
		return f.Code == fault.NoChannel || status >= 400 && status < 499
	}
	certain := !how.Sent || how.Refused || how.Fatal
	switch how.Status {
	case http.StatusRequestTimeout, http.StatusFailedDependency, 499: // something behind the vendor's first server may go on
		return certain
	}
	return certain || how.Status >= 400 && how.Status < 500
}

// reject ends a submission that no upstream took: hold and task are removed.
func (c *call) reject(t *video.Task, err error) error {
	failed := c.refuse(err)
	if !c.x.g.videos.transactional {
		c.x.g.videos.drop(c.ctx, t.ID)
	}
	return failed
}

// markUnknown keeps the task and the hold of a submission that an upstream may
// have taken. It is not repeated, since that could make a second video; the task
// ends when its time is over.
func (c *call) markUnknown(t *video.Task, err error) error {
	c.held = false // the hold is the task's
	if n := len(c.x.record.attempts); n > 0 {
		c.channel = c.x.record.attempts[n-1].Channel
	}
	step := videoapi.MarkUnknown(t, c.channel, c.x.g.videos.clock.last())
	answer := c.x.answerRecord(http.Header{"Content-Type": {"application/json"}}, videoapi.Record(&step))
	c.x.claimed = nil // a duplicate must not make a second job: its answer names the task
	c.x.g.videos.persist(c.ctx, video.Step{Task: step}, answer)
	return unknownOutcome(t, err)
}

// unknownOutcome is the error of a submission of which it is not known whether an
// upstream took it.
func unknownOutcome(t *video.Task, err error) error {
	return &fault.Error{
		Code: fault.RequestTimeout, Err: err, Retry: fault.RetryNo, // an SDK that repeats it would make a second job
		Message: fmt.Sprintf("It is not known whether the upstream took the video. It is not asked again: GET /v1/videos/generations/%s tells what becomes of it, and nothing is charged unless it succeeds.", t.ID),
	}
}

// acceptTask records that an upstream took the video, and answers with the task.
// From now on the hold is the task's.
func (c *call) acceptTask(v *submission, t *video.Task, reply *upstream.Reply) (*Response, error) {
	c.held = false
	step := videoapi.Accept(t, reply.Accepted.(*answer).report, reply.Channel, c.x.g.videos.clock.last())
	header := resultHeader(reply, 0)
	c.model.announce(header)
	header["Content-Type"] = []string{"application/json"}
	body := videoapi.Record(&step)
	answer := c.x.answerRecord(header, body)
	c.x.claimed = nil // what is kept ends the claim, now or when the store is back
	if !c.x.g.videos.persist(c.ctx, video.Step{Task: step}, answer) {
		return nil, unknownOutcome(t, errNotKept)
	}
	return c.x.respond(Response{Status: c.op.status, Header: header, Body: body, Dropped: reply.Dropped, task: &step}), nil
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
	book, ok := v.g.options.Meter.(pricer)
	switch {
	case known || t.PriceVersion == "":
		return p, nil
	case ok:
		return book.Price(ctx, t.PriceVersion)
	}
	return nil, fmt.Errorf("the price %s is not known any more", t.PriceVersion)
}

// commit makes a transition durable: the end of a task together with its
// settlement and its webhook. If another process was faster, its result counts.
func (v *videos) commit(ctx context.Context, t *video.Task, m videoapi.Transition) (*video.Task, error) {
	if m.Late {
		v.g.options.Logger.Warn("a video succeeded after it had expired, and is not charged", "task", t.ID, "account", t.Account)
	}
	next := m.Task
	switch {
	case !m.Changed:
		return &next, nil
	case !next.State.Terminal():
		made, err := v.store.Change(ctx, video.Step{Task: next}, nil)
		if err != nil {
			return nil, err
		}
		if !made {
			return v.find(ctx, t.Account, t.ID)
		}
		v.emitTaskMoved(ctx, t.State, &next, nil, m.Late)
		return &next, nil
	}
	now := v.clock.last()
	next.PurgeAt = now.Add(v.g.options.Video.Retention)
	step := video.Step{Task: next, Delivery: videoapi.Delivery(&next, v.g.options.NewID("evt_"), now)}
	receipt, first, err := v.settle(ctx, step)
	if err != nil {
		return nil, err
	}
	if !first {
		return v.find(ctx, t.Account, t.ID)
	}
	if step.Delivery != nil {
		v.wakeDeliverer()
	}
	v.reportEnd(&next, receipt)
	v.emitTaskMoved(ctx, t.State, &next, &receipt, m.Late)
	return &next, nil
}

// reasons are why the hold of a task ended.
var reasons = map[video.State]string{
	video.Succeeded: billing.ReasonComplete, video.Failed: billing.ReasonUpstreamFailed,
	video.Cancelled: billing.ReasonUpstreamFailed, video.Expired: billing.ReasonExpired,
}

// settle ends the task's hold together with the task. first is false if another
// process had ended it before.
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
	r, err = v.g.options.Meter.Settle(ctx, hold, videoapi.BilledUsage(t, p), with...)
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

// reportEnd logs the end of a task and calls VideoOptions.Ended.
func (v *videos) reportEnd(t *video.Task, r billing.Receipt) {
	ended := RequestEvent{
		ID: t.RequestID, Account: t.Account, Key: t.Key, Op: upstream.SubmitVideo, Model: clip(t.Model), Channel: t.Channel,
		Outcome: string(t.State), Receipt: &r,
	}
	v.g.options.Logger.LogAttrs(context.Background(), slog.LevelInfo, "video",
		ended.attrs([]slog.Attr{slog.String("task", t.ID)}, r.Charge.String())...)
	if v.g.options.Video.Ended == nil {
		return
	}
	response, err := videoapi.Response(t)
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

// persist makes a step durable. If the store does not answer, it returns false and
// the poller retries the step.
func (v *videos) persist(ctx context.Context, step video.Step, answer *idempotency.Record) bool {
	limit := newSettleContext(ctx, v.g.options.SettleTimeout)
	defer limit.end()
	_, err := v.change(limit, pendingWrite{step, answer})
	if err == nil {
		v.submitted(step.Task)
		return true
	}
	v.mu.Lock()
	v.pending = append(v.pending, pendingWrite{step, answer})
	v.mu.Unlock()
	v.g.options.Logger.Error("a step of a video is not durable", "task", step.Task.ID, "upstream_id", step.Task.UpstreamID, "error", err)
	v.wakePoller()
	return false
}

// change writes a step to the store. If another process has given the submission
// up meanwhile, the step is applied on top of that, since a video that an upstream
// took must not be forgotten.
func (v *videos) change(ctx context.Context, k pendingWrite) (_ bool, err error) {
	defer guard(&err)
	made, err := v.store.Change(ctx, k.step, k.answer)
	if err != nil || made {
		return made, err
	}
	want := &k.step.Task
	stored, err := v.store.Find(ctx, want.Account, want.ID)
	if err != nil {
		return false, err
	}
	if stored == nil || stored.UpstreamID != "" || want.UpstreamID == "" || stored.State.Terminal() {
		v.g.options.Logger.Error("a step of a video came too late", "task", want.ID, "state", string(want.State), "upstream_id", clip(want.UpstreamID))
		return false, nil
	}
	want.Version = stored.Version + 1
	return v.store.Change(ctx, k.step, k.answer)
}

// pendingCount is the number of steps that the store has not taken yet.
func (v *videos) pendingCount() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.pending) + v.retrying
}

// retryPending writes the steps again that the store did not take.
func (v *videos) retryPending(ctx context.Context) {
	v.mu.Lock()
	pending := v.pending
	v.pending, v.retrying = nil, len(pending)
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
			v.pending, v.retrying = append(pending[i:len(pending):len(pending)], v.pending...), 0
			v.mu.Unlock()
			return
		}
		v.mu.Lock()
		v.retrying--
		v.mu.Unlock()
	}
}

// submitted hands a task to the poller, if it runs.
func (v *videos) submitted(t video.Task) {
	const most = 10_000 // what Run, if it runs, finds in the store
	v.mu.Lock()
	if len(v.submittedTasks) < most {
		v.submittedTasks = append(v.submittedTasks, &t)
	}
	v.mu.Unlock()
	v.emitTaskMoved(context.Background(), video.Submitting, &t, nil, false)
	v.wakePoller()
}

// drop deletes a task that no upstream took, if the settlement did not do that.
func (v *videos) drop(ctx context.Context, id string) {
	limit := newSettleContext(ctx, v.g.options.SettleTimeout)
	defer limit.end()
	if err := v.store.Drop(limit, id); err != nil {
		v.g.options.Logger.Error("deleting rejected video task failed", "task", id, "error", err)
	}
}

// wakePoller has the poller look for new tasks and steps.
func (v *videos) wakePoller() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}
