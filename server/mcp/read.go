package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/paced"
)

// read reads the whole message, and nothing past the limit. It must keep coming.
func (d *door) read() ([]byte, error) {
	limit := d.h.o.MaxBody
	if d.r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	if d.r.ContentLength > paced.Light { // a small message finds its place when its call begins
		if err := d.x.Admit(d.r.Context()); err != nil {
			return nil, err
		}
		if err := d.x.Room(d.r.ContentLength); err != nil {
			return nil, err
		}
	}
	body := paced.New(d.r.Body, d.w.control, d.h.o.ReadTimeout, d.x.Weigh)
	const prudent = 256 << 10 // a declared length is not believed beyond this
	var data bytes.Buffer
	if n := d.r.ContentLength; n > 0 {
		data.Grow(int(min(n, prudent)) + bytes.MinRead)
	}
	_, err := data.ReadFrom(http.MaxBytesReader(d.w, body, limit))
	var large *http.MaxBytesError
	var own *fault.Error
	switch {
	case errors.As(err, &own): // there is no room for it
		return nil, own
	case err == nil:
		body.Done()
		return data.Bytes(), nil
	case errors.As(err, &large):
		return nil, tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fault.Wrap(fault.InvalidRequest, "The message came too slowly.", err).With(func(e *fault.Error) { e.Status = http.StatusRequestTimeout })
	case d.r.Context().Err() != nil:
		return nil, fault.Wrap(fault.ClientGone, "The client hung up before its message was read.", err)
	}
	return nil, fault.Wrap(fault.InvalidRequest, "The message could not be read to its end.", err)
}

func tooLarge(limit int64) error {
	return fault.New(fault.RequestTooLarge, fmt.Sprintf("The message is larger than %d bytes.", limit))
}
