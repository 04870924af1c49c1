package translate

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"

	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// An answer crosses from one wire to another as a sequence of pieces. Each wire has one
// reader, which makes pieces of an upstream's events or whole answer (chat_read.go,
// messages_read.go, responses_read.go). It has writers, which make events or a whole answer of
// pieces (chat_write.go, messages_write.go, responses_write.go). A stream and a whole answer
// are translated while they are read.

// reader makes pieces of an upstream's answer. A body of another form and an error in
// it are a fault.BadGateway.
type reader interface {
	// event reads one event; done says that the answer has ended as it should.
	event(name string, data []byte) (done bool, err error)
	// whole reads a whole answer.
	whole(data []byte) error
}

// writer makes an answer of pieces. They come in this order: begun, then what the model said,
// then finished, perhaps more than once, then ended. Other pieces may interrupt a call. idle
// may come between any two.
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

	// text is a JSON string. Both wires have text in JSON, so text that is passed on unchanged
	// is not decoded.
	text []byte

	// list is elements of a JSON array, in one line. For said they are its tokens with their
	// probabilities, if they are known. For cited they are places that what was said is from.
	list []byte

	id     string               // of begun: the answer's, without the prefix of its wire; of call: the call's
	name   string               // of call
	custom bool                 // of call: of a custom tool; its arguments are {"input":…} too
	index  int64                // of call: which call it belongs to, by the upstream's count
	size   int                  // of signed: bytes of the reasoning
	reason string               // of finished: a word of chat's
	usage  *conversation.Report // of begun and ended
}

// pieceKind says what a piece is.
type pieceKind int

const (
	begun      pieceKind = iota // the answer has an id; of its usage only the prompt's side counts
	thought                     // what the model thinks
	signed                      // a block of reasoning ends, and text is its vendor's signature
	redacted                    // reasoning that only its vendor can read
	encrypted                   // a reasoning item is over, and text is its encrypted_content
	wantedBack                  // text is what the vendor wants back of the message, or of the call that begins, sealed
	said                        // what the model says
	cited                       // where what it said is from, as a response has it
	declined                    // what it says instead of an answer
	call                        // a call of a tool, or a piece of the arguments of one
	idle                        // nothing, but the upstream is alive
	finished                    // the model has stopped
	ended                       // the answer is complete
)

// noIndex is the index of a call whose upstream gives none.
const noIndex = -2

// answerBody translates an upstream's answer into the client's wire while it is read. Reading
// takes as long as the upstream does. For a stream, each Read returns what is ready: it waits
// for the first event that makes anything, and for no other. For a whole answer, the first
// Read waits for all of it; nothing is returned of an answer that fails.
//
// A stream ends with a fault.BadGateway if it ends before its answer is complete, or at an
// error frame or an event of another form. An error of the body ends it with that error. The
// events before that are returned first. Read is for one goroutine. Close closes the body,
// also while a Read waits for it.
type answerBody struct {
	body   io.ReadCloser
	events *sse.Reader // nil of a whole answer
	reader reader
	to     writer   // the reader's
	made   *written // by it
	halves rawjson.Halves

	ctx     context.Context // of the call, for the memory of large events
	options *Options
	memory  sse.Budget // that was asked for; nil before

	rest     []byte // of it, what is not read yet
	complete bool   // the answer has ended as it should
	err      error  // what Read says after rest; final

	mu      sync.Mutex // guards the end of events
	reading bool       // within Read, which then ends them
	closed  bool
}

// newAnswerBody translates the answer in body, which it then owns: a stream, or a whole
// one.
func newAnswerBody(ctx context.Context, body io.ReadCloser, read func(to writer) reader, to writer, stream bool, o *Options) io.ReadCloser {
	a := &answerBody{body: body, reader: read(to), to: to, made: to.made()}
	if stream {
		a.events = sse.NewReader(body, int(o.MaxEvent))
		if o.Memory != nil {
			a.ctx, a.options = ctx, o
			a.events.SetBudget(a)
		}
	}
	return a
}

// Reserve implements [sse.Budget]. Few streams have an event that needs one.
func (a *answerBody) Reserve(n int64) error {
	if a.memory == nil {
		a.memory = a.options.Memory(a.ctx)
	}
	return a.memory.Reserve(n)
}

// Keep implements [sse.Budget].
func (a *answerBody) Keep() { a.memory.Keep() }

// Read gives what of the translated answer is ready.
func (a *answerBody) Read(p []byte) (int, error) {
	a.setReading(true)
	defer a.setReading(false)
	for len(a.rest) == 0 {
		if a.err != nil {
			sse.PutOutput(a.made.out)
			a.made.out = nil
			return 0, a.err
		}
		if len(p) == 0 {
			return 0, nil
		}
		if a.events == nil {
			a.readWhole()
		} else {
			a.fill()
		}
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// Close ends the upstream's answer. Memory that is reserved for a large event is given back at
// once, or by a Read that still runs.
func (a *answerBody) Close() error {
	err := a.body.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
	a.releaseClosed()
	return err
}

// setReading notes whether a Read goes on.
func (a *answerBody) setReading(goesOn bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reading = goesOn
	a.releaseClosed()
}

// releaseClosed releases the events of an answer that was closed; mu is held.
func (a *answerBody) releaseClosed() {
	if a.closed && !a.reading && a.events != nil {
		a.events.Release()
	}
}

// fill translates events up to the first that makes anything, and those that came with it.
func (a *answerBody) fill() {
	const batch = 32 << 10 // beyond which no further event is translated
	if a.made.out == nil {
		a.made.out = sse.GetOutput()
	}
	a.made.out = a.made.out[:0]
	if a.complete {
		a.drain()
	}
	for a.err == nil && !a.complete {
		a.err = a.next()
		waits := a.err != nil || !a.events.Buffered()
		if waits {
			a.to.flush()
		}
		if n := len(a.made.out); n >= batch || n > 0 && waits {
			break
		}
	}
	a.rest = a.made.out
	if a.err != nil {
		a.events.Release()
	}
}

// next translates one event.
func (a *answerBody) next() error {
	event, err := a.events.Next()
	switch {
	case errors.Is(err, io.EOF):
		return upstream.BadAnswer("The upstream's stream ended before it was complete.", io.ErrUnexpectedEOF)
	case errors.Is(err, sse.ErrTooLarge):
		return upstream.BadAnswer("The upstream sent an event that the gateway does not take: "+err.Error()+".", err)
	case errors.Is(err, sse.ErrMarkup):
		return upstream.BadAnswer("The upstream answered a stream with a web page.", err)
	case err != nil:
		return err
	}
	if event.Whole {
		a.complete, err = true, a.document(event.Data)
	} else {
		a.complete, err = a.reader.event(event.Name, a.halves.Join(event.Data))
	}
	return cmp.Or(err, a.made.err)
}

// document translates a whole answer that came instead of a stream.
func (a *answerBody) document(data []byte) error {
	o, err := answer.Document(data)
	if err != nil {
		return err
	}
	return a.reader.whole(o.Src)
}

// drain reads what follows a complete answer, so that the upstream's connection can be
// used again.
func (a *answerBody) drain() {
	const most = 64 << 10
	_, _ = io.CopyN(io.Discard, a.body, most) // the answer is complete: how the transfer ends changes nothing
	a.err = io.EOF
}

// decodable is a whole answer without halves of characters and bytes that are no UTF-8.
func decodable(data []byte) []byte {
	if _, decodable, broken := rawjson.Mend(data); broken {
		return decodable
	}
	return data
}

// readWhole translates a whole answer.
func (a *answerBody) readWhole() {
	const most = 256 << 20
	data, err := io.ReadAll(io.LimitReader(a.body, most+1))
	switch {
	case err != nil:
	case len(data) > most:
		err = upstream.BadAnswer("The upstream's answer is larger than the gateway allows.", nil)
	default:
		err = cmp.Or(a.reader.whole(decodable(rawjson.TrimBOM(data))), a.made.err)
	}
	if a.err = err; err == nil {
		a.rest, a.err = a.made.out, io.EOF
	}
	a.made.out = nil // is no buffer that another answer can use
}
