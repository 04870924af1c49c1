package gateway

import (
	"bytes"
	"context"
	"io"
	"time"
)

// intake reads one whole answer.
type intake struct {
	limit int64    // bytes
	stow  *stowage // where it takes room as soon as it is not small; nil if it may not be
	now   func() time.Time

	taken  *ticket // nil while it is small
	covers int64   // so many bytes may be read
	waited time.Duration
}

// smallAnswer is how many bytes of an answer are a part of any call.
const smallAnswer = 1 << 20

// readAll reads a whole answer up to the limit and closes it, with which ctx ends.
// There is room for a copy then, by which the answer is checked.
func (in *intake) readAll(ctx context.Context, buf *bytes.Buffer, body io.ReadCloser) error {
	n, err := in.fill(ctx, buf, body)
	if in.taken != nil && err == nil && n <= in.limit {
		err = in.take(ctx, in.taken.bytes+n)
	}
	closeErr := body.Close()
	switch {
	case err != nil:
		return cut(err)
	case n > in.limit:
		return badGateway("The upstream's answer is larger than the gateway allows.", nil)
	case n == 0:
		return badGateway("The upstream's answer is empty.", closeErr)
	}
	return nil
}

// fill reads up to one byte more than the limit.
func (in *intake) fill(ctx context.Context, buf *bytes.Buffer, body io.Reader) (n int64, err error) {
	for n <= in.limit {
		if n >= in.covers {
			if err := in.cover(ctx, n); err != nil {
				return n, err
			}
		}
		if buf.Available() < bytes.MinRead {
			roomier(buf, in.limit)
		}
		room := buf.AvailableBuffer()
		room = room[:min(int64(cap(room)), in.covers-n)]
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

// cover lets as much again be read as was, and takes room for it.
func (in *intake) cover(ctx context.Context, n int64) error {
	all := in.limit + 1
	switch {
	case in.stow == nil || in.stow.room == nil:
		in.covers = all
	case n == 0:
		in.covers = min(all, smallAnswer)
	default:
		more := min(all, 2*in.covers)
		if err := in.take(ctx, more); err != nil {
			return err
		}
		in.covers = more
	}
	return nil
}

// take takes room until the answer has n bytes of it.
func (in *intake) take(ctx context.Context, n int64) error {
	if in.taken == nil {
		in.taken = new(ticket)
	}
	start := in.now()
	defer func() { in.waited += in.now().Sub(start) }()
	return in.stow.take(ctx, in.taken, n-in.taken.bytes)
}

// end gives back all but what is kept of the answer.
func (in *intake) end(kept int, by *stowed) {
	if in.taken != nil {
		in.stow.end(in.taken, int64(kept), by)
	}
}

// roomier doubles a buffer, or makes it as large as it may have to be: one that
// only ever doubled would, at the last byte, be three times as much memory as the
// limit.
func roomier(buf *bytes.Buffer, limit int64) {
	if int64(2*buf.Cap()) < limit-limit/8 {
		buf.Grow(bytes.MinRead)
		return
	}
	*buf = *bytes.NewBuffer(append(make([]byte, 0, limit+1+bytes.MinRead), buf.Bytes()...))
}
