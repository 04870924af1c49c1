package httpdo

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
)

// A call that comes late, to a client that a reload has replaced, is answered
// and leaves no connection behind; nor do those that were running.
func TestAfterCloseNoConnectionOutlastsItsCall(t *testing.T) {
	closed, arrived, proceed := make(chan net.Conn, 10), make(chan struct{}), make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/long" {
			arrived <- struct{}{}
			<-proceed
		}
	}))
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- c
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	c, err := New(upstream.DriverOptions{BaseURL: s.URL}, Defaults{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(path string) {
		resp, _, err := c.Get(t.Context(), c.Base.JoinPath(path), http.Header{})
		if err != nil {
			t.Error(err)
			return
		}
		Read(resp.Body)
	}
	done := make(chan struct{})
	go func() { ask("long"); close(done) }()
	<-arrived
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	ask("late")
	<-closed // the late one's
	close(proceed)
	<-done
	<-closed // the long one's
}
