package mcp_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/server/mcp"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// priced are the models of the fixture and what they cost.
var priced = map[string][]billing.Rate{
	"delta-k3":                  {{Unit: billing.Input, Amount: "0.60"}, {Unit: billing.Output, Amount: "2.50"}},
	"sim-chat":                  {{Unit: billing.Input, Amount: "0.10"}, {Unit: billing.Output, Amount: "0.40"}},
	"alpha-image-2.0":           {{Unit: billing.Image, Amount: "0.035"}},
	"alpha-image-edit":          {{Unit: billing.Image, Amount: "0.045"}},
	"imagegen-2":                {{Unit: billing.Input, Amount: "5.00"}, {Unit: billing.ImageInput, Amount: "8.00"}, {Unit: billing.ImageOutput, Amount: "32.00"}},
	"alpha3-tts-flash":          {{Unit: billing.Character, Amount: "10.00"}},
	"alpha3-tts-instruct-flash": {{Unit: billing.Character, Amount: "12.00"}},
	"beta2.6-t2v":               {{Unit: billing.Second, Variant: "720p", Amount: "0.10"}, {Unit: billing.Second, Variant: "1080p", Amount: "0.15"}},
	"beta2.6-i2v":               {{Unit: billing.Second, Variant: "720p", Amount: "0.11"}},
	"beta2.6-r2v":               {{Unit: billing.Second, Variant: "720p", Amount: "0.12"}},
	"beta2.7-r2v":               {{Unit: billing.Second, Variant: "720p", Amount: "0.13"}},
	"gamma-2-0-260128":          {{Unit: billing.Output, Amount: "7.00"}},
	"text-embedding-v4":         {{Unit: billing.Input, Amount: "0.07"}},
	"rerank-v3.5":               {{Unit: billing.SearchUnit, Amount: "0.002"}},
}

// fixture is a gateway that is served as /mcp and as /v1, with an account and a key.
type fixture struct {
	*servertest.Account
	g          *gateway.Gateway
	h          *mcp.Handler
	url        string // of the MCP server
	api        string
	unfinished bool // a video may still hold its price
}

type fixtureOptions struct {
	upstream upstream.Upstream
	credit   billing.Money
	key      auth.KeyOptions
	mcp      mcp.Options
	gateway  func(*gateway.Options)
}

// newFixture serves a gateway on loopback until the test ends, and then looks whether
// anything is left behind.
func newFixture(t testing.TB, o fixtureOptions) *fixture {
	t.Helper()
	before := runtime.NumGoroutine()
	if o.credit == 0 {
		o.credit = 100 * billing.One
	}
	if o.upstream == nil {
		o.upstream = sim.New(sim.Options{VideoTime: -1})
	}
	s := &fixture{Account: servertest.Open(t, o.credit, o.key)}
	s.g = s.gateway(t, o)
	s.h = mcp.New(s.g, o.mcp)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.g.Run(ctx) })
	mux := http.NewServeMux()
	mux.Handle("/mcp", s.h)
	mux.Handle("/", server.New(s.g, server.Options{}))
	ts := httptest.NewServer(mux)
	s.url, s.api = ts.URL+"/mcp", ts.URL
	t.Cleanup(func() {
		ts.Close()
		if err := s.g.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		running.Wait()
		s.Audit(t, s.unfinished)
		if n := awaitGoroutines(before); n > before {
			stacks := make([]byte, 1<<20)
			t.Errorf("%d goroutines are left of %d:\n%s", n, before, stacks[:runtime.Stack(stacks, true)])
		}
	})
	return s
}

// awaitGoroutines is the number of goroutines when it is as low as it should be, or a
// minute later: those of HTTP connections that were closed need a moment.
func awaitGoroutines(want int) int {
	for began := time.Now(); runtime.NumGoroutine() > want && time.Since(began) < time.Minute; {
		http.DefaultClient.CloseIdleConnections()
		runtime.Gosched()
		<-time.After(5 * time.Millisecond)
	}
	return runtime.NumGoroutine()
}

// gateway has one channel with every model.
func (s *fixture) gateway(t testing.TB, o fixtureOptions) *gateway.Gateway {
	t.Helper()
	routes, prices := map[string]string{}, map[string]*billing.Price{}
	for id, rates := range priced {
		price, err := billing.NewPrice(rates...)
		if err != nil {
			t.Fatal(err)
		}
		routes[id], prices[id] = id, price
	}
	routing, err := router.New([]router.Channel{{Name: "only", Upstream: o.upstream, Models: routes}}, router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	options := gateway.Options{
		Upstream: routing, Meter: s.Ledger, Prices: billing.NewPriceList(prices), Models: []gateway.Model{{ID: "sim-chat", Kind: gateway.KindChat}},
		Authenticator: &auth.Keys{Store: s.Keys}, Logger: slog.New(slog.NewJSONHandler(s.Log, nil)),
		Video:   gateway.VideoOptions{Poll: time.Millisecond, DuplicateWindow: -1},
		Limiter: &auth.MemoryLimiter{Now: servertest.MidMinute},
	}
	if o.gateway != nil {
		o.gateway(&options)
	}
	g, err := gateway.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// keyed is a transport that brings the key.
type keyed struct{ token string }

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.token)
	return http.DefaultTransport.RoundTrip(r)
}

// client is a session of the SDK's own client over HTTP.
func (s *fixture) client(t testing.TB) *sdk.ClientSession {
	t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{
		Endpoint: s.url, HTTPClient: &http.Client{Transport: keyed{token: s.Key.Reveal()}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// args are the arguments of a tool.
type args map[string]any

// callTool calls a tool that must succeed.
func callTool(t testing.TB, session *sdk.ClientSession, tool string, a args) *sdk.CallToolResult {
	t.Helper()
	r, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: a})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	if r.IsError {
		t.Fatalf("%s: %s", tool, textOf(r))
	}
	return r
}

// callFailing calls a tool that must fail, and gives what the model is told.
func callFailing(t testing.TB, session *sdk.ClientSession, tool string, a args) (string, map[string]any) {
	t.Helper()
	r, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: a})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	if !r.IsError {
		t.Fatalf("%s did not fail: %s", tool, textOf(r))
	}
	about, _ := r.Meta["tollhouse.ai/error"].(map[string]any)
	return textOf(r), about
}

func textOf(r *sdk.CallToolResult) string {
	var all []string
	for _, c := range r.Content {
		if text, ok := c.(*sdk.TextContent); ok {
			all = append(all, text.Text)
		}
	}
	return strings.Join(all, "\n")
}

// member is one of the structured result.
func member[T any](t testing.TB, r *sdk.CallToolResult, name string) T {
	t.Helper()
	members, _ := r.StructuredContent.(map[string]any)
	v, ok := members[name].(T)
	if !ok {
		t.Fatalf("the structured result has no %s of that kind: %v", name, members)
	}
	return v
}

// answer is a response read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends one HTTP request and reads the answer to its end.
func (s *fixture) do(t testing.TB, method, url, body string, header ...string) answer {
	t.Helper()
	resp := s.open(t, t.Context(), method, url, body, header...)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(data)}
}

// open sends one HTTP request with the key.
func (s *fixture) open(t testing.TB, ctx context.Context, method, url, body string, header ...string) *http.Response {
	t.Helper()
	all := []string{"Authorization: Bearer " + s.Key.Reveal(), "Content-Type: application/json", "Accept: application/json, text/event-stream"}
	return servertest.Send(t, ctx, http.DefaultClient, method, url, body, append(all, header...)...)
}

// rpc sends one JSON-RPC request over HTTP and gives its answer.
func (s *fixture) rpc(t testing.TB, method string, params any, header ...string) (answer, map[string]any) {
	t.Helper()
	data, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		t.Fatal(err)
	}
	a := s.do(t, http.MethodPost, s.url, string(data), header...)
	return a, message(t, a.body)
}

// message is the JSON-RPC message of a body, an event or the body itself.
func message(t testing.TB, body string) (m map[string]any) {
	t.Helper()
	for line := range strings.Lines(body) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			body = data
		}
	}
	if body != "" {
		if err := json.Unmarshal([]byte(body), &m); err != nil {
			t.Fatalf("body %q: %v", body, err)
		}
	}
	return m
}

func parse(t testing.TB, amount string) billing.Money {
	t.Helper()
	m, err := billing.ParseMoney(amount)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
