// Package upstream is the port to what answers a call. That is a vendor's driver, a simulator,
// a Go function, or a Router (package router) over many of them.
package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/tollhouse-ai/gateway/secret"
)

// Upstream answers calls. It is safe for concurrent use.
//
// Do returns a Reply for a 2xx answer in the public wire of the call's operation, and a
// *fault.Error for everything else. If the error comes from an attempt to reach a vendor, its
// chain has a *[Failure]. When ctx ends, the call to the vendor ends, also while the Reply's
// body is being read. Do must not modify the call.
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

// Supporter says which calls an Upstream can answer. A Router asks it once per model and
// operation, when routes are built, so a wrong route is refused at start-up. A channel
// that passes every id through is asked per call, so the answer must be cheap. An
// Upstream without it is taken to support everything.
type Supporter interface {
	Supports(op Op, model string) bool
}

// Supports asks up, or what it unwraps to, whether it can answer op for a
// model. The answer is yes if no upstream in the chain can say.
func Supports(up Upstream, op Op, model string) bool {
	for ; up != nil; up = unwrapped(up) { // without [As], which would take three times as long on each request
		if s, ok := up.(Supporter); ok {
			return s.Supports(op, model)
		}
	}
	return true
}

// Vendored is an Upstream that knows whose answers it gives. Some parts of an answer can be
// read only by its vendor. They are given back only to upstreams of the same vendor.
type Vendored interface {
	// Vendor is the same for all upstreams of one vendor: the address of its host.
	Vendor() string
}

// As returns the first upstream that has the methods of the interface T: up, or one that it
// unwraps to. A middleware unwraps by a method Unwrap.
func As[T any](up Upstream) (found T, ok bool) {
	for ; up != nil; up = unwrapped(up) {
		if found, ok = up.(T); ok {
			return found, true
		}
	}
	return found, false
}

// unwrapped is what an upstream wraps; nil if it is not known to wrap any.
func unwrapped(up Upstream) Upstream {
	if w, ok := up.(interface{ Unwrap() Upstream }); ok {
		return w.Unwrap()
	}
	return nil
}

// Driver is an Upstream of one vendor: what the drivers below this package make.
type Driver interface {
	Upstream
	Supporter
	// Close closes idle connections of the driver's own transport. Calls under way
	// go on, and later calls open connections anew.
	Close() error
}

// ListModels is what a driver's request for its vendor's models is called. It is no
// operation of the public API, and [Ops] does not have it.
const ListModels Op = "models"

// Lister is an Upstream that knows which models its vendor has. The drivers of vendors
// that have such a list implement it; [As] finds it behind a middleware. It is safe for
// concurrent use.
type Lister interface {
	// ListModels asks the vendor once. The error is a *fault.Error, as of
	// [Upstream.Do]; neither it nor a success counts for or against a key.
	ListModels(ctx context.Context) (*ModelList, error)
}

// ModelList is what a vendor says it has.
type ModelList struct {
	Models  []ListedModel // each id once, in the vendor's order; at most 10,000
	Invalid int           // entries that were left out, since no request could name them
}

// ListedModel is a model of a vendor's list.
type ListedModel struct {
	ID string // the vendor's
	// Op is what the vendor says that the model is for; empty if it does not say, or
	// says what this API does not have.
	Op      Op
	Context int64 // most tokens of prompt and answer together, by the vendor; 0 if it does not say
}

// ErrNoList is the error of an upstream that cannot say which models it has.
var ErrNoList = errors.New("the driver cannot ask its vendor for a list of models")

// DriverOptions say where a vendor is and how it is reached; New of each package below
// this one takes them. The zero value is the vendor's own address, without a key.
type DriverOptions struct {
	// BaseURL is the absolute http or https address for the paths of the API, without
	// credentials, query or fragment.
	BaseURL string
	// Keys are sent in turn (see [Keys]), as Auth says. With none, calls carry no key. For
	// videos all keys must be of one account, since a vendor does not know the tasks of
	// another.
	Keys []secret.String
	// Auth says how calls carry the key; the vendor's own way if zero.
	Auth Auth
	// Headers go with every call as they are. A secret is refused, and so is a header that the
	// connection or the driver sets. A header that a client may send too, such as
	// Anthropic-Beta, replaces the client's.
	Headers map[string]string
	// Wire are the operations by which a vendor of OpenAI's wire generates text:
	// [ChatCompletion], [Responses], or both. Nil means both at OpenAI's own address, and chat
	// completions at any other, since many vendors have no more. The gateway translates into
	// what the vendor has. Only package openai takes it. [Join] makes the driver of a vendor
	// that also speaks Anthropic's wire.
	Wire []Op
	// DoneOptional takes a stream of chat completions for complete that ends without
	// "[DONE]" after every candidate has its finish_reason. Only package openai takes it.
	DoneOptional bool
	// NoStreamOptions leaves stream_options out, for a vendor that refuses it. Usage is then
	// what the vendor reports unasked, or an estimate. Only package openai takes it.
	NoStreamOptions bool
	// ConnectTimeout bounds the connection, and the TLS handshake once more;
	// 5 s if zero. Every other time-out is the Router's.
	ConnectTimeout time.Duration
	// Dial makes connections; a net.Dialer if nil. Transport makes it unused. A
	// connection for a link that a vendor answered with is closed if its address is
	// not public.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Transport replaces the driver's own, which refuses to decompress, to
	// follow redirects and to send a request twice. It fetches the vendor's links
	// too, and must not connect them to private addresses. The caller closes it.
	Transport http.RoundTripper
	// Now dates refusals of keys and Retry-After; time.Now if nil.
	Now func() time.Time
}
