package webhook

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// try makes one try and writes down what became of it. Where that cannot be
// known or written, the notice is tried again when its lease has ended.
func (d *Deliverer) try(ctx context.Context, t task) {
	n := t.notice
	var secrets []Secret
	err := d.ask(ctx, func(ctx context.Context) (err error) {
		secrets, err = d.o.Outbox.Secrets(ctx, n.Account)
		return err
	})
	if err != nil {
		if ctx.Err() == nil {
			d.o.Logger.Warn("a webhook's secrets were not read", "id", n.ID, "account", n.Account, "error", err)
		}
		return
	}
	began := d.o.Now()
	result := d.post(ctx, n, secrets)
	now := d.o.Now()
	tried := Tried{Notice: n, Result: result, Final: true, Duration: now.Sub(began)}
	switch {
	case result.Outcome == Delivered:
		d.tell(ctx, tried)
		d.record(ctx, t, func(ctx context.Context) error { return d.o.Outbox.Done(ctx, n.ID, d.o.Clock()) })
		return
	case result.Outcome != Gone && ctx.Err() != nil:
		return // we broke it off
	}
	tries := n.Tries + 1
	dated := d.o.Clock()
	next, more := d.o.Schedule.Next(tries, n.CreatedAt, dated)
	switch {
	case result.Outcome == Gone:
		next, more = time.Time{}, false
	case more:
		next = now.Add(next.Sub(dated))
	}
	tried.Final = !more
	d.tell(ctx, tried)
	d.o.Logger.Warn("a webhook was not delivered", "id", n.ID, "account", n.Account, "host", t.host, "tries", tries,
		"outcome", string(result.Outcome), "reason", result.Reason, "final", !more, "next", next)
	d.record(ctx, t, func(ctx context.Context) error {
		return d.o.Outbox.Failed(ctx, n, next, result.Reason, !more)
	})
}

// tell hands on a try.
func (d *Deliverer) tell(ctx context.Context, t Tried) {
	if d.o.Tried != nil {
		d.o.Tried(ctx, t)
	}
}

// post makes a failure of a panic.
func (d *Deliverer) post(ctx context.Context, n Notice, secrets []Secret) (result Result) {
	defer func() {
		if p := recover(); p != nil {
			d.o.Logger.Error("the delivery of a webhook panicked", "id", n.ID, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			result = Result{Outcome: Retry, Reason: "the delivery failed within the gateway"}
		}
	}()
	return d.o.Client.Post(ctx, Delivery{ID: n.ID, URL: n.URL, Body: n.Body, At: d.o.Now(), Secrets: secrets})
}

// record writes down what became of a try, even if ctx has ended meanwhile. While
// the outbox is away it asks again until the lease ends.
func (d *Deliverer) record(ctx context.Context, t task, write func(context.Context) error) {
	for rest := leastRest; ; rest = min(2*rest, mostRest) {
		err := d.ask(context.WithoutCancel(ctx), write)
		if err == nil {
			return
		}
		d.o.Logger.Warn("what became of a webhook was not written down", "id", t.notice.ID, "account", t.notice.Account, "error", err)
		wait := time.NewTimer(rest)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		if !d.o.Now().Before(t.until) {
			return
		}
	}
}
