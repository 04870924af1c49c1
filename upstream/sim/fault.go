package sim

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/serve"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Fault is what goes wrong in one call. The zero Fault is a good answer.
type Fault struct {
	// Status refuses the call before any answer, with a vendor's HTTP status
	// (401, 429, 500 …).
	Status int
	// Break is how the answer breaks off; zero means that it does not.
	Break Break
	// After is how many events of a stream come before the break; 0 breaks it
	// before the first. An answer that is not streamed has no events: [Cut]
	// leaves half of its body.
	After int
	// NoUsage leaves out the report of usage, and ZeroUsage makes it an explicit zero.
	// A video's is in the answer to a poll.
	NoUsage, ZeroUsage bool
	// Video is the state in which the video ends that the call submits: "failed",
	// "cancelled", "expired", or "running" for one that never ends; empty for one that
	// succeeds. A Break of a submission comes after the video was taken, a Status before.
	Video string
	// NoVideoURL leaves the address out of a video that succeeded.
	NoVideoURL bool
}

// Break is a way in which an answer breaks off.
type Break uint8

// The ways to break off.
const (
	Cut        Break = iota + 1 // the body ends too early, as if it were complete
	Reset                       // the body ends in a transport error
	Stall                       // nothing more comes until the call's context ends
	ErrorFrame                  // an error object comes instead of the rest, under status 200
	Garbage                     // what comes next is not JSON
	Lost                        // the work is done, and the connection breaks before any answer
)

// breaks say what comes in the place of the rest of an answer: a text, or the
// end of the body with an error, nil being the end of a body that is complete.
// A [Stall] waits instead, and a [Lost] answer is never sent.
var breaks = map[Break]struct {
	text string
	err  error
}{
	Cut:        {},
	Reset:      {err: io.ErrUnexpectedEOF},
	ErrorFrame: {text: `{"error":{"message":"The simulated model failed.","type":"server_error","code":"server_error","param":null}}`},
	Garbage:    {text: `{"id":"chatcmpl-`},
}

// body is the body of a whole answer under the fault.
func (f Fault) body(data []byte) io.ReadCloser {
	b, breaksOff := breaks[f.Break]
	rest := io.Reader(strings.NewReader(b.text))
	switch {
	case !breaksOff:
		rest = bytes.NewReader(data)
	case b.text == "":
		rest = io.MultiReader(bytes.NewReader(data[:len(data)/2]), failingReader{b.err})
	}
	return io.NopCloser(rest)
}

// failingReader is a connection that ends: by itself if err is nil.
type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, cmp.Or(r.err, io.EOF) }

// stream is an answer as server-sent events, made one by one as they are read.
// Read is for one goroutine; Close may come from another and ends a Read that
// waits.
type stream struct {
	ctx   context.Context
	o     Options
	fault Fault

	mu   sync.Mutex // for next and stop, which do not wait
	next func() ([]byte, bool)
	stop func()

	sent   int    // events
	rest   []byte // what Read still owes of an event
	over   bool   // nothing comes after rest
	err    error  // with which the stream ended
	closed chan struct{}
	once   sync.Once
}

// sendStream replies with events.
func (u *Upstream) sendStream(ctx context.Context, events iter.Seq[[]byte], f Fault) *upstream.Reply {
	s := &stream{ctx: ctx, o: u.o, fault: f, closed: make(chan struct{})}
	s.next, s.stop = iter.Pull(events)
	return serve.Reply("text/event-stream", s)
}

// Read gives at most one event, after the delay that the options ask for.
func (s *stream) Read(p []byte) (int, error) {
	if len(s.rest) == 0 && s.err == nil {
		if s.err = s.advance(); s.err != nil {
			s.release()
		}
	}
	if s.err != nil {
		return 0, s.err
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Close ends the stream. It is safe to call more than once.
func (s *stream) Close() error {
	s.once.Do(func() { close(s.closed) })
	s.release()
	return nil
}

// release frees what makes the events.
func (s *stream) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}

// advance makes the next event, or the fault instead of it.
func (s *stream) advance() error {
	s.mu.Lock()
	event, more := s.next()
	s.mu.Unlock()
	select {
	case <-s.closed:
		return io.ErrClosedPipe
	default:
	}
	if !more || s.over {
		return io.EOF
	}
	delay := s.o.Pace
	if s.sent == 0 {
		delay = s.o.FirstDelay
	}
	if err := wait(s.ctx, s.closed, max(delay, 0)); err != nil {
		return err
	}
	if s.fault.Break != 0 && s.sent >= s.fault.After {
		return s.breakOff()
	}
	s.rest = event
	s.sent++
	return nil
}

// breakOff makes what comes in the place of the rest of the stream.
func (s *stream) breakOff() error {
	if s.fault.Break == Stall {
		return wait(s.ctx, s.closed, forever)
	}
	b := breaks[s.fault.Break]
	if b.text == "" {
		return cmp.Or(b.err, io.EOF)
	}
	s.rest, s.over = []byte("data: "+b.text+"\n\n"), true
	return nil
}

// refused is the error of a fault that refuses the call.
func refused(status int) error {
	message := fmt.Sprintf("The simulated upstream refused the request with status %d, as it was told to.", status)
	e := upstream.FromStatus(status).Fault()
	if e.Code == fault.InvalidRequest {
		return vendorError(status, e.Code, "", message)
	}
	e.Message = message
	return e
}

// refusal is the refusal of a request that err says is wrong, or whose model the
// vendor does not have; nil if there is none.
func (u *Upstream) refusal(err error, model string) error {
	switch f := fault.From(err); {
	case f != nil:
		return vendorError(400, f.Code, f.Param, f.Message)
	case !u.has(model):
		return vendorError(404, fault.ModelNotFound, "model", fmt.Sprintf("The simulated vendor has no model %q.", model))
	}
	return nil
}

// vendorError is a vendor's refusal of a request that is at fault itself.
func vendorError(status int, code fault.Code, param, message string) error {
	e := &fault.Error{
		Code: code, Message: message, Param: param, Status: status,
		Err: &upstream.Failure{Status: status, Sent: true},
	}
	type body struct {
		Message string     `json:"message"`
		Type    string     `json:"type"`
		Code    fault.Code `json:"code"`
		Param   *string    `json:"param"`
	}
	b := body{strings.ToValidUTF8(message, "\uFFFD"), fault.Type(status), code, nil}
	if param != "" {
		b.Param = &param
	}
	if data, err := json.Marshal(map[string]body{"error": b}); err == nil {
		e.Body = data
	}
	return e
}
