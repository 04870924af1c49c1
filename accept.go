package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// accept judges an upstream's reply before anything of it goes to the client:
// a whole answer is read and checked, a stream up to its first events. What
// fails here may still be asked of another channel.
func (c *call) accept(ctx context.Context, r *upstream.Reply) (*upstream.Reply, error) {
	if c.op.streams() {
		return r, c.acceptStream(r)
	}
	body, usage, err := c.acceptWhole(ctx, c.op, r)
	if err != nil {
		return nil, err
	}
	c.whole, c.usage = body, usage
	return r, nil
}

// acceptWhole reads and checks an answer that does not stream.
func (c *call) acceptWhole(ctx context.Context, op operation, r *upstream.Reply) (body []byte, used billing.Usage, err error) {
	buf := buffers.Get().(*bytes.Buffer)
	defer putBuffer(buf)
	in := limitedReader{limit: c.x.g.options.MaxAnswer, budget: &c.x.g.admission.answers, now: c.x.g.options.Now}
	kept := 0
	defer func() {
		r.Withheld = in.waited
		in.finish(kept, &c.x.answerBytes)
	}()
	if err = in.readAll(ctx, buf, r.Body); err != nil {
		return nil, used, err
	}
	if body, used, err = op.answer(buf.Bytes()); err == nil {
		kept = len(body)
	}
	return body, used, err
}

// bodyPool are what large answers lay in whose callers have released them: to clear
// a new one, and to collect it, costs more than all that is done with it.
var bodyPool = sync.Pool{New: func() any { return new([]byte) }}

const (
	minPooled = 64 << 10
	maxPooled = 4 << 20
)

func getBody() []byte { return *bodyPool.Get().(*[]byte) }

// Release gives Body back, for an answer that comes later; it must not be used
// any more. It need not be called.
func (r *Result) Release() {
	body := r.Body
	r.Body = nil
	if r.Replayed || cap(body) < minPooled || cap(body) > maxPooled { // what is replayed is the store's
		return
	}
	body = body[:0]
	bodyPool.Put(&body)
}

// buffers hold whole answers while they are checked.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// putBuffer keeps a buffer for the next answer, unless it grew too large. One
// of 64 vectors has 1 MiB, and growing to it costs more than to read it.
func putBuffer(buf *bytes.Buffer) {
	if buf.Cap() > maxPooled {
		return
	}
	buf.Reset()
	buffers.Put(buf)
}

// truncatedError is the error of an answer that could not be read to its end.
func truncatedError(err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	return badGateway("The upstream's answer was cut off.", err)
}

func badGateway(message string, cause error) *fault.Error {
	return fault.Wrap(fault.BadGateway, message, &upstream.Failure{Status: 200, Sent: true, Err: cause})
}

// events is an accepted stream: the events read ahead, then the rest.
type events struct {
	readAhead []sse.Event
	pending   *pendingEvent // what await found
	reader    *sse.Reader
	body      io.ReadCloser
}

// pendingEvent is an event, or the error in the place of one, that next has not given yet.
type pendingEvent struct {
	event sse.Event
	err   error
}

// acceptStream reads ahead until an event carries content, but never waits for
// a second read: a chunk leaves as it comes (decisions.md, Chat).
func (c *call) acceptStream(r *upstream.Reply) error {
	if t := r.Header.Get("Content-Type"); t != "" && !strings.HasPrefix(t, "text/event-stream") {
		return errors.Join(badGateway("The upstream answered a stream with "+clip(t)+".", nil), r.Body.Close())
	}
	e := &events{reader: sse.NewReader(r.Body, 0), body: r.Body}
	for {
		event, err := e.reader.Next()
		if err == nil {
			var content bool
			e.keep(event)
			if content, err = c.op.opening(event.Name, event.Data); err == nil {
				if content || !e.reader.Buffered() {
					c.events = e
					return nil
				}
				continue
			}
		}
		e.close()
		if errors.Is(err, io.EOF) {
			return badGateway("The upstream's stream is empty.", err)
		}
		return truncatedError(err)
	}
}

func (e *events) keep(event sse.Event) {
	e.readAhead = append(e.readAhead, sse.Event{Name: event.Name, Data: bytes.Clone(event.Data)})
}

// next gives the next event; its data is valid until the next call.
func (e *events) next() (sse.Event, error) {
	if len(e.readAhead) > 0 {
		event := e.readAhead[0]
		if e.readAhead[0], e.readAhead = (sse.Event{}), e.readAhead[1:]; len(e.readAhead) == 0 {
			e.readAhead = nil
		}
		return event, nil
	}
	if h := e.pending; h != nil {
		e.pending = nil
		return h.event, h.err
	}
	return e.reader.Next()
}

// await waits until next would not.
func (e *events) await() {
	if len(e.readAhead) > 0 || e.pending != nil {
		return
	}
	h := new(pendingEvent)
	defer func() {
		if p := recover(); p != nil {
			h.err = panicked(p)
		}
		e.pending = h
	}()
	h.event, h.err = e.reader.Next()
}

// buffered reports whether next would not block.
func (e *events) buffered() bool { return len(e.readAhead) > 0 || e.reader.Buffered() }

// drain reads what follows the terminator, so that the upstream's connection
// can be used again: the end of the transfer, unless the upstream misbehaves.
func (e *events) drain() {
	const most = 64 << 10
	_, _ = io.CopyN(io.Discard, e.body, most)
}

func (e *events) close() {
	_ = e.body.Close() // the stream is over; its end was judged before
	e.reader.Release()
}
