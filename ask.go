package gateway

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
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
func (c *call) send(out operation.Outgoing) (*operation.Answer, *upstream.Reply, error) {
	if c.info.Parts != nil {
		if parts := c.info.Parts.Split(&c.model.facts); len(parts) > 0 {
			if c.observed {
				defer c.spent(&c.entry.phases.Upstream, c.g.options.Now())
			}
			return c.sendParts(parts)
		}
	}
	return sendOne(c, out, func(ctx context.Context, r *upstream.Reply) (*operation.Answer, error) {
		return c.readWhole(ctx, c.request, r)
	})
}

// sendStream asks for a stream, and reads it up to its first content.
func (c *call) sendStream(out operation.Outgoing) (*events, *upstream.Reply, error) {
	return sendOne(c, out, c.readEvents)
}

// sendOne asks for the answer to the request by one call.
func sendOne[A any](c *call, out operation.Outgoing, read func(context.Context, *upstream.Reply) (A, error)) (answer A, reply *upstream.Reply, err error) {
	if c.observed {
		defer c.spent(&c.entry.phases.Upstream, c.g.options.Now())
	}
	if out.NoHeader != "" {
		c.header = maps.Clone(c.header)
		maps.DeleteFunc(c.header, func(name string, _ []string) bool { return strings.EqualFold(name, out.NoHeader) })
	}
	sent := c.outgoing(out)
	sent.Stream, sent.Session, sent.Caller, sent.MaxOutput = c.info.Stream != nil, c.session(), c.client.Done(), c.model.facts.OutputBound(0)
	sent.Channel, sent.Key, sent.Header, sent.Query = c.only, c.key, c.header, c.query
	answer, reply, err = ask(c.ctx, &c.g.observers, c.routes, &sent, read)
	c.recordAttempts(c.request, reply)
	if err == nil && c.info.Session != nil {
		c.entry.affinity = affinity(sent.Session, reply)
	}
	return answer, reply, err
}

// outgoing is what every call for the request, or for a part of it, tells the upstream.
func (c *call) outgoing(out operation.Outgoing) upstream.Call {
	sent := upstream.Call{
		Op: c.spec.Op, Model: c.model.ID, RequestID: c.id, Account: c.principal.Account, Body: out.Body, Request: out.View,
		ContentType: cmp.Or(out.Body.ContentType(), "application/json"), Alias: c.g.alias,
	}
	if c.info.Session == nil { // whose answers drivers read whole; those of conversations pass
		sent.Reserve = c.g.admission.Answers().Reserver()
	}
	return sent
}

const estimatedHeader = "X-Gateway-Estimated"

// count answers with the upstream's count of tokens, or with an estimate where no
// upstream counts. It costs nothing, so its idempotency key is free again at
// the end and no answer is kept.
func (c *call) count() (*Response, error) {
	if c.claim != nil {
		if err := c.claim.Take(c.ctx); err != nil {
			return nil, err
		}
		defer c.claim.Free(c.ctx)
	}
	header := http.Header{"Content-Type": {"application/json"}}
	c.model.announce(header)
	if c.routes.Supported() {
		answer, _, err := c.send(c.request.Outgoing(0))
		if err == nil {
			return c.respond(Response{Header: header, Body: answer.Body}), nil
		}
		if !estimateInstead(err) {
			return nil, c.fail(err)
		}
	}
	header.Set(estimatedHeader, "true")
	return c.respond(Response{Header: header, Body: c.info.Counter.Estimate(&c.model.facts)}), nil
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
