package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// Client returns an HTTP client whose requests h answers in process, without a
// socket and whatever their host: for an SDK that takes an http.Client. Bodies
// stream; closing a response's body, or ending its context, cancels the request. After the
// end of its context, reads of the body fail with the cause. It is safe for concurrent use.
func Client(h http.Handler) *http.Client { return &http.Client{Transport: transport{h}} }

// transport is an http.RoundTripper that is answered by handler.
type transport struct{ handler http.Handler }

// RoundTrip runs the handler in a goroutine that ends with the response's body.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	in := r.Clone(ctx)
	in.RequestURI = in.URL.RequestURI()
	in.RemoteAddr = "in-process"
	if in.Body == nil {
		in.Body = http.NoBody
	}
	body, pipe := io.Pipe()
	w := &pipeWriter{header: make(http.Header), pipe: pipe, ready: make(chan struct{}), head: r.Method == http.MethodHead}
	go func() {
		defer cancel()
		defer func() {
			var err error
			if p := recover(); p != nil {
				err = fmt.Errorf("the handler panicked: %v", p)
			}
			w.finish(err, context.Cause(r.Context())) // a handler that ends by it can be faster than stop below
			if r.Body != nil {
				_ = r.Body.Close()
			}
		}()
		t.handler.ServeHTTP(w, in)
	}()
	// The caller's context, not ctx: a handler that is done ends ctx itself.
	select {
	case <-w.ready:
	case <-r.Context().Done():
		_ = body.CloseWithError(r.Context().Err())
		return nil, context.Cause(r.Context())
	}
	// An answer that was not read to its end must not look whole.
	stop := context.AfterFunc(r.Context(), func() { _ = pipe.CloseWithError(context.Cause(r.Context())) })
	return w.response(r, &cancelingBody{body, func() {
		stop()
		cancel()
	}}), nil
}

// cancelingBody is a response body whose Close ends the request.
type cancelingBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close cancels the request.
func (h *cancelingBody) Close() error {
	h.cancel()
	return h.PipeReader.CloseWithError(errors.New("the client hung up"))
}

// pipeWriter is the http.ResponseWriter of a transport.
type pipeWriter struct {
	header http.Header
	pipe   *io.PipeWriter
	ready  chan struct{} // closed when the status is known
	once   sync.Once
	head   bool // the answer has no body
	status int
	sent   http.Header
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.ready)
	})
}

func (w *pipeWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.head {
		return len(p), nil
	}
	return w.pipe.Write(p)
}

// Flush does nothing: every write is read before it returns.
func (w *pipeWriter) Flush() { w.WriteHeader(http.StatusOK) }

// finish ends the answer. A handler that panicked before it wrote anything has answered with
// a 500, later with a body that breaks off. left is why the request's context ended before the
// handler did: the answer may not be whole then.
func (w *pipeWriter) finish(err, left error) {
	if err != nil {
		w.once.Do(func() {
			w.status, w.sent = http.StatusInternalServerError, make(http.Header)
			close(w.ready)
		})
	}
	w.WriteHeader(http.StatusOK)
	_ = w.pipe.CloseWithError(cmp.Or(err, left)) // nil means io.EOF
}

// response is the answer with the headers as they were when the status was written.
func (w *pipeWriter) response(r *http.Request, body io.ReadCloser) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: body, ContentLength: -1, Request: r,
	}
}
