// Package upstream is the port to whoever answers a call: a vendor's driver, a
// simulator, a Go function, or a Router over many of them.
package upstream

import (
	"context"
	"io"
	"net/http"
	"time"
)

// Upstream answers calls. It is safe for concurrent use.
//
// Do returns a Reply for a 2xx answer in the public wire of the call's
// operation, and a *fault.Error for everything else; where the error came of
// an attempt to reach a vendor, a *[Failure] is in its chain. When ctx ends the
// call to the vendor ends too, also while the Reply's body is being read.
// Do must not modify the call.
type Upstream interface {
	Do(ctx context.Context, call *Call) (*Reply, error)
}

// Func is an Upstream made of a function.
type Func func(ctx context.Context, call *Call) (*Reply, error)

// Do calls f.
func (f Func) Do(ctx context.Context, call *Call) (*Reply, error) { return f(ctx, call) }

// Middleware wraps an Upstream. It must forward [Supporter] if the wrapped
// Upstream has it; [Supports] does so for a wrapper with an Unwrap method.
type Middleware func(Upstream) Upstream

// Supporter says which calls an Upstream can answer. A Router asks it once per
// model and operation, when routes are built, so that a wrong route is refused
// at start-up; only a channel that passes every id through is asked per call,
// so the answer must be cheap. An Upstream without it is taken to support
// everything.
type Supporter interface {
	Supports(op Op, model string) bool
}

// Supports asks up, or what it unwraps to, whether it can answer op for a
// model. The answer is yes if nobody in the chain can say.
func Supports(up Upstream, op Op, model string) bool {
	for up != nil {
		if s, ok := up.(Supporter); ok {
			return s.Supports(op, model)
		}
		w, ok := up.(interface{ Unwrap() Upstream })
		if !ok {
			return true
		}
		up = w.Unwrap()
	}
	return true
}

// Op is an operation of the public API.
type Op string

// The operations.
const (
	ChatCompletion Op = "chat"         // POST /v1/chat/completions
	Messages       Op = "messages"     // POST /v1/messages
	CountTokens    Op = "count_tokens" // POST /v1/messages/count_tokens
	GenerateImage  Op = "image"        // POST /v1/images/generations
	EditImage      Op = "edit"         // POST /v1/images/edits
	SubmitVideo    Op = "video"        // POST /v1/videos/generations
	PollVideo      Op = "video_poll"   // what became of a submission: Call.TaskID
	Embeddings     Op = "embeddings"   // POST /v1/embeddings
	Speech         Op = "speech"       // POST /v1/audio/speech
)

// Ops returns every operation, in the order of the API's documentation.
func Ops() []Op {
	return []Op{ChatCompletion, Messages, CountTokens, GenerateImage, EditImage, SubmitVideo, PollVideo, Embeddings, Speech}
}

// Call is one request on its way to an upstream.
type Call struct {
	Op        Op
	Model     string // the model id of whoever is asked next: public before a Router, the upstream's own after it
	Stream    bool   // the reply is wanted as server-sent events
	RequestID string // the gateway's id of the operation; the same for every attempt
	Account   string // whose request it is; empty where there is one account only. A Router counts failures by it
	TaskID    string // the vendor's id of the video that a PollVideo asks for
	Channel   string // the only channel that a Router may ask; empty for any that serves the model
	// Test says that an operator tries a channel out: whatever becomes of the call,
	// it counts neither for nor against the channel (a key that the vendor refuses or
	// limits rests all the same). Who finds the answer good may [Router.ResetHealth] the
	// channel.
	Test bool
	// MaxWait is how long the call waits in all for a channel at its limit, or for
	// one that says when to come back; 0 means a second. A part of a request waits
	// longer than a whole one: its other parts are paid for.
	MaxWait     time.Duration
	ContentType string
	Body        Body
	// Request is the typed view of the body ("*chat.Request", …): read-only, as
	// the caller sent it but for a bound of output that the gateway set, and
	// without the edits that a channel makes to Body.
	Request any
	// Accept, when not nil, judges a Reply before it counts as an answer: it
	// may read ahead and return a Reply that replays what it read, or an error,
	// upon which the Router closes the Reply and may ask another channel. A
	// Router calls it once per attempt; no other Upstream gets to see it.
	Accept func(ctx context.Context, r *Reply) (*Reply, error)
	// Begin, when not nil, is told of every attempt before its channel is asked,
	// and returns the context of the attempt: ctx, or one made of it that carries
	// a span or headers ([WithWire]).
	Begin func(ctx context.Context, a Attempt) context.Context
	// Observe, when not nil, is told of every attempt after it ended.
	Observe func(Attempt)
	// Header holds protocol headers of the client that travel to an upstream
	// of the same dialect; nil for none.
	Header http.Header
	// MaxOutput is the most output tokens of one candidate, for an upstream that
	// must be told and a caller who did not say.
	MaxOutput int64
	// Query is what of the client's query string travels to an upstream of the
	// same dialect ("beta=true"); empty for none.
	Query string
}

// Reply is an upstream's 2xx answer in the public wire.
type Reply struct {
	Status int
	Header http.Header // only what may reach the client; may be nil
	Body   io.ReadCloser
	// Channel is the name of the channel that answered; set by a Router.
	Channel string
	// Dropped are the request fields that the upstream refuses and that were
	// left out: by its driver, and, as its channel says, by a Router.
	Dropped []string
	// Drain is the channel's ([Channel].Drain); set by a Router.
	Drain time.Duration
	// Withheld is for how long [Call.Accept] left the answer unread for reasons of
	// its own. It sets it on the reply that it is given, so that the channel is not
	// taken for slow.
	Withheld time.Duration
}

// Attempt is one try of a Router at one channel.
type Attempt struct {
	Channel  string
	Model    string // the upstream's id
	Again    bool   // it is not the call's first
	Started  time.Time
	Duration time.Duration // until the answer was accepted or refused
	Err      error         // nil if the attempt was accepted
	Sent     bool          // the vendor may have got the request; what was not sent costs nothing
	Refused  bool          // the vendor refused before any work (429, 503, 529), which costs nothing
	Status   int           // the vendor's HTTP status; 0 if there was none
}
