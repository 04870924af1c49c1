package server_test

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/server"
)

// crowd has all tests of the package run the way of a crowd.
var forceSmallStack = flag.Bool("crowd", false, "serve every request as in a crowd")

func TestAPanicInACrowdIsTheHandlersOwn(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	server.ForceSmallStack(s.h)
	defer func() {
		if p := recover(); p != "the writer is broken" {
			t.Errorf("recovered %v", p)
		}
	}()
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader("{}")) // is answered with an error
	s.h.ServeHTTP(panickingWriter{httptest.NewRecorder()}, r)
	t.Error("the panic is lost")
}

// panickingWriter is a client's connection whose writer panics.
type panickingWriter struct{ http.ResponseWriter }

func (panickingWriter) Write([]byte) (int, error) { panic("the writer is broken") }

func TestWhoeverHasBeenAnsweredIsInTheCrowdNoMore(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	before := server.InFlight(s.h)
	for _, body := range []string{smallStream, small, "{"} {
		s.do(t, "POST", "/v1/chat/completions", body)
	}
	func() {
		defer func() { _ = recover() }()
		s.h.ServeHTTP(panickingWriter{httptest.NewRecorder()}, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader("{}")))
	}()
	if n := server.InFlight(s.h) - before; n != 0 {
		t.Errorf("%d requests are being answered after the last", n)
	}
}

func TestTheRequestAfterTheThousandTwentyFourthIsServedAsInACrowd(t *testing.T) {
	if *forceSmallStack {
		t.Skip("every request is")
	}
	s := newFixture(t, fixtureOptions{})
	server.ForceSmallStack(s.h)
	for name, c := range map[string]struct {
		leave int64
		small bool
	}{"1,024 requests": {1, false}, "1,025": {0, true}} {
		server.Finish(s.h, c.leave)
		var stack string
		w := &stackRecorder{ResponseWriter: httptest.NewRecorder(), stack: &stack}
		s.h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader("{}")))
		server.Finish(s.h, -c.leave)
		if small := strings.Contains(stack, "server.detached"); small != c.small {
			t.Errorf("%s: served on a small stack %t:\n%s", name, small, stack)
		}
	}
}

// stackRecorder notes from where a response is written.
type stackRecorder struct {
	http.ResponseWriter
	stack *string
}

func (w *stackRecorder) WriteHeader(status int) {
	*w.stack = string(debug.Stack())
	w.ResponseWriter.WriteHeader(status)
}
