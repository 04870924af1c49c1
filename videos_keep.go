package gateway

import (
	"context"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/video"
)

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

// change has the store take a step. Where another node has given the submission
// up meanwhile, the step goes on from there: an upstream that took a video is not
// to be forgotten.
func (v *videos) change(ctx context.Context, k keeping) (_ bool, err error) {
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

// owing is the number of steps that the store has not taken yet.
func (v *videos) owing() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.pending) + v.trying
}

// keepAgain tries the steps again that the store did not take.
func (v *videos) keepAgain(ctx context.Context) {
	v.mu.Lock()
	pending := v.pending
	v.pending, v.trying = nil, len(pending)
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
			v.pending, v.trying = append(pending[i:len(pending):len(pending)], v.pending...), 0
			v.mu.Unlock()
			return
		}
		v.mu.Lock()
		v.trying--
		v.mu.Unlock()
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
	v.moved(context.Background(), video.Submitting, &t, nil, false)
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
