package server_test

import (
	"flag"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/server"
)

// forceSmallStack has all tests of the package run on small stacks.
var forceSmallStack = flag.Bool("smallstack", false, "serve every request on a small stack")

func TestAPanicOnASmallStackReachesTheServer(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	server.ForceSmallStack(s.h)
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("recovered %v", p)
		}
	}()
	r := httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader("{}")) // is answered with an error
	s.h.ServeHTTP(failingWriter{httptest.NewRecorder()}, r)
	t.Error("the panic is lost")
}

func TestARequestIsInFlightUntilItIsAnswered(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	before := server.InFlight(s.h)
	for _, body := range []string{smallStream, small, "{"} {
		s.do(t, "POST", "/v1/chat/completions", body)
	}
	func() {
		defer func() { _ = recover() }()
		s.h.ServeHTTP(failingWriter{httptest.NewRecorder()}, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader("{}")))
	}()
	if n := server.InFlight(s.h) - before; n != 0 {
		t.Errorf("%d requests are being answered after the last", n)
	}
}
