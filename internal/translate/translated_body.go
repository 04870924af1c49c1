package translate

import (
	"bytes"
	"errors"
	"io"

	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/sse"
)

// translatedStream reads the stream of one dialect as that of the other. Each
// Read gives what is ready: it waits for the first event that makes anything, and
// for no other.
//
// A stream that ends before its answer is complete, an error frame and an event
// of another form end it with a fault.BadGateway, an error of the body with that
// error, after the events that came before. Read is for one goroutine; Close
// closes the body, which a Read may be waiting for.
type translatedStream struct {
	body   io.ReadCloser
	events *sse.Reader
	to     translator

	rest []byte // translated, and not read yet
	err  error  // what Read says after rest; final
}

// translator turns the events of one dialect into those of the other.
type translator interface {
	translate(name string, data []byte) error // appends to what output returns
	output() *translatedEvents
}

// translatedEvents is what a translator has made.
type translatedEvents struct {
	out      []byte // whole events for the client
	complete bool   // the answer has ended as it should
}

func (e *translatedEvents) output() *translatedEvents { return e }

// newTranslatedStream translates the events of body, which it then owns.
func newTranslatedStream(body io.ReadCloser, to translator) *translatedStream {
	return &translatedStream{body: body, events: sse.NewReader(body, 0), to: to}
}

// Read gives the translated events that are ready.
func (s *translatedStream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		if len(p) == 0 {
			return 0, nil
		}
		s.fill()
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Close ends the upstream's answer.
func (s *translatedStream) Close() error { return s.body.Close() }

// fill translates the next event that makes anything, and those that came with it.
func (s *translatedStream) fill() {
	const batch = 32 << 10 // beyond which no further event is translated
	made := s.to.output()
	made.out = made.out[:0]
	if made.complete {
		s.drain()
	}
	for s.err == nil && !made.complete {
		s.err = s.next()
		if len(made.out) >= batch || len(made.out) > 0 && !s.events.Buffered() {
			break
		}
	}
	s.rest = made.out
	if s.err != nil {
		s.events.Release()
	}
}

// next translates one event.
func (s *translatedStream) next() error {
	event, err := s.events.Next()
	switch {
	case errors.Is(err, io.EOF):
		return answer.Bad("The upstream's stream ended before it was complete.", io.ErrUnexpectedEOF)
	case errors.Is(err, sse.ErrTooLarge):
		return answer.Bad("The upstream sent an event that is larger than the gateway allows.", err)
	case err != nil:
		return err
	}
	return s.to.translate(event.Name, event.Data)
}

// drain reads what follows a complete answer, so that the upstream's connection
// can be used again.
func (s *translatedStream) drain() {
	const most = 64 << 10
	_, _ = io.CopyN(io.Discard, s.body, most) // the answer is complete: how the transfer ends changes nothing
	s.err = io.EOF
}

// lazyBody is an answer that is translated when it is read, so that the time which
// its upstream takes is that of reading.
type lazyBody struct {
	src       io.ReadCloser
	translate func([]byte) ([]byte, error)
	out       *bytes.Reader
	err       error
}

// most bounds an answer that is read to be translated.
const most = 256 << 20

// Read reads the whole answer first.
func (w *lazyBody) Read(p []byte) (int, error) {
	if w.out == nil && w.err == nil {
		w.fill()
	}
	if w.err != nil {
		return 0, w.err
	}
	return w.out.Read(p)
}

func (w *lazyBody) fill() {
	data, err := io.ReadAll(io.LimitReader(w.src, most+1))
	if err == nil && len(data) > most {
		err = answer.Bad("The upstream's answer is larger than the gateway allows.", nil)
	}
	if err == nil {
		data, err = w.translate(data)
	}
	w.out, w.err = bytes.NewReader(data), err
}

// Close closes the upstream's answer.
func (w *lazyBody) Close() error { return w.src.Close() }
