// Package funcmodel makes upstreams of Go functions: it parses calls, encodes whole answers and
// streams, and reads the events of those back.
package funcmodel

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is the typed view of a call; parsed from the body where the call came
// without one.
func Request[R any](call *upstream.Call, parse func([]byte) (*R, error)) (*R, error) {
	if r, ok := call.Request.(*R); ok {
		return r, nil
	}
	data, err := call.Body.Bytes()
	if err != nil {
		return nil, fault.From(err)
	}
	return parse(data)
}

// View is the typed view of a call; decoded from the body where the call came
// without one.
func View[R any](call *upstream.Call) (*R, error) {
	return Request(call, func(data []byte) (*R, error) {
		r := new(R)
		if err := json.Unmarshal(data, r); err != nil {
			return nil, fault.Wrap(fault.InvalidRequest, "The request cannot be read.", err)
		}
		return r, nil
	})
}

// JSON answers with a document.
func JSON(answer any) (*upstream.Reply, error) {
	data, err := json.Marshal(answer)
	if err != nil {
		return nil, fault.Wrap(fault.InternalError, "The model's answer cannot be written as JSON.", err)
	}
	return Reply("application/json", io.NopCloser(bytes.NewReader(data))), nil
}

// Reply answers with a body.
func Reply(contentType string, body io.ReadCloser) *upstream.Reply {
	return &upstream.Reply{Status: http.StatusOK, Header: http.Header{"Content-Type": {contentType}}, Body: body}
}

// Function is an upstream that answers one operation by Go functions. It is as
// safe for concurrent use as they are.
type Function[R, A any] struct {
	Op     upstream.Op
	Read   func(call *upstream.Call) (*R, error) // see Parsed
	Answer func(ctx context.Context, r *R) (*A, error)
	// Stream answers a call for a stream; nil refuses it.
	Stream func(ctx context.Context, r *R) *upstream.Reply
}

// Supports says that only the operation is served.
func (f Function[R, A]) Supports(op upstream.Op, _ string) bool { return op == f.Op }

// Do calls the function that the call asks for.
func (f Function[R, A]) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	if call.Stream && f.Stream == nil {
		return nil, fault.Invalid("stream", `This model does not stream: leave "stream" out.`)
	}
	r, err := f.Read(call)
	if err != nil {
		return nil, err
	}
	if call.Stream {
		return f.Stream(ctx, r), nil
	}
	answer, err := f.Answer(ctx, r)
	if err != nil {
		return nil, fault.From(err)
	}
	return JSON(answer)
}

// Parsed reads calls by the parser of their bodies.
func Parsed[R any](parse func([]byte) (*R, error)) func(*upstream.Call) (*R, error) {
	return func(call *upstream.Call) (*R, error) { return Request(call, parse) }
}

// Whole streams a whole answer, cut into pieces.
func Whole[R, A, P any](answer func(ctx context.Context, r *R) (*A, error), cut func(*A) []*P) func(ctx context.Context, r *R) iter.Seq2[*P, error] {
	return func(ctx context.Context, r *R) iter.Seq2[*P, error] {
		return func(yield func(*P, error) bool) {
			a, err := answer(ctx, r)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, piece := range cut(a) {
				if !yield(piece, nil) {
					return
				}
			}
		}
	}
}

// Events answers with a stream: each piece of the iterator is framed as events, and end closes
// a complete stream. An error of the iterator ends the stream. Closing the reply's body ends
// the iterator's loop. If a Read waits for the iterator then, the loop ends when that Read
// returns, which needs ctx to end.
func Events[T any](ctx context.Context, pieces iter.Seq2[T, error], frame func(dst []byte, piece T) ([]byte, error), end string) *upstream.Reply {
	next, stop := iter.Pull2(pieces)
	return Reply("text/event-stream", &events[T]{ctx: ctx, next: next, stop: stop, frame: frame, end: end})
}

// events reads an iterator as server-sent events.
type events[T any] struct {
	ctx    context.Context
	closed atomic.Bool

	mu    sync.Mutex // held while next or stop runs: they must not run at the same time
	next  func() (T, error, bool)
	stop  func()
	frame func(dst []byte, piece T) ([]byte, error)
	end   string
	buf   []byte
	done  bool
	err   error
}

// Read gives at most one piece at a time.
func (e *events[T]) Read(p []byte) (int, error) {
	n, err := e.read(p)
	if e.closed.Load() { // perhaps while the read waited, so that Close could not stop the iterator
		e.mu.Lock()
		defer e.mu.Unlock()
		e.stop()
		return 0, io.ErrClosedPipe
	}
	return n, err
}

func (e *events[T]) read(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.buf) == 0 && e.err == nil && !e.closed.Load() {
		e.fill()
	}
	if len(e.buf) == 0 {
		return 0, e.err
	}
	n := copy(p, e.buf)
	e.buf = e.buf[n:]
	return n, nil
}

func (e *events[T]) fill() {
	if e.done {
		e.err = io.EOF
		return
	}
	piece, err, ok := e.next()
	switch {
	case !ok && e.ctx.Err() != nil: // the handler stopped because of it
		e.err = fault.From(e.ctx.Err())
	case !ok:
		e.buf, e.done = append(e.buf, e.end...), true
		if e.end == "" {
			e.err = io.EOF
		}
	case err != nil:
		e.err = fault.From(err)
	default:
		data, err := e.frame(e.buf[:0], piece)
		if err != nil {
			e.err = errors.Join(fault.New(fault.InternalError, "The model's stream cannot be written as JSON."), err)
			return
		}
		e.buf = data
	}
}

// Close ends the iterator's loop, or has the Read that waits for it do so. Nothing can be
// read afterwards: an answer that was given up must not look complete.
func (e *events[T]) Close() error {
	e.closed.Store(true)
	if e.mu.TryLock() {
		defer e.mu.Unlock()
		e.stop()
	}
	return nil
}
