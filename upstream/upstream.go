// Package upstream is the port to whoever answers a call: a vendor's driver, a
// simulator, a Go function, or a Router over many of them.
package upstream

import "context"

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
