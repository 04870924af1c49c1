package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/openai"
)

// TestACompleteStreamLeavesItsConnectionToTheNext has a vendor that ends the
// transfer only after the client has everything: the gateway must not have
// closed the connection by then, and the client must not have waited for it.
func TestACompleteStreamLeavesItsConnectionToTheNext(t *testing.T) {
	const streams = 20
	clientDone := make(chan struct{})
	from, cut := make(chan string, streams), make(chan bool, streams)
	vendor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, data := range []string{delta("a"), delta("b"), "[DONE]"} {
			fmt.Fprintf(w, "data: %s\n\n", data)
			w.(http.Flusher).Flush()
		}
		<-clientDone
		from <- r.RemoteAddr
		cut <- r.Context().Err() != nil
	}))
	defer vendor.Close()
	up, err := openai.New(upstream.DriverOptions{BaseURL: vendor.URL, Keys: []secret.String{secret.New("sk-up")}})
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	s := newFixture(t, fixtureOptions{upstream: up})
	connections := make(map[string]bool)
	for i := range streams {
		if a := s.do(t, "POST", "/v1/chat/completions", smallStream); a.status != 200 {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
		clientDone <- struct{}{}
		connections[<-from] = true
		if <-cut {
			t.Fatalf("stream %d: the connection was closed before the vendor ended the transfer", i)
		}
	}
	// The gateway learns of the end a moment later than this test: a few
	// streams may have found no free connection.
	if len(connections) > streams/2 {
		t.Errorf("%d connections for %d streams", len(connections), streams)
	}
}
