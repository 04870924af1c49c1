// Package vendortest has what the tests of drivers have in common: vendors on
// the loopback, and calls that must fail.
package vendortest

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Serve starts a vendor and returns its base URL. It stops with the test.
func Serve(t testing.TB, vendor http.Handler) string {
	t.Helper()
	server := httptest.NewServer(vendor)
	t.Cleanup(server.Close)
	return server.URL
}

// New makes a driver of its options, and closes it with the test.
func New(t testing.TB, make func(upstream.DriverOptions) (upstream.Driver, error), o upstream.DriverOptions) upstream.Driver {
	t.Helper()
	up, err := make(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	return up
}

// Keys are the operator's keys of these texts.
func Keys(keys ...string) []secret.String {
	all := make([]secret.String, len(keys))
	for i, k := range keys {
		all[i] = secret.New(k)
	}
	return all
}

// Responds is a vendor that gives one answer, as JSON unless header says
// otherwise.
func Responds(status int, header map[string]string, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// Seen is a request as a vendor got it.
type Seen struct {
	Method, URI, Body string
	Header            http.Header
}

// Recording is a vendor that notes the last request, and gives one good answer, as JSON.
func Recording(last *Seen, answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		*last = Seen{r.Method, r.RequestURI, string(data), r.Header}
		Responds(http.StatusOK, nil, answer)(w, r)
	}
}

// Body is a request's body, whose members can be edited.
func Body(t testing.TB, text string) upstream.Body {
	t.Helper()
	o, err := rawjson.Index([]byte(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return upstream.ObjectBody(o)
}

// Answer makes a call that must not fail, and reads its whole answer.
func Answer(t testing.TB, up upstream.Upstream, call *upstream.Call) (*upstream.Reply, string) {
	t.Helper()
	reply, err := up.Do(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(reply.Body)
	if err = errors.Join(err, reply.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return reply, string(data)
}

// Refused makes a call that must fail, with a failure in the chain of its fault.
func Refused(t testing.TB, up upstream.Upstream, call *upstream.Call) (*fault.Error, *upstream.Failure) {
	t.Helper()
	reply, err := up.Do(t.Context(), call)
	var e *fault.Error
	var f *upstream.Failure
	if !errors.As(err, &e) || !errors.As(err, &f) {
		t.Fatalf("reply %+v, error %v, want a fault with a failure", reply, err)
	}
	return e, f
}

// Gzip is so many zero bytes, compressed by gzip.
func Gzip(t testing.TB, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	block := make([]byte, 1<<20)
	for ; size > 0; size -= len(block) {
		if _, err := w.Write(block[:min(size, len(block))]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
