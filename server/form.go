package server

import (
	"errors"
	"net/http"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/formdata"
	"github.com/tollhouse-ai/gateway/upstream"
)

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
	if err := x.admit(0); err != nil { // large forms do not lie in memory
		return nil, err
	}
	body := x.paced(nil)
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
	return nil, x.unread(err, limit)
}
