package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
)

const smallStream = `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":5,"stream":true}`

func (s *fixture) stream(t *testing.T, ctx context.Context) *http.Response {
	t.Helper()
	resp, err := s.client.Do(s.request(t, ctx, "/v1/chat/completions", strings.NewReader(smallStream)))
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// TestEachChunkIsFlushedOverHTTP sends a chunk only after the client has read
// the one before.
func TestEachChunkIsFlushedOverHTTP(t *testing.T) {
	up := servertest.NewStream()
	s := newFixture(t, fixtureOptions{upstream: up, gateway: func(o *gateway.Options) { o.Heartbeat = -1 }}) // however long the client pauses
	go up.Send(t, servertest.Delta("0"))
	resp := s.stream(t, t.Context())
	defer resp.Body.Close()
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no", "Content-Encoding": "",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	r := bufio.NewReader(resp.Body)
	for i := range 5 {
		line, err := r.ReadString('\n')
		if err != nil || line != "data: "+servertest.Delta(string(rune('0'+i)))+"\n" {
			t.Fatalf("line %q, %v", line, err)
		}
		if _, err := r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		up.Send(t, servertest.Delta(string(rune('1'+i))))
	}
	up.Send(t, "[DONE]")
	rest, err := io.ReadAll(r)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("rest %q, %v", rest, err)
	}
}

// flushes is a client's connection that counts how often it is flushed.
type flushes struct {
	*httptest.ResponseRecorder
	count int
}

func (f *flushes) Flush() { f.count++ }

func TestTheLastEventsLeaveWithTheEndOfTheBody(t *testing.T) {
	for _, c := range []struct {
		name    string
		first   string // comes before the end does
		flushes int
	}{{"after others", servertest.Delta("0"), 1}, {"alone", "", 0}} {
		t.Run(c.name, func(t *testing.T) {
			up := servertest.NewStream()
			s := newFixture(t, fixtureOptions{upstream: up, gateway: func(o *gateway.Options) { o.Heartbeat = -1 }})
			go func() {
				if c.first != "" {
					up.Send(t, c.first)
				}
				up.Write(t, "data: "+servertest.Delta("1")+"\n\ndata: [DONE]\n\n")
			}()
			w := &flushes{ResponseRecorder: httptest.NewRecorder()}
			s.h.ServeHTTP(w, s.request(t, t.Context(), "/v1/chat/completions", strings.NewReader(smallStream)))
			if got := w.Body.String(); !strings.HasSuffix(got, servertest.Delta("1")+"\n\ndata: [DONE]\n\n") || w.count != c.flushes {
				t.Errorf("%d flushes of %s", w.count, got)
			}
		})
	}
}

func TestAClientThatHangsUpCancelsTheUpstreamAndPays(t *testing.T) {
	for path, c := range map[string]struct{ body, begun, last, paid string }{
		"/v1/chat/completions": {smallStream, "data: " + servertest.Delta("abcd") + "\n\n", "abcd", `"output":1`},
		responsesPath:          {streamResponse, begunResponse, "Hé.", `"output":2`},
	} {
		t.Run(path, func(t *testing.T) { hangUp(t, path, c.body, c.begun, c.last, c.paid) })
	}
}

// hangUp leaves a stream once its client has read the last text of what the upstream
// sends, and looks what its receipt has.
func hangUp(t *testing.T, path, body, begun, last, paid string) {
	up := servertest.NewStream()
	s := newFixture(t, fixtureOptions{upstream: up})
	go up.Write(t, begun)
	ctx, hangUp := context.WithCancel(t.Context())
	resp, err := s.client.Do(s.request(t, ctx, path, strings.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	for line := ""; !strings.Contains(line, last); {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	hangUp()
	select {
	case <-up.Gone:
	case <-time.After(time.Minute):
		t.Fatal("the upstream goes on")
	}
	id := resp.Header.Get("X-Request-Id")
	patience, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if err := s.g.Shutdown(patience); err != nil { // waits for the call
		t.Fatal(err)
	}
	a := s.do(t, "GET", "/v1/receipts/"+id, "")
	if !strings.Contains(a.body, `"reason":"client_gone"`) || !strings.Contains(a.body, paid) || !strings.Contains(a.body, `"estimated":true`) {
		t.Errorf("receipt %s", a.body)
	}
	for !strings.Contains(s.log.String(), `"outcome":"client_gone"`) { // the line comes just after
		select {
		case <-patience.Done():
			t.Fatalf("log %s", s.log.String())
		case <-time.After(time.Millisecond):
		}
	}
}

func TestABrokenStreamEndsWithOneErrorEvent(t *testing.T) {
	up := servertest.NewStream()
	s := newFixture(t, fixtureOptions{upstream: up})
	go func() {
		up.Send(t, servertest.Delta("abcd"))
		up.End()
	}()
	resp := s.stream(t, t.Context())
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, last, _ := strings.Cut(string(body), "\n\n")
	if !strings.HasPrefix(last, `data: {"error":{"message":"`) || strings.Count(last, "\n\n") != 1 || strings.Contains(string(body), "event:") || strings.Contains(string(body), "[DONE]") {
		t.Errorf("body %q", body)
	}
}

// lateVendor fails after a silence that is longer than the time between two heartbeats.
var lateVendor = upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
	time.Sleep(20 * time.Second) // virtual
	return nil, fault.New(fault.BadGateway, "late")
})

// TestALateFailureAfterAHeartbeatIsAnErrorEvent runs in process, so that the silence is
// virtual. Clients of responses want response.created before any other event.
func TestALateFailureAfterAHeartbeatIsAnErrorEvent(t *testing.T) {
	for path, c := range map[string]struct {
		body string
		want []string // the beginning of each event
	}{
		"/v1/chat/completions": {smallStream, []string{`data: {`, `data: {"error":{"message":"late"`}},
		responsesPath:          {streamResponse, []string{": keep-alive", "event: response.created", "event: response.in_progress", "event: error", "event: response.failed", "data: [DONE]"}},
	} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, err := gateway.New(gateway.Options{Upstream: lateVendor})
				if err != nil {
					t.Fatal(err)
				}
				defer g.Close()
				resp, err := server.Client(server.New(g, server.Options{})).Post("http://gateway.invalid"+path, jsonType, strings.NewReader(c.body))
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != 200 {
					t.Fatalf("status %d, %v", resp.StatusCode, err)
				}
				events := strings.Split(strings.TrimSuffix(string(body), "\n\n"), "\n\n")
				if !slices.EqualFunc(events, c.want, strings.HasPrefix) {
					t.Errorf("got %q, want events that begin with %q", events, c.want)
				}
			})
		})
	}
}

// TestACompleteStreamLeavesItsConnectionToTheNext has a vendor that ends the transfer only
// after the client has everything. By then the gateway must not have closed the connection,
// and the client must not have waited for it.
func TestACompleteStreamLeavesItsConnectionToTheNext(t *testing.T) {
	const streams = 20
	clientDone := make(chan struct{})
	from, cut := make(chan string, streams), make(chan bool, streams)
	up, _ := vendorOfWire(t, upstream.ChatCompletion, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, data := range []string{servertest.Delta("a"), servertest.Delta("b"), "[DONE]"} {
			fmt.Fprintf(w, "data: %s\n\n", data)
			w.(http.Flusher).Flush()
		}
		<-clientDone
		from <- r.RemoteAddr
		cut <- r.Context().Err() != nil
	})
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

// TestABodyInProcessFailsWithItsContext reads half of a stream: its end must not look whole.
func TestABodyInProcessFailsWithItsContext(t *testing.T) {
	up := servertest.NewStream()
	s := newFixture(t, fixtureOptions{upstream: up})
	left := errors.New("left")
	ctx, leave := context.WithCancelCause(t.Context())
	go up.Send(t, servertest.Delta("one"))
	resp, err := server.Client(s.h).Do(s.request(t, ctx, "/v1/chat/completions", strings.NewReader(smallStream)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 50)); err != nil {
		t.Fatal(err)
	}
	leave(left)
	if _, err := io.Copy(io.Discard, resp.Body); !errors.Is(err, left) {
		t.Errorf("the body ended with %v", err)
	}
	<-up.Gone
}
