package responses

import (
	"context"
	"iter"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/funcmodel"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Stream is a streamed response. Range over [Stream.Events] once, read
// [Stream.Response], or call Close; each ends the call and settles it. It is not
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

// decodeEvent reads an event, or the error event that ends a stream; nil for the mark of
// the end.
func decodeEvent(e sse.Event) (*Event, error) {
	if string(e.Data) == "[DONE]" {
		return nil, nil
	}
	return funcmodel.DecodeNamed(e, func(event *Event) *string { return &event.Type }, "Responses")
}

// Response reads the stream to its end and returns the whole response. A stream
// that ends badly is an error beside what came of it, which is nil if nothing
// did.
func (s *Stream) Response() (*Response, error) {
	var a accumulator
	var failed error
	for e, err := range s.Events() {
		if err != nil {
			failed = err
			break
		}
		a.add(e)
	}
	r := a.response
	if r != nil {
		r.RequestID, r.Dropped = s.RequestID, s.Dropped
		if receipt, ok := s.Receipt(); ok {
			r.Charge = receipt.Charge
		}
	}
	return r, failed
}

// Receipt is what the call cost; false until the stream has ended.
func (s *Stream) Receipt() (billing.Receipt, bool) { return s.source.Receipt() }

// Close ends the call and settles it. It is safe to call more than once.
func (s *Stream) Close() error { return s.source.Close() }

// accumulator builds the response that a stream's events make up, as the last event has it. A
// stream that breaks off gives the response as it began, with the items that are whole. The
// zero accumulator is ready. It is not safe for concurrent use.
type accumulator struct {
	response *Response
	items    []Item // in the order in which they were whole
}

// add takes in the next event.
func (a *accumulator) add(e *Event) {
	switch {
	case e.Type == "response.output_item.done" && e.Item != nil:
		a.items = append(a.items, *e.Item)
		if a.response != nil {
			a.response.Output = a.items
		}
	case e.Response != nil:
		response := *e.Response
		response.Raw = rawjson.Lookup(e.Raw, "response")
		if !e.ends() {
			response.Output = a.items
		}
		a.response = &response
	}
}

// Handler answers a request for a response in Go. It is safe for concurrent use.
// An error that is a *fault.Error reaches the caller as it is; any other becomes
// an internal error without details. The request is read-only.
type Handler func(ctx context.Context, r *Request) (*Response, error)

// StreamHandler answers a request for a streamed response in Go. It yields all events from
// response.created to response.completed or response.incomplete, and an error last if it
// fails. The gateway numbers them. The loop that it runs in ends when the caller disconnects.
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
		Op: upstream.Responses, Read: funcmodel.Parsed(funcmodel.Decode[Request]), Answer: h,
		Stream: func(ctx context.Context, r *Request) *upstream.Reply {
			return funcmodel.Events(ctx, s(ctx, r), funcmodel.Named(func(e *Event) string { return e.Type }), sse.Done)
		},
	}
}

// cutter cuts a response into the events of a stream.
type cutter struct {
	events []*Event
	item   *Item // that is cut
	index  int64 // of it in the output
}

// add adds an event about the item.
func (c *cutter) add(kind string, e Event) {
	e.Type, e.SequenceNumber, e.OutputIndex, e.ItemID = "response."+kind, int64(len(c.events)), c.index, c.item.ID
	c.events = append(c.events, &e)
}

// lifecycle adds an event about the whole response.
func (c *cutter) lifecycle(kind string, r *Response) {
	c.events = append(c.events, &Event{Type: "response." + kind, SequenceNumber: int64(len(c.events)), Response: r})
}

// Events cuts the response into the events of a stream.
func (r *Response) Events() []*Event {
	start := *r
	start.Status, start.Output, start.Usage, start.Error, start.IncompleteDetails = "in_progress", []Item{}, nil, nil, nil
	var c cutter
	c.lifecycle("created", &start)
	c.lifecycle("in_progress", &start)
	for i := range r.Output {
		c.cut(&r.Output[i], int64(i))
	}
	switch r.Status {
	case "incomplete", "failed":
		c.lifecycle(r.Status, r)
	default:
		c.lifecycle("completed", r)
	}
	return c.events
}

// cut cuts an item: into what begins it, its pieces, and the whole of it.
func (c *cutter) cut(item *Item, index int64) {
	c.item, c.index = item, index
	begun := *item
	if begun.Status != "" {
		begun.Status = "in_progress"
	}
	switch item.Type {
	case "message":
		begun.Content = Content("[]")
	case "reasoning":
		begun.Summary, begun.EncryptedContent = jsontext.Value("[]"), nil
		if !rawjson.IsNull(begun.Content) {
			begun.Content = Content("[]")
		}
	case "function_call":
		begun.Arguments = jsontext.Value(`""`)
	case "custom_tool_call":
		begun.Input = ""
	}
	c.add("output_item.added", Event{Item: &begun})
	switch item.Type {
	case "message", "reasoning":
		c.cutParts(item)
	case "function_call":
		arguments := item.ArgumentsText()
		c.add("function_call_arguments.delta", Event{Delta: arguments})
		c.add("function_call_arguments.done", Event{Name: item.Name, Arguments: arguments})
	case "custom_tool_call":
		c.add("custom_tool_call_input.delta", Event{Delta: item.Input})
		c.add("custom_tool_call_input.done", Event{Input: item.Input})
	}
	c.add("output_item.done", Event{Item: item})
}

// cutParts cuts the parts of a message, and those of reasoning and of its summary.
func (c *cutter) cutParts(item *Item) {
	summary, _ := Content(item.Summary).Parts() // what are no parts is in the whole item
	for i := range summary {
		part, at := summary[i], int64(i)
		c.add("reasoning_summary_part.added", Event{SummaryIndex: at, Part: &Part{Type: part.Type}})
		c.add("reasoning_summary_text.delta", Event{SummaryIndex: at, Delta: part.Text})
		c.add("reasoning_summary_text.done", Event{SummaryIndex: at, Text: part.Text})
		c.add("reasoning_summary_part.done", Event{SummaryIndex: at, Part: &part})
	}
	parts, _ := item.Content.Parts()
	for i := range parts {
		c.cutPart(&parts[i], int64(i))
	}
}

// cutPart cuts one part of an item's content.
func (c *cutter) cutPart(part *Part, at int64) {
	begun := *part
	begun.Text, begun.Refusal = "", ""
	c.add("content_part.added", Event{ContentIndex: at, Part: &begun})
	switch part.Type {
	case "output_text":
		c.add("output_text.delta", Event{ContentIndex: at, Delta: part.Text, Logprobs: part.Logprobs})
		c.add("output_text.done", Event{ContentIndex: at, Text: part.Text, Logprobs: part.Logprobs})
	case "refusal":
		c.add("refusal.delta", Event{ContentIndex: at, Delta: part.Refusal})
		c.add("refusal.done", Event{ContentIndex: at, Refusal: part.Refusal})
	case "reasoning_text":
		c.add("reasoning_text.delta", Event{ContentIndex: at, Delta: part.Text})
		c.add("reasoning_text.done", Event{ContentIndex: at, Text: part.Text})
	}
	c.add("content_part.done", Event{ContentIndex: at, Part: part})
}
