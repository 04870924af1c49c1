package chat

import (
	"bytes"
	"context"
	"io"
	"iter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/funcmodel"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Stream is a streamed completion. Range over [Stream.Chunks] or [Stream.Text] once, or call
// [Stream.Message] or Close; each ends the call and settles it. A stream whose context ends,
// ends with that error. It is not safe for concurrent use.
type Stream struct {
	// RequestID is the gateway's id of the call.
	RequestID string
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string

	source Source
	read   accumulated
	begun  bool  // a loop over it has begun
	whole  bool  // all of it was read
	failed error // how it ended otherwise
}

// Source is what a Stream reads. Read gives server-sent events in the public wire, and io.EOF
// after a complete stream. Close ends the call. Receipt is valid once the call ended.
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
	return func(yield func(*Chunk, error) bool) {
		s.begun = true
		for c, err := range sse.Decode(s.source, decodeChunk) {
			if err != nil {
				s.failed = err
			} else {
				s.read.add(c)
			}
			if !yield(c, err) {
				return
			}
		}
		s.whole = s.failed == nil
	}
}

// Text yields the text of the first candidate as it comes. It is [Stream.Chunks] for who needs
// no more, and ends as it does.
func (s *Stream) Text() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for c, err := range s.Chunks() {
			if err != nil {
				yield("", err)
				return
			}
			for i := range c.Choices {
				if text := c.Choices[i].Delta.Content.String(); c.Choices[i].Index == 0 && text != "" && !yield(text, nil) {
					return
				}
			}
		}
	}
}

// Message is the first candidate's message, joined of its chunks. It has the form of a whole
// answer's, and goes back to the model as it is. Before a loop over the stream, Message reads all
// of it. After one, it is an error if the stream ended badly, or if the loop was left early.
func (s *Stream) Message() (*Message, error) {
	if !s.begun {
		for range s.Chunks() { // which notes an error
		}
	}
	switch {
	case s.failed != nil:
		return nil, s.failed
	case !s.whole:
		return nil, fault.New(fault.ClientGone, "The loop over the stream was left before its end, so its message is not whole.")
	}
	return s.read.message(), nil
}

// decodeChunk reads a chunk, or the error event that ends a stream; nil of the
// terminator, after which the source ends by itself, settled.
func decodeChunk(e sse.Event) (*Chunk, error) {
	data := e.Data
	if string(data) == "[DONE]" {
		return nil, nil
	}
	if bytes.HasPrefix(data, []byte(`{"error":`)) {
		return nil, funcmodel.ReportedError(data)
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

// Handler answers a chat completion in Go. It is safe for concurrent use. An
// error that is a *fault.Error reaches the caller as it is; any other becomes
// an internal error without details. The request is read-only.
type Handler func(ctx context.Context, r *Request) (*Response, error)

// StreamHandler answers a streamed chat completion in Go: it yields chunks,
// and an error last if it fails. The loop that it runs in ends when the caller
// disconnects.
type StreamHandler func(ctx context.Context, r *Request) iter.Seq2[*Chunk, error]

// Serve makes an upstream of a Go function. A call for a stream gets the
// response as one.
func Serve(h Handler) upstream.Upstream {
	return ServeStream(h, funcmodel.Whole(h, (*Response).Chunks))
}

// ServeStream makes an upstream of two Go functions, one for each way of
// answering.
func ServeStream(h Handler, s StreamHandler) upstream.Upstream {
	return funcmodel.Function[Request, Response]{
		Op: upstream.ChatCompletion, Read: funcmodel.Parsed(decode), Answer: h,
		Stream: func(ctx context.Context, r *Request) *upstream.Reply {
			return funcmodel.Events(ctx, s(ctx, r), frame, sse.Done)
		},
	}
}

// decode reads a call that came without a typed request.
func decode(data []byte) (*Request, error) {
	stop := json.UnmarshalFunc(func(data []byte, list *[]string) error { // "stop" may be one string
		if s, ok := rawjson.String(data); ok {
			*list = []string{s}
			return nil
		}
		return json.Unmarshal(data, list)
	})
	r := &Request{}
	if err := json.Unmarshal(data, r, json.WithUnmarshalers(stop)); err != nil {
		return nil, rule.Unacceptable(err)
	}
	return r, nil
}

// Chunks cuts the response into the chunks of a stream.
func (r *Response) Chunks() []*Chunk {
	var all []*Chunk
	add := func(c Chunk) {
		c.ID, c.Object, c.Created, c.Model, c.Extra = r.ID, "chat.completion.chunk", r.Created, r.Model, r.Extra
		all = append(all, &c)
	}
	for _, c := range r.Choices {
		delta := c.Message
		delta.ToolCalls = nil
		for i, call := range c.Message.ToolCalls {
			index := int64(i)
			call.Index = &index
			delta.ToolCalls = append(delta.ToolCalls, call)
		}
		add(Chunk{Choices: []ChunkChoice{{Index: c.Index, Delta: delta, Extra: c.Extra}}})
		add(Chunk{Choices: []ChunkChoice{{Index: c.Index, FinishReason: c.FinishReason}}})
	}
	if r.Usage != nil {
		add(Chunk{Choices: []ChunkChoice{}, Usage: r.Usage})
	}
	return all
}

// frame appends a chunk as an event.
func frame(dst []byte, c *Chunk) ([]byte, error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return sse.AppendData(dst, data), nil
}
