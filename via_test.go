package gateway_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// node is a gateway behind HTTP, whose only channel leads to base.
type node struct {
	url      string
	requests atomic.Int64
	via      atomic.Value // of the last request
}

// newNode serves a gateway whose upstream is what to makes of the node's own
// address.
func newNode(t *testing.T, to func(own string) upstream.Upstream) *node {
	t.Helper()
	n := &node{}
	var h http.Handler
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.requests.Add(1)
		n.via.Store(strings.Join(r.Header["Via"], ", "))
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(ts.Close)
	n.url = ts.URL
	g, err := gateway.New(gateway.Options{Upstream: to(ts.URL)})
	must(t, err)
	t.Cleanup(func() { _ = g.Close() })
	h = server.New(g, server.Options{})
	return n
}

// leads makes a channel to another node.
func leads(t *testing.T, to string) upstream.Upstream {
	t.Helper()
	up, err := openai.New(upstream.DriverOptions{BaseURL: to + "/v1"})
	must(t, err)
	t.Cleanup(func() { _ = up.Close() })
	return newRouter(t, router.Channel{Name: "on", Upstream: up, Models: map[string]string{"*": "*"}})
}

func (n *node) ask(t *testing.T, body string, via ...string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST", n.url+"/v1/chat/completions", strings.NewReader(body))
	must(t, err)
	req.Header["Via"] = via
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(data)
}

func TestAGatewayThatLeadsToItselfAsksItselfOnce(t *testing.T) {
	n := newNode(t, func(own string) upstream.Upstream { return leads(t, own) })
	for i, body := range []string{askChat, askChatStream} {
		status, answer := n.ask(t, body)
		if status != 502 || !strings.Contains(answer, `"BadGateway"`) || n.requests.Load() != int64(2*i)+2 {
			t.Errorf("%d %s after %d requests", status, answer, n.requests.Load())
		}
	}
	// The one that came back was refused by name.
	status, answer := n.ask(t, askChat, n.via.Load().(string))
	if status != 508 || !strings.Contains(answer, `"code":"loop_detected"`) || !strings.Contains(answer, `"type":"api_error"`) {
		t.Errorf("%d %s", status, answer)
	}
}

func TestGatewaysMayStandInAChain(t *testing.T) {
	last := newNode(t, func(string) upstream.Upstream { return sim.New(sim.Options{}) })
	middle := newNode(t, func(string) upstream.Upstream { return leads(t, last.url) })
	first := newNode(t, func(string) upstream.Upstream { return leads(t, middle.url) })
	for _, body := range []string{askChat, askChatStream} {
		if status, answer := first.ask(t, body, "1.1 somebodys-proxy (of another kind)"); status != 200 {
			t.Errorf("%d %s", status, answer)
		}
	}
	via := last.via.Load().(string)
	if strings.Count(via, "1.1 tollhouse-") != 2 || strings.Contains(via, "proxy") {
		t.Errorf("the last one is told of %q", via)
	}
}
