package gateway

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/deliver"
	"github.com/tollhouse-ai/gateway/internal/dropped"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

// ask sends a call to one channel after the other, until read accepts an answer: a whole
// answer once all of it is checked, a stream once its first content is there. A channel whose
// answer read refuses is judged by the error; the client gets nothing of that answer. The
// reply has the attempts, beside an error too. A panic of read must be its error.
func ask[A any](ctx context.Context, o *observers, routes router.Routes, sent *upstream.Call, read func(context.Context, *upstream.Reply) (A, error)) (answer A, reply *upstream.Reply, err error) {
	defer fault.Recover(&err)
	tries := routes.Begin(sent)
	defer tries.Close()
	for tries.Next(ctx) {
		attempt := ctx
		if len(o.all) > 0 {
			attempt = o.attempt(ctx, sent, tries.Attempt())
		}
		reply, err = tries.Send(attempt)
		if err == nil {
			answer, err = read(tries.Context(), reply)
		}
		err = tries.End(err)
		if len(o.all) > 0 {
			o.attempted(attempt, sent, tries.Attempt())
		}
		if err == nil {
			return answer, reply, nil
		}
	}
	var none A
	return none, &upstream.Reply{Attempts: tries.Attempts()}, tries.Err()
}

// send asks for the whole answer to the request, in parts where one call of an upstream does
// not take it.
func (e *Entry) send(out operation.Outgoing) (*operation.Answer, *upstream.Reply, error) {
	if e.info.Parts != nil {
		if parts := e.info.Parts.Split(&e.model.facts); len(parts) > 0 {
			if e.observed {
				defer e.spent(&e.record.phases.Upstream, e.g.options.Now())
			}
			return e.sendParts(parts)
		}
	}
	return sendOne(e, out, func(ctx context.Context, r *upstream.Reply) (*operation.Answer, error) {
		return e.readWhole(ctx, e.request, r)
	})
}

// sendStream asks for a stream, and reads it up to its first content.
func (e *Entry) sendStream(out operation.Outgoing) (*deliver.Events, *upstream.Reply, error) {
	return sendOne(e, out, func(_ context.Context, r *upstream.Reply) (*deliver.Events, error) {
		return deliver.ReadEvents(r, e.info.Stream, e.g.admission.Answers().Event(e.ctx), int(e.g.options.MaxAnswer))
	})
}

// sendOne asks for the answer to the request by one call.
func sendOne[A any](e *Entry, out operation.Outgoing, read func(context.Context, *upstream.Reply) (A, error)) (answer A, reply *upstream.Reply, err error) {
	if e.observed {
		defer e.spent(&e.record.phases.Upstream, e.g.options.Now())
	}
	if out.NoHeader != "" {
		e.header = maps.Clone(e.header)
		maps.DeleteFunc(e.header, func(name string, _ []string) bool { return strings.EqualFold(name, out.NoHeader) })
	}
	sent := e.outgoing(out)
	sent.Stream, sent.Session, sent.Caller, sent.MaxOutput = e.info.Stream != nil, e.session(), e.client.Done(), e.model.facts.OutputBound(0)
	sent.Channel, sent.Key, sent.Header, sent.Query = e.only, e.key, e.header, e.query
	answer, reply, err = ask(e.ctx, &e.g.observers, e.routes, &sent, read)
	e.recordAttempts(e.request, reply)
	if err == nil && e.info.Session != nil {
		e.record.affinity = affinity(sent.Session, reply)
	}
	return answer, reply, err
}

// outgoing is what every call for the request, or for a part of it, tells the upstream.
func (e *Entry) outgoing(out operation.Outgoing) upstream.Call {
	sent := upstream.Call{
		Op: e.spec.Op, Model: e.model.ID, RequestID: e.ID, Account: e.principal.Account, Body: out.Body, Request: out.View,
		ContentType: cmp.Or(out.Body.ContentType(), "application/json"), Alias: e.g.alias,
	}
	if e.info.Session == nil { // whose answers drivers read whole; those of conversations pass
		sent.Reserve = e.g.admission.Answers().Reserver()
	}
	return sent
}

const estimatedHeader = "X-Gateway-Estimated"

// count answers with the upstream's count of tokens, or with an estimate where no
// upstream counts. It costs nothing, so its idempotency key is free again at
// the end and no answer is kept.
func (e *Entry) count() error {
	if e.claim != nil {
		if err := e.claim.Take(e.ctx); err != nil {
			return err
		}
		defer e.claim.Free(e.ctx)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	e.model.announce(header)
	if e.routes.Supported() {
		answer, _, err := e.send(e.request.Outgoing(0))
		if err == nil {
			e.respond(Response{Header: header, Body: answer.Body})
			return nil
		}
		if !estimateInstead(err) {
			return e.fail(err)
		}
	}
	header.Set(estimatedHeader, "true")
	e.respond(Response{Header: header, Body: e.info.Counter.Estimate(&e.model.facts)})
	return nil
}

// estimateInstead reports whether the error says that the upstream has no counter, as
// many that speak the rest of the dialect, or none for now.
func estimateInstead(err error) bool {
	switch status := fault.From(err).HTTPStatus(); status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusTooManyRequests:
		return true
	default:
		return status >= http.StatusInternalServerError
	}
}

// partsAtOnce is how many parts of one request are with upstreams at a time.
const partsAtOnce = 4

// partMaxWait is how long a part waits for a slot of a channel: those of one
// request may be more than a channel takes at once.
const partMaxWait = 10 * time.Second

// part is one upstream call of a request that was split.
type part struct {
	request operation.Request
	answer  *operation.Answer
	reply   *upstream.Reply
	err     error
}

// parts are all upstream calls of a request that was split.
type parts struct {
	list []part
	mu   sync.Mutex
	size int64 // of the answers so far
}

// sendParts asks for all parts and joins their answers. If one fails, no more are sent and
// the request fails with the first error: there is no partial answer. Those that are with
// upstreams are cancelled, unless the caller pays for them since a part was refused.
func (e *Entry) sendParts(requests []operation.Request) (*operation.Answer, *upstream.Reply, error) {
	ctx, cancel := context.WithCancelCause(e.ctx)
	defer cancel(nil)
	var refused atomic.Bool
	e.parts = &parts{list: make([]part, len(requests))}
	turns := make(chan struct{}, partsAtOnce)
	var running sync.WaitGroup
	for i := range requests {
		p := &e.parts.list[i]
		p.request = requests[i]
		turns <- struct{}{}
		running.Go(func() {
			defer func() { <-turns }()
			if refused.Load() {
				p.err = deliver.ErrCalledOff
				return
			}
			switch p.err = e.sendPart(ctx, p); {
			case deliver.CallersOwn(p.err):
				refused.Store(true)
			case p.err != nil && !refused.Load():
				cancel(deliver.ErrCalledOff)
			}
		})
	}
	running.Wait()
	return e.joined()
}

// sendPart sends one part to an upstream.
func (e *Entry) sendPart(ctx context.Context, p *part) (err error) {
	defer fault.Recover(&err)
	if err := ctx.Err(); err != nil {
		return err
	}
	sent := e.outgoing(p.request.Outgoing(0))
	sent.MaxWait = partMaxWait
	read := func(ctx context.Context, r *upstream.Reply) (*operation.Answer, error) {
		return e.readWhole(ctx, p.request, r)
	}
	if p.answer, p.reply, err = ask(ctx, &e.g.observers, e.routes, &sent, read); err != nil {
		return err
	}
	return e.parts.fits(p, e.g.options.MaxAnswer)
}

// fits counts the part's answer, so that many small answers together are not more
// than one may be. Who asks for more pays for what was made.
func (ps *parts) fits(p *part, most int64) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.size += int64(len(p.answer.Body)); ps.size > most {
		return fault.Invalid("", "The answers to the parts of the request are together larger than the gateway allows. Ask for less at a time.")
	}
	return nil
}

// joined is the whole answer, or the error of the part that failed first; the
// others only say that they were cancelled.
func (e *Entry) joined() (*operation.Answer, *upstream.Reply, error) {
	var failed error
	var used billing.Usage
	used.Zero = true // only if all are
	bodies := make([][]byte, len(e.parts.list))
	var reply upstream.Reply
	for i := range e.parts.list {
		p := &e.parts.list[i]
		e.recordAttempts(p.request, p.reply)
		if p.err != nil {
			if failed == nil || deliver.CalledOff(failed) || deliver.CallersOwn(p.err) && !deliver.CallersOwn(failed) {
				failed = p.err
			}
			continue
		}
		bodies[i] = p.answer.Body
		used = used.Add(p.answer.Usage)
		reply = merged(reply, p.reply)
	}
	slices.SortStableFunc(e.record.attempts, func(a, b upstream.Attempt) int { // in the order of their ends
		return a.Started.Add(a.Duration).Compare(b.Started.Add(b.Duration))
	})
	if failed != nil {
		if !deliver.CallersOwn(failed) {
			e.discard(reply.Channel, used)
		}
		return nil, nil, failed
	}
	whole, err := e.info.Parts.Join(&e.model.facts, bodies)
	if err != nil {
		return nil, nil, upstream.BadAnswer("The parts of the upstream's answer do not fit together.", err)
	}
	for _, body := range bodies {
		putBody(body)
	}
	return &operation.Answer{Body: whole, Usage: used}, &reply, nil
}

// answered is what the parts consumed that were answered; nothing of a request that was not
// split.
func (ps *parts) answered() (used billing.Usage) {
	if ps == nil {
		return used
	}
	for i := range ps.list {
		if p := &ps.list[i]; p.answer != nil {
			used = used.Add(p.answer.Usage)
		}
	}
	return used
}

// discard records what the answered parts consumed when another one failed: the
// client gets and pays nothing, the operator bears it. It is one entry for all
// parts.
func (e *Entry) discard(channel string, used billing.Usage) {
	if used.IsZero() {
		return
	}
	i := slices.IndexFunc(e.record.attempts, func(a upstream.Attempt) bool { return a.Channel == channel && a.Err == nil })
	if i < 0 {
		return
	}
	first := &e.record.attempts[i]
	e.failed = append(e.failed, billing.Attempt{
		Channel: channel, Model: first.Model, StartedAt: first.Started, Duration: first.Duration,
		Code: string(fault.CalledOff), Status: first.Status, Billable: true, Used: used,
	})
}

// merged combines two replies: the first channel, and all that either left out.
func merged(all upstream.Reply, next *upstream.Reply) upstream.Reply {
	if all.Channel == "" {
		all.Status, all.Channel = next.Status, next.Channel
	}
	all.Dropped = dropped.Bounded(all.Dropped, next.Dropped)
	return all
}
