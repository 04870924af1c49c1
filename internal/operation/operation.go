// Package operation has the types by which the pipeline knows the requests of all endpoints.
// A Spec says what is known of an endpoint before a request comes, a Request what is known of
// one of its requests. Neither refers to a call: what they need from outside is an argument.
package operation

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Spec is all that is known of an endpoint before a request comes. It is data and read-only;
// a zero field does not apply.
type Spec struct {
	Op    upstream.Op
	Path  string           // of the API
	Paths []string         // of clients of other vendors, beside Path
	Kinds []string         // of the models that serve it
	Units [][]billing.Unit // a price is complete that has the units of any of these
	// StandIn is the operation that a model may serve instead, so that the gateway can answer
	// by itself.
	StandIn upstream.Op
	// MostKept is how many bytes of an answer are kept for duplicates of the request; 0 means
	// idempotency.MaxAnswer.
	MostKept int

	// Parse reads a JSON body. It fails with a 400 if that is not one strict JSON object.
	Parse func(body []byte) (Request, error)
	// ParseForm reads a multipart form.
	ParseForm func(form *upstream.Form) (Request, error)

	// Unknown is the error of a model that does not exist; nil means a 404.
	Unknown func(model string) error
	// Forbidden is the code of the refusal of a model that the key may not use; empty means
	// fault.PermissionDenied.
	Forbidden fault.Code
	// Mismatch is the code of the refusal of a model that serves another endpoint; empty means
	// that of any invalid request.
	Mismatch fault.Code

	// Scope says which fields without a price are looked for behind the names that a channel
	// gives to fields of the request.
	Scope rule.Scope
	// Translated are fields without a price that a channel of another dialect translates
	// instead of leaving them out.
	Translated []string

	// Unstoppable says that a vendor makes a stream to its end, even if that is cancelled.
	Unstoppable bool
	// Numbered says that the events of a stream are numbered, so that duplicates of it get
	// the heartbeats among them too.
	Numbered bool
	// ErrorEvent appends what ends a broken stream of the request called requestID; nil means
	// OpenAI's form. The tap is nil if the request failed before it had one.
	ErrorEvent func(dst []byte, requestID string, t Tap, err *fault.Error) []byte
	// Dialect says how clients of the endpoint read headers and errors.
	Dialect Dialect
	// Trace is how it is told in the GenAI conventions of OpenTelemetry.
	Trace Trace

	// Models are those that the built-in tables know by their public id. They are of the
	// first of Kinds.
	Models func() map[string]Facts
	// Words in a model's id say that it is for the endpoint, where nothing else does. The
	// longest word of an id counts.
	Words []Word
	// Probe is the smallest request, by which a channel is tested: its members beside the
	// model. It is nil where none is small.
	Probe func(model string) string
	// ProbeCost is 0 for a Probe that costs next to nothing. Among other probes the lower cost
	// is preferred.
	ProbeCost int
	// Example is a request to begin with: its members beside the model. It is nil where
	// the server shows none.
	Example func(model string) string
	// Demo are the models of the demo.
	Demo []DemoModel
}

// AppendError appends what ends a broken stream of the request called requestID. The tap is nil
// if the request failed before it had one. A nil Spec has OpenAI's form.
func (s *Spec) AppendError(dst []byte, requestID string, t Tap, err error) []byte {
	if s != nil && s.ErrorEvent != nil {
		return s.ErrorEvent(dst, requestID, t, fault.From(err))
	}
	return appendErrorEvent(dst, fault.From(err))
}

// appendErrorEvent appends the error in OpenAI's form: `error` is the first key,
// and no terminator follows, since the SDKs read both so.
func appendErrorEvent(dst []byte, err *fault.Error) []byte {
	type body struct {
		Message string     `json:"message"`
		Type    string     `json:"type"`
		Code    fault.Code `json:"code"`
		Param   *string    `json:"param"`
	}
	b := body{Message: err.Message, Type: fault.Type(err.HTTPStatus()), Code: err.Code}
	if err.Param != "" {
		b.Param = &err.Param
	}
	data, marshalErr := json.Marshal(struct {
		Error body `json:"error"`
	}{b})
	if marshalErr != nil { // invalid UTF-8 in a message
		data = []byte(`{"error":{"message":"The stream failed.","type":"api_error","code":"internal_error","param":null}}`)
	}
	dst = append(dst, "data: "...)
	dst = append(dst, data...)
	return append(dst, "\n\n"...)
}

// Trace is how an endpoint is told in the GenAI conventions of OpenTelemetry.
type Trace struct {
	Name    string
	Output  string // what it makes; empty for text
	Streams bool   // its answers stream, though no request asks for that
	Silent  bool   // its answers have no output tokens
}

// Dialect is how the clients of an endpoint read headers and errors.
type Dialect int

// The dialects of clients.
const (
	OpenAI    Dialect = iota // every client that is not named below
	Anthropic                // of messages
	Responses                // of OpenAI's Responses, Codex among them
	Images                   // of the vendor's image generation
	Plain                    // of image edits and speech
	Rerank                   // of the rerank APIs of several vendors
)

// Request is one parsed request. Check comes before Quote, and Quote before Outgoing.
type Request interface {
	// Info is what the pipeline reads of every request.
	Info() Info
	// Check checks the request by the rules of its endpoint and its model. p is nil for a
	// model without a price. The error names the first rule that the request breaks.
	Check(m *Facts, p *billing.Price, c Channels) error
	// Unpriced refuses what of the request and its header costs money without a price, or
	// chooses another model or account, unless pass lets it through. pass gets the name as
	// the gateway spells it and as the caller does; nil lets nothing through.
	Unpriced(h http.Header, pass func(name, spelled string) bool) error
	// Quote says what the request may cost. passed says that fields may reach the vendor by
	// which it reads or makes more than it was sent.
	Quote(m *Facts, p *billing.Price, passed bool) Quote
	// Outgoing is what goes upstream. The vendor is limited to maxOutput output tokens
	// because the balance affords no more; 0 means that it affords everything.
	Outgoing(maxOutput int64) Outgoing
	// Ordered is the least that a vendor counts that got the request and failed. It is an
	// estimate of what was sent, and the units that were ordered. The operator bears that.
	Ordered(m *Facts, p *billing.Price) billing.Usage
	// ReadAnswer checks a whole answer with status 200 and gives it the public form. An
	// empty, cut or malformed one and an error in it are a fault.BadGateway. The Answer may
	// lie in data.
	ReadAnswer(data []byte, o AnswerOptions) (Answer, error)
}

// Parser makes a function of a Spec of one that returns a type of the endpoint's own.
func Parser[From any, R Request](parse func(From) (R, error)) func(From) (Request, error) {
	return func(from From) (Request, error) {
		r, err := parse(from)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
}

// Info is what the pipeline reads of every request.
type Info struct {
	Model  string
	Source []byte         // the body as the client sent it; nil for a form
	Form   *upstream.Form // nil for a body

	Stream  Stream  // nil: the answer is whole
	Parts   Parts   // nil: the request is always one call
	Counter Counter // nil: the request is no count of tokens

	Session *rawjson.Object // that may name the conversation; nil where requests belong to none
	User    string          // whom the request is for; empty if it does not say

	Status int  // HTTP status of the answer; 0 means 200
	Wait   bool // the answer is the end of the task that was accepted
}

// Stream is a request whose answer is streamed.
type Stream interface {
	// Opening judges one of the first events: does it carry content? Its error is the
	// attempt's, and another channel may be asked.
	Opening(name string, data []byte) (content bool, err error)
	// Unfold makes the events of a stream out of a whole answer that came in its place.
	Unfold(data []byte) ([]sse.Event, error)
	// NewTap returns the tap of the stream.
	NewTap(o AnswerOptions) Tap
	// AsksForReasoning reports whether the request switches the model's reasoning on, or says
	// how it is shown.
	AsksForReasoning() bool
}

// Parts is a request that may be too large for one upstream call.
type Parts interface {
	// Split cuts the request into those of its parts, in order; none if it need not be cut.
	Split(m *Facts) []Request
	// Join makes one answer of the parts' answers.
	Join(m *Facts, answers [][]byte) ([]byte, error)
}

// Counter is a request that counts tokens and makes nothing. It costs nothing.
type Counter interface {
	// Estimate is the answer where no upstream counts.
	Estimate(m *Facts) []byte
}

// Channels are those that serve the request's model.
type Channels interface {
	// Passes reports whether a member of the request reaches a vendor as it is. name is as
	// the gateway spells it, spelled as the caller does.
	Passes(name, spelled string) bool
}

// Outgoing is what goes upstream of a request.
type Outgoing struct {
	Body    upstream.Body
	View    any      // the typed request, for models in Go; nil for none
	Omitted []string // fields that are not sent, for lack of money or of a price
	// NoHeader is a header of the client's that is not sent; empty for none.
	NoHeader string
}

// Answer is a checked answer that did not stream.
type Answer struct {
	Body  []byte // in the public form
	Usage billing.Usage
	Said  int64 // output tokens by the text alone, whatever the upstream reports; 0 without text
}

// AnswerOptions are what reading an answer needs from outside.
type AnswerOptions struct {
	Price     *billing.Price // that is paid: it decides which counts are needed; nil if nothing is
	Media     Media
	RequestID string
	NewID     func(prefix string) string
	Created   int64         // Unix seconds, of streams that the gateway begins itself
	Heartbeat time.Duration // between two heartbeats of a stream that is silent; 0 for none
	// Edit makes of a response within an event what the client gets. ended says that it is
	// that of the terminal event, which the client gets after Edit has returned. Nil leaves
	// it as it is.
	Edit func(response []byte, ended bool) []byte
}

// Tap turns an upstream's events into the client's and counts what passes. It is for one
// goroutine at a time.
type Tap interface {
	// Event appends what the client gets. Its error is what ends the stream.
	Event(dst []byte, name string, data []byte) (out []byte, done bool, err error)
	Usage() billing.Usage
	// Output is the number of output tokens delivered so far.
	Output() int64
	// Said is Output by the text alone; 0 without text.
	Said() int64
	// Delivered reports whether the client can have got any of Output.
	Delivered() bool
	// Heartbeat appends what a client that waits is sent; it may be nothing.
	Heartbeat(dst []byte) []byte
	// CutShort ends the stream because the money did.
	CutShort(dst []byte) []byte
	// Terminator is the event that ends a complete stream.
	Terminator() string
	// DropRequest makes the tap keep a summary instead of its request, whose bytes can
	// be freed then. It reports whether it did.
	DropRequest() bool
}
