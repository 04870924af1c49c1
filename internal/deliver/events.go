package deliver

import (
	"errors"
	"io"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/admission"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Events is a vendor's stream that was accepted: the events that were read ahead, then the rest.
type Events struct {
	readAhead []sse.Event
	reader    *sse.Reader
	body      io.ReadCloser
	key       *upstream.Key   // the vendor's, which errors in the stream must not show
	memory    admission.Event // of a large event
}

// ReadEvents reads ahead until an event carries content, so that an upstream that fails at
// once can be replaced. It never waits for a second read: a chunk leaves when it arrives. A
// whole answer in the place of a stream becomes its events. limit is the most bytes of one
// event. Without an error the Events close the reply's body.
func ReadEvents(r *upstream.Reply, request operation.Stream, memory admission.Event, limit int) (_ *Events, err error) {
	defer fault.Recover(&err)
	e := &Events{memory: memory, reader: sse.NewReader(r.Body, limit), body: r.Body, key: r.Used}
	e.reader.SetBudget(&e.memory)
	for {
		event, err := e.reader.Next()
		if err == nil && event.Whole {
			if e.readAhead, err = request.Unfold(event.Data); err == nil {
				return e, nil
			}
		} else if err == nil {
			var content bool
			e.readAhead = append(e.readAhead, event) // whose data nothing overwrites before the next read
			if content, err = request.Opening(event.Name, event.Data); err == nil {
				if content || !e.reader.Buffered() {
					return e, nil
				}
				continue
			}
		}
		e.close()
		if errors.Is(err, io.EOF) {
			return nil, upstream.BadAnswer("The upstream's stream is empty.", err)
		}
		return nil, Truncated(err)
	}
}

// next gives the next event, whose data is valid until the next call. If it would have to wait
// and must not, it reports false. A panic of the body is its error.
func (e *Events) next(wait bool) (event sse.Event, ok bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			ok, err = true, fault.FromPanic(p)
		}
	}()
	switch {
	case len(e.readAhead) > 0:
		event = e.readAhead[0]
		if e.readAhead[0], e.readAhead = (sse.Event{}), e.readAhead[1:]; len(e.readAhead) == 0 {
			e.readAhead = nil
		}
		return event, true, nil
	case !wait && !e.reader.Buffered():
		return event, false, nil
	}
	event, err = e.reader.Next()
	return event, true, err
}

// discardRest reads what follows the terminator, so that the upstream's connection
// can be used again: the end of the transfer, unless the upstream misbehaves.
func (e *Events) discardRest() {
	const most = 64 << 10
	_, _ = io.CopyN(io.Discard, e.body, most)
}

// close ends the transfer.
func (e *Events) close() {
	_ = e.body.Close() // the stream is over; its end was judged before
	e.reader.Release()
}
