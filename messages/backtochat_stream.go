package messages

import (
	"errors"
	"io"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/sse"
)

// toChatStream translates the stream of a message, the answer to the chat
// request c, event by event. created is in Unix seconds. It owns body. A stream
// that is cut, malformed or ends in an error event reads as that error, never as
// io.EOF. Read and Close may run at the same time.
func toChatStream(c *chat.Request, body io.ReadCloser, created int64) io.ReadCloser {
	return &chatStream{body: body, events: sse.NewReader(body, 0), w: chatChunks{model: c.Model, created: created}}
}

// chatStream reads a message's events as a completion's.
type chatStream struct {
	body   io.ReadCloser
	events *sse.Reader
	w      chatChunks
	rest   []byte // of w.out, what Read still owes
	err    error  // what Read says after rest
}

// Read gives what the events make that are ready; it waits for the first that
// makes anything and for no other.
func (s *chatStream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		s.fill()
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// fill translates the next events.
func (s *chatStream) fill() {
	const batch = 32 << 10
	s.w.out = s.w.out[:0]
	for s.err == nil {
		s.next()
		if len(s.w.out) >= batch || len(s.w.out) > 0 && !s.events.Buffered() {
			break
		}
	}
	s.rest = s.w.out
	if s.err != nil {
		s.events.Release()
	}
}

// next translates one event. What follows a complete message is read, so that
// the connection can be used again, and ignored.
func (s *chatStream) next() {
	event, err := s.events.Next()
	switch {
	case s.w.done && err != nil:
		s.err = io.EOF
	case s.w.done:
	case errors.Is(err, io.EOF):
		s.err = answer.Bad("The upstream's stream ended before it was complete.", io.ErrUnexpectedEOF)
	case errors.Is(err, sse.ErrTooLarge):
		s.err = answer.Bad("The upstream sent an event that is larger than the gateway allows.", err)
	case err != nil:
		s.err = err
	default:
		s.err = s.w.event(event.Name, event.Data)
	}
}

// Close ends the upstream's answer.
func (s *chatStream) Close() error { return s.body.Close() }
