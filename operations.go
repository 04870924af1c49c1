package gateway

import (
	"cmp"
	"math"
	"net/http"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/videoapi"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/video"
)

// operation is one parsed request as the pipeline sees it: data, and functions
// that the request's capability fills in. Nothing else in the pipeline depends on
// the capability. A function may be nil where its comment says so.
type operation struct {
	kind   upstream.Op
	model  string
	stream bool
	source []byte         // the client's own bytes; nil for a form
	form   *upstream.Form // which may lie on disk: it is closed when the call has ended
	status int            // HTTP status of the answer; 0 means 200

	// detached says that the call goes on when its client disconnects.
	detached bool
	// wait says that the answer is the end of the task that was accepted.
	wait bool

	unknownModel func(id string) error
	// validate checks the request by the rules of its model. price is nil for a
	// model that has none.
	validate func(m *Model, price *billing.Price) error
	// unpriced refuses what of the request and its header costs money without a
	// price, or chooses another model or account, unless pass allows it.
	unpriced func(h http.Header, pass rule.PassUnpriced) error
	// bound says what the request may consume. bind calls it once.
	bound func(m *Model, price *billing.Price) bounds
	// input is the estimate of what was sent. A client that disconnects before the
	// answer pays for it, and for the units that were ordered (see billable).
	input func() billing.Usage

	// serve runs the whole call, for an operation whose call has another course than
	// the usual hold, attempt and settlement; nil for all others.
	serve func(c *call) (*Result, error)
	// request makes what goes upstream once the hold has been granted. maxOutput is
	// the number of output tokens that the upstream is limited to because the
	// balance affords no more; 0 if it affords everything.
	request func(h billing.Hold, maxOutput int64) (body upstream.Body, view any)
	// unaffordable names the fields that are not sent for lack of maxOutput tokens;
	// nil for none.
	unaffordable func(maxOutput int64) []string
	// answer checks a whole answer and gives it the public form.
	answer func(data []byte) (answer, error)

	// split cuts a request that is too large for one upstream call into parts, in
	// order, none if it need not be cut; join makes one answer of theirs. Both are
	// nil where a request is always one call.
	split func(m *Model) []*operation
	join  func(answers [][]byte) ([]byte, error)

	// opening judges the first events of a stream, and tap reads them all. Both are
	// nil where nothing streams.
	opening func(name string, data []byte) (content bool, err error)
	tap     func() tap
	// summarize makes the tap refer to a summary of the request from now on, and
	// returns an input that does; nil where the request is small.
	summarize func(t tap) (input func() billing.Usage)

	bounds bounds // set by bind
}

// answer is a checked answer that did not stream.
type answer struct {
	body  []byte // in the public form; it does not refer to the bytes that were read
	usage billing.Usage
	text  int64 // output tokens by the text alone; 0 where it has none
}

// tap turns an upstream's events into the client's and counts what passes.
type tap interface {
	// event appends what the client gets. Its error is what ends the stream.
	event(dst []byte, name string, data []byte) (out []byte, done bool, err error)
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

// bounds are what a request may consume of its model.
type bounds struct {
	most  billing.Usage // most that it may consume
	least billing.Usage // least that is worth a start
	// exposure is how most of a conversation comes about; nil for anything else.
	exposure *exposure
	// plausible is what an upstream can report at most; above it a count is an error.
	plausible plausible
	// inexact says that most is not known to be consumed although it is sold by
	// units that are ordered.
	inexact bool
}

// plausible bounds the counts that are believed, each for itself.
type plausible struct{ input, output, images int64 }

// anything is a bound of what is not checked here.
var anything = plausible{math.MaxInt64, math.MaxInt64, math.MaxInt64}

const (
	maxContext = 1 << 21 // is larger than every context window, in tokens
	countSlack = 1024    // is how many tokens more than its bound an upstream may count
)

func (p plausible) badInput(u billing.Usage) bool {
	return u.Input+u.CachedInput+u.CacheWrite+u.ImageInput > p.input
}

func (p plausible) badOutput(u billing.Usage) bool { return u.Output+u.ImageOutput > p.output }

func (p plausible) badImages(u billing.Usage) bool { return u.Images > p.images }

// bind computes, once, what depends on the model and its price.
func (o *operation) bind(m *Model, price *billing.Price) { o.bounds = o.bound(m, price) }

// withoutRequest is what the running stream of t still needs of its operation,
// without the request, which may have megabytes.
func (o *operation) withoutRequest(t tap) *operation {
	return &operation{kind: o.kind, model: o.model, stream: o.stream, form: o.form, bounds: o.bounds, input: o.summarize(t)}
}

// billable is what a vendor that got the request counts at least: the text that
// it was sent, and the units that it was asked for, if it sells by them.
func (o *operation) billable() billing.Usage {
	u := o.withOrderedUnits(o.input())
	u.Estimated = true
	return u
}

// withOrderedUnits is u with the units that the vendor was asked for: one that
// sells by the unit makes them all, even if the client disconnects.
func (o *operation) withOrderedUnits(u billing.Usage) billing.Usage {
	ordered := o.bounds.least
	if ordered.IsZero() {
		ordered = o.bounds.most
	}
	u.Images, u.Seconds, u.Characters = max(u.Images, ordered.Images), max(u.Seconds, ordered.Seconds), max(u.Characters, ordered.Characters)
	u.Variant = cmp.Or(u.Variant, ordered.Variant)
	return u
}

// estimated is the input of a conversation.
func estimated(estimate func(chat.MediaBound) int64, media chat.MediaBound) func() billing.Usage {
	return func() billing.Usage { return billing.Usage{Input: estimate(media), Estimated: true} }
}

// free is the input of an operation of which only ordered units are sold.
func free() billing.Usage { return billing.Usage{} }

// parsers read the JSON body of each operation.
var parsers = map[upstream.Op]func(x *Exchange, data []byte) (*operation, error){
	upstream.ChatCompletion: parser(chat.Parse, newChat),
	upstream.Messages:       parser(messages.Parse, newMessages),
	upstream.CountTokens:    parser(messages.ParseCount, newCount),
	upstream.GenerateImage:  parser(images.Parse, newImages),
	upstream.Embeddings:     parser(embeddings.Parse, newEmbeddings),
	upstream.Speech:         parser(speech.Parse, newSpeech),
	upstream.SubmitVideo:    parser(videoapi.Parse, newVideo),
}

// parser makes an operation of what parse reads.
func parser[R any](parse func(data []byte) (*R, error), operate func(*Exchange, *R) *operation) func(*Exchange, []byte) (*operation, error) {
	return func(x *Exchange, data []byte) (*operation, error) {
		r, err := parse(data)
		if err != nil {
			return nil, err
		}
		return operate(x, r), nil
	}
}

// newChat is the operation of a chat completion.
func newChat(x *Exchange, r *chat.Request) *operation {
	g, media := x.g, x.g.options.Media
	hides := g.drains.hides(r.Model) // for the whole call, whatever other calls learn
	return &operation{
		kind: upstream.ChatCompletion, model: r.Model, stream: r.Stream, source: r.Source(),
		unknownModel: chat.UnknownModel,
		validate:     func(*Model, *billing.Price) error { return r.Validate() },
		unpriced:     func(_ http.Header, pass rule.PassUnpriced) error { return r.Unpriced(pass) },
		bound: func(m *Model, _ *billing.Price) bounds {
			// In the place of max_completion_tokens a channel that speaks messages gets
			// max_tokens.
			newer := r.MaxTokens == 0 && r.MaxCompletionTokens > 0
			e := exposure{
				input: r.InputBound(media), linked: r.LinkedBound(media),
				callerBound: r.OutputBound(), candidates: r.Candidates(), unseen: !r.Stream || hides,
			}
			return e.boundDroppedIf(m.drops.maxTokens || newer && m.drops.maxCompletionTokens).bounds(m)
		},
		input: estimated(r.InputEstimate, media),
		request: func(_ billing.Hold, maxOutput int64) (upstream.Body, any) {
			return r.Prepared(maxOutput), r.Limited(maxOutput)
		},
		answer: func(data []byte) (answer, error) {
			a, err := r.ReadAnswer(data, media)
			return answer{a.Body, a.Usage, a.Said}, err
		},
		opening: chat.Opening,
		tap: func() tap {
			return chatTap{r.NewTap(chat.TapOptions{
				Media: media, Created: g.options.Now().Unix(),
				NewID: func() string { return g.options.NewID("chatcmpl-") }, // which must not keep the request
			})}
		},
		summarize: func(t tap) func() billing.Usage {
			summary := r.Summary()
			t.(chatTap).UseSummary(summary)
			return estimated(summary.InputEstimate, media)
		},
	}
}

// chatTap is the tap of chat, with its terminator.
type chatTap struct{ *chat.Tap }

func (t chatTap) event(dst []byte, name string, data []byte) ([]byte, bool, error) {
	return t.Event(dst, name, data)
}

func (t chatTap) Delivered() bool    { return true } // every chunk that is counted leaves
func (t chatTap) Terminator() string { return chat.Terminator }

// newMessages is the operation of a message.
func newMessages(x *Exchange, r *messages.Request) *operation {
	g, media := x.g, x.g.options.Media
	hides := g.drains.hides(r.Model) // for the whole call, whatever other calls learn
	return &operation{
		kind: upstream.Messages, model: r.Model, stream: r.Stream, source: r.Source(),
		unknownModel: noModel,
		validate:     func(*Model, *billing.Price) error { return r.Validate() },
		unpriced:     func(h http.Header, pass rule.PassUnpriced) error { return r.Unpriced(h, pass) },
		bound: func(m *Model, _ *billing.Price) bounds {
			e := exposure{
				input: r.InputBound(media), linked: r.LinkedBound(media),
				callerBound: r.OutputBound(), candidates: 1, unseen: !r.Stream || hides,
			}
			return e.boundDroppedIf(m.drops.maxTokens).bounds(m)
		},
		input: estimated(r.InputEstimate, media),
		request: func(_ billing.Hold, maxOutput int64) (upstream.Body, any) {
			return r.Prepared(maxOutput), r.Limited(maxOutput)
		},
		unaffordable: r.Unaffordable,
		answer: func(data []byte) (answer, error) {
			a, err := r.ReadAnswer(data, media)
			return answer{a.Body, a.Usage, a.Said}, err
		},
		opening: messages.Opening,
		tap: func() tap {
			return messagesTap{r.NewTap(messages.TapOptions{
				Media: media,
				NewID: func() string { return g.options.NewID("msg_") }, // which must not keep the request
			})}
		},
		summarize: func(t tap) func() billing.Usage {
			summary := r.Summary()
			t.(messagesTap).UseSummary(summary)
			return estimated(summary.InputEstimate, media)
		},
	}
}

// messagesTap is the tap of messages.
type messagesTap struct{ *messages.Tap }

func (t messagesTap) event(dst []byte, name string, data []byte) ([]byte, bool, error) {
	return t.Event(dst, name, data)
}

// newCount is the operation that counts the tokens of a message that is not made.
// It streams nothing, holds nothing and costs nothing.
func newCount(x *Exchange, r *messages.Request) *operation {
	media := x.g.options.Media
	return &operation{
		kind: upstream.CountTokens, model: r.Model, source: r.Source(),
		unknownModel: noModel,
		validate:     func(*Model, *billing.Price) error { return r.Validate() },
		unpriced:     func(h http.Header, pass rule.PassUnpriced) error { return r.Unpriced(h, pass) },
		bound:        func(*Model, *billing.Price) bounds { return bounds{plausible: anything} },
		input:        free,
		serve:        func(c *call) (*Result, error) { return c.count(func() int64 { return r.InputEstimate(media) }) },
		request:      func(billing.Hold, int64) (upstream.Body, any) { return r.Body(), r },
		answer: func(data []byte) (answer, error) {
			body, _, err := messages.ReadCount(data)
			return answer{body: body}, err
		},
	}
}

// newEmbeddings is the operation of embeddings.
func newEmbeddings(x *Exchange, r *embeddings.Request) *operation {
	return &operation{
		kind: upstream.Embeddings, model: r.Model, source: r.Source(),
		unknownModel: noModel,
		validate:     func(m *Model, _ *billing.Price) error { return r.Validate(m.Dimensions) },
		unpriced:     func(_ http.Header, pass rule.PassUnpriced) error { return r.Unpriced(pass) },
		bound: func(*Model, *billing.Price) bounds {
			most := billing.Usage{Input: r.InputBound()}
			return bounds{most: most, least: most, plausible: plausible{input: 2*most.Input + countSlack, images: math.MaxInt64}}
		},
		input:   func() billing.Usage { return billing.Usage{Input: r.Estimate(), Estimated: true} },
		request: func(billing.Hold, int64) (upstream.Body, any) { return r.Prepared(), r },
		answer: func(data []byte) (answer, error) {
			a, err := r.ReadAnswer(getBody(), data)
			return answer{body: a.Body, usage: a.Usage}, err
		},
		split: func(m *Model) []*operation {
			parts := r.Split(m.Batch)
			ops := make([]*operation, len(parts))
			for i, p := range parts {
				ops[i] = newEmbeddings(x, p)
				ops[i].bind(m, nil)
			}
			return ops
		},
		join: r.Join,
	}
}

// newImages is the operation that generates images.
func newImages(x *Exchange, r *images.Request) *operation {
	id, tokens := x.ID, false
	return &operation{
		kind: upstream.GenerateImage, model: r.Model, stream: r.Stream, source: r.Source(),
		unknownModel: images.UnknownModel,
		validate:     func(*Model, *billing.Price) error { return r.Validate() },
		unpriced:     func(_ http.Header, pass rule.PassUnpriced) error { return r.Unpriced(pass) },
		bound: func(m *Model, _ *billing.Price) bounds {
			return imageBounds(r.Known(), billing.Usage{Input: r.InputBound(), ImageOutput: r.OutputBound(m.MaxOutput), Images: r.Count()})
		},
		input: func() billing.Usage { return billing.Usage{Input: r.Estimate(), Estimated: true} },
		request: func(h billing.Hold, _ int64) (upstream.Body, any) {
			tokens = paysTokens(h)
			return r.Prepared(), r
		},
		answer: func(data []byte) (answer, error) {
			a, err := r.ReadAnswer(data, id, tokens)
			return answer{body: a.Body, usage: a.Usage}, err
		},
		opening: openingImage,
		tap:     func() tap { return imagesTap{r.NewTap(id, tokens)} },
	}
}

// newEdit is the operation that edits images. Its request is a form.
func newEdit(x *Exchange, e *images.Edit) *operation {
	id, tokens := x.ID, false
	return &operation{
		kind: upstream.EditImage, model: e.Model, stream: e.Stream, form: e.Form(),
		unknownModel: noModel,
		validate:     func(*Model, *billing.Price) error { return e.Validate() },
		unpriced:     func(_ http.Header, pass rule.PassUnpriced) error { return e.Unpriced(pass) },
		bound: func(m *Model, _ *billing.Price) bounds {
			return imageBounds(e.Known(), billing.Usage{
				Input: e.InputBound(), ImageInput: e.ImageInputBound(), ImageOutput: e.OutputBound(m.MaxOutput), Images: e.Count(),
			})
		},
		input: func() billing.Usage {
			prompt, shown := e.Estimate()
			return billing.Usage{Input: prompt, ImageInput: shown, Estimated: true}
		},
		request: func(h billing.Hold, _ int64) (upstream.Body, any) {
			tokens = paysTokens(h)
			return e.Prepared(), e
		},
		answer: func(data []byte) (answer, error) {
			a, err := e.ReadAnswer(data, id, tokens)
			return answer{body: a.Body, usage: a.Usage}, err
		},
		opening: openingImage,
		tap:     func() tap { return imagesTap{e.NewTap(id, tokens)} },
	}
}

// imageBounds are exact for images. Of tokens most is what the vendor's tables or
// the operator say that an image takes; of a model that no table describes little
// is known, so that more is believed.
func imageBounds(known bool, most billing.Usage) bounds {
	const several = 100
	p := plausible{2*(most.Input+most.ImageInput) + countSlack, 2*most.ImageOutput + countSlack, most.Images}
	if !known {
		p = plausible{maxContext, maxContext, max(most.Images, several)}
	}
	return bounds{most: most, least: most, plausible: p}
}

// paysTokens reports whether a price is for more than images: only then a missing
// report of tokens is worth an estimate.
func paysTokens(h billing.Hold) bool {
	for _, rate := range h.Price.Rates() {
		if rate.Unit != billing.Image {
			return true
		}
	}
	return false
}

func openingImage(name string, data []byte) (bool, error) { return true, images.Opening(name, data) }

// imagesTap is the tap of partial images. Its stream has no end but its last
// image, and nothing that could be sent while the client waits.
type imagesTap struct{ *images.Tap }

func (t imagesTap) event(dst []byte, name string, data []byte) ([]byte, bool, error) {
	return t.Event(dst, name, data)
}

func (t imagesTap) Said() int64                 { return 0 }
func (t imagesTap) Delivered() bool             { return true }
func (t imagesTap) Heartbeat(dst []byte) []byte { return dst }
func (t imagesTap) CutShort(dst []byte) []byte  { return dst }
func (t imagesTap) Terminator() string          { return "" }

// newSpeech is the operation that makes speech. Its answer is audio, which
// call.speak asks for. The characters are known, so that its bound is exact.
func newSpeech(_ *Exchange, r *speech.Request) *operation {
	return &operation{
		kind: upstream.Speech, model: r.Model, source: r.Source(),
		unknownModel: speech.UnknownModel,
		validate:     func(m *Model, _ *billing.Price) error { return r.Validate(m.Voices) },
		unpriced:     func(_ http.Header, pass rule.PassUnpriced) error { return r.Unpriced(pass) },
		bound: func(*Model, *billing.Price) bounds {
			most := billing.Usage{Characters: r.Characters()}
			return bounds{most: most, least: most, plausible: anything}
		},
		input: free,
		serve: func(c *call) (*Result, error) { return c.speak(r) },
	}
}

// newVideo is the operation that submits a video. What comes after it is the life
// of its task, see videos.
func newVideo(x *Exchange, r *videoapi.Request) *operation {
	s := &submission{Request: r}
	op := &operation{
		kind: upstream.SubmitVideo, model: r.Model, source: r.Source(), detached: true, wait: r.Wait, status: http.StatusOK,
		unknownModel: noModel,
		unpriced:     func(_ http.Header, pass rule.PassUnpriced) error { return r.Unpriced(pass) },
		validate: func(m *Model, price *billing.Price) error {
			s.price = price
			return r.Validate(videoapi.ModelConfig{Ratios: m.Ratios, Priorities: m.Priorities, AllowPrivate: x.g.options.Video.AllowPrivate, Price: price})
		},
		bound: func(_ *Model, price *billing.Price) bounds {
			b, err := r.Bound(price)
			if err != nil { // which validate has refused
				return bounds{plausible: anything, inexact: true}
			}
			// Its task judges what it consumed.
			return bounds{most: b.Usage, least: b.Usage, plausible: anything, inexact: b.Open}
		},
		input:   free,
		serve:   func(c *call) (*Result, error) { return c.submit(s) },
		request: func(billing.Hold, int64) (upstream.Body, any) { return s.Prepared(), &s.Request.Request },
		answer: func(data []byte) (_ answer, err error) {
			s.report, err = videoapi.ReadSubmission(data)
			return answer{}, err
		},
	}
	if r.Family() == video.FamilyBeta {
		op.status = http.StatusAccepted
	}
	return op
}
