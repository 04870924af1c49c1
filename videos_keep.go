package gateway

import (
	"context"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/video"
)

// persist makes a step durable. If the store is away it is tried again by Run, and
// false is returned.
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

// change has the store take a step. Where another node has given the submission
// up meanwhile, the step goes on from there: an upstream that took a video is not
// to be forgotten.
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

// retryPending tries the steps again that the store did not take.
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

// submitted has Run look after a task, if it runs.
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

// drop forgets a task that no upstream took, where the settlement did not.
func (v *videos) drop(ctx context.Context, id string) {
	limit := newSettleContext(ctx, v.g.options.SettleTimeout)
	defer limit.end()
	if err := v.store.Drop(limit, id); err != nil {
		v.g.options.Logger.Error("a refused video was not forgotten", "task", id, "error", err)
	}
}

// wakePoller has Run look at what is new.
func (v *videos) wakePoller() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}
