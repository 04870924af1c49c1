package serve

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Events answers with a stream: each piece that the iterator yields is framed as
// events, and end closes a complete stream. An error of the iterator ends it. The
// iterator's loop ends at the latest when the reply's body is closed.
func Events[T any](ctx context.Context, pieces iter.Seq2[T, error], frame func(dst []byte, piece T) ([]byte, error), end string) *upstream.Reply {
	next, stop := iter.Pull2(pieces)
	return Reply("text/event-stream", &events[T]{ctx: ctx, next: next, stop: stop, frame: frame, end: end})
}

// events reads an iterator as server-sent events.
type events[T any] struct {
	ctx   context.Context
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
	if len(e.buf) == 0 && e.err == nil {
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

// Close ends the iterator's loop. Nothing can be read afterwards: an answer that
// was given up must not look complete.
func (e *events[T]) Close() error {
	e.stop()
	e.buf, e.err = nil, io.ErrClosedPipe
	return nil
}
