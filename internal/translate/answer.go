package translate

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// An answer crosses from one wire to another as a sequence of pieces. Each wire has one
// reader, which makes pieces of an upstream's events or of its whole answer
// (chat_read.go, messages_read.go, responses_read.go), and writers, which make events or
// a whole answer of pieces (chat_write.go, messages_write.go, responses_write.go). A
// stream and a whole answer are translated as they are read.

// reader makes pieces of an upstream's answer. A body of another form and an error in
// it are a fault.BadGateway.
type reader interface {
	// event reads one event; done says that the answer has ended as it should.
	event(name string, data []byte) (done bool, err error)
	// whole reads a whole answer.
	whole(data []byte) error
}

// writer makes an answer of pieces. They come in this order: begun; what the model
// said, of which one call may be interrupted by others; finished, perhaps more than
// once; ended. idle may come between any two.
type writer interface {
	write(p piece) // its text is the reader's
	flush()        // writes what write has gathered
	made() *written
}

// written is what a writer has made.
type written struct {
	out []byte
	err error // ends the answer: nothing is written after it
}

func (w *written) made() *written { return w }

// flush has nothing to write where each piece is written at once.
func (w *written) flush() {}

// piece is one thing that an answer says.
type piece struct {
	kind pieceKind

	// text is a JSON string: both wires have texts in JSON, and one that is passed on
	// as it came is not decoded.
	text []byte

	// list is elements of a JSON array, in one line: of said, its tokens with their
	// probabilities, if they are known; of cited, places that what was said is from.
	list []byte

	id     string // of begun: the answer's, without the prefix of its wire; of call: the call's
	name   string // of call
	index  int64  // of call: which call it belongs to, by the upstream's count
	size   int    // of signed: bytes of the thought
	reason string // of finished: a word of chat's
	usage  *usage // of begun and ended
}

// pieceKind says what a piece is.
type pieceKind int

const (
	begun     pieceKind = iota // the answer has an id; of its usage only the prompt's side counts
	thought                    // what the model thinks
	signed                     // a thought is over, and text is its vendor's signature
	redacted                   // a thought that only its vendor can read
	encrypted                  // a reasoning item is over, and text is its encrypted_content
	said                       // what the model says
	cited                      // where what it said is from, as a response has it
	declined                   // what it says instead of an answer
	call                       // a call of a tool, or a piece of the arguments of one
	idle                       // nothing, but the upstream is alive
	finished                   // the model has stopped
	ended                      // the answer is complete
)

// noIndex is the index of a call whose upstream gives none.
const noIndex = -2

// usage is what an upstream reported, in disjoint buckets but for reasoning.
type usage struct{ tokencount.Report }

// The fields of a usage. An input that is known is known with all that a cache did.
const (
	input = iota
	cached
	cacheWrite
	output
	reasoning // part of output
)

// count is a member of a usage object: a number, or an object of counts.
type count struct {
	name  string
	known bool // what is not is left out: a 0 would be taken for a count and charged as such
	n     int64
	inner []count
}

// appendCounts appends a usage object.
func appendCounts(dst []byte, counts []count) []byte {
	separator := byte('{')
	for i := range counts {
		c := &counts[i]
		if !c.known {
			continue
		}
		dst = append(append(append(dst, separator, '"'), c.name...), `":`...)
		if separator = ','; c.inner != nil {
			dst = appendCounts(dst, c.inner)
		} else {
			dst = strconv.AppendInt(dst, c.n, 10)
		}
	}
	if separator == '{' {
		dst = append(dst, '{')
	}
	return append(dst, '}')
}

// stream reads the events of one wire as those of the other. Each Read gives what is
// ready: it waits for the first event that makes anything, and for no other.
//
// A stream that ends before its answer is complete, an error frame and an event of
// another form end it with a fault.BadGateway, an error of the body with that error,
// after the events that came before. Read is for one goroutine; Close closes the
// body, which a Read may be waiting for.
type stream struct {
	body   io.ReadCloser
	events *sse.Reader
	reader reader
	to     writer   // the reader's
	made   *written // by it

	rest     []byte // of it, what is not read yet
	complete bool   // the answer has ended as it should
	err      error  // what Read says after rest; final
}

// newStream translates the events of body, which it then owns.
func newStream(body io.ReadCloser, read func(to writer) reader, to writer) io.ReadCloser {
	return &stream{body: body, events: sse.NewReader(body, 0), reader: read(to), to: to, made: to.made()}
}

// Read gives the translated events that are ready.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.err != nil {
			sse.PutOutput(s.made.out)
			s.made.out = nil
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
func (s *stream) Close() error { return s.body.Close() }

// fill translates the next event that makes anything, and those that came with it.
func (s *stream) fill() {
	const batch = 32 << 10 // beyond which no further event is translated
	if s.made.out == nil {
		s.made.out = sse.GetOutput()
	}
	s.made.out = s.made.out[:0]
	if s.complete {
		s.drain()
	}
	for s.err == nil && !s.complete {
		s.err = s.next()
		waits := s.err != nil || !s.events.Buffered()
		if waits {
			s.to.flush()
		}
		if n := len(s.made.out); n >= batch || n > 0 && waits {
			break
		}
	}
	s.rest = s.made.out
	if s.err != nil {
		s.events.Release()
	}
}

// next translates one event.
func (s *stream) next() error {
	event, err := s.events.Next()
	switch {
	case errors.Is(err, io.EOF):
		return answer.Bad("The upstream's stream ended before it was complete.", io.ErrUnexpectedEOF)
	case errors.Is(err, sse.ErrTooLarge):
		return answer.Bad("The upstream sent an event that is larger than the gateway allows.", err)
	case err != nil:
		return err
	}
	s.complete, err = s.reader.event(event.Name, event.Data)
	return cmp.Or(err, s.made.err)
}

// drain reads what follows a complete answer, so that the upstream's connection can be
// used again.
func (s *stream) drain() {
	const most = 64 << 10
	_, _ = io.CopyN(io.Discard, s.body, most) // the answer is complete: how the transfer ends changes nothing
	s.err = io.EOF
}

// wholeBody is a whole answer that is translated when it is read, so that the time
// which its upstream takes is that of reading.
type wholeBody struct {
	body   io.ReadCloser
	reader reader
	made   *written // by the reader's writer
	out    *bytes.Reader
}

// newWhole translates the answer in body, which it then owns.
func newWhole(body io.ReadCloser, read func(to writer) reader, to writer) io.ReadCloser {
	return &wholeBody{body: body, reader: read(to), made: to.made()}
}

// Read reads the upstream's answer to its end before it gives the first byte.
func (w *wholeBody) Read(p []byte) (int, error) {
	if w.out == nil {
		w.made.err = cmp.Or(w.fill(), w.made.err)
		w.out = bytes.NewReader(w.made.out)
	}
	if w.made.err != nil {
		return 0, w.made.err
	}
	return w.out.Read(p)
}

func (w *wholeBody) fill() error {
	const most = 256 << 20
	data, err := io.ReadAll(io.LimitReader(w.body, most+1))
	switch {
	case err != nil:
		return err
	case len(data) > most:
		return answer.Bad("The upstream's answer is larger than the gateway allows.", nil)
	}
	return w.reader.whole(data)
}

// Close closes the upstream's answer.
func (w *wholeBody) Close() error { return w.body.Close() }
