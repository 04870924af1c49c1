package server_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
)

const smallStream = `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":5,"stream":true}`

// piped is an upstream whose stream the test writes.
type piped struct {
	out    *io.PipeWriter
	in     *io.PipeReader
	cancel chan struct{} // closed when the call's context ended
}

func newPiped() *piped {
	in, out := io.Pipe()
	return &piped{out: out, in: in, cancel: make(chan struct{})}
}

func (p *piped) Do(ctx context.Context, _ *upstream.Call) (*upstream.Reply, error) {
	context.AfterFunc(ctx, func() {
		_ = p.in.CloseWithError(context.Cause(ctx))
		close(p.cancel)
	})
	return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: p.in}, nil
}

func (p *piped) send(t *testing.T, data string) {
	t.Helper()
	if _, err := io.WriteString(p.out, "data: "+data+"\n\n"); err != nil {
		t.Error(err)
	}
}

func delta(text string) string {
	return `{"id":"u","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"` + text + `"},"finish_reason":null}]}`
}

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
	up := newPiped()
	s := newFixture(t, fixtureOptions{upstream: up, gateway: func(o *gateway.Options) { o.Heartbeat = -1 }}) // however long the client pauses
	go up.send(t, delta("0"))
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
		if err != nil || line != "data: "+delta(string(rune('0'+i)))+"\n" {
			t.Fatalf("line %q, %v", line, err)
		}
		if _, err := r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		up.send(t, delta(string(rune('1'+i))))
	}
	up.send(t, "[DONE]")
	rest, err := io.ReadAll(r)
	if err != nil || !strings.HasSuffix(string(rest), "data: [DONE]\n\n") {
		t.Errorf("rest %q, %v", rest, err)
	}
}

func TestAClientThatHangsUpCancelsTheUpstreamAndPays(t *testing.T) {
	up := newPiped()
	s := newFixture(t, fixtureOptions{upstream: up})
	go up.send(t, delta("abcd"))
	ctx, hangUp := context.WithCancel(t.Context())
	resp := s.stream(t, ctx)
	defer resp.Body.Close()
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	hangUp()
	select {
	case <-up.cancel:
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
	if !strings.Contains(a.body, `"reason":"client_gone"`) || !strings.Contains(a.body, `"output":1`) || !strings.Contains(a.body, `"estimated":true`) {
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
	up := newPiped()
	s := newFixture(t, fixtureOptions{upstream: up})
	go func() {
		up.send(t, delta("abcd"))
		_ = up.out.Close()
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

// TestALateFailureAfterAHeartbeatIsAnErrorEvent runs in process, so that the
// silence is virtual.
func TestALateFailureAfterAHeartbeatIsAnErrorEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
			time.Sleep(20 * time.Second) // virtual
			return nil, fault.New(fault.BadGateway, "late")
		})
		g, err := gateway.New(gateway.Options{Upstream: up})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		c := server.Client(server.New(g, server.Options{}))
		resp, err := c.Post("http://gateway.invalid/v1/chat/completions", "application/json", strings.NewReader(smallStream))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		beat, rest, _ := strings.Cut(string(body), "\n\n")
		if resp.StatusCode != 200 || !strings.Contains(beat, `"delta":{}`) || !strings.HasPrefix(rest, `data: {"error":{"message":"late"`) {
			t.Errorf("status %d, body %q", resp.StatusCode, body)
		}
	})
}

func TestTheInProcessClientHangsUp(t *testing.T) {
	up := newPiped()
	s := newFixture(t, fixtureOptions{upstream: up})
	go up.send(t, delta("abcd"))
	resp, err := server.Client(s.h).Do(s.request(t, t.Context(), "/v1/chat/completions", strings.NewReader(smallStream)))
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-up.cancel:
	case <-time.After(time.Minute):
		t.Fatal("the upstream goes on")
	}
}
