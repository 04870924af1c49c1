package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"strings"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/formdata"
	"github.com/tollhouse-ai/gateway/internal/paced"
	"github.com/tollhouse-ai/gateway/upstream"
)

// call runs one operation whose request is a JSON body.
func (x *exchange) call(op upstream.Op) error {
	if err := x.checkContentType(); err != nil {
		return err
	}
	body, err := x.readBody()
	if err != nil {
		return err
	}
	return x.answer(func(silence func([]byte)) (*gateway.Result, error) {
		return x.Call(x.r.Context(), op, body, silence)
	})
}

// answer runs the call and writes what comes of it.
func (x *exchange) answer(call func(silence func([]byte)) (*gateway.Result, error)) error {
	x.stream = &streamWriter{x: x}
	x.IdempotencyKey = x.r.Header.Get("Idempotency-Key")
	result, err := call(x.stream.heartbeat)
	x.stream.setHeaders(func(h http.Header) {
		x.limitHeaders()
		if result != nil {
			maps.Copy(h, result.Header)
			if result.Replayed {
				x.setRequestID(result.Header.Get("X-Request-Id"))
			}
		}
	})
	if err != nil {
		return err
	}
	if result.Audio != nil {
		x.audio = &audioWriter{x: x}
		return x.audio.copy(result.Audio)
	}
	if result.Stream == nil {
		if h := x.w.Header(); result.Replayed && h.Get("Content-Type") == "text/event-stream" {
			streamHeaders(h)
		}
		x.write(cmp.Or(result.Status, http.StatusOK), "", result.Body)
		result.Release()
		return nil
	}
	x.stream.source = result.Stream
	if x.smallStack {
		return nil // the rest is serveInCrowd's
	}
	defer x.stream.close()
	return x.stream.copy()
}

// checkContentType is 415 unless the body is plain JSON. A request without a
// content type is taken as JSON.
func (x *exchange) checkContentType() error {
	if err := x.checkEncoding(); err != nil {
		return err
	}
	header := x.r.Header.Get("Content-Type")
	if header == "" || header == "application/json" {
		return nil
	}
	if media, _, err := mime.ParseMediaType(header); err != nil || media != "application/json" {
		return fault.New(fault.UnsupportedMediaType, "This endpoint takes a body of Content-Type application/json, not "+clip(header)+".")
	}
	return nil
}

// checkEncoding is 415 for a compressed body.
func (x *exchange) checkEncoding() error {
	if e := x.r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return fault.New(fault.UnsupportedMediaType, "Send the body without Content-Encoding.")
	}
	return nil
}

// readBody reads the whole body, and nothing past the limit: 413 at once for a
// declared length, else while reading.
func (x *exchange) readBody() ([]byte, error) {
	limit := x.h.options.MaxBody
	if x.r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	if err := x.admitBody(x.r.ContentLength); err != nil {
		return nil, err
	}
	const maxPrealloc = 256 << 10 // a declared length is not believed beyond this
	var buf bytes.Buffer
	if n := x.r.ContentLength; n > 0 {
		buf.Grow(int(min(n, maxPrealloc)) + bytes.MinRead)
	}
	body := x.pacedBody(x.Weigh)
	_, err := buf.ReadFrom(http.MaxBytesReader(x.w, body, limit))
	if err != nil {
		return nil, x.bodyError(err, limit)
	}
	body.Done()
	return buf.Bytes(), nil
}

// paced is the request's body, which must keep coming.
func (x *exchange) pacedBody(weigh func(n int64) error) *paced.Body {
	return paced.New(x.r.Body, http.NewResponseController(x.w), x.h.options.ReadTimeout, weigh)
}

// admit has a call take its place before its body is read: one that is refused
// costs nothing then.
func (x *exchange) admitBody(length int64) error {
	if err := x.Admit(x.r.Context()); err != nil || length <= paced.Light {
		return err
	}
	return x.Room(length)
}

// unread is what the caller is told of a body that could not be read.
func (x *exchange) bodyError(err error, limit int64) error {
	var large *http.MaxBytesError
	var own *fault.Error
	switch {
	case errors.As(err, &own): // there is no room for it
		return own
	case errors.As(err, &large):
		return tooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded): // which ends the context too
		e := fault.Wrap(fault.InvalidRequest, "The request body came too slowly.", err)
		e.Status = http.StatusRequestTimeout
		return e
	case x.r.Context().Err() != nil:
		return fault.Wrap(fault.ClientGone, "The client hung up before its request was read.", err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Wrap(fault.InvalidRequest, "The request body ended before its declared length.", err)
	}
	return fault.Wrap(fault.InvalidRequest, "The request body could not be read.", err)
}

func tooLarge(limit int64) error {
	return fault.New(fault.RequestTooLarge, fmt.Sprintf("The request body is larger than %d bytes.", limit))
}

// callForm runs one operation whose request is a multipart form.
func (x *exchange) callForm(op upstream.Op) error {
	if err := x.checkEncoding(); err != nil {
		return err
	}
	header := x.r.Header.Get("Content-Type")
	boundary, ok, err := formdata.Boundary(header)
	if !ok {
		return fault.New(fault.UnsupportedMediaType, "This endpoint takes a body of Content-Type "+formdata.MediaType+", not "+clip(header)+".")
	}
	if limit := x.h.options.MaxForm; x.r.ContentLength > limit {
		return tooLarge(limit) // which counts more than what is wrong with its boundary
	}
	if err != nil {
		return err
	}
	form, err := x.readForm(boundary)
	if err != nil {
		return err
	}
	return x.answer(func(silence func([]byte)) (*gateway.Result, error) {
		return x.CallForm(x.r.Context(), op, form, silence)
	})
}

// readForm reads the whole form, and nothing past the limit.
func (x *exchange) readForm(boundary string) (*upstream.Form, error) {
	limit := x.h.options.MaxForm
	if err := x.admitBody(0); err != nil { // large forms do not lie in memory
		return nil, err
	}
	body := x.pacedBody(nil)
	form, err := formdata.Read(http.MaxBytesReader(x.w, body, limit), boundary, formdata.Options{
		Dir: x.h.options.TempDir, Quota: x.h.uploads, Owner: x.Principal().Account,
	})
	var own *fault.Error
	if err == nil || errors.As(err, &own) {
		if err == nil {
			body.Done()
		}
		return form, err
	}
	return nil, x.bodyError(err, limit)
}

// showVideo is GET /v1/videos/generations/{id}.
func (x *exchange) showVideo() error {
	record, err := x.VideoRecord(x.r.Context(), x.id)
	if err != nil {
		return err
	}
	x.write(http.StatusOK, "application/json", record)
	return nil
}
