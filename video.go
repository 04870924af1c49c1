package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/deliver"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/internal/via"
	"github.com/tollhouse-ai/gateway/internal/videotask"
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

// newTasks makes what keeps the tasks of videos.
func newTasks(g *Gateway, owner string) *videotask.Tasks {
	o := &g.options
	return videotask.New(videotask.Options{
		Store: o.Tasks, Meter: o.Meter, Money: g.money, Owner: owner, Poll: o.Video.Poll, Retention: o.Video.Retention,
		Window: max(o.Video.DuplicateWindow, 0), Timeout: o.SettleTimeout, Now: o.Now, NewID: o.NewID, Logger: o.Logger, Moved: g.taskMoved,
	})
}

// newDeliverer makes the deliverer of the webhooks that the store of tasks has, nil
// if it has none.
func newDeliverer(g *Gateway, owner string) *deliverer.Deliverer {
	outbox, ok := g.options.Tasks.(webhook.Outbox)
	if !ok {
		return nil
	}
	client := deliverer.NewClient(deliverer.Options{AllowPrivate: g.options.Video.AllowPrivate, Now: g.options.Now})
	return deliverer.NewDeliverer(deliverer.DelivererOptions{
		Outbox: outbox, Post: client.Post, Owner: owner, Logger: g.options.Logger,
		Now: g.options.Now, Attempted: g.emitDeliveryTried, Clock: g.tasks.Time,
	})
}

// submit submits a video. The task and its hold are durable before an upstream is
// asked, and stay until the task ends. A client that disconnects does not stop it.
// A submission that an upstream may have taken is not repeated, since that could
// make a second video: the task ends when its time is over.
func (e *Entry) submit(v *videoop.Request) error {
	v, err := e.resolveDrafts(v)
	if err != nil {
		return err
	}
	task, err := e.createTask(v)
	if err != nil {
		return err
	}
	report, reply, err := sendOne(e, v.Outgoing(0), e.readSubmission)
	if err != nil && videoop.NotTaken(err) {
		err = e.fail(err)
		e.g.tasks.Drop(e.ctx, task.ID)
		return err
	}
	header, event := http.Header{}, videoop.Event{Kind: videoop.Lost, Channel: e.lastChannel()}
	if err == nil {
		header, event = e.answered(reply, 0, nil), videoop.Event{Kind: videoop.Accepted, Channel: reply.Channel, Report: report}
	}
	header["Content-Type"] = []string{"application/json"}
	e.hold.Leave() // it is the task's from now on
	task = e.g.tasks.Sent(task, event)
	record := videoop.Record(task)
	durable := e.g.tasks.Keep(e.ctx, task, e.answerRecord(header, record))
	switch {
	case err != nil:
		return unknownOutcome(task, err)
	case !durable:
		return unknownOutcome(task, errNotKept)
	}
	e.respond(Response{Status: e.info.Status, Header: header, Body: record, Dropped: reply.Dropped, task: task})
	return nil
}

// readSubmission reads what an upstream says of a video that it was sent.
func (e *Entry) readSubmission(ctx context.Context, r *upstream.Reply) (videoop.Report, error) {
	return readBody(ctx, e, r, e.g.options.MaxAnswer, func(data []byte) (videoop.Report, *[]byte, error) {
		report, err := videoop.ReadSubmission(data)
		return report, nil, err
	})
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
func (e *Entry) resolveDrafts(v *videoop.Request) (*videoop.Request, error) {
	drafts := v.DraftTasks()
	ids := make(map[string]string, len(drafts))
	for _, id := range drafts {
		t, err := e.g.tasks.Find(e.ctx, e.principal.Account, id)
		switch {
		case err != nil:
			return nil, err
		case t.UpstreamID == "":
			return nil, fault.Invalid("content", fmt.Sprintf("The draft %q cannot be continued: no upstream has it, or not yet.", clip(id)))
		case e.only != "" && e.only != t.Channel:
			return nil, fault.Invalid("content", "The drafts were made by different upstreams, which cannot continue each other's.")
		}
		ids[id], e.only = t.UpstreamID, t.Channel
	}
	return v.WithDraftTasks(ids)
}

// createTask makes the hold and the task, both or neither.
func (e *Entry) createTask(v *videoop.Request) (*video.Task, error) {
	if e.observed {
		defer e.spent(&e.record.phases.Hold, e.g.options.Now())
	}
	s := videotask.Submission{Request: v, Price: e.price, Most: e.principal.Limits.MaxConcurrentVideos, Retried: e.idempotencyKey != ""}
	return e.g.tasks.Create(e.ctx, s, e.order(), &e.hold)
}

// taskMoved reports a task's step, and has its webhook delivered.
func (g *Gateway) taskMoved(ctx context.Context, m videotask.Moved) {
	if m.Webhook && g.deliverer != nil {
		g.deliverer.Wake()
	}
	if m.Receipt != nil {
		g.reportEnd(m.Task, m.Receipt)
	}
	t := m.Task
	g.observers.emit(ctx, TaskMoved{
		Task: t.ID, RequestID: t.RequestID, Account: t.Account, Key: t.Key, Model: t.Model, Channel: t.Channel, Listed: g.catalog.Load().lists(t.Model),
		From: m.From, To: t.State, At: t.UpdatedAt, Age: t.UpdatedAt.Sub(t.CreatedAt), Receipt: m.Receipt, Late: m.Late,
	})
}

// reportEnd logs the end of a task and calls VideoOptions.Ended.
func (g *Gateway) reportEnd(t *video.Task, r *billing.Receipt) {
	ended := RequestEvent{
		ID: t.RequestID, Account: t.Account, Key: t.Key, Op: upstream.SubmitVideo, Model: clip(t.Model), Channel: t.Channel,
		Outcome: string(t.State), Receipt: r,
	}
	g.options.Logger.LogAttrs(context.Background(), slog.LevelInfo, "video",
		ended.attrs([]slog.Attr{slog.String("task", t.ID)}, r.Charge.String())...)
	if g.options.Video.Ended == nil {
		return
	}
	response, err := videoop.Response(t)
	if err != nil && response == nil {
		return
	}
	response.RequestID, response.Charge = t.RequestID, r.Charge
	defer func() {
		if p := recover(); p != nil {
			g.options.Logger.Error("VideoOptions.Ended failed", "task", t.ID, "error", fault.FromPanic(p))
		}
	}()
	g.options.Video.Ended(response)
}

// showTimeout is how long a client waits for the poll of a task.
const showTimeout = 5 * time.Second

// showVideo is a task of the account, polled if that was not done for a while. If its
// upstream does not answer, it is the task as it was last seen.
func (g *Gateway) showVideo(ctx context.Context, account, id string) (*video.Task, error) {
	t, err := g.tasks.Find(ctx, account, id)
	if err != nil {
		return nil, err
	}
	p, own := g.tasks.Refresh(t)
	if p == nil {
		return t, nil
	}
	if own {
		lasting := context.WithoutCancel(ctx)       // the poll goes on if the client disconnects
		go func() { _ = g.pollVideo(lasting, p) }() // p.Wait returns the error
	}
	limited, cancel := context.WithTimeout(ctx, showTimeout)
	defer cancel()
	if fresh, err := p.Wait(limited); err == nil {
		return fresh, nil
	}
	return t, nil
}

// pollVideos polls the tasks of this process until ctx ends.
func (g *Gateway) pollVideos(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for p := range g.tasks.Due(ctx) {
		running.Go(func() {
			if err := g.pollVideo(context.WithoutCancel(ctx), p); err != nil && ctx.Err() == nil {
				g.options.Logger.Warn("polling video task failed", "task", p.Task.ID, "channel", p.Task.Channel, "error", redactError(err))
			}
		})
	}
}

// pollVideo makes a poll.
func (g *Gateway) pollVideo(ctx context.Context, p *videotask.Poll) (err error) {
	ctx, cancel := context.WithTimeout(ctx, videotask.Timeout)
	defer cancel()
	var answer []byte
	if p.Begin(ctx) {
		answer, err = g.askVideo(ctx, p.Task)
	}
	return p.End(ctx, answer, err)
}

// askVideo is what the upstream says of the task.
func (g *Gateway) askVideo(ctx context.Context, t *video.Task) ([]byte, error) {
	sent := upstream.Call{
		Op: upstream.PollVideo, Model: t.Model, Channel: t.Channel, TaskID: t.UpstreamID, RequestID: t.RequestID, Account: t.Account,
	}
	routes := g.catalog.Load().router.Routes(sent.Op, sent.Model)
	data, _, err := ask(&via.Context{Context: ctx, Trail: g.trail}, &g.observers, routes, &sent, readPoll)
	return data, err
}

// readPoll reads an answer about a task, and closes it.
func readPoll(ctx context.Context, r *upstream.Reply) (_ []byte, err error) {
	defer fault.Recover(&err)
	var data bytes.Buffer
	in := limitedReader{limit: videoop.MaxAnswer}
	err = in.readAll(ctx, &data, r.Body)
	return data.Bytes(), err
}

// waitFor is how long a submission with `wait` is answered at the latest.
const waitFor = time.Minute

// waited replaces the record of a submission with `wait` by the one at the end of
// its task, or by the last one seen when the time is over or the client leaves,
// and keeps the record if too many wait. That is never an error: the video was taken,
// and a client that got an error would submit it again.
func (e *Entry) waited(ctx context.Context) {
	e.release() // nothing runs here any more
	ctx, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	for t, err := range e.g.watchVideo(ctx, e.response.task.Account, e.response.task.ID) {
		if err != nil {
			return // the record as it stood
		}
		e.response.Body = videoop.Record(t)
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

// watchVideo yields a task as it is and at each change, until it or ctx has ended. If
// too many callers wait, it yields the task as it is and errTooManyWaiting.
func (g *Gateway) watchVideo(ctx context.Context, account, id string) iter.Seq2[*video.Task, error] {
	return func(yield func(*video.Task, error) bool) {
		t, err := g.showVideo(ctx, account, id)
		if err != nil {
			yield(nil, err)
			return
		}
		if !yield(t, nil) || t.State.Terminal() {
			return
		}
		most := int64(g.options.Video.MaxWaiting)
		if most < 0 {
			most = math.MaxInt64
		}
		if !g.waiting.Take(1, most) {
			yield(nil, errTooManyWaiting)
			return
		}
		defer g.waiting.Give(1)
		for !t.State.Terminal() {
			last := videoop.PublicState(t.State)
			if err = g.waitPoll(ctx); err == nil {
				t, err = g.showVideo(ctx, account, t.ID)
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
func (g *Gateway) waitPoll(ctx context.Context) error {
	select {
	case <-time.After(g.options.Video.Poll):
	case <-ctx.Done():
		return fault.From(ctx.Err())
	}
	if g.ShuttingDown() {
		return fault.Wrap(fault.ServiceUnavailable, deliver.ErrShutdown.Message, errShutdown)
	}
	return nil
}
