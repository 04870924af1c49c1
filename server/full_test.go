package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
)

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
			running, err := s.g.Do(t.Context(), &gateway.Request{Token: s.key.Reveal()})
			if err != nil {
				t.Fatal(err)
			}
			_ = running.Admit(t.Context(), 0) // the only place, where there is one
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
func TestALargeBodyThatFindsNoRoomIsRefused(t *testing.T) {
	const mib = 1 << 20
	s := newFixture(t, fixtureOptions{gateway: func(o *gateway.Options) {
		o.Admission = gateway.Admission{Memory: 200 * mib, InUse: func() int64 { return 0 }}
	}})
	other, err := s.g.Do(t.Context(), &gateway.Request{Token: s.key.Reveal()})
	if err := errors.Join(err, other.ReserveMemory(44*mib)); err != nil {
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
