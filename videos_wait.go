package gateway

import (
	"context"
	"errors"
	"iter"
	"math"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/video"
)

// waitFor is how long a submission with `wait` is answered at the latest.
const waitFor = time.Minute

// waited is the record of a task that its submission waits for: as it stands
// when the video is there, the time is over or the caller leaves, and at once
// where too many wait. It is never an error: the video was taken, and a caller
// who was refused now would hand it in again.
func (x *Exchange) waited(ctx context.Context, r *Result) {
	x.Leave() // nothing runs here any more
	ctx, cancel := context.WithTimeout(ctx, waitFor)
	defer cancel()
	for t, err := range x.g.videos.watch(ctx, r.task.Account, r.task.ID) {
		if err != nil {
			return // the record as it stood
		}
		r.Body = t.Record()
	}
}

// The reasons why nobody waits for a video any more, or another one does not.
var (
	errShutdown       = errors.New("the gateway is shutting down")
	errTooManyWaiting = &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: 5 * time.Second,
		Message: "As many callers wait for videos as the gateway allows. The video goes on: ask after it later.",
	}
)

// watch yields a task as it is and at each change, until it has ended or ctx
// does. Who finds no room among those who wait gets the task as it is and
// errCrowded.
func (v *videos) watch(ctx context.Context, account, id string) iter.Seq2[*video.Task, error] {
	return func(yield func(*video.Task, error) bool) {
		t, err := v.show(ctx, account, id)
		switch {
		case err != nil:
			yield(nil, err)
			return
		case !yield(t, nil), t.State.Terminal():
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
		v.follow(ctx, t, yield)
	}
}

// follow yields an open task at each change.
func (v *videos) follow(ctx context.Context, t *video.Task, yield func(*video.Task, error) bool) {
	for last := t.State.Public(); ; last = t.State.Public() {
		if err := v.waitPoll(ctx); err != nil {
			yield(nil, err)
			return
		}
		var err error
		t, err = v.show(ctx, t.Account, t.ID)
		switch {
		case err != nil:
			yield(nil, err)
			return
		case t.State.Public() != last && !yield(t, nil), t.State.Terminal():
			return
		}
	}
}

// waitPoll is the time between two looks of one who waits. The error is why there
// is no further look.
func (v *videos) waitPoll(ctx context.Context) error {
	timer := time.NewTimer(v.g.options.Video.Poll)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return fault.From(ctx.Err())
	}
	if v.g.Draining() {
		return fault.Wrap(fault.ServiceUnavailable, errShuttingDown.Message, errShutdown)
	}
	return nil
}
