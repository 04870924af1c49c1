package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

func TestABodyThatStopsComingIsA408(t *testing.T) {
	s := newFixture(t, fixtureOptions{server: server.Options{ReadTimeout: 50 * time.Millisecond}})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000\r\n\r\n{", s.key.Reveal())
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 408 || !strings.Contains(string(body), "The request body was sent too slowly.") {
		t.Errorf("status %d, body %s, %v", resp.StatusCode, body, err)
	}
}

// deadlines is a connection that records its read deadlines.
type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

func TestProgressMovesTheReadDeadlineAndTheEndClearsIt(t *testing.T) {
	h := handlerWithoutSocket(t)
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	body := strings.Replace(small, "hi", strings.Repeat("x", 200<<10), 1)
	h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body)))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	last := len(w.set) - 1
	if last < 2 || !w.set[last].IsZero() {
		t.Fatalf("deadlines %v", w.set)
	}
	for i, d := range w.set[:last] {
		if d.IsZero() || i > 0 && d.Before(w.set[i-1]) {
			t.Errorf("deadlines %v", w.set)
		}
	}
}

// failingBody is a body whose reader fails.
type failingBody struct{ before func() }

func (b failingBody) Read([]byte) (int, error) {
	b.before()
	return 0, errors.New("the connection broke")
}

// handlerWithoutSocket is the handler of a gateway without an Authenticator.
func handlerWithoutSocket(t *testing.T) http.Handler {
	t.Helper()
	g, err := gateway.New(gateway.Options{Upstream: sim.New(sim.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return server.New(g, server.Options{})
}

var foreign = []string{"Basic abc", "Bearer", "Bearer ", "nonsense", "Digest a=b, c=d", "sk-abc"}

func TestAHeaderThatNobodyAskedForIsIgnored(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	known := auth.NewContext(t.Context(), &auth.Principal{Account: "acme", Key: "key_1"})
	for _, header := range append(foreign, "Bearer sk-wrong") {
		for name, h := range map[string]http.Handler{"no authenticator": handlerWithoutSocket(t), "a principal": s.h} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "/v1/models", http.NoBody).WithContext(known)
			if name == "no authenticator" {
				r = r.WithContext(t.Context())
			}
			r.Header.Set("Authorization", header)
			h.ServeHTTP(w, r)
			if w.Code != 200 {
				t.Errorf("%s, %q: %d %s", name, header, w.Code, w.Body)
			}
		}
	}
}

func TestAForeignSchemeIsToldWhatToSend(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	for _, header := range foreign {
		a := s.do(t, "GET", "/v1/models", "", "Authorization: "+header)
		if m := a.errorOf(t).Message; a.status != 401 || !strings.Contains(m, `header authorization: send it as "Authorization: Bearer sk-…"`) {
			t.Errorf("%q: %d %s", header, a.status, m)
		}
	}
}

func TestAReplayedStreamIsNotBufferedEither(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	first := s.do(t, "POST", "/v1/chat/completions", smallStream, "Idempotency-Key: k")
	again := s.do(t, "POST", "/v1/chat/completions", smallStream, "Idempotency-Key: k")
	if again.header.Get("Idempotent-Replayed") != "true" || again.body != first.body {
		t.Fatalf("not a replay: %v\n%s", again.header, again.body)
	}
	for _, name := range []string{"Content-Type", "Cache-Control", "X-Accel-Buffering"} {
		if got, want := again.header.Get(name), first.header.Get(name); got != want || got == "" {
			t.Errorf("%s is %q, was %q", name, got, want)
		}
	}
}

func TestTheInProcessClientGetsNoBodyForHead(t *testing.T) {
	resp, err := server.Client(handlerWithoutSocket(t)).Head("http://gateway.invalid/v1/models")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 || len(body) != 0 || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("status %d, body %q, %v", resp.StatusCode, body, err)
	}
}

// mustNotRead is a body that must not be read.
type mustNotRead struct{ t *testing.T }

func (u mustNotRead) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, errors.New("nobody may read this")
}

// post sends a request to the handler itself.
func (s *fixture) post(path, contentType string, length int64, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, body)
	r.ContentLength = length
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Authorization", "Bearer "+s.key.Reveal())
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, r)
	return w
}

func wantRefused(t *testing.T, what string, w *httptest.ResponseRecorder, message string) {
	t.Helper()
	if w.Code != 503 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "ServiceUnavailable") || !strings.Contains(w.Body.String(), message) {
		t.Errorf("%s: %d %v %s", what, w.Code, w.Header(), w.Body)
	}
}

func TestAFullGatewayRefusesACallBeforeItsBodyIsRead(t *testing.T) {
	for name, c := range map[string]struct {
		admission gateway.Admission
		message   string
	}{
		"no place":  {gateway.Admission{MaxCalls: 1, MaxWaiting: -1}, "as many calls as it can"},
		"no memory": {gateway.Admission{Memory: 1, InUse: func() int64 { return 1 }}, "short of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, fixtureOptions{gateway: func(o *gateway.Options) { o.Admission = c.admission }})
			running, err := s.g.Enter(t.Context(), gateway.Caller{Token: s.key.Reveal()})
			if err != nil {
				t.Fatal(err)
			}
			_ = running.AcquireSlot(t.Context(), 0) // the only place, where there is one
			wantRefused(t, "JSON", s.post("/v1/chat/completions", "application/json", 32<<20, mustNotRead{t}), c.message)
			wantRefused(t, "a form", s.post("/v1/images/edits", "multipart/form-data; boundary=B", 64<<20, mustNotRead{t}), c.message)
			wantRefused(t, "a message", s.post("/v1/messages", "application/json", -1, mustNotRead{t}), c.message)
			if w := s.post("/v1/chat/completions", "application/json", 33<<20, mustNotRead{t}); w.Code != 413 {
				t.Errorf("a body over the limit: %d", w.Code)
			}
			if w := s.post("/v1/chat/completions", "text/plain", 5, mustNotRead{t}); w.Code != 415 {
				t.Errorf("a body of another type: %d", w.Code)
			}
			if a := s.do(t, "GET", "/v1/models", ""); a.status != 200 {
				t.Errorf("the list of models: %d %s", a.status, a.body)
			}
			running.End(200, nil)
		})
	}
}

// A quarter of the memory is for bodies, but at least 64 MiB, of which one account gets 48.
func TestALargeBodyThatFindsNoMemoryIsRefused(t *testing.T) {
	const mib = 1 << 20
	s := newFixture(t, fixtureOptions{gateway: func(o *gateway.Options) {
		o.Admission = gateway.Admission{Memory: 200 * mib, InUse: func() int64 { return 0 }}
	}})
	other, err := s.g.Enter(t.Context(), gateway.Caller{Token: s.key.Reveal()})
	if err := errors.Join(err, other.Reserve(44*mib)); err != nil {
		t.Fatal(err)
	}
	body := strings.Replace(small, "hi", strings.Repeat("x", 5*mib), 1)
	wantRefused(t, "a declared length", s.post("/v1/chat/completions", "application/json", int64(len(body)), mustNotRead{t}), "no memory left for a body")
	wantRefused(t, "a chunked body", s.post("/v1/chat/completions", "application/json", -1, strings.NewReader(body)), "no memory left for a body")
	if w := s.post("/v1/chat/completions", "application/json", int64(len(small)), strings.NewReader(small)); w.Code != 200 {
		t.Errorf("a small body: %d %s", w.Code, w.Body)
	}
	if l := s.g.Load(); l.Bodies != 44*mib || l.Running != 0 {
		t.Errorf("%+v", l)
	}
	other.End(200, nil)
	if w := s.post("/v1/chat/completions", "application/json", -1, strings.NewReader(body)); w.Code == 503 {
		t.Errorf("after the other has ended: %d %s", w.Code, w.Body)
	}
	if l := s.g.Load(); l.Bodies != 0 {
		t.Errorf("%+v", l)
	}
}

// failingWriter is a writer of somebody's own that panics.
type failingWriter struct{ *httptest.ResponseRecorder }

func (failingWriter) Write([]byte) (int, error) { panic(http.ErrAbortHandler) }

func TestARequestEndsThoughItsWriterPanics(t *testing.T) {
	ended := 0
	s := newFixture(t, fixtureOptions{gateway: func(o *gateway.Options) {
		o.Observe = []gateway.Observer{{End: func(context.Context, *gateway.RequestEvent) { ended++ }}}
	}})
	for _, body := range []string{`{}`, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`} {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+s.key.Reveal())
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is gone")
				}
			}()
			s.h.ServeHTTP(failingWriter{httptest.NewRecorder()}, r)
		}()
	}
	if l := s.g.Load(); l.Running != 0 || ended != 2 {
		t.Errorf("%d calls run, %d have ended", l.Running, ended)
	}
}
