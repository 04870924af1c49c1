package gateway

import (
	"context"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/webhook"
	"github.com/tollhouse-ai/gateway/video"
)

// Event is something that happened beside requests: a [TaskMoved], a
// [NoticeTried] or a [CaptureRetried]. More kinds may come.
type Event interface {
	// Kind names the kind of event: "task", "notice", "capture".
	Kind() string
}

// TaskMoved is a step in the life of a video's task that this process has made
// durable. Every task has one that ends it, on one node.
type TaskMoved struct {
	Task, RequestID string
	Account, Key    string
	Model, Channel  string
	Listed          bool // as in [RequestEvent]
	From, To        video.State
	At              time.Time
	Age             time.Duration // since the submission
	// Receipt is what the video cost; nil before its task has ended.
	Receipt *billing.Receipt
	// Late says that the video was made after its task had expired: the operator
	// pays for it, and nobody gets it.
	Late bool
}

// Kind is "task".
func (TaskMoved) Kind() string { return "task" }

// NoticeTried is a try to deliver a webhook.
type NoticeTried struct {
	ID, Account string
	Outcome     string // "delivered", "gone", "retry" or "refused"
	Status      int    // of the receiver's answer; 0 if none came
	Tries       int    // with this one
	Final       bool   // there will be no other
	Duration    time.Duration
}

// Kind is "notice".
func (NoticeTried) Kind() string { return "notice" }

// CaptureRetried is what became of a settlement that was not durable when its
// call ended. The customer's money is held until it is.
type CaptureRetried struct {
	RequestID, Account string
	// State is "queued", when it first failed; then "failed" for every try that
	// fails again, until it is "settled" or "given_up"; or at once "lost", if too
	// many wait already: then the ledger ends the hold by itself.
	State string
	Tries int
	Code  fault.Code // of the failure; empty if it is settled
	// Receipt is what the request cost, which its RequestEvent could not tell; nil unless
	// it is settled. Listed says of its model what that of RequestEvent does.
	Receipt *billing.Receipt
	Listed  bool
}

// Kind is "capture".
func (CaptureRetried) Kind() string { return "capture" }

// The states of a capture that is retried.
const (
	CaptureQueued  = "queued"
	CaptureFailed  = "failed"
	CaptureSettled = "settled"
	CaptureGivenUp = "given_up"
	CaptureLost    = "lost"
)

// emitCaptureQueued tells of a settlement that failed when its call ended.
func (g *Gateway) emitCaptureQueued(ctx context.Context, p pendingSettlement, queued bool, err error) {
	state := CaptureQueued
	if !queued {
		state = CaptureLost
	}
	g.emitCapture(ctx, p, state, 1, nil, err)
}

// emitCaptureRetried tells of one more try.
func (g *Gateway) emitCaptureRetried(ctx context.Context, p pendingSettlement, state string, r billing.Receipt, err error) {
	g.emitCapture(ctx, p, state, p.tries+2, &r, err) // with the one at the call's end and this one
}

func (g *Gateway) emitCapture(ctx context.Context, p pendingSettlement, state string, tries int, r *billing.Receipt, err error) {
	e := CaptureRetried{RequestID: p.hold.ID, Account: p.hold.Account, State: state, Tries: tries}
	if err != nil {
		e.Code = fault.From(err).Code
	} else {
		e.Receipt, e.Listed = r, g.routes.Load().lists(r.Model)
	}
	g.observer.emit(ctx, e)
}

// emitNoticeTried tells of a try to deliver a webhook.
func (g *Gateway) emitNoticeTried(ctx context.Context, t webhook.Tried) {
	g.observer.emit(ctx, NoticeTried{
		ID: t.Notice.ID, Account: t.Notice.Account, Outcome: string(t.Outcome), Status: t.Status,
		Tries: t.Notice.Tries + 1, Final: t.Final, Duration: t.Duration,
	})
}

// emitTaskMoved tells of a task's step.
func (v *videos) emitTaskMoved(ctx context.Context, from video.State, t *video.Task, r *billing.Receipt, late bool) {
	v.g.observer.emit(ctx, TaskMoved{
		Task: t.ID, RequestID: t.RequestID, Account: t.Account, Key: t.Key, Model: t.Model, Channel: t.Channel, Listed: v.g.routes.Load().lists(t.Model),
		From: from, To: t.State, At: t.UpdatedAt, Age: t.UpdatedAt.Sub(t.CreatedAt), Receipt: r, Late: late,
	})
}
