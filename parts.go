package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/dropped"
	"github.com/tollhouse-ai/gateway/upstream"
)

// partsAtOnce is how many parts of one request are with upstreams at a time.
const partsAtOnce = 4

// partPatience is how long a part waits for a place at a channel: those of one
// request may be more than a channel takes at once.
const partPatience = 10 * time.Second

// part is one of several upstream calls of a request.
type part struct {
	op    operation
	asked bool // an upstream may have got it
	body  []byte
	usage billing.Usage
	reply *upstream.Reply
	err   error
}

// parts are all of a request's.
type parts struct {
	list []part
	mu   sync.Mutex
	size int64 // of the answers so far
}

// errCalledOff is why a part ends that is with an upstream when the rest of the
// request is over.
var errCalledOff = fault.New(fault.CalledOff, "The gateway called this part of the request off, as the rest of it was over.")

// askParts asks for all parts and joins their answers. When one fails the others
// are cancelled, and the request fails as it did: all parts or an error
// (decisions.md, Embeddings and speech).
func (c *call) askParts(s splitter, ops []operation) (*upstream.Reply, error) {
	defer c.x.spent(&c.x.record.phases.Upstream, c.x.clock())
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	c.parts = &parts{list: make([]part, len(ops))}
	turns := make(chan struct{}, partsAtOnce)
	var running sync.WaitGroup
	for i := range ops {
		p := &c.parts.list[i]
		p.op = ops[i]
		turns <- struct{}{}
		running.Go(func() {
			defer func() { <-turns }()
			if p.err = c.askPart(ctx, p); p.err != nil {
				cancel(errCalledOff)
			}
		})
	}
	running.Wait()
	return c.joined(s)
}

// askPart sends one part through the router.
func (c *call) askPart(ctx context.Context, p *part) (err error) {
	defer guard(&err)
	if err := ctx.Err(); err != nil {
		return err
	}
	body, view, _ := p.op.request(c.model, c.hold)
	p.asked = true
	call := &upstream.Call{
		Op: p.op.op(), Model: c.model.ID, RequestID: c.x.ID, Account: c.x.principal.Account, ContentType: "application/json", Body: body, Request: view, MaxWait: partPatience,
		Accept: func(ctx context.Context, r *upstream.Reply) (_ *upstream.Reply, err error) {
			p.body, p.usage, err = c.acceptWhole(ctx, p.op, r)
			return r, err
		},
		Observe: func(a upstream.Attempt) {
			c.parts.mu.Lock()
			defer c.parts.mu.Unlock()
			c.recordAttempt(a, p.op)
		},
	}
	c.x.g.observer.watchAttempts(call)
	p.reply, err = c.x.routes.router.Do(ctx, call)
	if err != nil {
		return err
	}
	return c.parts.fits(p, c.x.g.options.MaxAnswer)
}

// fits counts the part's answer, so that many small ones are not more than one
// may be.
func (ps *parts) fits(p *part, most int64) error {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.size += int64(len(p.body)); ps.size > most {
		return badGateway("The upstream's answers are together larger than the gateway allows. Ask for fewer or shorter vectors at a time.", nil)
	}
	return nil
}

// joined is the whole answer, or the error of the part that failed first: the
// others only tell that they were cancelled.
func (c *call) joined(s splitter) (*upstream.Reply, error) {
	var failed error
	var used billing.Usage
	used.Zero = true // only if all are
	bodies := make([][]byte, len(c.parts.list))
	var reply upstream.Reply
	for i := range c.parts.list {
		p := &c.parts.list[i]
		if p.err != nil {
			if failed == nil || calledOff(failed) {
				failed = p.err
			}
			continue
		}
		bodies[i] = p.body
		used = used.Add(p.usage)
		reply = merged(reply, p.reply)
	}
	if failed != nil {
		c.discard(reply.Channel, used)
		return nil, failed
	}
	whole, err := s.join(bodies)
	if err != nil {
		return nil, badGateway("The parts of the upstream's answer do not fit together.", err)
	}
	for _, body := range bodies {
		(&Result{Body: body}).Release()
	}
	c.whole, c.usage = whole, used
	return &reply, nil
}

// discard notes what the parts used that were answered, where another one failed:
// the customer gets and pays nothing, and the operator bears it. It is one row,
// however many parts there were.
func (c *call) discard(channel string, used billing.Usage) {
	if used.IsZero() || c.clientLeft() {
		return
	}
	i := slices.IndexFunc(c.x.record.attempts, func(a upstream.Attempt) bool { return a.Channel == channel && a.Err == nil })
	if i < 0 {
		return
	}
	first := &c.x.record.attempts[i]
	c.failed = append(c.failed, billing.Attempt{
		Channel: channel, Model: first.Model, StartedAt: first.Started, Duration: first.Duration,
		Code: string(fault.CalledOff), Status: first.Status, Billable: true, Used: used,
	})
}

// merged tells of both replies: the first channel, and whatever either dropped.
func merged(all upstream.Reply, next *upstream.Reply) upstream.Reply {
	if all.Channel == "" {
		all.Status, all.Channel = next.Status, next.Channel
	}
	all.Dropped = dropped.Bounded(all.Dropped, next.Dropped)
	return all
}

// calledOff reports whether a part failed because its call was cancelled.
func calledOff(err error) bool {
	return errors.Is(err, context.Canceled) || fault.Is(err, fault.CalledOff) || fault.Is(err, fault.ClientGone)
}
