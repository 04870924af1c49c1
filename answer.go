package gateway

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/admission"
	"github.com/tollhouse-ai/gateway/internal/deliver"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// readWhole reads and checks an answer to q that does not stream.
func (e *Entry) readWhole(ctx context.Context, q operation.Request, r *upstream.Reply) (*operation.Answer, error) {
	return readBody(ctx, e, r, e.g.options.MaxAnswer, func(data []byte) (*operation.Answer, *[]byte, error) {
		a, err := q.ReadAnswer(data, e.answerOptions())
		return &a, &a.Body, err
	})
}

// readBody reads the body of a reply, at most so many bytes, and returns what parse makes of
// it. parse also returns where its answer holds bytes that may lie in data; nil if the answer
// does not refer to data. The memory that was needed on top of these bytes is released when
// readBody returns.
func readBody[A any](ctx context.Context, e *Entry, r *upstream.Reply, most int64, parse func(data []byte) (answer A, body *[]byte, err error)) (answer A, err error) {
	defer fault.Recover(&err)
	buf := buffers.Get().(*bytes.Buffer)
	inPlace := false // the answer lies in buf, which is its caller's then
	defer func() {
		if !inPlace {
			putBuffer(buf)
		}
	}()
	in := limitedReader{limit: most, budget: e.g.admission.Answers(), now: e.g.options.Now}
	kept := 0
	defer func() {
		r.Withheld = in.waited
		if in.reservation != nil {
			in.budget.Finish(in.reservation, int64(kept), &e.slot)
		}
	}()
	if err := in.readAll(ctx, buf, r.Body); err != nil {
		return answer, err
	}
	answer, body, err := parse(buf.Bytes())
	if err != nil || body == nil {
		return answer, err
	}
	kept = len(*body)
	if kept > 0 && buf.Len() > 0 && &(*body)[0] == &buf.Bytes()[0] {
		if inPlace = isPooled(*body) && kept >= buf.Cap()/2; inPlace {
			kept = buf.Cap() // at most twice the answer, which was reserved
		} else {
			*body = bytes.Clone(*body)
		}
	}
	return answer, nil
}

// answerOptions are what reading the call's answer needs.
func (e *Entry) answerOptions() operation.AnswerOptions {
	return operation.AnswerOptions{Price: e.hold.Price, Media: e.model.facts.Media, RequestID: e.ID, NewID: e.g.options.NewID}
}

// limitedReader reads one whole answer up to a limit, within the memory budget.
type limitedReader struct {
	limit  int64             // bytes
	budget *admission.Budget // where it reserves bytes as soon as it is not small; nil if it may not be
	now    func() time.Time

	reservation *admission.Reservation // nil while it is small
	allowed     int64                  // so many bytes may be read
	waited      time.Duration
}

// minBudgeted is how many bytes of an answer are a part of any call.
const minBudgeted = 1 << 20

// readAll reads the answer and closes body. Then it reserves as many bytes again,
// for the copy that checking makes.
func (in *limitedReader) readAll(ctx context.Context, buf *bytes.Buffer, body io.ReadCloser) error {
	n, err := in.fill(ctx, buf, body)
	if in.reservation != nil && err == nil && n <= in.limit {
		err = in.reserve(ctx, in.reservation.Bytes()+n)
	}
	closeErr := body.Close()
	if n > 0 {
		buf.Next(buf.Len() - len(rawjson.TrimBOM(buf.Bytes())))
	}
	switch {
	case err != nil:
		return deliver.Truncated(err)
	case n > in.limit:
		return upstream.BadAnswer("The upstream's answer is larger than the gateway allows.", nil)
	case n == 0:
		return upstream.BadAnswer("The upstream's answer is empty.", closeErr)
	}
	return nil
}

// fill reads up to one byte more than the limit.
func (in *limitedReader) fill(ctx context.Context, buf *bytes.Buffer, body io.Reader) (n int64, err error) {
	for n <= in.limit {
		if n >= in.allowed {
			if err := in.extend(ctx, n); err != nil {
				return n, err
			}
		}
		if buf.Available() < bytes.MinRead {
			growBuffer(buf, in.limit)
		}
		free := buf.AvailableBuffer()
		free = free[:min(int64(cap(free)), in.allowed-n)]
		more, err := body.Read(free)
		buf.Write(free[:more]) // which copies nothing: free is the buffer's own memory
		n += int64(more)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// extend doubles how many bytes may be read, and reserves them.
func (in *limitedReader) extend(ctx context.Context, n int64) error {
	all := in.limit + 1
	switch {
	case in.budget == nil || !in.budget.Limited():
		in.allowed = all
	case n == 0:
		in.allowed = min(all, minBudgeted)
	default:
		more := min(all, 2*in.allowed)
		if err := in.reserve(ctx, more); err != nil {
			return err
		}
		in.allowed = more
	}
	return nil
}

// reserve waits until the answer has n bytes of the budget.
func (in *limitedReader) reserve(ctx context.Context, n int64) error {
	if in.reservation == nil {
		in.reservation = new(admission.Reservation)
	}
	start := in.now()
	defer func() { in.waited += in.now().Sub(start) }()
	return in.budget.Reserve(ctx, in.reservation, n-in.reservation.Bytes())
}

// growBuffer doubles a buffer, but near the limit allocates exactly the limit: a
// buffer that only ever doubled would take three times the limit at its last byte.
func growBuffer(buf *bytes.Buffer, limit int64) {
	if int64(2*buf.Cap()) < limit-limit/8 {
		buf.Grow(bytes.MinRead)
		return
	}
	*buf = *bytes.NewBuffer(append(make([]byte, 0, limit+1+bytes.MinRead), buf.Bytes()...))
}

// buffers hold whole answers while they are read and checked, and those large ones that
// need no copy until their callers have released them: to clear and to grow a new one, and
// to collect it, costs more than all that is done with it. (64 vectors have 1 MiB.)
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

const (
	minPooled = 64 << 10
	maxPooled = 4 << 20
)

// isPooled reports whether a body is worth to be used again.
func isPooled(body []byte) bool { return cap(body) >= minPooled && cap(body) <= maxPooled }

// putBody gives the memory of a large answer back, for one that comes later.
func putBody(body []byte) {
	if isPooled(body) {
		buffers.Put(bytes.NewBuffer(body[:0]))
	}
}

// putBuffer keeps a buffer for the next answer, unless it grew too large.
func putBuffer(buf *bytes.Buffer) {
	if buf.Cap() > maxPooled {
		return
	}
	buf.Reset()
	buffers.Put(buf)
}
