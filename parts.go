package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/dropped"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/upstream"
)

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

// errCalledOff is why a part ends that is with an upstream when the rest of the
// request is over.
var errCalledOff = fault.New(fault.CalledOff, "The gateway called this part of the request off, as the rest of it was over.")

// sendParts asks for all parts and joins their answers. If one fails, no more are sent and
// the request fails with the first error: there is no partial answer. Those that are with
// upstreams are cancelled, unless the caller pays for them since a part was refused.
func (c *call) sendParts(requests []operation.Request) (*operation.Answer, *upstream.Reply, error) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	var refused atomic.Bool
	c.parts = &parts{list: make([]part, len(requests))}
	turns := make(chan struct{}, partsAtOnce)
	var running sync.WaitGroup
	for i := range requests {
		p := &c.parts.list[i]
		p.request = requests[i]
		turns <- struct{}{}
		running.Go(func() {
			defer func() { <-turns }()
			if refused.Load() {
				p.err = errCalledOff
				return
			}
			switch p.err = c.sendPart(ctx, p); {
			case callersOwn(p.err):
				refused.Store(true)
			case p.err != nil && !refused.Load():
				cancel(errCalledOff)
			}
		})
	}
	running.Wait()
	return c.joined()
}

// sendPart sends one part to an upstream.
func (c *call) sendPart(ctx context.Context, p *part) (err error) {
	defer fault.Recover(&err)
	if err := ctx.Err(); err != nil {
		return err
	}
	sent := c.outgoing(p.request.Outgoing(0))
	sent.MaxWait = partMaxWait
	read := func(ctx context.Context, r *upstream.Reply) (*operation.Answer, error) {
		return c.readWhole(ctx, p.request, r)
	}
	if p.answer, p.reply, err = ask(ctx, &c.g.observers, c.routes, &sent, read); err != nil {
		return err
	}
	return c.parts.fits(p, c.g.options.MaxAnswer)
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
func (c *call) joined() (*operation.Answer, *upstream.Reply, error) {
	var failed error
	var used billing.Usage
	used.Zero = true // only if all are
	bodies := make([][]byte, len(c.parts.list))
	var reply upstream.Reply
	for i := range c.parts.list {
		p := &c.parts.list[i]
		c.recordAttempts(p.request, p.reply)
		if p.err != nil {
			if failed == nil || calledOff(failed) || callersOwn(p.err) && !callersOwn(failed) {
				failed = p.err
			}
			continue
		}
		bodies[i] = p.answer.Body
		used = used.Add(p.answer.Usage)
		reply = merged(reply, p.reply)
	}
	slices.SortStableFunc(c.entry.attempts, func(a, b upstream.Attempt) int { // in the order of their ends
		return a.Started.Add(a.Duration).Compare(b.Started.Add(b.Duration))
	})
	if failed != nil {
		if !callersOwn(failed) {
			c.discard(reply.Channel, used)
		}
		return nil, nil, failed
	}
	whole, err := c.info.Parts.Join(&c.model.facts, bodies)
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

// callersOwn reports whether err is the refusal of what the caller wrote. A refusal that may
// be about the operator's account is, too: it comes beside parts that the same account was
// answered, as where a vendor moderates one text of many.
func callersOwn(err error) bool {
	if err == nil || calledOff(err) {
		return false
	}
	f := failureOf(err)
	return upstream.CallersFault(fault.From(err).HTTPStatus()) || f != nil && f.Ambiguous
}

// discard records what the answered parts consumed when another one failed: the
// client gets and pays nothing, the operator bears it. It is one entry for all
// parts.
func (c *call) discard(channel string, used billing.Usage) {
	if used.IsZero() {
		return
	}
	i := slices.IndexFunc(c.entry.attempts, func(a upstream.Attempt) bool { return a.Channel == channel && a.Err == nil })
	if i < 0 {
		return
	}
	first := &c.entry.attempts[i]
	c.failed = append(c.failed, billing.Attempt{
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

// calledOff reports whether a part failed only because it was cancelled.
func calledOff(err error) bool {
	return errors.Is(err, context.Canceled) || fault.Is(err, fault.CalledOff) || fault.Is(err, fault.ClientGone)
}
