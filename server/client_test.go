package server_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/tollhouse-ai/gateway/server"
)

// A handler may be done before the caller looks: that is an answer, not an end.
func TestAHandlerThatEndsAtOnceHasAnswered(t *testing.T) {
	transport := server.Client(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	})).Transport
	for range 50_000 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodHead, "http://gateway.invalid/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(r)
		if err != nil || resp == nil {
			t.Fatalf("answered %v, %v", resp, err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNoContent {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
}

func TestACallerWhoLeavesBeforeTheAnswerIsToldWhyAndTheHandlerToo(t *testing.T) {
	left := errors.New("left")
	told, returned := make(chan error, 1), make(chan struct{})
	ctx, leave := context.WithCancelCause(t.Context())
	transport := server.Client(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		leave(left)
		<-r.Context().Done()
		<-returned // what ends the handler is an answer
		told <- context.Cause(r.Context())
	})).Transport
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gateway.invalid/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(r)
	close(returned)
	if resp != nil || !errors.Is(err, left) {
		t.Errorf("answered %v, %v", resp, err)
	}
	if cause := <-told; !errors.Is(cause, left) {
		t.Errorf("the handler was told %v", cause)
	}
}
