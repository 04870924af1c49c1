package gateway

import (
	"bytes"
	"context"
	"io"
	"time"
)

// limitedReader reads one whole answer.
type limitedReader struct {
	limit  int64         // bytes
	budget *memoryBudget // where it takes room as soon as it is not small; nil if it may not be
	now    func() time.Time

	reservation *reservation // nil while it is small
	allowed     int64        // so many bytes may be read
	waited      time.Duration
}

// minBudgeted is how many bytes of an answer are a part of any call.
const minBudgeted = 1 << 20

// readAll reads a whole answer up to the limit and closes it, with which ctx ends.
// There is room for a copy then, by which the answer is checked.
func (in *limitedReader) readAll(ctx context.Context, buf *bytes.Buffer, body io.ReadCloser) error {
	n, err := in.fill(ctx, buf, body)
	if in.reservation != nil && err == nil && n <= in.limit {
		err = in.reserve(ctx, in.reservation.bytes+n)
	}
	closeErr := body.Close()
	switch {
	case err != nil:
		return truncatedError(err)
	case n > in.limit:
		return badGateway("The upstream's answer is larger than the gateway allows.", nil)
	case n == 0:
		return badGateway("The upstream's answer is empty.", closeErr)
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
		room := buf.AvailableBuffer()
		room = room[:min(int64(cap(room)), in.allowed-n)]
		more, err := body.Read(room)
		buf.Write(room[:more]) // which is where it lies
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

// extend lets as much again be read as was, and takes room for it.
func (in *limitedReader) extend(ctx context.Context, n int64) error {
	all := in.limit + 1
	switch {
	case in.budget == nil || in.budget.available == nil:
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

// reserve takes room until the answer has n bytes of it.
func (in *limitedReader) reserve(ctx context.Context, n int64) error {
	if in.reservation == nil {
		in.reservation = new(reservation)
	}
	start := in.now()
	defer func() { in.waited += in.now().Sub(start) }()
	return in.budget.reserve(ctx, in.reservation, n-in.reservation.bytes)
}

// finish gives back all but what is kept of the answer.
func (in *limitedReader) finish(kept int, by *reservedBytes) {
	if in.reservation != nil {
		in.budget.finish(in.reservation, int64(kept), by)
	}
}

// growBuffer doubles a buffer, or makes it as large as it may have to be: one that
// only ever doubled would, at the last byte, be three times as much memory as the
// limit.
func growBuffer(buf *bytes.Buffer, limit int64) {
	if int64(2*buf.Cap()) < limit-limit/8 {
		buf.Grow(bytes.MinRead)
		return
	}
	*buf = *bytes.NewBuffer(append(make([]byte, 0, limit+1+bytes.MinRead), buf.Bytes()...))
}
