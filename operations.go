package gateway

import (
	"net/http"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// operation is what the pipeline needs to know of one parsed request. Each
// capability has an adapter; nothing else in the pipeline depends on it.
type operation interface {
	op() upstream.Op
	model() string
	streams() bool
	source() []byte // the caller's own bytes; nil where it is [formed]
	unknownModel() error
	validate(m *Model) error
	// unpriced refuses what of the request and its header costs money without a
	// price, or chooses another model or account, unless pass lets it through.
	unpriced(h http.Header, pass rule.PassUnpriced) error
	// bound is the most that the request may consume, and the least that is
	// worth a start.
	bound(m *Model) (most, least billing.Usage)
	// request is what goes upstream when the hold has been granted. asked is
	// the number of output tokens that the upstream is limited to because the
	// balance affords no more; 0 if it affords everything.
	request(m *Model, h billing.Hold) (body upstream.Body, view any, asked int64)
	// outputLimit is the most output that the upstream may then produce.
	outputLimit(m *Model, asked int64) int64
	// implausible reports usage that no upstream can have had for this request.
	implausible(m *Model, u billing.Usage) bool
	// answer checks a whole answer and gives it the public form. body must not
	// refer to data, which is used again.
	answer(data []byte) (body []byte, u billing.Usage, err error)
	// opening judges the first events of a stream.
	opening(name string, data []byte) (content bool, err error)
	// tap reads the stream that follows.
	tap() tap
	// input is the text and the media that were sent, as estimated. A caller who
	// left before anything came back pays for it, and for the pieces of bound.
	input() billing.Usage
}

// unstreamed is the part of an operation that never streams.
type unstreamed struct{}

func (unstreamed) streams() bool { return false }

func (unstreamed) outputLimit(*Model, int64) int64 { return 0 }

func (unstreamed) opening(string, []byte) (bool, error) { return false, nil }

func (unstreamed) tap() tap { return nil }

// pricer is an operation whose rules depend on the model's price; nil if it has
// none.
type pricer interface{ priced(p *billing.Price) }

// identified is an operation whose answer tells the request's id in its body.
type identified interface{ identify(id string) }

// formed is an operation whose request is a form, which may lie on disk: it is
// closed when the call has ended.
type formed interface{ form() *upstream.Form }

// splitter is an operation whose request may be more than one upstream call
// takes.
type splitter interface {
	operation
	// split cuts the request into parts, in order; none if it need not be cut.
	split(m *Model) ([]operation, error)
	// join makes one answer of those of the parts.
	join(answers [][]byte) ([]byte, error)
}

// bounded is an operation of which a bound of the output may leave fields out.
type bounded interface{ unaffordable(asked int64) []string }

// worded is an operation whose answer has text.
type worded interface {
	// said is the output of a whole answer by its text, in tokens.
	said(answer []byte) int64
}

// verbose is an operation whose request may be long, and of no use any more once
// a stream has begun.
type verbose interface {
	// outline is the operation without it, of which t is the tap.
	outline(t tap) operation
}

// showing is a tap that counts more than the client sees.
type showing interface {
	// delivered reports whether the client has got anything of the answer.
	delivered() bool
}

// tap turns an upstream's events into the client's and counts what passes.
type tap interface {
	// event appends what the client gets. It fails with what ends the stream.
	event(dst []byte, name string, data []byte) (out []byte, done bool, err error)
	usage() billing.Usage
	// output is the number of output tokens delivered so far.
	output() int64
	heartbeat(dst []byte) []byte
	// cutShort ends the stream because the money did.
	cutShort(dst []byte) []byte
	// terminator is the event that ends a complete stream.
	terminator() string
}

// chatOperation adapts chat to the pipeline.
type chatOperation struct {
	*chat.Request
	g     *Gateway
	hides bool // the model is known to reason without showing it, for the whole call
}

func chatOf(g *Gateway, r *chat.Request) chatOperation {
	return chatOperation{r, g, r != nil && g.drains.hides(r.Model)}
}

func parseChat(g *Gateway, data []byte) (operation, error) {
	r, err := chat.Parse(data)
	return chatOf(g, r), err
}

func (c chatOperation) op() upstream.Op { return upstream.ChatCompletion }

func (c chatOperation) model() string { return c.Model }

func (c chatOperation) streams() bool { return c.Stream }

func (c chatOperation) source() []byte { return c.Source() }

func (c chatOperation) unknownModel() error { return chat.UnknownModel(c.Model) }

func (c chatOperation) validate(_ *Model) error { return c.Validate() }

func (c chatOperation) unpriced(_ http.Header, pass rule.PassUnpriced) error {
	return c.Unpriced(pass)
}

// bound is ledger.md, Size of a hold: the input bound and, per candidate, the
// caller's own bound or the model's hold_tokens.
func (c chatOperation) bound(m *Model) (most, least billing.Usage) {
	e := c.exposure(m)
	return e.usual(m), billing.Usage{Input: e.input, Output: e.candidates}
}

func (c chatOperation) exposure(m *Model) exposure {
	media := c.g.options.Media
	e := exposure{
		input: c.InputBound(media), linked: c.LinkedBound(media),
		callerBound: c.OutputBound(), candidates: c.Candidates(), unseen: !c.Stream || c.hides,
	}
	// In the place of max_completion_tokens a channel that speaks messages gets
	// max_tokens.
	newer := c.MaxTokens == 0 && c.MaxCompletionTokens > 0
	return e.boundDroppedIf(m.drops.maxTokens || newer && m.drops.maxCompletionTokens)
}

// request limits the output to what the balance affords, where that is less
// than what the caller or the model's cap allows (decisions.md, Chat).
func (c chatOperation) request(m *Model, h billing.Hold) (upstream.Body, any, int64) {
	asked := c.exposure(m).affordable(m, h)
	return c.Prepared(asked), c.Limited(asked), asked
}

func (c chatOperation) outputLimit(m *Model, asked int64) int64 {
	if own := c.exposure(m).sentBound; asked == 0 && own == 0 {
		asked = m.unboundedOutput()
	} else if asked == 0 {
		asked = m.outputBound(own)
	}
	return asked * c.Candidates()
}

// implausible counts are far above what the model can make, or above every context
// window (faults.md, row 6), whatever bound the caller wrote: it may not reach the
// vendor, or not be obeyed.
func (c chatOperation) implausible(m *Model, u billing.Usage) bool {
	return implausibleTokens(u, c.Candidates()*m.plausibleOutput())
}

// said is the output of an answer by its text.
func (c chatOperation) said(answer []byte) int64 {
	a, _ := c.ReadAnswer(answer, c.g.options.Media) // it was read before
	return a.Said
}

// maxContext is larger than every context window, in tokens; slack is how much more
// than its bound an upstream may count.
const maxContext, countSlack = 1 << 21, 1024

func implausibleTokens(u billing.Usage, most int64) bool {
	return u.Output > most || u.Input+u.CachedInput+u.CacheWrite > maxContext
}

func (c chatOperation) answer(data []byte) ([]byte, billing.Usage, error) {
	a, err := c.ReadAnswer(data, c.g.options.Media)
	return a.Body, a.Usage, err
}

func (c chatOperation) opening(name string, data []byte) (bool, error) {
	return chat.Opening(name, data)
}

func (c chatOperation) input() billing.Usage {
	return billing.Usage{Input: c.InputEstimate(c.g.options.Media), Estimated: true}
}

func (c chatOperation) tap() tap {
	g := c.g // the tap keeps the function, which must not keep the request
	return chatTap{c.NewTap(chat.TapOptions{
		Media:   c.g.options.Media,
		NewID:   func() string { return g.options.NewID("chatcmpl-") },
		Created: c.g.options.Now().Unix(),
	})}
}

func (c chatOperation) outline(t tap) operation {
	r := c.Summary()
	t.(chatTap).Outline(r)
	return chatOperation{r, c.g, c.hides}
}

// chatTap adapts chat's tap.
type chatTap struct{ *chat.Tap }

func (t chatTap) event(dst []byte, name string, data []byte) ([]byte, bool, error) {
	out, kind, err := t.Event(dst, name, data)
	return out, kind == chat.Done, err
}

func (t chatTap) usage() billing.Usage { return t.Usage() }

func (t chatTap) output() int64 { return t.Output() }

func (t chatTap) said() int64 { return t.Said() }

func (t chatTap) heartbeat(dst []byte) []byte { return t.Heartbeat(dst) }

func (t chatTap) cutShort(dst []byte) []byte { return t.CutShort(dst) }

func (t chatTap) terminator() string { return chat.Terminator }

// messagesOperation adapts messages to the pipeline.
type messagesOperation struct {
	*messages.Request
	g     *Gateway
	hides bool // the model is known to reason without showing it, for the whole call
}

func messagesOf(g *Gateway, r *messages.Request) messagesOperation {
	return messagesOperation{r, g, r != nil && g.drains.hides(r.Model)}
}

func parseMessages(g *Gateway, data []byte) (operation, error) {
	r, err := messages.Parse(data)
	return messagesOf(g, r), err
}

func (o messagesOperation) op() upstream.Op { return upstream.Messages }

func (o messagesOperation) model() string { return o.Model }

func (o messagesOperation) streams() bool { return o.Stream }

func (o messagesOperation) source() []byte { return o.Source() }

func (o messagesOperation) unknownModel() error { return noModel(o.Model) }

func (o messagesOperation) validate(*Model) error { return o.Validate() }

func (o messagesOperation) unpriced(h http.Header, pass rule.PassUnpriced) error {
	return o.Unpriced(h, pass)
}

// bound is the input's and what the caller allows, which is always said.
func (o messagesOperation) bound(m *Model) (most, least billing.Usage) {
	e := o.exposure(m)
	return e.usual(m), billing.Usage{Input: e.input, Output: 1}
}

func (o messagesOperation) exposure(m *Model) exposure {
	media := o.g.options.Media
	e := exposure{
		input: o.InputBound(media), linked: o.LinkedBound(media),
		callerBound: o.OutputBound(), candidates: 1, unseen: !o.Stream || o.hides,
	}
	return e.boundDroppedIf(m.drops.maxTokens)
}

// request limits the output to what the balance affords, as for chat.
func (o messagesOperation) request(m *Model, h billing.Hold) (upstream.Body, any, int64) {
	asked := o.exposure(m).affordable(m, h)
	return o.Prepared(asked), o.Limited(asked), asked
}

// unaffordable are the fields that a bound of the output leaves no room for.
func (o messagesOperation) unaffordable(asked int64) []string { return o.Unaffordable(asked) }

func (o messagesOperation) outputLimit(m *Model, asked int64) int64 {
	if own := o.exposure(m).sentBound; asked == 0 && own == 0 {
		asked = m.unboundedOutput()
	} else if asked == 0 {
		asked = m.outputBound(own)
	}
	return asked
}

func (o messagesOperation) implausible(m *Model, u billing.Usage) bool {
	return implausibleTokens(u, m.plausibleOutput())
}

// said is the output of an answer by its text.
func (o messagesOperation) said(answer []byte) int64 {
	a, _ := o.ReadAnswer(answer, o.g.options.Media) // it was read before
	return a.Said
}

func (o messagesOperation) answer(data []byte) ([]byte, billing.Usage, error) {
	a, err := o.ReadAnswer(data, o.g.options.Media)
	return a.Body, a.Usage, err
}

func (o messagesOperation) opening(name string, data []byte) (bool, error) {
	return messages.Opening(name, data)
}

func (o messagesOperation) input() billing.Usage {
	return billing.Usage{Input: o.InputEstimate(o.g.options.Media), Estimated: true}
}

func (o messagesOperation) tap() tap {
	g := o.g // the tap keeps the function, which must not keep the request
	return messagesTap{o.NewTap(messages.TapOptions{
		Media: o.g.options.Media,
		NewID: func() string { return g.options.NewID("msg_") },
	})}
}

func (o messagesOperation) outline(t tap) operation {
	r := o.Summary()
	t.(messagesTap).Outline(r)
	return messagesOperation{r, o.g, o.hides}
}

// messagesTap adapts the tap of messages.
type messagesTap struct{ *messages.Tap }

func (t messagesTap) event(dst []byte, name string, data []byte) ([]byte, bool, error) {
	return t.Event(dst, name, data)
}

func (t messagesTap) delivered() bool { return t.Delivered() }

func (t messagesTap) usage() billing.Usage { return t.Usage() }

func (t messagesTap) output() int64 { return t.Output() }

func (t messagesTap) said() int64 { return t.Said() }

func (t messagesTap) heartbeat(dst []byte) []byte { return t.Heartbeat(dst) }

func (t messagesTap) cutShort(dst []byte) []byte { return t.CutShort(dst) }

func (t messagesTap) terminator() string { return t.Terminator() }

// countOperation counts the tokens of a message that is not made: it streams
// nothing, holds nothing and costs nothing (decisions.md, Messages).
type countOperation struct {
	unstreamed
	*messages.Request
	g *Gateway
}

func parseCount(g *Gateway, data []byte) (operation, error) {
	r, err := messages.ParseCount(data)
	return countOperation{Request: r, g: g}, err
}

func (o countOperation) op() upstream.Op { return upstream.CountTokens }

func (o countOperation) model() string { return o.Model }

func (o countOperation) source() []byte { return o.Source() }

func (o countOperation) unknownModel() error { return noModel(o.Model) }

func (o countOperation) validate(*Model) error { return o.Validate() }

func (o countOperation) bound(*Model) (most, least billing.Usage) { return }

func (o countOperation) implausible(*Model, billing.Usage) bool { return false }

func (o countOperation) input() (free billing.Usage) { return }

func (o countOperation) request(*Model, billing.Hold) (upstream.Body, any, int64) {
	return o.Body(), o.Request, 0
}

func (o countOperation) unpriced(h http.Header, pass rule.PassUnpriced) error {
	return o.Unpriced(h, pass)
}

func (o countOperation) answer(data []byte) ([]byte, billing.Usage, error) {
	body, _, err := messages.ReadCount(data)
	return body, billing.Usage{}, err
}

const estimatedHeader = "X-Gateway-Estimated"

// count answers with the upstream's count, or with an estimate where no upstream
// counts.
func (c *call) count(o countOperation) (*Result, error) {
	defer c.x.free(c.ctx) // an answer that cost nothing is not kept
	header := http.Header{"Content-Type": {"application/json"}}
	c.model.announce(header)
	if c.x.routes.router.Supports(upstream.CountTokens, c.model.ID) {
		_, err := c.ask(o.Body(), o.Request)
		if err == nil {
			c.release()
			return &Result{Header: header, Body: c.whole}, nil
		}
		if !uncounted(err) {
			return nil, c.refuse(err)
		}
	}
	header.Set(estimatedHeader, "true")
	c.release()
	return &Result{Header: header, Body: messages.CountAnswer(o.InputEstimate(o.g.options.Media))}, nil
}

// uncounted reports whether an upstream has no counter, as many that speak the
// rest of the dialect, or not for now.
func uncounted(err error) bool {
	switch status := fault.From(err).HTTPStatus(); status {
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusTooManyRequests:
		return true
	default:
		return status >= http.StatusInternalServerError
	}
}

// embeddingsOperation adapts embeddings to the pipeline.
type embeddingsOperation struct {
	unstreamed
	*embeddings.Request
}

func parseEmbeddings(_ *Gateway, data []byte) (operation, error) {
	r, err := embeddings.Parse(data)
	return embeddingsOperation{Request: r}, err
}

func (e embeddingsOperation) op() upstream.Op { return upstream.Embeddings }

func (e embeddingsOperation) model() string { return e.Model }

func (e embeddingsOperation) source() []byte { return e.Source() }

func (e embeddingsOperation) unknownModel() error { return noModel(e.Model) }

func (e embeddingsOperation) validate(m *Model) error { return e.Validate(m.Dimensions) }

func (e embeddingsOperation) input() billing.Usage {
	return billing.Usage{Input: e.Estimate(), Estimated: true}
}

func (e embeddingsOperation) unpriced(_ http.Header, pass rule.PassUnpriced) error {
	return e.Unpriced(pass)
}

func (e embeddingsOperation) bound(*Model) (most, least billing.Usage) {
	most = billing.Usage{Input: e.InputBound()}
	return most, most
}

func (e embeddingsOperation) request(*Model, billing.Hold) (upstream.Body, any, int64) {
	return e.Prepared(), e.Request, 0
}

// implausible counts are above what the bytes of the input can be.
func (e embeddingsOperation) implausible(_ *Model, u billing.Usage) bool {
	return u.Input > 2*e.InputBound()+countSlack || u.Output > 0
}

func (e embeddingsOperation) answer(data []byte) ([]byte, billing.Usage, error) {
	a, err := e.ReadAnswer(getBody(), data)
	return a.Body, a.Usage, err
}

func (e embeddingsOperation) split(m *Model) ([]operation, error) {
	parts := e.Split(m.Batch)
	ops := make([]operation, len(parts))
	for i, p := range parts {
		ops[i] = embeddingsOperation{Request: p}
	}
	return ops, nil
}

func (e embeddingsOperation) join(answers [][]byte) ([]byte, error) { return e.Join(answers) }

// imagesOperation adapts image generation to the pipeline.
type imagesOperation struct {
	*images.Request
	id     string // the request's
	tokens bool   // the price is for tokens
}

func parseImages(_ *Gateway, data []byte) (operation, error) {
	r, err := images.Parse(data)
	return &imagesOperation{Request: r}, err
}

func (i *imagesOperation) op() upstream.Op { return upstream.GenerateImage }

func (i *imagesOperation) model() string { return i.Model }

func (i *imagesOperation) streams() bool { return i.Stream }

func (i *imagesOperation) source() []byte { return i.Source() }

func (i *imagesOperation) unknownModel() error { return images.UnknownModel(i.Model) }

func (i *imagesOperation) validate(*Model) error { return i.Validate() }

func (i *imagesOperation) outputLimit(*Model, int64) int64 { return 0 } // pictures are not made longer

func (i *imagesOperation) identify(id string) { i.id = id }

func (i *imagesOperation) unpriced(_ http.Header, pass rule.PassUnpriced) error {
	return i.Unpriced(pass)
}

// bound is exact for pictures, and for tokens what the vendor's tables or the
// operator say that a picture takes at most.
func (i *imagesOperation) bound(m *Model) (most, least billing.Usage) {
	most = billing.Usage{Input: i.InputBound(), ImageOutput: i.OutputBound(m.MaxOutput), Images: i.Count()}
	return most, most
}

// request notes whether tokens are paid for: only then a missing report of them
// is worth an estimate.
func (i *imagesOperation) request(_ *Model, h billing.Hold) (upstream.Body, any, int64) {
	i.tokens = paysTokens(h)
	return i.Prepared(), i.Request, 0
}

// paysTokens reports whether a price is for more than pictures.
func paysTokens(h billing.Hold) bool {
	for _, rate := range h.Price.Rates() {
		if rate.Unit != billing.Image {
			return true
		}
	}
	return false
}

func (i *imagesOperation) implausible(m *Model, u billing.Usage) bool {
	most, _ := i.bound(m)
	return implausiblePictures(i.Known(), most, u)
}

// implausiblePictures reports more pictures than were asked for, or tokens far above
// what these can be. Of a model that no table describes little is known.
func implausiblePictures(known bool, most, u billing.Usage) bool {
	const several = 100
	pictures, input, output := most.Images, 2*(most.Input+most.ImageInput)+countSlack, 2*most.ImageOutput+countSlack
	if !known {
		pictures, input, output = max(pictures, several), maxContext, maxContext
	}
	return u.Images > pictures || u.Input+u.CachedInput+u.ImageInput > input || u.Output+u.ImageOutput > output
}

func (i *imagesOperation) answer(data []byte) ([]byte, billing.Usage, error) {
	a, err := i.ReadAnswer(data, i.id, i.tokens)
	return a.Body, a.Usage, err
}

func (i *imagesOperation) opening(name string, data []byte) (bool, error) {
	return true, images.Opening(name, data)
}

// input is the prompt, where tokens are paid for; bound counts the pictures.
func (i *imagesOperation) input() billing.Usage {
	return billing.Usage{Input: i.Estimate(), Estimated: true}
}

func (i *imagesOperation) tap() tap { return imagesTap{i.NewTap(i.id, i.tokens)} }

// imagesTap adapts the tap of partial pictures. Its stream has no end but its
// last picture, and nothing that could be said in a silence.
type imagesTap struct{ *images.Tap }

func (t imagesTap) event(dst []byte, name string, data []byte) ([]byte, bool, error) {
	return t.Event(dst, name, data)
}

func (t imagesTap) usage() billing.Usage { return t.Usage() }

func (t imagesTap) output() int64 { return t.Output() }

func (t imagesTap) heartbeat(dst []byte) []byte { return dst }

func (t imagesTap) cutShort(dst []byte) []byte { return dst }

func (t imagesTap) terminator() string { return "" }

// editOperation adapts image edits to the pipeline.
type editOperation struct {
	*images.Edit
	id     string // the request's
	tokens bool   // the price is for tokens
}

func (e *editOperation) op() upstream.Op { return upstream.EditImage }

func (e *editOperation) model() string { return e.Model }

func (e *editOperation) streams() bool { return e.Stream }

func (e *editOperation) source() []byte { return nil }

func (e *editOperation) form() *upstream.Form { return e.Form() }

func (e *editOperation) unknownModel() error { return noModel(e.Model) }

func (e *editOperation) validate(*Model) error { return e.Validate() }

func (e *editOperation) outputLimit(*Model, int64) int64 { return 0 } // pictures are not made longer

func (e *editOperation) identify(id string) { e.id = id }

func (e *editOperation) unpriced(_ http.Header, pass rule.PassUnpriced) error {
	return e.Unpriced(pass)
}

// bound is exact for pictures, and for tokens what the vendor's tables or the
// operator say that a picture takes at most.
func (e *editOperation) bound(m *Model) (most, least billing.Usage) {
	most = billing.Usage{
		Input: e.InputBound(), ImageInput: e.ImageInputBound(), ImageOutput: e.OutputBound(m.MaxOutput), Images: e.Count(),
	}
	return most, most
}

func (e *editOperation) request(_ *Model, h billing.Hold) (upstream.Body, any, int64) {
	e.tokens = paysTokens(h)
	return e.Prepared(), e.Edit, 0
}

// implausible counts are more pictures than were asked for, or tokens far above what
// these can be.
func (e *editOperation) implausible(m *Model, u billing.Usage) bool {
	most, _ := e.bound(m)
	return implausiblePictures(e.Known(), most, u)
}

func (e *editOperation) answer(data []byte) ([]byte, billing.Usage, error) {
	a, err := e.ReadAnswer(data, e.id, e.tokens)
	return a.Body, a.Usage, err
}

func (e *editOperation) opening(name string, data []byte) (bool, error) {
	return true, images.Opening(name, data)
}

// input is the prompt and the images, where tokens are paid for; bound counts the
// pictures.
func (e *editOperation) input() billing.Usage {
	prompt, shown := e.Estimate()
	return billing.Usage{Input: prompt, ImageInput: shown, Estimated: true}
}

func (e *editOperation) tap() tap { return imagesTap{e.NewTap(e.id, e.tokens)} }

// speechOperation adapts speech to the pipeline.
type speechOperation struct {
	unstreamed
	*speech.Request
}

func parseSpeech(_ *Gateway, data []byte) (operation, error) {
	r, err := speech.Parse(data)
	return speechOperation{Request: r}, err
}

func (s speechOperation) op() upstream.Op { return upstream.Speech }

func (s speechOperation) model() string { return s.Model }

func (s speechOperation) source() []byte { return s.Source() }

func (s speechOperation) unknownModel() error { return speech.UnknownModel(s.Model) }

func (s speechOperation) validate(m *Model) error { return s.Validate(m.Voices) }

func (s speechOperation) usage() billing.Usage { return billing.Usage{Characters: s.Characters()} }

func (s speechOperation) unpriced(_ http.Header, pass rule.PassUnpriced) error {
	return s.Unpriced(pass)
}

// input is nothing: speech is sold by the character, which bound counts.
func (s speechOperation) input() billing.Usage { return billing.Usage{} }

// bound is exact: the characters are known.
func (s speechOperation) bound(*Model) (most, least billing.Usage) { return s.usage(), s.usage() }

func (s speechOperation) implausible(_ *Model, u billing.Usage) bool {
	return u.Characters > s.Characters()
}

// parts are the calls that the request is made of.
func (s speechOperation) parts(m *Model) []speech.Part { return s.Prepared(m.Voices).Split(m.Batch) }

// request and answer are not for audio, which call.speak asks for.
func (s speechOperation) request(*Model, billing.Hold) (upstream.Body, any, int64) {
	return s.Body(), s.Request, 0
}

func (s speechOperation) answer([]byte) ([]byte, billing.Usage, error) {
	return nil, billing.Usage{}, fault.New(fault.InternalError, "The gateway took audio for a document.")
}

// videoOperation adapts the submission of a video to the pipeline. What comes
// after it is the life of its task, see videos.
type videoOperation struct {
	unstreamed
	*video.Request
	g      *Gateway
	price  *billing.Price
	report video.Report // of the upstream that took it
}

func parseVideo(g *Gateway, data []byte) (operation, error) {
	r, err := video.Parse(data)
	return &videoOperation{Request: r, g: g}, err
}

func (v *videoOperation) op() upstream.Op { return upstream.SubmitVideo }

func (v *videoOperation) model() string { return v.Model }

func (v *videoOperation) source() []byte { return v.Source() }

func (v *videoOperation) unknownModel() error { return noModel(v.Model) }

func (v *videoOperation) priced(p *billing.Price) { v.price = p }

func (v *videoOperation) implausible(*Model, billing.Usage) bool { return false } // the room judges what its task spent

func (v *videoOperation) input() (free billing.Usage) { return free }

func (v *videoOperation) validate(m *Model) error {
	return v.Validate(video.Facts{Ratios: m.Ratios, Priorities: m.Priorities, AllowPrivate: v.g.options.Video.AllowPrivate, Price: v.price})
}

func (v *videoOperation) unpriced(_ http.Header, pass rule.PassUnpriced) error {
	return v.Unpriced(pass)
}

// bound is exact for seconds, and for tokens what the largest video takes.
func (v *videoOperation) bound(*Model) (most, least billing.Usage) {
	b, err := v.Bound(v.price)
	if err != nil { // which validate has refused
		return most, least
	}
	return b.Usage, b.Usage
}

func (v *videoOperation) request(*Model, billing.Hold) (upstream.Body, any, int64) {
	return v.Prepared(), v.Request, 0
}

func (v *videoOperation) answer(data []byte) (_ []byte, _ billing.Usage, err error) {
	v.report, err = video.ReadSubmission(data)
	return nil, billing.Usage{}, err
}

// status is that of an accepted submission (api.md, States and transitions).
func (v *videoOperation) status() int {
	if v.Family() == video.FamilyBeta {
		return http.StatusAccepted
	}
	return http.StatusOK
}
