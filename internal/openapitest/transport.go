package openapitest

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// largest is the longest body that is checked.
const largest = 8 << 20

// Transport passes requests on to base, or to http.DefaultTransport if base is nil. It fails
// t, unless t is a benchmark, if traffic deviates from the document. It checks every response
// that was read to its end, and every request that was answered with 2xx. It does not look at
// requests that a test makes wrong on purpose, since they are refused. Nor does it look at the
// admin API.
func Transport(t testing.TB, base http.RoundTripper) http.RoundTripper {
	t.Helper()
	spec, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if base == nil {
		base = http.DefaultTransport
	}
	if _, ok := t.(*testing.B); ok {
		return base // checking would be what is measured
	}
	return &transport{t, spec, base}
}

// Client is a client that checks what passes through it.
func Client(t testing.TB) *http.Client {
	t.Helper()
	return &http.Client{Transport: Transport(t, nil)}
}

type transport struct {
	t    testing.TB
	spec *Spec
	base http.RoundTripper
}

// RoundTrip sends a request and keeps what passes of its body.
func (tr *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	e := &exchange{transport: tr, request: r}
	sent := r
	if r.Body != nil && r.Body != http.NoBody {
		sent = r.Clone(r.Context())
		sent.Body = &tap{ReadCloser: r.Body, to: &e.asked}
		if get := r.GetBody; get != nil {
			sent.GetBody = func() (io.ReadCloser, error) {
				body, err := get()
				e.asked.reset()
				return &tap{ReadCloser: body, to: &e.asked}, err
			}
		}
	}
	resp, err := tr.base.RoundTrip(sent)
	if err != nil {
		return resp, err
	}
	e.status, e.header = resp.StatusCode, resp.Header.Clone()
	resp.Body = &tap{ReadCloser: resp.Body, to: &e.answered, end: e.check}
	return resp, nil
}

// CloseIdleConnections closes those of the transport below.
func (tr *transport) CloseIdleConnections() {
	if c, ok := tr.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// exchange is one request and its response.
type exchange struct {
	*transport
	request         *http.Request
	status          int
	header          http.Header
	asked, answered record
}

// check is called when the response has come to its end.
func (e *exchange) check() {
	answered, whole := e.answered.bytes()
	if e.t.Context().Err() != nil || !whole { // t must not be used after its end
		return
	}
	if strings.HasPrefix(e.request.URL.Path, "/admin/") {
		return // an API of its own
	}
	at := e.request.Method + " " + e.request.URL.Path
	if err := e.spec.Response(e.request, e.status, e.header, answered); err != nil {
		e.t.Errorf("%s: the response %d is not as openapi.json says: %v", at, e.status, err)
	}
	asked, whole := e.asked.bytes()
	if e.status/100 != 2 || !whole {
		return
	}
	if err := e.spec.Request(e.request, asked); err != nil {
		e.t.Errorf("%s: the request was accepted, but it is not as openapi.json says: %v", at, err)
	}
}

// record keeps what passes.
type record struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	over bool
}

// add keeps more, until there is too much to be checked.
func (r *record) add(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over = r.over || r.buf.Len()+len(p) > largest; !r.over {
		r.buf.Write(p)
	}
}

func (r *record) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.buf.Reset()
}

func (r *record) bytes() (data []byte, whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.buf.Bytes()), !r.over
}

// tap is a body that is also recorded. end is called once, at its end.
type tap struct {
	io.ReadCloser
	to   *record
	end  func()
	once sync.Once
}

// Read reads and records.
func (b *tap) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.to.add(p[:n])
	if errors.Is(err, io.EOF) && b.end != nil {
		b.once.Do(b.end)
	}
	return n, err
}
