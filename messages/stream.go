package messages

import (
	"iter"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/sse"
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
	event := &Event{}
	if err := json.Unmarshal(e.Data, event); err != nil {
		return nil, fault.Wrap(fault.BadGateway, "The upstream sent an event that is not of the Messages form.", err)
	}
	if event.Type == "" {
		event.Type = e.Name
	}
	if e.Name == "error" || event.Type == "error" {
		return nil, decodeError(e.Data)
	}
	return event, nil
}

func decodeError(data []byte) error {
	var body errorBody
	if err := json.Unmarshal(data, &body); err != nil || body.Error.Message == "" {
		return fault.Wrap(fault.BadGateway, "The upstream reported an error.", err)
	}
	code := body.Error.Code
	if code == "" {
		code = codeOf(body.Error.Type)
	}
	return fault.New(code, body.Error.Message)
}

// Message reads the stream to its end and returns the whole message. A stream
// that ends badly is an error beside what came of it, which is nil if nothing
// did.
func (s *Stream) Message() (*Response, error) {
	var a Accumulator
	var failed error
	for e, err := range s.Events() {
		if err == nil {
			err = a.Add(e)
		}
		if err != nil {
			failed = err
			break
		}
	}
	m := a.Message()
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
