package gateway

import (
	"context"
	"maps"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	embeddingsop "github.com/tollhouse-ai/gateway/internal/operation/embeddings"
	imagesop "github.com/tollhouse-ai/gateway/internal/operation/images"
	messagesop "github.com/tollhouse-ai/gateway/internal/operation/messages"
	rerankop "github.com/tollhouse-ai/gateway/internal/operation/rerank"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	speechop "github.com/tollhouse-ai/gateway/internal/operation/speech"
	videoop "github.com/tollhouse-ai/gateway/internal/operation/video"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// capability is what the pipeline needs to know of one kind of requests: data and
// functions that the capability fills in. All that differs between operations is here,
// but for the parsers below and in call.parse (request.go), and the kinds of models
// and the units of their prices (catalog.go). Each function is given the operation,
// whose request it knows the type of. A function may be nil where its comment says so.
type capability struct {
	name upstream.Op
	// unbilled says that a call never costs anything.
	unbilled bool
	// standIn is the operation that a model may serve in the place of this one, so that
	// the gateway can answer by itself; empty for none.
	standIn upstream.Op
	// mostKept is how many bytes of an answer are kept for duplicates of the request; 0
	// means idempotency.MaxAnswer.
	mostKept int

	unknownModel func(id string) error
	// refers reports whether the request refers to anything that is stored, and expand puts
	// that into its place, before anything of it is checked. Nil where nothing does.
	refers func(o *operation) bool
	expand func(ctx context.Context, o *operation, m *Model) error
	// forbiddenModel is the code of the refusal of a model that the key may not use; empty
	// for fault.PermissionDenied.
	forbiddenModel fault.Code
	// mismatch is the code of the refusal of a model that serves another endpoint;
	// empty for that of any invalid request.
	mismatch fault.Code
	// validate checks the request by the rules of its model. price is nil for a
	// model that has none.
	validate func(o *operation, m *Model, price *billing.Price) error
	// unpriced refuses what of the request and its header costs money without a
	// price, or chooses another model or account, unless pass allows it.
	unpriced func(o *operation, h http.Header, pass rule.PassUnpriced) error
	// scope says which fields without a price are looked for behind the names that a
	// channel gives to fields of the request.
	scope rule.Scope
	// translated are fields without a price that a channel of another dialect does not
	// leave out, but translates.
	translated []string
	// bound says what the request may consume, as it is then: before and after expand.
	bound func(o *operation, m *Model, price *billing.Price) bounds
	// unstoppable says that a vendor makes a stream to its end, even if that is cancelled.
	unstoppable bool
	// ordered is what a vendor counts at least that got the request and failed: an
	// estimate of what it was sent, and the units that it was asked for. The operator
	// bears that. Nil where nothing of the kind is known.
	ordered func(o *operation, price *billing.Price) billing.Usage

	// estimate is the answer to a request to count tokens that no upstream counts. Nil for
	// all others.
	estimate func(o *operation) []byte

	// serve runs the whole call, for a capability whose calls have another course than
	// the usual hold, attempt and settlement; nil for all others.
	serve func(o *operation, c *call) (*Response, error)
	// prepare makes what goes upstream once the hold has been granted. maxOutput is
	// the number of output tokens that the upstream is limited to because the
	// balance affords no more; 0 if it affords everything.
	prepare func(o *operation, maxOutput int64) (body upstream.Body, view any)
	// omitted names the fields that are not sent, for lack of maxOutput tokens (0 if the
	// balance affords all) or of a price; nil for none.
	omitted func(o *operation, maxOutput int64) []string
	// answer checks a whole answer and gives it the public form. price is what is paid,
	// which decides what counts are needed.
	answer func(o *operation, data []byte, price *billing.Price) (answer, error)

	// split cuts a request that is too large for one upstream call into the requests of
	// its parts, in order, none if it need not be cut; join makes one answer of theirs.
	// Both are nil where a request is always one call.
	split func(o *operation, m *Model) []any
	join  func(o *operation, m *Model, answers [][]byte) ([]byte, error)

	// opening judges the first events of a stream, and tap reads them all. Both are
	// nil where nothing streams.
	opening func(name string, data []byte) (content bool, err error)
	// unfold makes the events of a stream out of a whole answer that came in its place. Nil
	// where nothing streams.
	unfold func(o *operation, data []byte) ([]sse.Event, error)
	tap    func(o *operation, price *billing.Price) tap
	// errorEvent appends what ends a broken stream of the request called id; nil for
	// OpenAI's form. The tap is nil if the request failed before it had one.
	errorEvent func(dst []byte, id string, t tap, err *fault.Error) []byte
	// numbered says that the events of a stream are numbered, so that duplicates of it get
	// the heartbeats among them too.
	numbered bool
	// summarize makes the tap refer to a summary of the request from now on, and
	// returns it; nil where requests are small.
	summarize func(o *operation, t tap) (summary any)
}

// operation is one parsed request as the pipeline sees it.
type operation struct {
	*capability
	call        *call
	request     any // of the capability's type
	model       string
	stream      bool
	clientBytes []byte         // the request as it came; nil for a form
	form        *upstream.Form // which may lie on disk: it is closed when the call has ended
	status      int            // HTTP status of the answer; 0 means 200

	// sessionBody is the body that may name the request's session, and sessionUser the user
	// whom a message is for; nil where requests have no sessions.
	sessionBody *conversation.Parsed
	sessionUser string

	// wait says that the answer is the end of the task that was accepted.
	wait bool

	state *responseState // of a request for a response; nil where none are kept

	passed bool   // fields may reach the vendor by which it reads or makes more than was sent
	bounds bounds // computed once the model and its price are known
}

// tap turns an upstream's events into the client's and counts what passes.
type tap interface {
	// Event appends what the client gets. Its error is what ends the stream.
	Event(dst []byte, name string, data []byte) (out []byte, done bool, err error)
	Usage() billing.Usage
	// Output is the number of output tokens delivered so far.
	Output() int64
	// Said is the same by the text alone; 0 where it has none.
	Said() int64
	// Delivered reports whether the client can have got any of Output.
	Delivered() bool
	// Heartbeat appends what a client that waits is sent; it may be nothing.
	Heartbeat(dst []byte) []byte
	// CutShort ends the stream because the money did.
	CutShort(dst []byte) []byte
	// Terminator is the event that ends a complete stream.
	Terminator() string
}

// withoutRequest is what the running stream of t still needs of its operation,
// without the request, which may have megabytes.
func (o *operation) withoutRequest(t tap) *operation {
	return &operation{
		capability: o.capability, call: o.call, request: o.summarize(o, t), model: o.model, stream: o.stream, form: o.form, bounds: o.bounds,
	}
}

// parsers read the JSON body of each operation.
var parsers = map[upstream.Op]func(c *call, data []byte) (*operation, error){
	upstream.ChatCompletion: parser(chatop.Parse, newChat),
	upstream.Messages:       parser(messagesop.Parse, newMessages),
	upstream.CountTokens:    parser(messagesop.ParseCount, newCount),
	upstream.Responses:      parser(responsesop.Parse, newResponse),
	upstream.CountInput:     parser(responsesop.ParseCount, newInputCount),
	upstream.GenerateImage:  parser(imagesop.Parse, newImages),
	upstream.Embeddings:     parser(embeddingsop.Parse, newEmbeddings),
	upstream.Speech:         parser(speechop.Parse, newSpeech),
	upstream.Rerank:         parser(rerankop.Parse, newRerank),
	upstream.SubmitVideo:    parser(videoop.Parse, newVideo),
}

// parser makes an operation of what parse reads.
func parser[R any](parse func(data []byte) (*R, error), operate func(*call, *R) *operation) func(*call, []byte) (*operation, error) {
	return func(c *call, data []byte) (*operation, error) {
		r, err := parse(data)
		if err != nil {
			return nil, err
		}
		return operate(c, r), nil
	}
}

// unpriced refuses fields of a request's body.
func unpriced[R interface {
	Unpriced(pass func(name, spelled string) bool) error
}](o *operation, _ http.Header, pass rule.PassUnpriced) error {
	return o.request.(R).Unpriced(pass)
}

// conversationRequest is what the requests of chat, messages and responses have in common.
type conversationRequest interface {
	Validate() error
	// InputBound and LinkedBound are the input and extraMedia of tokenBounds.
	InputBound(media chat.MediaBound) int64
	LinkedBound(media chat.MediaBound) int64
	// InputLimit is that of tokenBounds.
	InputLimit(media chat.MediaBound) int64
	InputEstimate(media chat.MediaBound) int64
	ReadAnswer(data []byte, media chat.MediaBound) (conversation.Answer, error)
	// AsksForReasoning reports whether the request switches the model's reasoning on, or says
	// how it is shown, and HidesReasoning whether it says that it is not.
	AsksForReasoning() bool
	HidesReasoning() bool
}

// media bounds the tokens of pictures and videos.
func (o *operation) media() chat.MediaBound { return o.call.g.options.Media }

func validateConversation(o *operation, _ *Model, _ *billing.Price) error {
	return o.request.(conversationRequest).Validate()
}

// conversationBounds are those of a conversation, without what its caller bounds.
func (o *operation) conversationBounds(m *Model, price *billing.Price) tokenBounds {
	r := o.request.(conversationRequest)
	b := tokenBounds{
		input: r.InputBound(o.media()), extraMedia: r.LinkedBound(o.media()),
		candidates: 1, uncounted: !o.stream || m.Reasoning == ReasoningHidden || r.HidesReasoning(),
		cacheWrite: cacheWriteIsDearest(price),
	}
	if price.Covers(billing.Request) {
		b.requests = 1
	}
	if !o.passed {
		b.inputLimit = r.InputLimit(o.media())
	}
	return b
}

// cacheWriteIsDearest reports whether a token that a vendor writes to its cache costs more than
// any other token of the input.
func cacheWriteIsDearest(p *billing.Price) bool {
	const tokens = 1_000_000
	plain, err := p.Cost(billing.Usage{Input: tokens})
	written, err2 := p.Cost(billing.Usage{CacheWrite: tokens})
	return err == nil && err2 == nil && written > plain
}

func orderedConversation(o *operation, _ *billing.Price) billing.Usage {
	return billing.Usage{Input: o.request.(conversationRequest).InputEstimate(o.media()), Requests: o.bounds.tokens.requests, Estimated: true}
}

func conversationAnswer(o *operation, data []byte, _ *billing.Price) (answer, error) {
	a, err := o.request.(conversationRequest).ReadAnswer(data, o.media())
	return answer{body: a.Body, usage: a.Usage, text: a.Said}, err
}

// newChat is the operation of a chat completion.
func newChat(c *call, r *chatop.Request) *operation {
	return &operation{capability: &chatCompletion, call: c, request: r, model: r.Model, stream: r.Stream, clientBytes: r.Source(), sessionBody: &r.Parsed}
}

func (o *operation) chat() *chatop.Request { return o.request.(*chatop.Request) }

var chatCompletion = capability{
	name:         upstream.ChatCompletion,
	unknownModel: chatop.UnknownModel,
	validate:     validateConversation,
	unpriced:     unpriced[*chatop.Request],
	scope:        rule.Generation,
	translated:   []string{"cache_control"},
	bound: func(o *operation, m *Model, price *billing.Price) bounds {
		r, b := o.chat(), o.conversationBounds(m, price)
		b.callerBound, b.candidates = r.OutputBound(), r.Candidates()
		// In the place of max_completion_tokens a channel that speaks messages gets
		// max_tokens, and in that of either one of responses max_output_tokens.
		newer := r.MaxTokens == 0 && r.MaxCompletionTokens > 0
		return b.toBounds(m, m.drops.maxTokens || newer && m.drops.maxCompletionTokens || m.drops.maxOutputTokens)
	},
	ordered: orderedConversation,
	prepare: func(o *operation, maxOutput int64) (upstream.Body, any) {
		return o.chat().Prepared(maxOutput), o.chat().Limited(maxOutput)
	},
	omitted: func(o *operation, _ int64) []string { return o.chat().Unknown },
	answer:  conversationAnswer,
	opening: chatop.Opening,
	unfold:  func(_ *operation, data []byte) ([]sse.Event, error) { return chatop.Unfold(data) },
	tap: func(o *operation, _ *billing.Price) tap {
		g := o.call.g
		return o.chat().NewTap(chatop.TapOptions{
			Media: o.media(), Created: g.options.Now().Unix(),
			NewID: func() string { return g.options.NewID("chatcmpl-") }, // which must not keep the request
		})
	},
	summarize: func(o *operation, t tap) any {
		summary := o.chat().Summary()
		t.(*chatop.Tap).UseSummary(summary)
		return summary
	},
}

// newMessages is the operation of a message.
func newMessages(c *call, r *messagesop.Request) *operation {
	return newMessageOperation(&message, c, r)
}

func newMessageOperation(kind *capability, c *call, r *messagesop.Request) *operation {
	o := &operation{capability: kind, call: c, request: r, model: r.Model, stream: r.Stream, clientBytes: r.Source(), sessionBody: &r.Parsed}
	if r.Metadata != nil {
		o.sessionUser = r.Metadata.UserID
	}
	return o
}

func (o *operation) message() *messagesop.Request { return o.request.(*messagesop.Request) }

var message = capability{
	name:         upstream.Messages,
	unknownModel: noModel,
	validate:     validateConversation,
	unpriced: func(o *operation, h http.Header, pass rule.PassUnpriced) error {
		return o.message().Unpriced(h, pass)
	},
	scope: rule.Generation,
	bound: func(o *operation, m *Model, price *billing.Price) bounds {
		b := o.conversationBounds(m, price)
		b.callerBound = o.message().MaxTokens
		return b.toBounds(m, m.drops.maxTokens || m.drops.maxOutputTokens)
	},
	ordered: orderedConversation,
	prepare: func(o *operation, maxOutput int64) (upstream.Body, any) {
		return o.message().Prepared(maxOutput), o.message().Limited(maxOutput)
	},
	omitted: func(o *operation, maxOutput int64) []string {
		return append(o.message().Unaffordable(maxOutput), o.message().Unknown...)
	},
	answer:  conversationAnswer,
	opening: messagesop.Opening,
	unfold:  func(_ *operation, data []byte) ([]sse.Event, error) { return messagesop.Unfold(data) },
	errorEvent: func(dst []byte, id string, _ tap, err *fault.Error) []byte {
		return messagesop.ErrorEvent(dst, id, err)
	},
	tap: func(o *operation, _ *billing.Price) tap {
		g := o.call.g
		return o.message().NewTap(messagesop.TapOptions{
			Media: o.media(),
			NewID: func() string { return g.options.NewID("msg_") }, // which must not keep the request
		})
	},
	summarize: func(o *operation, t tap) any {
		summary := o.message().Summary()
		t.(*messagesop.Tap).UseSummary(summary)
		return summary
	},
}

// newCount is the operation that counts the tokens of a message that is not made.
func newCount(c *call, r *messagesop.Request) *operation {
	return newMessageOperation(&tokenCount, c, r)
}

// tokenCount streams nothing, holds nothing and costs nothing. Tokens are counted for
// whatever makes messages: here, where no upstream counts them.
var tokenCount = capability{
	name:         upstream.CountTokens,
	unbilled:     true,
	standIn:      upstream.Messages,
	unknownModel: noModel,
	validate:     message.validate,
	unpriced:     message.unpriced,
	scope:        rule.Count,
	bound:        func(*operation, *Model, *billing.Price) bounds { return bounds{plausible: anything} },
	estimate:     func(o *operation) []byte { return messagesop.CountAnswer(o.message().InputEstimate(o.media())) },
	serve:        func(_ *operation, c *call) (*Response, error) { return c.count() },
	prepare: func(o *operation, _ int64) (upstream.Body, any) {
		return o.message().Body, o.message().Request
	},
	answer: func(_ *operation, data []byte, _ *billing.Price) (answer, error) {
		body, _, err := conversation.ReadCount(data)
		return answer{body: body}, err
	},
}

// newResponse is the operation that makes a response.
func newResponse(c *call, r *responsesop.Request) *operation {
	return &operation{capability: &responseCreation, call: c, request: r, model: r.Model, stream: r.Stream, clientBytes: r.Source(), sessionBody: &r.Parsed}
}

func (o *operation) response() *responsesop.Request { return o.request.(*responsesop.Request) }

// mostSilence is how long the stream of a response has no event: agents give up at five
// minutes, and do not count comments.
const mostSilence = 2 * time.Minute

var responseCreation = capability{
	name:           upstream.Responses,
	unknownModel:   noModel,
	forbiddenModel: fault.ModelNotFound,
	refers:         func(o *operation) bool { return o.response().Refers() },
	expand:         expandState,
	validate:       validateConversation,
	unpriced:       unpricedResponse,
	scope:          rule.Generation,
	bound: func(o *operation, m *Model, price *billing.Price) bounds {
		b := o.conversationBounds(m, price)
		b.callerBound = o.response().MaxOutputTokens
		if o.state != nil {
			b.input += o.state.tokens
			o.state.most = b.input
		}
		if o.state != nil && o.state.channel != "" { // the vendor adds what it keeps
			b.inputLimit = 0
		}
		// In its place a channel of another dialect gets one of the others.
		return b.toBounds(m, m.drops.maxTokens || m.drops.maxCompletionTokens || m.drops.maxOutputTokens)
	},
	ordered: orderedConversation,
	prepare: func(o *operation, maxOutput int64) (upstream.Body, any) {
		limited := o.response().Limited(maxOutput)
		return limited.Body, limited
	},
	omitted:  func(o *operation, _ int64) []string { return o.response().Omitted() },
	answer:   conversationAnswer,
	opening:  responsesop.Opening,
	unfold:   func(_ *operation, data []byte) ([]sse.Event, error) { return responsesop.Unfold(data) },
	numbered: true,
	errorEvent: func(dst []byte, id string, t tap, err *fault.Error) []byte {
		if t, ok := t.(*responsesop.Tap); ok {
			return t.AppendError(dst, err)
		}
		return responsesop.ErrorEvents(dst, id, err)
	},
	tap: func(o *operation, _ *billing.Price) tap {
		g, quiet := o.call.g, 0
		if every := g.options.Heartbeat; every > 0 {
			quiet = int((mostSilence + every - 1) / every)
		}
		return o.response().NewTap(responsesop.TapOptions{
			Media: o.media(), Created: g.options.Now().Unix(), Quiet: quiet,
			NewID: func() string { return g.options.NewID("resp_") }, // which must not keep the request
			Edit:  o.state.editor(),
		})
	},
	summarize: func(o *operation, t tap) any {
		summary := o.response().Summary()
		t.(*responsesop.Tap).UseSummary(summary)
		return summary
	},
}

// unpricedResponse refuses fields of a request's body, or leaves them out, as it does with
// the header OpenAI-Beta.
func unpricedResponse(o *operation, h http.Header, pass rule.PassUnpriced) error {
	err := o.response().Unpriced(h, pass)
	if o.response().OmitsBetas() {
		o.call.header = maps.Clone(h)
		maps.DeleteFunc(o.call.header, func(name string, _ []string) bool { return strings.EqualFold(name, rule.OpenAIBetas) })
	}
	return err
}

// newInputCount is the operation that counts the input of a response that is not made.
func newInputCount(c *call, r *responsesop.Request) *operation {
	return &operation{capability: &inputCount, call: c, request: r, model: r.Model, clientBytes: r.Source(), sessionBody: &r.Parsed}
}

// inputCount is what tokenCount is, of responses.
var inputCount = capability{
	name:           upstream.CountInput,
	unbilled:       true,
	standIn:        upstream.Responses,
	unknownModel:   noModel,
	forbiddenModel: fault.ModelNotFound,
	refers:         func(o *operation) bool { return o.response().Refers() },
	expand:         expandState,
	validate:       validateConversation,
	unpriced:       unpricedResponse,
	scope:          rule.Count,
	bound:          func(*operation, *Model, *billing.Price) bounds { return bounds{plausible: anything} },
	estimate:       func(o *operation) []byte { return responsesop.CountAnswer(o.response().InputEstimate(o.media())) },
	serve:          func(_ *operation, c *call) (*Response, error) { return c.count() },
	prepare: func(o *operation, _ int64) (upstream.Body, any) {
		limited := o.response().Limited(0)
		return limited.Body, limited
	},
	answer: func(_ *operation, data []byte, _ *billing.Price) (answer, error) {
		body, _, err := conversation.ReadCount(data)
		return answer{body: body}, err
	},
}

// newEmbeddings is the operation of embeddings.
func newEmbeddings(c *call, r *embeddingsop.Request) *operation {
	return &operation{capability: &embedding, call: c, request: r, model: r.Model, clientBytes: r.Source()}
}

func (o *operation) embeddings() *embeddingsop.Request { return o.request.(*embeddingsop.Request) }

var embedding = capability{
	name:         upstream.Embeddings,
	mostKept:     64 << 10, // they are large, and cost next to nothing to make again
	unknownModel: noModel,
	validate:     func(o *operation, m *Model, _ *billing.Price) error { return o.embeddings().Validate(m.Dimensions) },
	unpriced:     unpriced[*embeddingsop.Request],
	bound: func(o *operation, _ *Model, _ *billing.Price) bounds {
		most := billing.Usage{Input: o.embeddings().InputBound()}
		return bounds{most: most, least: most, plausible: plausible{input: 2*most.Input + countSlack, images: math.MaxInt64}}
	},
	ordered: func(o *operation, _ *billing.Price) billing.Usage {
		return billing.Usage{Input: o.embeddings().Estimate(), Estimated: true}
	},
	prepare: func(o *operation, _ int64) (upstream.Body, any) {
		return o.embeddings().Prepared(), &o.embeddings().Request
	},
	omitted: func(o *operation, _ int64) []string { return o.embeddings().Unknown },
	answer: func(o *operation, data []byte, _ *billing.Price) (answer, error) {
		a, err := o.embeddings().ReadAnswer(data)
		return answer{body: a.Body, usage: a.Usage}, err
	},
	split: func(o *operation, m *Model) []any {
		var parts []any
		for _, p := range o.embeddings().Split(m.Batch) {
			parts = append(parts, p)
		}
		return parts
	},
	join: func(o *operation, _ *Model, answers [][]byte) ([]byte, error) { return o.embeddings().Join(answers) },
}

// part is the operation of a part of the request.
func (o *operation) part(request any, m *Model) *operation {
	p := &operation{capability: o.capability, call: o.call, request: request, model: o.model}
	p.bounds = p.bound(p, m, nil)
	return p
}

// newImages is the operation that generates or edits images. The request of an
// edit is a form.
func newImages(c *call, r *imagesop.Request) *operation {
	kind := imageGeneration
	if r.Edit != nil {
		kind.name, kind.unknownModel = upstream.EditImage, noModel
	}
	return &operation{capability: &kind, call: c, request: r, model: r.Model, stream: r.Stream, clientBytes: r.Source(), form: r.Form()}
}

func (o *operation) images() *imagesop.Request { return o.request.(*imagesop.Request) }

var imageGeneration = capability{
	name:         upstream.GenerateImage,
	unstoppable:  true,
	unknownModel: imagesop.UnknownModel,
	validate:     func(o *operation, _ *Model, _ *billing.Price) error { return o.images().Validate() },
	unpriced:     unpriced[*imagesop.Request],
	bound: func(o *operation, m *Model, _ *billing.Price) bounds {
		r := o.images()
		return imageBounds(r.Known(), billing.Usage{
			Input: r.InputBound(), ImageInput: r.ImageInputBound(), ImageOutput: r.OutputBound(m.MaxOutput), Images: r.Count(),
		})
	},
	ordered: func(o *operation, _ *billing.Price) billing.Usage {
		prompt, shown := o.images().Estimate()
		return billing.Usage{Input: prompt, ImageInput: shown, Images: o.images().Count(), Estimated: true}
	},
	prepare: func(o *operation, _ int64) (upstream.Body, any) {
		return o.images().Prepared(), o.images().View()
	},
	answer: func(o *operation, data []byte, price *billing.Price) (answer, error) {
		a, err := o.images().ReadAnswer(data, o.call.id, paysTokens(price))
		return answer{body: a.Body, usage: a.Usage}, err
	},
	opening: func(name string, data []byte) (bool, error) { return true, imagesop.Opening(name, data) },
	unfold:  func(o *operation, data []byte) ([]sse.Event, error) { return o.images().Unfold(data) },
	tap: func(o *operation, price *billing.Price) tap {
		return imagesTap{o.images().NewTap(o.call.id, paysTokens(price))}
	},
}

// imageBounds are exact for images. Of tokens most is what the vendor's tables or
// the operator say that an image takes; of a model that no table describes little
// is known, so that more is believed.
func imageBounds(known bool, most billing.Usage) bounds {
	const several = 100
	p := plausible{input: 2*(most.Input+most.ImageInput) + countSlack, output: 2*most.ImageOutput + countSlack, images: most.Images}
	if !known {
		p = plausible{input: maxContext, output: maxContext, images: max(most.Images, several)}
	}
	return bounds{most: most, least: most, plausible: p}
}

// paysTokens reports whether a price is for more than images: only then a missing
// report of tokens is worth an estimate.
func paysTokens(price *billing.Price) bool {
	for _, rate := range price.Rates() {
		if rate.Unit != billing.Image {
			return true
		}
	}
	return false
}

// imagesTap is the tap of partial images. Its stream has no end but its last
// image, and nothing that could be sent while the client waits.
type imagesTap struct{ *imagesop.Tap }

func (t imagesTap) Said() int64                 { return 0 }
func (t imagesTap) Delivered() bool             { return true }
func (t imagesTap) Heartbeat(dst []byte) []byte { return dst }
func (t imagesTap) CutShort(dst []byte) []byte  { return dst }
func (t imagesTap) Terminator() string          { return "" }

// newSpeech is the operation that makes speech.
func newSpeech(c *call, r *speechop.Request) *operation {
	return &operation{capability: &spokenText, call: c, request: r, model: r.Model, clientBytes: r.Source()}
}

func (o *operation) speech() *speechop.Request { return o.request.(*speechop.Request) }

// spokenText has audio for an answer, which call.speak asks for. The characters are
// known, so that the bound is exact.
var spokenText = capability{
	name:         upstream.Speech,
	unknownModel: speechop.UnknownModel,
	mismatch:     fault.EndpointModelMismatch,
	validate:     func(o *operation, m *Model, _ *billing.Price) error { return o.speech().Validate(m.Voices) },
	unpriced:     unpriced[*speechop.Request],
	bound: func(o *operation, _ *Model, _ *billing.Price) bounds {
		most := billing.Usage{Characters: o.speech().Characters()}
		return bounds{most: most, least: most, plausible: anything}
	},
	ordered: func(o *operation, _ *billing.Price) billing.Usage {
		return billing.Usage{Characters: o.speech().Characters(), Estimated: true}
	},
	serve: func(o *operation, c *call) (*Response, error) { return c.speak(o.speech()) },
}

// newRerank is the operation that ranks documents.
func newRerank(c *call, r *rerankop.Request) *operation {
	return &operation{capability: &ranking, call: c, request: r, model: r.Model, clientBytes: r.Source()}
}

func (o *operation) rerank() *rerankop.Request { return o.request.(*rerankop.Request) }

// ranking is sold by search units, tokens or requests. Its typed view is made of the
// body by those who need one: the documents would lie in memory twice.
var ranking = capability{
	name:         upstream.Rerank,
	unknownModel: noModel,
	validate:     func(o *operation, _ *Model, _ *billing.Price) error { return o.rerank().Validate() },
	unpriced:     unpriced[*rerankop.Request],
	bound: func(o *operation, m *Model, price *billing.Price) bounds {
		all := o.rerank().Bound(m.Batch)
		most := rerankop.Sold(all, price)
		return bounds{most: most, least: most, plausible: plausible{input: 2*all.Input + countSlack, searchUnits: all.SearchUnits}}
	},
	ordered: func(o *operation, price *billing.Price) billing.Usage {
		return rerankop.Sold(o.rerank().Estimate(), price)
	},
	prepare: func(o *operation, _ int64) (upstream.Body, any) {
		return o.rerank().Prepared(), nil
	},
	answer: func(o *operation, data []byte, price *billing.Price) (answer, error) {
		a, err := o.rerank().ReadAnswer(data, price, func() string { return o.call.g.options.NewID("rr_") })
		return answer{body: a.Body, usage: a.Usage}, err
	},
	split: func(o *operation, m *Model) []any {
		var parts []any
		for _, p := range o.rerank().Split(m.Batch) {
			parts = append(parts, p)
		}
		return parts
	},
	join: func(o *operation, m *Model, answers [][]byte) ([]byte, error) {
		return o.rerank().Join(answers, m.Batch)
	},
}

// newVideo is the operation that submits a video.
func newVideo(c *call, r *videoop.Request) *operation {
	o := &operation{
		capability: &videoSubmission, call: c, request: &submission{Request: r}, model: r.Model, clientBytes: r.Source(), wait: r.Wait, status: http.StatusOK,
	}
	if r.Family() == video.FamilyBeta {
		o.status = http.StatusAccepted
	}
	return o
}

func (o *operation) submission() *submission { return o.request.(*submission) }

// videoSubmission is what begins the life of a task, see videos.
var videoSubmission = capability{
	name:         upstream.SubmitVideo,
	unknownModel: noModel,
	unpriced:     unpriced[*submission],
	validate: func(o *operation, m *Model, price *billing.Price) error {
		o.submission().price = price
		return o.submission().Validate(videoop.ModelConfig{Ratios: m.Ratios, Priorities: m.Priorities, AllowPrivate: o.call.g.options.Video.AllowPrivate, Price: price})
	},
	bound: func(o *operation, _ *Model, price *billing.Price) bounds {
		b, err := o.submission().Bound(price)
		if err != nil { // which validate has refused
			return bounds{plausible: anything, inexact: true}
		}
		// Its task judges what it consumed.
		return bounds{most: b.Usage, least: b.Usage, plausible: anything, inexact: b.Open}
	},
	serve: func(o *operation, c *call) (*Response, error) { return c.submit(o.submission()) },
	prepare: func(o *operation, _ int64) (upstream.Body, any) {
		return o.submission().Prepared(), &o.submission().Request.Request
	},
	answer: func(_ *operation, data []byte, _ *billing.Price) (a answer, err error) {
		a.report, err = videoop.ReadSubmission(data)
		return a, err
	},
}
