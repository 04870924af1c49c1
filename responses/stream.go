package responses

import (
	"iter"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/funcmodel"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
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

// accumulator builds the response that a stream's events make up: as the last event has
// it, or of a stream that breaks off as it began, with the items that are whole. The zero
// accumulator is ready. It is not safe for concurrent use.
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
