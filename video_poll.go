package gateway

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"math"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/via"
	"github.com/tollhouse-ai/gateway/internal/videoapi"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// find is a task of the account; a 404 if it has none by that id.
func (v *videos) find(ctx context.Context, account, id string) (_ *video.Task, err error) {
	defer fault.Recover(&err)
	t, err := v.store.Find(ctx, account, id)
	switch {
	case err != nil:
		return nil, storeError(err)
	case t == nil:
		return nil, video.ErrNotFound(id)
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
		return nil, storeError(err)
	}
	m := videoapi.Apply(t, videoapi.Event{Kind: videoapi.Tick}, now)
	if t.UpstreamID == "" { // there is no upstream to poll
		return v.commit(ctx, t, m)
	}
	report, err := v.askUpstream(ctx, t)
	switch {
	case err == nil:
		m = videoapi.Apply(t, videoapi.Event{Kind: videoapi.Polled, Report: report}, now)
	case !m.Changed:
		return nil, err
	}
	if m.UnknownStatus != "" && m.Changed {
		v.g.options.Logger.Warn("a video's upstream said something unexpected", "task", t.ID, "channel", t.Channel, "word", clip(m.UnknownStatus))
	}
	return v.commit(ctx, t, m)
}

// askUpstream is what the upstream says of the task.
func (v *videos) askUpstream(ctx context.Context, t *video.Task) (r videoapi.Report, err error) {
	var data bytes.Buffer
	call := &upstream.Call{
		Op: upstream.PollVideo, Model: t.Model, Channel: t.Channel, TaskID: t.UpstreamID, RequestID: t.RequestID, Account: t.Account,
		Accept: func(ctx context.Context, r *upstream.Reply) (*upstream.Reply, error) {
			data.Reset()
			in := limitedReader{limit: videoapi.MaxAnswer}
			return r, in.readAll(ctx, &data, r.Body)
		},
	}
	v.g.observers.watchAttempts(call)
	reply, err := v.g.catalog.Load().router.Do(&via.Context{Context: ctx, Trail: v.g.trail}, call)
	if err != nil {
		return r, err
	}
	_ = reply.Body.Close()
	return videoapi.ReadPoll(t, data.Bytes())
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
		c.response.Body = videoapi.Record(t)
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
			last := t.State.Public()
			if err = v.waitPoll(ctx); err == nil {
				t, err = v.show(ctx, account, t.ID)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if t.State.Public() != last && !yield(t, nil) {
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
