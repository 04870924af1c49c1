package gateway

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
)

// Chat answers a chat completion, with the same checks, limits, holds and
// fail-over as over HTTP. The caller is the principal in ctx (auth.NewContext);
// without an Authenticator it is the account "local". Every error is a
// *fault.Error. Stream in req is ignored: see [Gateway.ChatStream]. An answer
// that does not fit the Response is an error beside a Response that has its
// Raw, RequestID and Charge.
func (g *Gateway) Chat(ctx context.Context, req *chat.Request) (*chat.Response, error) {
	x, result, err := g.chat(ctx, req, false)
	defer func() { x.End(ctx, 0, err) }()
	if err != nil {
		return nil, err
	}
	response := &chat.Response{Raw: result.Body, RequestID: x.receiptID(), Charge: x.record.receipt.Charge, Dropped: result.Dropped}
	if err = json.Unmarshal(result.Body, response, jsontext.AllowDuplicateNames(true)); err != nil {
		err = fault.Wrap(fault.BadGateway, "The upstream's answer is not of the chat completion form. It was charged, and Raw has it.", err)
		return response, err
	}
	return response, nil
}

// ChatStream answers a chat completion as a stream. An error before the first
// chunk is returned here, a later one comes last from the stream. Range over
// the stream's Chunks, or close it.
func (g *Gateway) ChatStream(ctx context.Context, req *chat.Request) (*chat.Stream, error) {
	x, result, err := g.chat(ctx, req, true)
	if err != nil {
		x.End(ctx, 0, err)
		return nil, err
	}
	if result.Replayed {
		x.End(ctx, 0, nil)
		return chat.NewStream(x.receiptID(), newReplayed(result.Body, x.record.receipt)), nil
	}
	s := chat.NewStream(x.ID, inProcess{result.Stream, ctx})
	s.Dropped = result.Dropped
	return s, nil
}

// chat is the typed door: marshal in front of the one path.
func (g *Gateway) chat(ctx context.Context, req *chat.Request, stream bool) (*Exchange, *Result, error) {
	x := g.Begin()
	x.IdempotencyKey = idempotencyKey(ctx)
	p, err := g.principal(ctx)
	if err == nil {
		err = x.admit(ctx, p)
	}
	if err != nil {
		return x, nil, err
	}
	typed := *req
	typed.Stream = stream
	parsed, err := chat.Encode(&typed)
	if err != nil {
		return x, nil, err
	}
	result, err := x.run(ctx, chatOperation{parsed, g}, nil)
	return x, result, err
}

// receiptID is the id by which the charge is found: of a replayed answer, the
// first request's.
func (x *Exchange) receiptID() string {
	if x.record.replayed {
		return x.record.receipt.ID
	}
	return x.ID
}

// inProcess is a Stream whose end also ends its exchange.
type inProcess struct {
	*Stream
	ctx context.Context
}

// Close ends the stream and writes the log line.
func (s inProcess) Close() error {
	err := s.Stream.Close()
	s.c.x.End(s.ctx, 0, s.err)
	return err
}
