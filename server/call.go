package server

import (
	"cmp"
	"io"
	"maps"
	"mime"
	"net/http"
	"strings"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/formdata"
	"github.com/tollhouse-ai/gateway/internal/slowbody"
	"github.com/tollhouse-ai/gateway/server/internal/httpio"
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
	return x.answer(func(heartbeat func([]byte)) (*gateway.Result, error) {
		return x.Call(x.r.Context(), op, body, heartbeat)
	})
}

// callMessages runs an operation of Anthropic's wire, whose headers and "beta" go
// on to an upstream that speaks it too.
func (x *exchange) callMessages(op upstream.Op) error {
	var err error
	if x.Header, err = anthropicHeaders(x.r.Header); err != nil {
		return err
	}
	if beta := x.r.URL.Query().Get("beta"); beta == "true" {
		x.Query = "beta=true"
	}
	return x.call(op)
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
	form, err := x.readForm(boundary, err)
	if err != nil {
		return err
	}
	return x.answer(func(heartbeat func([]byte)) (*gateway.Result, error) {
		return x.CallForm(x.r.Context(), op, form, heartbeat)
	})
}

// answer runs the call and writes what comes of it.
func (x *exchange) answer(call func(heartbeat func([]byte)) (*gateway.Result, error)) error {
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
	switch {
	case result.Audio != nil:
		x.stream.source, x.stream.audio = result.Audio, true
	case result.Stream != nil:
		x.stream.source, x.stream.events = result.Stream, result.Stream
		if x.smallStack {
			return nil // serveOnSmallStack does the rest
		}
	default:
		if h := x.w.Header(); result.Replayed && h.Get("Content-Type") == "text/event-stream" {
			setEventHeaders(h)
		}
		x.write(cmp.Or(result.Status, http.StatusOK), "", result.Body)
		result.Release()
		return nil
	}
	defer x.stream.close()
	return x.stream.copy()
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
	body := x.body(x.h.options.MaxBody)
	body.Reserve = x.Weigh
	if err := body.CheckLength(x.r); err != nil {
		return nil, err
	}
	// A call takes its slot before its body is read: one that is refused costs
	// nothing then.
	if err := x.Admit(x.r.Context()); err != nil {
		return nil, err
	}
	if n := x.r.ContentLength; n > slowbody.Light {
		if err := x.Room(n); err != nil {
			return nil, err
		}
	}
	return body.ReadAll(x.w, x.r)
}

// readForm reads the whole form, and nothing past the limit. A declared length
// over the limit counts more than what is wrong with the boundary.
func (x *exchange) readForm(boundary string, boundaryError error) (form *upstream.Form, err error) {
	body := x.body(x.h.options.MaxForm)
	if err := body.CheckLength(x.r); err != nil {
		return nil, err
	}
	if boundaryError != nil {
		return nil, boundaryError
	}
	if err := x.Admit(x.r.Context()); err != nil {
		return nil, err
	}
	options := formdata.Options{Dir: x.h.options.TempDir, Quota: x.h.uploads, Owner: x.Principal().Account}
	err = body.Consume(x.w, x.r, func(source io.Reader) error {
		form, err = formdata.Read(source, boundary, options)
		return err
	})
	return form, err
}

// body is how bodies of requests are read.
func (x *exchange) body(limit int64) *httpio.Body {
	return &httpio.Body{Name: "request body", Limit: limit, Timeout: x.h.options.ReadTimeout}
}
