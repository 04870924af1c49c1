package gateway

import (
	"net/http"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/upstream"
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

func (unstreamed) streams() bool                        { return false }
func (unstreamed) outputLimit(*Model, int64) int64      { return 0 }
func (unstreamed) opening(string, []byte) (bool, error) { return false, nil }
func (unstreamed) tap() tap                             { return nil }

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
