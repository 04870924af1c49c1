package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// submit hands a video in: the task and its hold are durable before an upstream
// is asked, and stay until the task ends. Who leaves does not stop it.
func (c *call) submit(v *videoOperation) (*Result, error) {
	if err := c.resolveDrafts(v); err != nil {
		return nil, err
	}
	task, err := c.createTask(v)
	if err != nil {
		return nil, err
	}
	c.with = []billing.Record{video.Drop{ID: task.ID}} // whatever ends the hold here, but an upstream that took it
	body, view, _ := v.request(c.model, c.hold)
	reply, err := c.ask(body, view)
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
// ids. Each must be the account's own.
func (c *call) resolveDrafts(v *videoOperation) error {
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

// errNotKept is why a caller is not told of a task that an upstream took.
var errNotKept = errors.New("the store is away; the step is tried again")

// holdMargin is how much longer a task's hold lasts than the task can.
const holdMargin = time.Hour

// createTask makes the hold and the task, both or neither.
func (c *call) createTask(v *videoOperation) (_ *video.Task, err error) {
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
	t.ID, t.RequestID = x.g.options.NewID("vid_"), x.ID
	t.Account, t.Key, t.PriceVersion = x.principal.Account, x.principal.Key, v.price.Version()
	t.Fingerprint = v.Fingerprint(x.principal.Key)
	n := video.CreateTask{
		Task: t, Most: x.principal.Limits.MaxConcurrentVideos,
		Window: max(x.g.options.Video.DuplicateWindow, 0), Retried: x.IdempotencyKey != "",
	}
	x.g.videos.remember(v.price)
	charge := c.charge()
	charge.Until = x.g.options.Now().Add(t.End().Sub(now) + holdMargin) // which is by this process's clock
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

// refused reports whether certainly no upstream has taken the video.
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

// reject ends a submission that no upstream took: it leaves nothing behind.
func (c *call) reject(t *video.Task, err error) error {
	failed := c.refuse(err)
	if !c.x.g.videos.transactional {
		c.x.g.videos.drop(c.ctx, t.ID)
	}
	return failed
}

// markUnknown keeps the task and the hold of a submission that an upstream may have
// taken. It is not repeated, and ends by itself (faults.md, row 11).
func (c *call) markUnknown(t *video.Task, err error) error {
	c.held = false // the hold is the task's
	if n := len(c.x.record.attempts); n > 0 {
		c.channel = c.x.record.attempts[n-1].Channel
	}
	step := t.MarkUnknown(c.channel, c.x.g.videos.clock.last())
	answer := c.x.answerRecord(http.Header{"Content-Type": {"application/json"}}, step.Record())
	c.x.claimed = nil // a duplicate must not make a second job: it is told of the task
	c.x.g.videos.persist(c.ctx, video.Step{Task: step}, answer)
	return unknownOutcome(t, err)
}

// unknownOutcome is the answer to a submission of which it is not known what became.
func unknownOutcome(t *video.Task, err error) error {
	return &fault.Error{
		Code: fault.RequestTimeout, Err: err, Retry: fault.RetryNo, // an SDK that repeats it would make a second job
		Message: fmt.Sprintf("It is not known whether the upstream took the video. It is not asked again: GET /v1/videos/generations/%s tells what becomes of it, and nothing is charged unless it succeeds.", t.ID),
	}
}

// acceptTask tells the caller of the task. The hold is the task's from now on.
func (c *call) acceptTask(v *videoOperation, t *video.Task, reply *upstream.Reply) (*Result, error) {
	c.held = false
	step := t.Accept(v.report, reply.Channel, c.x.g.videos.clock.last())
	header := resultHeader(reply, 0)
	c.model.announce(header)
	header["Content-Type"] = []string{"application/json"}
	body := step.Record()
	answer := c.x.answerRecord(header, body)
	c.x.claimed = nil // what is kept ends the claim, now or when the store is back
	if !c.x.g.videos.persist(c.ctx, video.Step{Task: step}, answer) {
		return nil, unknownOutcome(t, errNotKept)
	}
	c.release()
	return &Result{Status: v.status(), Header: header, Body: body, Dropped: reply.Dropped, task: &step}, nil
}
