package gateway

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/speech"
)

// Chat answers a chat completion, with the same checks, limits, holds and
// fail-over as over HTTP. The caller is the principal in ctx (auth.NewContext);
// without an Authenticator it is the account "local". Every error is a
// *fault.Error. Stream in req is ignored: see [Gateway.ChatStream]. An answer
// that does not fit the Response is an error beside a Response that has its
// Raw, RequestID and Charge.
func (g *Gateway) Chat(ctx context.Context, req *chat.Request) (*chat.Response, error) {
	return answered(ctx, g, "chat completion", func() (operation, error) { return g.chatOperation(req, false) }, func(o outcome) *chat.Response {
		return &chat.Response{Raw: o.body, RequestID: o.id, Charge: o.charge, Dropped: o.dropped}
	})
}

// ChatStream answers a chat completion as a stream. An error before the first
// chunk is returned here, a later one comes last from the stream. Range over
// the stream's Chunks, or close it.
func (g *Gateway) ChatStream(ctx context.Context, req *chat.Request) (*chat.Stream, error) {
	x, result, err := g.ask(ctx, func() (operation, error) { return g.chatOperation(req, true) })
	source, err := x.source(ctx, result, err)
	if err != nil {
		return nil, err
	}
	s := chat.NewStream(x.receiptID(), source)
	s.Dropped = result.Dropped
	return s, nil
}

// Messages answers with a message, whatever dialect the model's upstream speaks,
// with the same checks, limits, holds and fail-over as over HTTP; Stream in req
// is ignored: see [Gateway.MessagesStream]. The caller is the principal in ctx,
// as for [Gateway.Chat]. Every error is a *fault.Error. An answer that does not
// fit the Response is an error beside a Response that has its Raw, RequestID and
// Charge.
func (g *Gateway) Messages(ctx context.Context, req *messages.Request) (*messages.Response, error) {
	return answered(ctx, g, "message", func() (operation, error) { return g.messagesOperation(req, false) }, func(o outcome) *messages.Response {
		return &messages.Response{Raw: o.body, RequestID: o.id, Charge: o.charge, Dropped: o.dropped}
	})
}

// MessagesStream answers with a message as a stream. An error before the first
// event is returned here, a later one comes last from the stream. Range over the
// stream's Events, or close it.
func (g *Gateway) MessagesStream(ctx context.Context, req *messages.Request) (*messages.Stream, error) {
	x, result, err := g.ask(ctx, func() (operation, error) { return g.messagesOperation(req, true) })
	source, err := x.source(ctx, result, err)
	if err != nil {
		return nil, err
	}
	s := messages.NewStream(x.receiptID(), source)
	s.Dropped = result.Dropped
	return s, nil
}

// CountTokens counts the input tokens of a message that is not made: by the
// upstream's counter, or by an estimate where there is none. It costs nothing.
// The caller is the principal in ctx, as for [Gateway.Chat]. Every error is a
// *fault.Error.
func (g *Gateway) CountTokens(ctx context.Context, req *messages.Request) (_ *messages.Count, err error) {
	x, result, err := g.ask(ctx, func() (operation, error) { return g.countOperation(req) })
	defer func() { x.End(ctx, 0, err) }()
	if err != nil {
		return nil, err
	}
	count := &messages.Count{Estimated: result.Header.Get(estimatedHeader) != ""}
	if err = json.Unmarshal(result.Body, count, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, badGateway("The upstream's answer is not a count of tokens.", err)
	}
	return count, nil
}

// Embeddings embeds texts, with the same checks, limits, holds and fail-over as
// over HTTP. A request larger than one upstream call takes is split and its
// answers are joined. The caller is the principal in ctx, as for [Gateway.Chat].
// Every error is a *fault.Error.
func (g *Gateway) Embeddings(ctx context.Context, req *embeddings.Request) (*embeddings.Response, error) {
	return answered(ctx, g, "embeddings", func() (operation, error) {
		parsed, err := embeddings.Encode(req)
		return embeddingsOperation{Request: parsed}, err
	}, func(o outcome) *embeddings.Response {
		return &embeddings.Response{Raw: o.body, RequestID: o.id, Charge: o.charge, Dropped: o.dropped}
	})
}

// Images makes pictures, with the same checks, limits, holds and fail-over as
// over HTTP; Stream in req is ignored. The caller is the principal in ctx, as
// for [Gateway.Chat]. Every error is a *fault.Error.
func (g *Gateway) Images(ctx context.Context, req *images.Request) (*images.Response, error) {
	return answered(ctx, g, "image", func() (operation, error) {
		typed := *req
		typed.Stream = false
		parsed, err := images.Encode(&typed)
		return &imagesOperation{Request: parsed}, err
	}, pictures)
}

func pictures(o outcome) *images.Response {
	return &images.Response{Raw: o.body, RequestID: o.id, Charge: o.charge, Dropped: o.dropped}
}

// Speech speaks a text, with the same checks, limits, holds and fail-over as
// over HTTP. An error before the first byte is returned here, a later one comes
// from the response's Read. Close the response. The caller is the principal in
// ctx, as for [Gateway.Chat]. Every error is a *fault.Error.
func (g *Gateway) Speech(ctx context.Context, req *speech.Request) (*speech.Response, error) {
	x, result, err := g.ask(ctx, func() (operation, error) {
		parsed, err := speech.Encode(req)
		return speechOperation{Request: parsed}, err
	})
	source, err := x.source(ctx, result, err)
	if err != nil {
		return nil, err
	}
	r := speech.NewResponse(x.receiptID(), result.Header.Get("Content-Type"), source)
	r.Dropped = result.Dropped
	return r, nil
}

func (g *Gateway) chatOperation(req *chat.Request, stream bool) (operation, error) {
	typed := *req
	typed.Stream = stream
	parsed, err := chat.Encode(&typed)
	return chatOf(g, parsed), err
}

func (g *Gateway) messagesOperation(req *messages.Request, stream bool) (operation, error) {
	typed := *req
	typed.Stream = stream
	parsed, err := messages.Encode(&typed)
	return messagesOf(g, parsed), err
}

func (g *Gateway) countOperation(req *messages.Request) (operation, error) {
	parsed, err := messages.EncodeCount(req)
	return countOperation{Request: parsed, g: g}, err
}

// ask is the typed door: marshal in front of the one path.
func (g *Gateway) ask(ctx context.Context, encode func() (operation, error)) (*Exchange, *Result, error) {
	x, err := g.enter(ctx)
	if err != nil {
		return x, nil, err
	}
	op, err := encode()
	if err != nil {
		return x, nil, err
	}
	result, err := x.run(ctx, op, nil)
	return x, result, err
}

// outcome is what a typed response says besides what its JSON does.
type outcome struct {
	body    []byte
	id      string // by which the charge is found
	charge  billing.Money
	dropped []string
}

// answered asks for a whole answer, which typed makes of its outcome and fills
// from its JSON. One that is of another form was charged all the same.
func answered[R any](ctx context.Context, g *Gateway, form string, encode func() (operation, error), typed func(outcome) *R) (_ *R, err error) {
	x, result, err := g.ask(ctx, encode)
	defer func() { x.End(ctx, 0, err) }()
	if err != nil {
		return nil, err
	}
	receipt, _ := x.Receipt()
	response := typed(outcome{result.Body, x.receiptID(), receipt.Charge, result.Dropped})
	if err = json.Unmarshal(result.Body, response, jsontext.AllowDuplicateNames(true)); err != nil {
		err = fault.Wrap(fault.BadGateway, "The upstream's answer is not of the "+form+" form. It was charged, and Raw has it.", err)
	}
	return response, err
}

// source is what a typed stream reads. The exchange ends with it, or here.
func (x *Exchange) source(ctx context.Context, result *Result, err error) (chat.Source, error) {
	switch {
	case err != nil:
		x.End(ctx, 0, err)
		return nil, err
	case result.Replayed:
		x.End(ctx, 0, nil)
		return newReplayed(result.Body, *x.record.receipt), nil
	case result.Audio != nil:
		return audioSource{result.Audio, ctx}, nil
	}
	return streamSource{result.Stream, ctx}, nil
}

// enter begins the exchange of a typed call.
func (g *Gateway) enter(ctx context.Context) (*Exchange, error) {
	x := g.Begin()
	ctx, _ = x.Start(ctx)
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

// streamSource is a Stream whose end also ends its exchange.
type streamSource struct {
	*Stream
	ctx context.Context
}

// Close ends the stream and writes the log line.
func (s streamSource) Close() error {
	err := s.Stream.Close()
	s.c.x.End(s.ctx, 0, s.err)
	return err
}

// audioSource is an Audio whose end also ends its exchange.
type audioSource struct {
	*Audio
	ctx context.Context
}

// Close ends the audio and writes the log line.
func (s audioSource) Close() error {
	err := s.Audio.Close()
	s.c.x.End(s.ctx, 0, s.Err())
	return err
}
