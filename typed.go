package gateway

import (
	"bytes"
	"context"
	"io"
	"iter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/callctx"
	"github.com/tollhouse-ai/gateway/internal/deliver"
	"github.com/tollhouse-ai/gateway/internal/operation"
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	embeddingsop "github.com/tollhouse-ai/gateway/internal/operation/embeddings"
	imagesop "github.com/tollhouse-ai/gateway/internal/operation/images"
	messagesop "github.com/tollhouse-ai/gateway/internal/operation/messages"
	moderationsop "github.com/tollhouse-ai/gateway/internal/operation/moderations"
	rerankop "github.com/tollhouse-ai/gateway/internal/operation/rerank"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	speechop "github.com/tollhouse-ai/gateway/internal/operation/speech"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/moderations"
	"github.com/tollhouse-ai/gateway/rerank"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// Chat answers a chat completion, with the same checks, limits, holds and
// fail-over as over HTTP. The caller is the principal in ctx (auth.NewContext);
// without an Authenticator it is the account "local". Every error is a
// *fault.Error. Stream in req is ignored: see [Gateway.ChatStream]. An answer
// that does not fit the Response is an error beside a Response that has its
// Raw, RequestID and Charge.
//
// When ctx ends, Chat returns its error at once. A request that a vendor has been sent runs on,
// is charged, and is kept under its idempotency key. So do the other methods with whole
// answers, but for EditImage, which waits.
func (g *Gateway) Chat(ctx context.Context, req *chat.Request) (*chat.Response, error) {
	return answered(ctx, g, "chat completion", encodeChat(req, false), func(o outcome) *chat.Response {
		return &chat.Response{Raw: o.body, RequestID: o.id, Charge: o.charge, Dropped: o.dropped}
	})
}

// ChatStream answers a chat completion as a stream. An error before the first
// chunk is returned here, a later one comes last from the stream. Range over
// the stream's Chunks, or close it.
// When ctx ends, the Chunks end with its error, and what had come is charged. So it is with
// every stream.
func (g *Gateway) ChatStream(ctx context.Context, req *chat.Request) (*chat.Stream, error) {
	c, err := g.runTyped(ctx, encodeChat(req, true))
	source, err := c.typedSource(err)
	if err != nil {
		return nil, err
	}
	s := chat.NewStream(c.receiptID(), source)
	s.Dropped = c.response.Dropped
	return s, nil
}

// Messages answers with a message, whatever dialect the model's upstream speaks,
// with the same checks, limits, holds and fail-over as over HTTP; Stream in req
// is ignored: see [Gateway.MessagesStream]. The caller is the principal in ctx,
// as for [Gateway.Chat]. Every error is a *fault.Error. An answer that does not
// fit the Response is an error beside a Response that has its Raw, RequestID and
// Charge.
func (g *Gateway) Messages(ctx context.Context, req *messages.Request) (*messages.Response, error) {
	return answered(ctx, g, "message", encodeMessages(req, false), func(o outcome) *messages.Response {
		return &messages.Response{Raw: o.body, RequestID: o.id, Charge: o.charge, Dropped: o.dropped}
	})
}

// MessagesStream answers with a message as a stream. An error before the first
// event is returned here, a later one comes last from the stream. Range over the
// stream's Events, or close it.
func (g *Gateway) MessagesStream(ctx context.Context, req *messages.Request) (*messages.Stream, error) {
	c, err := g.runTyped(ctx, encodeMessages(req, true))
	source, err := c.typedSource(err)
	if err != nil {
		return nil, err
	}
	s := messages.NewStream(c.receiptID(), source)
	s.Dropped = c.response.Dropped
	return s, nil
}

// CountTokens counts the input tokens of a message that is not made: by the
// upstream's counter, or by an estimate where there is none. It costs nothing.
// The caller is the principal in ctx, as for [Gateway.Chat]. Every error is a
// *fault.Error.
func (g *Gateway) CountTokens(ctx context.Context, req *messages.Request) (*messages.Count, error) {
	count := &messages.Count{}
	estimated, err := g.counted(ctx, encoding(&messagesop.CountSpec, req, messagesop.EncodeCount), count)
	count.Estimated = estimated
	if err != nil {
		return nil, err
	}
	return count, nil
}

// Responses answers with a response, whatever wire the model's upstream speaks, with
// the same checks, limits, holds and fail-over as over HTTP; Stream in req is ignored: see
// [Gateway.ResponsesStream]. The caller is the principal in ctx, as for [Gateway.Chat].
// Every error is a *fault.Error. An answer that does not fit the Response is an error
// beside a Response that has its Raw, RequestID and Charge.
func (g *Gateway) Responses(ctx context.Context, req *responses.Request) (*responses.Response, error) {
	return answered(ctx, g, "response", encodeResponses(req, false), func(o outcome) *responses.Response {
		return &responses.Response{Raw: o.body, RequestID: o.id, Charge: o.charge, Dropped: o.dropped}
	})
}

// ResponsesStream answers with a response as a stream. An error before the first event
// is returned here, a later one comes last from the stream. Range over the stream's
// Events, or close it.
func (g *Gateway) ResponsesStream(ctx context.Context, req *responses.Request) (*responses.Stream, error) {
	c, err := g.runTyped(ctx, encodeResponses(req, true))
	source, err := c.typedSource(err)
	if err != nil {
		return nil, err
	}
	s := responses.NewStream(c.receiptID(), source)
	s.Dropped = c.response.Dropped
	return s, nil
}

// CountResponseTokens counts the input tokens of a response that is not made: by the
// upstream's counter, or by an estimate where there is none. It costs nothing. The caller is
// the principal in ctx, as for [Gateway.Chat]. Every error is a *fault.Error.
func (g *Gateway) CountResponseTokens(ctx context.Context, req *responses.Request) (*responses.Count, error) {
	count := &responses.Count{}
	estimated, err := g.counted(ctx, encoding(&responsesop.CountSpec, req, responsesop.EncodeCount), count)
	count.Estimated = estimated
	if err != nil {
		return nil, err
	}
	return count, nil
}

// counted runs a typed call that counts tokens, and fills count from the answer. It
// reports whether the count is an estimate.
func (g *Gateway) counted(ctx context.Context, e encoder, count any) (estimated bool, err error) {
	c, err := g.runTyped(ctx, e)
	defer func() { c.end(0, err) }()
	if err != nil {
		return false, err
	}
	if err = json.Unmarshal(c.response.Body, count, jsontext.AllowDuplicateNames(true)); err != nil {
		return false, upstream.BadAnswer("The upstream's answer is not a count of tokens.", err)
	}
	return c.response.Header.Get(estimatedHeader) != "", nil
}

// Embeddings embeds texts, with the same checks, limits, holds and fail-over as
// over HTTP. A request larger than one upstream call takes is split and its
// answers are joined. The caller is the principal in ctx, as for [Gateway.Chat].
// Every error is a *fault.Error.
func (g *Gateway) Embeddings(ctx context.Context, req *embeddings.Request) (*embeddings.Response, error) {
	return answered(ctx, g, "embeddings", encoding(&embeddingsop.Spec, req, embeddingsop.Encode), func(o outcome) *embeddings.Response {
		return &embeddings.Response{Raw: o.body, RequestID: o.id, Charge: o.charge, Dropped: o.dropped}
	})
}

// Rerank puts documents in the order of their relevance to a query, with the same
// checks, limits, holds and fail-over as over HTTP. A request with more documents than
// one upstream call takes is split and its rankings are merged. The caller is the
// principal in ctx, as for [Gateway.Chat]. Every error is a *fault.Error.
func (g *Gateway) Rerank(ctx context.Context, req *rerank.Request) (*rerank.Response, error) {
	return answered(ctx, g, "rerank", encoding(&rerankop.Spec, req, rerankop.Encode), func(o outcome) *rerank.Response {
		return &rerank.Response{Raw: o.body, RequestID: o.id, Charge: o.charge, Dropped: o.dropped}
	})
}

// Moderations says whether texts and images are harmful, with the same checks, limits, holds
// and fail-over as over HTTP. The caller is the principal in ctx, as for [Gateway.Chat]. Every
// error is a *fault.Error.
func (g *Gateway) Moderations(ctx context.Context, req *moderations.Request) (*moderations.Response, error) {
	return answered(ctx, g, "moderation", encoding(&moderationsop.Spec, req, moderationsop.Encode), func(o outcome) *moderations.Response {
		return &moderations.Response{Raw: o.body, RequestID: o.id, Charge: o.charge, Dropped: o.dropped}
	})
}

// Images generates images, with the same checks, limits, holds and fail-over as
// over HTTP; Stream in req is ignored. The caller is the principal in ctx, as for
// [Gateway.Chat]. Every error is a *fault.Error.
func (g *Gateway) Images(ctx context.Context, req *images.Request) (*images.Response, error) {
	whole := *req
	whole.Stream = false
	return answered(ctx, g, "image", encoding(&imagesop.Spec, &whole, imagesop.Encode), pictures)
}

func pictures(o outcome) *images.Response {
	return &images.Response{Raw: o.body, RequestID: o.id, Charge: o.charge, Dropped: o.dropped}
}

// Speech speaks a text, with the same checks, limits, holds and fail-over as
// over HTTP. An error before the first byte is returned here, a later one comes
// from the response's Read. Close the response. The caller is the principal in
// ctx, as for [Gateway.Chat]. Every error is a *fault.Error.
func (g *Gateway) Speech(ctx context.Context, req *speech.Request) (*speech.Response, error) {
	c, err := g.runTyped(ctx, encoding(&speechop.Spec, req, speechop.Encode))
	source, err := c.typedSource(err)
	if err != nil {
		return nil, err
	}
	return &speech.Response{ContentType: c.response.Header.Get("Content-Type"), RequestID: c.receiptID(), Dropped: c.response.Dropped, Body: source}, nil
}

// encodeChat makes the request of a typed one.
func encodeChat(req *chat.Request, stream bool) encoder {
	if req.Stream != stream {
		typed := *req
		typed.Stream, req = stream, &typed
	}
	return encoding(&chatop.Spec, req, chatop.Encode)
}

// encodeMessages is encodeChat for messages.
func encodeMessages(req *messages.Request, stream bool) encoder {
	if req.Stream != stream {
		typed := *req
		typed.Stream, req = stream, &typed
	}
	return encoding(&messagesop.Spec, req, messagesop.Encode)
}

// encodeResponses is encodeChat for responses.
func encodeResponses(req *responses.Request, stream bool) encoder {
	if req.Stream != stream {
		typed := *req
		typed.Stream, req = stream, &typed
	}
	return encoding(&responsesop.Spec, req, responsesop.Encode)
}

// encoder makes the request of a typed call.
type encoder struct {
	spec   *operation.Spec
	encode func() (operation.Request, error)
}

// encoding makes a typed request, of an endpoint, the one that would have come over HTTP, so
// that both are checked by the same rules.
func encoding[T any, R operation.Request](spec *operation.Spec, typed *T, encode func(*T) (R, error)) encoder {
	parse := operation.Parser(encode)
	return encoder{spec, func() (operation.Request, error) { return parse(typed) }}
}

// openTyped lets the caller of a typed call in, and encodes its request.
func (g *Gateway) openTyped(ctx context.Context, typed encoder) (*Entry, context.Context, error) {
	e, err := g.Enter(ctx, Caller{inProcess: true})
	if err != nil {
		return e, e.outer, err
	}
	e.idempotencyKey = callctx.IdempotencyKey(ctx)
	r, err := typed.encode()
	if err != nil {
		return e, e.outer, err
	}
	e.setRequest(typed.spec, r)
	return e, e.outer, nil
}

// runTyped runs a typed call.
func (g *Gateway) runTyped(ctx context.Context, e encoder) (*Entry, error) {
	c, ctx, err := g.openTyped(ctx, e)
	if err != nil {
		return c, err
	}
	return c, c.run(ctx)
}

// outcome is what a typed response has besides its JSON.
type outcome struct {
	body    []byte
	id      string // by which the charge is found
	charge  billing.Money
	dropped []string
}

// answered runs a typed call that has a whole answer. It returns when ctx ends; the call runs
// on then, since its vendor makes and bills the answer all the same. The submission of a video
// does not: its task goes on, and whoever got an error would submit it again.
func answered[R any](ctx context.Context, g *Gateway, form string, e encoder, typed func(outcome) *R) (*R, error) {
	c, inner, err := g.openTyped(ctx, e)
	if err != nil || ctx.Done() == nil || c.spec.Op == upstream.SubmitVideo || c.info.Form != nil { // the files of a form are the caller's
		return runWhole(inner, c, err, form, typed)
	}
	type result struct {
		response *R
		err      error
	}
	done := make(chan result)
	go func() {
		response, err := runWhole(inner, c, nil, form, typed)
		select {
		case done <- result{response, err}:
		case <-ctx.Done(): // nobody waits for it
		}
	}()
	select {
	case r := <-done:
		return r.response, r.err
	case <-ctx.Done():
	}
	return nil, deliver.ClientError(ctx)
}

// runWhole runs a typed call, which failed with err before it or not, to its whole answer.
// typed makes the response, which is then filled from the JSON. An answer of another form was
// charged all the same.
func runWhole[R any](ctx context.Context, e *Entry, err error, form string, typed func(outcome) *R) (response *R, failed error) {
	defer fault.Recover(&failed) // of a log handler in End, for one, which must not end the process
	defer func() { e.end(0, failed) }()
	defer fault.Recover(&failed)
	if err == nil {
		err = e.run(ctx)
	}
	if err != nil {
		return nil, err
	}
	receipt, _ := e.Receipt()
	response = typed(outcome{e.response.Body, e.receiptID(), receipt.Charge, e.response.Dropped})
	if err = json.Unmarshal(e.response.Body, response, jsontext.AllowDuplicateNames(true)); err != nil {
		err = fault.Wrap(fault.BadGateway, "The upstream's answer is not of the "+form+" form. It was charged, and Raw has it.", err)
	}
	return response, err
}

// typedSource is what a typed stream reads. The call ends when it is closed; if
// there is nothing to read, it ends here.
func (e *Entry) typedSource(err error) (chat.Source, error) {
	result := &e.response
	switch {
	case err != nil:
		e.end(0, err)
		return nil, err
	case result.Replayed:
		e.end(0, nil)
		return replayedStream{bytes.NewReader(result.Body), *e.record.receipt}, nil
	case result.Audio != nil:
		return typedSource{result.Audio, result}, nil
	}
	return typedSource{result.Stream, result}, nil
}

// receiptID is the id by which the charge is found: of a replayed answer, the
// first request's.
func (e *Entry) receiptID() string {
	if e.record.replayed {
		return e.record.receipt.ID
	}
	return e.ID
}

// typedSource is a Stream or an Audio that also ends its call.
type typedSource struct {
	chat.Source
	response *Response
}

// Close ends the answer and writes the log line.
func (s typedSource) Close() error { return s.response.Close() }

// EditImage edits images, with the same checks, limits, holds and fail-over as
// over HTTP; Stream in req is ignored. The files of req are opened once per
// attempt and more, and must stay until it returns, which the end of ctx does not hasten. The caller is the principal in
// ctx, as for [Gateway.Chat]. Every error is a *fault.Error.
func (g *Gateway) EditImage(ctx context.Context, req *images.Edit) (*images.Response, error) {
	whole := *req
	whole.Stream, whole.PartialImages = false, 0
	return answered(ctx, g, "image", encoding(&imagesop.EditSpec, &whole, imagesop.EncodeForm), pictures)
}

// SubmitVideo hands a video in, with the same checks, limits and holds as over
// HTTP, and returns the record of its task, which goes on by itself: see
// [Gateway.Video] and [Gateway.WaitVideo]. Its price is held until it ends, and
// charged if it succeeds. Wait in req answers with the record as it is when ctx ends, a minute
// later at the latest, or at once where as many wait as may. It returns when an upstream has
// taken the task, which the end of ctx does not hasten. The caller is the principal in
// ctx, as for [Gateway.Chat]. Every error is a *fault.Error; a fault.RequestTimeout names
// the task of which it is not known whether an upstream took it.
func (g *Gateway) SubmitVideo(ctx context.Context, req *video.Request) (*video.Response, error) {
	return answered(ctx, g, "video record", encoding(&videoop.Spec, req, videoop.Encode), func(o outcome) *video.Response { // it costs nothing until it has ended
		return &video.Response{Raw: o.body, RequestID: o.id, Dropped: o.dropped}
	})
}

// Video is the record of a task of the caller's account, by the id that its
// submission gave. It asks the upstream how the task goes, unless that was done
// a moment ago. A task of another account, or one that was purged, is a
// fault.ResourceNotFound.
func (g *Gateway) Video(ctx context.Context, id string) (*video.Response, error) {
	t, err := g.videoTask(ctx, id)
	if err != nil {
		return nil, err
	}
	return g.videoResponse(ctx, t)
}

// VideoRecord is the record of [Gateway.Video] as JSON, without what the video cost:
// what a server answers.
func (g *Gateway) VideoRecord(ctx context.Context, id string) ([]byte, error) {
	t, err := g.videoTask(ctx, id)
	if err != nil {
		return nil, err
	}
	return videoop.Record(t), nil
}

func (g *Gateway) videoTask(ctx context.Context, id string) (*video.Task, error) {
	p, err := g.principal(ctx)
	if err != nil {
		return nil, err
	}
	return g.showVideo(ctx, p.Account, id)
}

// WaitVideo yields the record of a task as it is, and again at each change of
// its status, until it has ended. Where that is not seen, the error comes last:
// ctx ended, the gateway shuts down, or as many wait as may
// ([VideoOptions.MaxWaiting]; a fault.ServiceUnavailable after the record as it
// is). Breaking out of the loop stops nothing but the waiting.
func (g *Gateway) WaitVideo(ctx context.Context, id string) iter.Seq2[*video.Response, error] {
	return func(yield func(*video.Response, error) bool) {
		p, err := g.principal(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for t, err := range g.watchVideo(ctx, p.Account, id) {
			if err != nil {
				yield(nil, err)
				return
			}
			r, err := g.videoResponse(ctx, t)
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// videoResponse is the typed record, with what it cost once that is known.
func (g *Gateway) videoResponse(ctx context.Context, t *video.Task) (*video.Response, error) {
	r, err := videoop.Response(t)
	if err != nil {
		return r, fault.Wrap(fault.BadGateway, "The upstream's answer is not of the video form. Raw has it.", err)
	}
	r.RequestID = t.RequestID
	if reports, ok := g.options.Meter.(billing.Reports); ok && t.State.Terminal() {
		if receipt, err := reports.Receipt(ctx, t.Account, t.RequestID); err == nil {
			r.Charge = receipt.Charge
		}
	}
	return r, nil
}

// replayedStream reads a stream again that was kept for repeated requests.
type replayedStream struct {
	io.Reader
	receipt billing.Receipt
}

// Close does nothing: nothing runs.
func (replayedStream) Close() error { return nil }

// Receipt is the first request's.
func (r replayedStream) Receipt() (billing.Receipt, bool) { return r.receipt, true }

// WithIdempotencyKey returns a context in which typed calls carry an
// idempotency key: a repeated call with the same key and request returns the
// first answer, and is charged once.
func WithIdempotencyKey(ctx context.Context, key string) context.Context {
	return callctx.WithIdempotencyKey(ctx, key)
}

// WithMaxCost returns a context in which each call costs at most so much, or less if ctx says so
// already: the vendor is asked for no more output than that pays for. A call whose input alone
// costs more is a fault.BudgetExceeded, as is one whose cost no limit bounds. So is every call if
// most is not positive. Models without a price cost nothing, and counts of tokens do not either.
//
// A stream whose vendor makes more than it was asked for is cut there. A whole answer that is
// longer than it was asked for can cost more.
func WithMaxCost(ctx context.Context, most billing.Money) context.Context {
	if most <= 0 {
		most = -1
	}
	return callctx.WithMaxCost(ctx, most)
}
