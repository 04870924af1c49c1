package gateway

import (
	"context"
	"log/slog"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// commit makes a move durable: the end of a task with its settlement and its
// notice. Whoever was faster is right.
func (v *videos) commit(ctx context.Context, t *video.Task, m video.Transition) (*video.Task, error) {
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
	step := video.Step{Task: next, Notice: next.NoticeOf(v.g.options.NewID("evt_"), now)}
	receipt, first, err := v.settle(ctx, step)
	if err != nil {
		return nil, err
	}
	if !first {
		return v.find(ctx, t.Account, t.ID)
	}
	if step.Notice != nil {
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

// reportEnd gives the end of a task to the program that embeds the gateway.
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
