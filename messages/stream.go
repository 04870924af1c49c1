package messages

import (
	"context"
	"iter"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/funcmodel"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Stream is a streamed message. Range over [Stream.Events] once, read
// [Stream.Message], or call Close; each ends the call and settles it. It is not
// safe for concurrent use.
type Stream struct {
	// RequestID is the gateway's id of the call.
	RequestID string
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string

	source chat.Source
}

// NewStream returns a Stream over source, which it then owns: server-sent events
// in the public wire.
func NewStream(requestID string, source chat.Source) *Stream {
	return &Stream{RequestID: requestID, source: source}
}

// Events yields the events as they come, of unknown types too. If the stream
// ends badly the error comes last, as a *fault.Error. Breaking out of the loop
// settles the call as a client that went away: what was received is charged.
func (s *Stream) Events() iter.Seq2[*Event, error] {
	return sse.Decode(s.source, decodeEvent)
}

// decodeEvent reads an event, or the error event that ends a stream.
func decodeEvent(e sse.Event) (*Event, error) {
	return funcmodel.DecodeNamed(e, func(event *Event) *string { return &event.Type }, "Messages")
}

// Message reads the stream to its end and returns the whole message. A stream
// that ends badly is an error beside what came of it, which is nil if nothing
// did.
func (s *Stream) Message() (*Response, error) {
	var a accumulator
	var failed error
	for e, err := range s.Events() {
		if err == nil {
			err = a.add(e)
		}
		if err != nil {
			failed = err
			break
		}
	}
	m := a.result()
	if m != nil {
		m.RequestID, m.Dropped = s.RequestID, s.Dropped
		if receipt, ok := s.Receipt(); ok {
			m.Charge = receipt.Charge
		}
	}
	return m, failed
}

// Receipt is what the call cost; false until the stream has ended.
func (s *Stream) Receipt() (billing.Receipt, bool) { return s.source.Receipt() }

// Close ends the call and settles it. It is safe to call more than once.
func (s *Stream) Close() error { return s.source.Close() }

// accumulator builds the message that a stream's events make up. The zero
// accumulator is ready. It is not safe for concurrent use.
type accumulator struct {
	message *Response
	usage   []byte   // the usage until now
	inputs  [][]byte // the input of each block as JSON text
}

// add takes in the next event. Events and deltas of unknown types are passed
// over. It fails with a fault.BadGateway if an event is out of order.
func (a *accumulator) add(e *Event) error {
	switch {
	case e.Type == "message_start" && e.Message != nil && a.message == nil:
		return a.begin(e)
	case a.message == nil && e.Type != "ping" && slices.Contains(eventTypes, e.Type), e.Type == "message_start":
		return outOfOrder(e.Type)
	}
	switch e.Type {
	case "content_block_start":
		if e.ContentBlock == nil || e.Index != int64(len(a.message.Content)) {
			return outOfOrder(e.Type)
		}
		a.message.Content = append(a.message.Content, *e.ContentBlock)
		a.inputs = append(a.inputs, nil)
	case "content_block_delta", "content_block_stop":
		if e.Index < 0 || e.Index >= int64(len(a.message.Content)) {
			return outOfOrder(e.Type)
		}
		if e.Delta != nil {
			a.addDelta(&a.message.Content[e.Index], e.Index, e.Delta)
		}
	case "message_delta":
		return a.end(e)
	}
	return nil
}

// outOfOrder is the error of an event that cannot stand where it came.
func outOfOrder(kind string) error {
	return fault.New(fault.BadGateway, "The stream's "+kind+" event is out of order.")
}

// begin takes in message_start, whose usage later events add to.
func (a *accumulator) begin(e *Event) error {
	m := *e.Message
	m.Content = append([]Block{}, m.Content...)
	a.inputs = make([][]byte, len(m.Content))
	usage, err := json.Marshal(m.Usage)
	a.message, a.usage = &m, usage
	return err
}

// addDelta adds a delta to a block.
func (a *accumulator) addDelta(b *Block, index int64, d *Delta) {
	switch d.Type {
	case "text_delta":
		b.Text += d.Text
	case "thinking_delta":
		b.Thinking += d.Thinking
	case "signature_delta":
		signature := d.Signature
		b.Signature = &signature
	case "input_json_delta":
		a.inputs[index] = append(a.inputs[index], d.PartialJSON...)
	case "citations_delta":
		b.Citations = appendElement(b.Citations, d.Citation)
	}
}

// appendElement is a JSON array with one element more; null counts as an empty one.
func appendElement(array, element jsontext.Value) jsontext.Value {
	var all []jsontext.Value
	if err := json.Unmarshal(array, &all); err != nil {
		all = nil
	}
	out, err := json.Marshal(append(all, element))
	if err != nil {
		return array
	}
	return out
}

// end takes in message_delta.
func (a *accumulator) end(e *Event) error {
	if d := e.Delta; d != nil {
		if d.StopReason != nil {
			a.message.StopReason = d.StopReason
		}
		if d.StopSequence != nil {
			a.message.StopSequence = d.StopSequence
		}
		extra, err := mergeObjects(a.message.Extra, d.Extra)
		if err != nil {
			return err
		}
		a.message.Extra = extra
	}
	usage, err := e.usage()
	if err == nil {
		a.usage, err = mergeObjects(a.usage, usage)
	}
	if err != nil {
		return err
	}
	a.message.Usage = Usage{}
	return json.Unmarshal(a.usage, &a.message.Usage, jsontext.AllowDuplicateNames(true))
}

// usage is the event's usage with those members alone that it was given.
func (e *Event) usage() ([]byte, error) {
	if e.Raw != nil {
		o, err := rawjson.Index(e.Raw, nil, nil)
		return o.Raw("usage"), err
	}
	if e.Usage == nil {
		return nil, nil
	}
	return json.Marshal(e.Usage)
}

// mergeObjects is an object with the members of a newer one that are not null.
func mergeObjects(object, newer []byte) ([]byte, error) {
	if rawjson.IsNull(newer) {
		return object, nil
	}
	if rawjson.IsNull(object) {
		object = []byte("{}")
	}
	old, err := rawjson.Index(object, nil, nil)
	if err != nil {
		return nil, err
	}
	add, err := rawjson.Index(newer, nil, nil)
	if err != nil {
		return nil, err
	}
	var edits []rawjson.Edit
	for _, m := range add.Members {
		if raw := m.Value.Of(add.Src); !rawjson.IsNull(raw) {
			edits = append(edits, rawjson.Set(m.Name, raw))
		}
	}
	return old.Apply(nil, edits...), nil
}

// result is the message until now; nil before message_start. The input of a
// tool's use that the stream ended within is left as the block began. The
// Message is the caller's own.
func (a *accumulator) result() *Response {
	if a.message == nil {
		return nil
	}
	m := *a.message
	m.Content = append([]Block{}, m.Content...)
	for i, text := range a.inputs {
		input := jsontext.Value(text)
		if len(text) == 0 || !input.IsValid() {
			continue
		}
		m.Content[i].setInput(append(jsontext.Value{}, input...))
	}
	return &m
}

// setInput gives a block its input; one of a type that has no fields here has it
// in Extra.
func (b *Block) setInput(input jsontext.Value) {
	if slices.Contains(blockTypes, b.Type) {
		b.Input = input
		return
	}
	b.Extra = rawjson.Apply(b.Extra, rawjson.Set("input", input))
}

// Turn is the message as a turn of the next request's conversation, with all of
// its blocks: an upstream wants thinking back unchanged.
func (r *Response) Turn() Message {
	return Message{Role: r.Role, Content: Blocks(r.Content...)}
}

// Handler answers a request for a message in Go. It is safe for concurrent use.
// An error that is a *fault.Error reaches the caller as it is; any other becomes
// an internal error without details. The request is read-only.
type Handler func(ctx context.Context, r *Request) (*Response, error)

// StreamHandler answers a request for a streamed message in Go: it yields all
// events from message_start to message_stop, and an error last if it fails. The
// loop that it runs in ends when the caller disconnects.
type StreamHandler func(ctx context.Context, r *Request) iter.Seq2[*Event, error]

// Serve makes an upstream of a Go function. A call for a stream gets the
// response as one.
func Serve(h Handler) upstream.Upstream {
	return ServeStream(h, funcmodel.Whole(h, (*Response).Events))
}

// ServeStream makes an upstream of two Go functions, one for each way of
// answering.
func ServeStream(h Handler, s StreamHandler) upstream.Upstream {
	return funcmodel.Function[Request, Response]{
		Op: upstream.Messages, Read: funcmodel.Parsed(funcmodel.Decode[Request]), Answer: h,
		Stream: func(ctx context.Context, r *Request) *upstream.Reply {
			return funcmodel.Events(ctx, s(ctx, r), funcmodel.Named(func(e *Event) string { return e.Type }), "")
		},
	}
}

// Events cuts the response into the events of a stream.
func (r *Response) Events() []*Event {
	start := *r
	start.Content, start.StopReason, start.StopSequence, start.Usage.OutputTokens = []Block{}, nil, nil, 0
	start.Usage.OutputTokensDetails = nil
	all := []*Event{{Type: "message_start", Message: &start}}
	for i := range r.Content {
		begin, deltas := r.Content[i].pieces()
		index := int64(i)
		all = append(all, &Event{Type: "content_block_start", Index: index, ContentBlock: &begin})
		for _, d := range deltas {
			all = append(all, &Event{Type: "content_block_delta", Index: index, Delta: d})
		}
		all = append(all, &Event{Type: "content_block_stop", Index: index})
	}
	return append(all,
		&Event{Type: "message_delta", Delta: &Delta{StopReason: r.StopReason, StopSequence: r.StopSequence}, Usage: &r.Usage},
		&Event{Type: "message_stop"})
}

// pieces cuts a block into what begins it and what is added to that.
func (b Block) pieces() (begin Block, deltas []*Delta) {
	add := func(d Delta) { deltas = append(deltas, &d) }
	switch b.Type {
	case "text":
		var citations []jsontext.Value
		if json.Unmarshal(b.Citations, &citations) == nil {
			for _, c := range citations {
				add(Delta{Type: "citations_delta", Citation: c})
			}
			if len(citations) > 0 {
				b.Citations = jsontext.Value("[]")
			}
		}
		add(Delta{Type: "text_delta", Text: b.Text})
		b.Text = ""
	case "thinking":
		add(Delta{Type: "thinking_delta", Thinking: b.Thinking})
		if b.Signature != nil {
			add(Delta{Type: "signature_delta", Signature: *b.Signature})
		}
		empty := ""
		b.Thinking, b.Signature = "", &empty
	case "tool_use":
		add(Delta{Type: "input_json_delta", PartialJSON: string(b.Input)})
		b.Input = jsontext.Value("{}")
	}
	return b, deltas
}
