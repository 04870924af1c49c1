package gateway

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/speech"
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

// Embeddings embeds texts, with the same checks, limits, holds and fail-over as
// over HTTP. A request larger than one upstream call takes is split and its
// answers are joined. The caller is the principal in ctx, as for [Gateway.Chat].
// Every error is a *fault.Error.
func (g *Gateway) Embeddings(ctx context.Context, req *embeddings.Request) (_ *embeddings.Response, err error) {
	x, err := g.enter(ctx)
	defer func() { x.End(ctx, 0, err) }()
	if err != nil {
		return nil, err
	}
	parsed, err := embeddings.Encode(req)
	if err != nil {
		return nil, err
	}
	result, err := x.run(ctx, embeddingsOperation{Request: parsed}, nil)
	if err != nil {
		return nil, err
	}
	response := &embeddings.Response{Raw: result.Body, RequestID: x.receiptID(), Charge: x.record.receipt.Charge, Dropped: result.Dropped}
	if err = json.Unmarshal(result.Body, response, jsontext.AllowDuplicateNames(true)); err != nil {
		err = fault.Wrap(fault.BadGateway, "The upstream's answer is not of the embeddings form. It was charged, and Raw has it.", err)
	}
	return response, err
}

// Images makes pictures, with the same checks, limits, holds and fail-over as
// over HTTP; Stream in req is ignored. The caller is the principal in ctx, as
// for [Gateway.Chat]. Every error is a *fault.Error.
func (g *Gateway) Images(ctx context.Context, req *images.Request) (_ *images.Response, err error) {
	x, err := g.enter(ctx)
	defer func() { x.End(ctx, 0, err) }()
	if err != nil {
		return nil, err
	}
	typed := *req
	typed.Stream = false
	parsed, err := images.Encode(&typed)
	if err != nil {
		return nil, err
	}
	result, err := x.run(ctx, &imagesOperation{Request: parsed}, nil)
	if err != nil {
		return nil, err
	}
	response := &images.Response{Raw: result.Body, RequestID: x.receiptID(), Charge: x.record.receipt.Charge, Dropped: result.Dropped}
	if err = json.Unmarshal(result.Body, response, jsontext.AllowDuplicateNames(true)); err != nil {
		err = fault.Wrap(fault.BadGateway, "The upstream's answer is not of the image form. It was charged, and Raw has it.", err)
	}
	return response, err
}

// Speech speaks a text, with the same checks, limits, holds and fail-over as
// over HTTP. An error before the first byte is returned here, a later one comes
// from the response's Read. Close the response. The caller is the principal in
// ctx, as for [Gateway.Chat]. Every error is a *fault.Error.
func (g *Gateway) Speech(ctx context.Context, req *speech.Request) (*speech.Response, error) {
	x, result, err := g.speech(ctx, req)
	if err != nil {
		x.End(ctx, 0, err)
		return nil, err
	}
	kind := result.Header.Get("Content-Type")
	if result.Replayed {
		x.End(ctx, 0, nil)
		return speech.NewResponse(x.receiptID(), kind, newReplayed(result.Body, x.record.receipt)), nil
	}
	r := speech.NewResponse(x.ID, kind, spoken{result.Audio, ctx})
	r.Dropped = result.Dropped
	return r, nil
}

func (g *Gateway) speech(ctx context.Context, req *speech.Request) (*Exchange, *Result, error) {
	x, err := g.enter(ctx)
	if err != nil {
		return x, nil, err
	}
	parsed, err := speech.Encode(req)
	if err != nil {
		return x, nil, err
	}
	result, err := x.run(ctx, speechOperation{Request: parsed}, nil)
	return x, result, err
}

// chat is the typed door: marshal in front of the one path.
func (g *Gateway) chat(ctx context.Context, req *chat.Request, stream bool) (*Exchange, *Result, error) {
	x, err := g.enter(ctx)
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

// enter begins the exchange of a typed call.
func (g *Gateway) enter(ctx context.Context) (*Exchange, error) {
	x := g.Begin()
	x.IdempotencyKey = idempotencyKey(ctx)
	p, err := g.principal(ctx)
	if err == nil {
		err = x.admit(ctx, p)
	}
	return x, err
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

// spoken is an Audio whose end also ends its exchange.
type spoken struct {
	*Audio
	ctx context.Context
}

// Close ends the audio and writes the log line.
func (s spoken) Close() error {
	err := s.Audio.Close()
	s.c.x.End(s.ctx, 0, s.Err())
	return err
}
