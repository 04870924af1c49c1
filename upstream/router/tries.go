package router

import (
	"cmp"
	"context"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Tries are the attempts of one call. The caller drives them, reads each answer, and says
// whether it counts:
//
//	tries := r.Begin(call)
//	defer tries.Close()
//	for tries.Next(ctx) {
//		reply, err := tries.Send(ctx)
//		if err == nil {
//			err = read(tries.Context(), reply.Body)
//		}
//		if tries.End(err) == nil {
//			return reply, nil
//		}
//	}
//	return nil, tries.Err()
//
// Next, Send and End are called in turn, by one goroutine at a time.
type Tries struct {
	router   *Router
	s        selection
	attempt  *attempt // that Next selected last
	begun    bool     // it was selected, and has not ended
	failed   bool     // it ended with an error, and what follows is not decided yet
	over     bool     // no channel is asked any more
	err      *fault.Error
	attempts []upstream.Attempt
}

// Begin begins a call, which asks no channel before the first Next. The call is read until
// the Tries have ended.
func (r *Router) Begin(call *upstream.Call) *Tries {
	return r.Routes(call.Op, call.Model).Begin(call)
}

// Begin begins a call of the operation and the model of the routes, as Router.Begin does.
func (rs Routes) Begin(call *upstream.Call) *Tries { // short, so that its caller keeps the Tries on its stack
	t := new(Tries)
	t.begin(rs, call)
	return t
}

func (t *Tries) begin(rs Routes, call *upstream.Call) {
	r := rs.router
	r.budget.earn()
	if !call.Test { // an operator's, which is no traffic
		r.accounts.Observe(call.Account)
	}
	t.router, t.s.call = r, *call
	t.s.call.Op, t.s.call.Model = rs.op, rs.model
	t.s.routes, t.s.waitLeft = rs.routes, positive(call.MaxWait, defaultMaxWait)
	if call.Channel == "" {
		return
	}
	t.s.routes = r.routesOf(&t.s.call)
	// The state of the channel does not matter to an operator who tests it, nor to a poll of a
	// video that it made. It does matter to other calls for which the channel keeps something,
	// such as a conversation.
	t.s.pinned = call.Test || rs.op == upstream.PollVideo
}

// routesOf is the route by the channel that the call names. It is asked also for a model
// that it does not serve any more.
func (r *Router) routesOf(call *upstream.Call) []route {
	i := indexOf(r.channels, call.Channel)
	if i < 0 || !upstream.Supports(r.channels[i].Upstream, call.Op, cmp.Or(r.channels[i].id(call.Model), call.Model)) {
		return nil
	}
	key := routeKey{call.Op, call.Model}
	if id := r.channels[i].ids[call.Model]; id == "" || id == everyModel {
		key.model = everyModel
	}
	return []route{newRoute(r.channels[i], key, nil)}
}

// Next selects the channel that is asked next, which takes its slot. It waits for capacity,
// and obeys the retry budget. It reports false when no channel is asked any more: after an
// answer that counts, or with the error that Err returns.
func (t *Tries) Next(ctx context.Context) bool {
	if t.begun {
		t.Close()
	}
	if t.over || t.s.attempts == maxAttempts {
		return false
	}
	if t.failed {
		t.failed = false
		if !t.router.prepareRetry(ctx, &t.s, t.attempt) {
			if t.over = true; t.attempt.verdict.next != giveUp && t.s.left(ctx) {
				t.err = clientLeft(ctx)
			}
			return false
		}
	}
	a, refusal := t.router.next(ctx, &t.s)
	if refusal != nil {
		if t.over = true; t.err == nil || t.s.left(ctx) { // who leaves the queue owes nothing for the attempts before
			t.err = refusal
		}
		return false
	}
	t.attempt, t.begun = a, true
	return true
}

// Attempt describes the attempt that Next selected: its channel and model, and after End
// what became of it.
func (t *Tries) Attempt() upstream.Attempt { return t.attempt.report[0] }

// Send asks the channel, once for each Next. Headers in ctx travel to the vendor
// ([upstream.WithWire]). The reply's body must be closed, unless End fails. Its reads end
// with a *fault.Error where the answer is cut short or runs out of time.
func (t *Tries) Send(ctx context.Context) (_ *upstream.Reply, err error) {
	defer fault.Recover(&err)
	a := t.attempt
	a.parent, a.start = ctx, time.Now()
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	a.mu.Lock()
	a.timer = time.AfterFunc(min(a.Timeout.Headers, a.Timeout.Total), a.onTimer)
	a.mu.Unlock()
	own := t.s.call
	own.Caller, own.Model = nil, a.report[0].Model
	own.RefusedKeys, own.CachePrompts, own.Thinking, own.Drop = a.refusedKeys, a.CachePrompts, a.Thinking, a.Drop
	a.sent = &own
	reply, err := a.up.Do(a.withSession(a.ctx, &own), &own)
	if err != nil {
		return nil, err
	}
	if reply == nil || reply.Body == nil {
		return nil, errNoReply
	}
	a.body = reply.Body
	a.reply = upstream.Reply{
		Status: reply.Status, Header: reply.Header, Body: a, Channel: a.Name, Key: reply.Key, Used: reply.Used, RetryAfter: reply.RetryAfter,
		Moved: reply.Moved || a.moved, Dropped: reply.Dropped, Drain: a.Drain,
	}
	return &a.reply, nil
}

// Context ends when the attempt runs out of time, is closed, or the caller's context ends.
// It is for whoever reads the reply. It begins with Send.
func (t *Tries) Context() context.Context { return t.attempt.ctx }

// End ends the attempt after Send. With a nil error its answer counts, and Next reports
// false. With any other, the reply is closed and the channel is judged by the error; Next
// may select another one. End returns the error as the client gets it, a *fault.Error: that
// of a time-out, for instance, instead of what followed from it.
func (t *Tries) End(err error) error {
	a := t.attempt
	t.begun = false
	failure := a.conclude(err)
	if t.attempts == nil {
		t.attempts = a.report[:] // most calls need one: without an allocation
	} else {
		t.attempts = append(t.attempts, a.report[0])
	}
	switch {
	case failure == nil:
		t.over, t.err = true, nil
		a.reply.Attempts = t.attempts
		return nil
	case a.verdict.unasked:
		t.s.passOver(a, failure, t.router.now())
	default:
		t.err, t.failed = failure, true
	}
	return failure
}

// Attempts are those that have ended, in order.
func (t *Tries) Attempts() []upstream.Attempt { return t.attempts }

// Err says why there is no answer once Next has reported false. It is the error of the last
// attempt, or says that no channel can take the call. It is a *fault.Error, or nil.
func (t *Tries) Err() error {
	if t.err == nil {
		return nil
	}
	return t.err
}

// Close gives back what an attempt holds that has not ended, because its caller panicked. It
// says nothing of the channel. After End, Close does nothing.
func (t *Tries) Close() {
	if t.begun {
		t.begun, t.over = false, true
		t.attempt.abandon()
	}
}

// Do answers the call by the first channel that answers, whatever the answer holds. The error
// is that of the last attempt, or that no channel can say the request; the Reply has the
// attempts beside it too. The body of an
// answer must be closed; it ends with a *fault.Error where it is cut short or runs out
// of time.
func (r *Router) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	t := r.Begin(call)
	defer t.Close()
	for t.Next(ctx) {
		reply, err := t.Send(ctx)
		if t.End(err) == nil {
			return reply, nil
		}
	}
	return &upstream.Reply{Attempts: t.attempts}, t.Err()
}
