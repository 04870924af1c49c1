package chat

import (
	"bytes"
	"io"
	"iter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/sse"
)

// Stream is a streamed completion. Range over [Stream.Chunks] once, or call
// Close; either ends the call and settles it. It is not safe for concurrent
// use.
type Stream struct {
	// RequestID is the gateway's id of the call.
	RequestID string
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string

	source Source
}

// Source is what a Stream reads: Read gives server-sent events in the public
// wire and io.EOF after a complete stream; Close ends the call; Receipt is
// valid once it ended.
type Source interface {
	io.ReadCloser
	Receipt() (billing.Receipt, bool)
}

// NewStream returns a Stream over source, which it then owns.
func NewStream(requestID string, source Source) *Stream {
	return &Stream{RequestID: requestID, source: source}
}

// Chunks yields the chunks as they come. If the stream ends badly the error
// comes last, as a *fault.Error. Breaking out of the loop settles the call as
// a client that went away: what was received is charged.
func (s *Stream) Chunks() iter.Seq2[*Chunk, error] {
	return sse.Decode(s.source, decodeChunk)
}

// decodeChunk reads a chunk, or the error event that ends a stream; nil of the
// terminator, after which the source ends by itself, settled.
func decodeChunk(e sse.Event) (*Chunk, error) {
	data := e.Data
	if string(data) == "[DONE]" {
		return nil, nil
	}
	if bytes.HasPrefix(data, []byte(`{"error":`)) {
		var body struct {
			Error struct {
				Message string     `json:"message"`
				Code    fault.Code `json:"code"`
			} `json:"error"`
		}
		if err := json.Unmarshal(data, &body); err == nil {
			return nil, fault.New(body.Error.Code, body.Error.Message)
		}
	}
	c := &Chunk{Raw: bytes.Clone(data)}
	if err := json.Unmarshal(c.Raw, c, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fault.Wrap(fault.BadGateway, "The upstream sent a chunk that is not of the chat completion form.", err)
	}
	return c, nil
}

// Receipt is what the call cost; false until the stream has ended.
func (s *Stream) Receipt() (billing.Receipt, bool) { return s.source.Receipt() }

// Close ends the call and settles it. It is safe to call more than once.
func (s *Stream) Close() error { return s.source.Close() }
