package gateway

import (
	"context"
	"iter"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/video"
)

// SubmitVideo hands a video in, with the same checks, limits and holds as over
// HTTP, and returns the record of its task, which goes on by itself: see
// [Gateway.Video] and [Gateway.WaitVideo]. Its price is held until it ends, and
// charged if it succeeds. Wait in req answers with the record as it is a minute
// later at the latest, or at once where as many wait as may. The caller is the
// principal in ctx, as for [Gateway.Chat]. Every error is a *fault.Error; a fault.RequestTimeout names
// the task of which it is not known whether an upstream took it.
func (g *Gateway) SubmitVideo(ctx context.Context, req *video.Request) (*video.Response, error) {
	return answered(ctx, g, "video record", func() (operation, error) {
		parsed, err := video.Encode(req)
		return &videoOperation{Request: parsed, g: g}, err
	}, func(o outcome) *video.Response { // it costs nothing until it has ended
		return &video.Response{Raw: o.body, RequestID: o.id, Dropped: o.dropped}
	})
}

// Video is the record of a task of the caller's account, by the id that its
// submission gave. It asks the upstream how the task goes, unless that was done
// a moment ago. A task of another account, or one that was purged, is a
// fault.ResourceNotFound.
func (g *Gateway) Video(ctx context.Context, id string) (*video.Response, error) {
	p, err := g.principal(ctx)
	if err != nil {
		return nil, err
	}
	t, err := g.videos.show(ctx, p.Account, id)
	if err != nil {
		return nil, err
	}
	return g.videos.response(ctx, t)
}

// WaitVideo yields the record of a task as it is, and again at each change of
// its status, until it has ended. Where that is not seen, the error comes last:
// ctx ended, the gateway shuts down, or as many wait as may
// ([VideoOptions.MaxWaiting]; a fault.ServiceUnavailable after the record as it
// is). Breaking out of the loop stops nothing but the waiting.
func (g *Gateway) WaitVideo(ctx context.Context, id string) iter.Seq2[*video.Response, error] {
	return func(yield func(*video.Response, error) bool) {
		p, err := g.principal(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for t, err := range g.videos.watch(ctx, p.Account, id) {
			if err != nil {
				yield(nil, err)
				return
			}
			r, err := g.videos.response(ctx, t)
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// response is the typed record, with what it cost once that is known.
func (v *videos) response(ctx context.Context, t *video.Task) (*video.Response, error) {
	r, err := t.Response()
	if err != nil {
		return r, fault.Wrap(fault.BadGateway, "The upstream's answer is not of the video form. Raw has it.", err)
	}
	r.RequestID = t.RequestID
	if books, ok := v.g.options.Meter.(billing.Reports); ok && t.State.Terminal() {
		if receipt, err := books.Receipt(ctx, t.Account, t.RequestID); err == nil {
			r.Charge = receipt.Charge
		}
	}
	return r, nil
}

// VideoRecord is the record of a task of the exchange's account as JSON, for
// package server: what GET /v1/videos/generations/{id} answers.
func (x *Exchange) VideoRecord(ctx context.Context, id string) ([]byte, error) {
	t, err := x.g.videos.show(ctx, x.principal.Account, id)
	if err != nil {
		return nil, err
	}
	return t.Record(), nil
}
