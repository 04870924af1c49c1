package server_test

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/openapitest"
	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// fixture is a served gateway with one account and one key.
type fixture struct {
	account *servertest.Account
	url     string
	key     secret.String
	keys    *memory.Keys
	ledger  memory.Ledger
	log     *servertest.Output
	g       *gateway.Gateway
	h       *server.Handler
	owing   bool         // a video may be open at the end
	client  *http.Client // checks its traffic against the document
}

type fixtureOptions struct {
	upstream upstream.Upstream
	credit   billing.Money
	key      auth.KeyOptions
	server   server.Options
	gateway  func(*gateway.Options)
}

// newFixture serves a gateway on loopback.
func newFixture(t testing.TB, o fixtureOptions) *fixture {
	t.Helper()
	if o.credit == 0 {
		o.credit = billing.One
	}
	if o.upstream == nil {
		o.upstream = sim.New(sim.Options{})
	}
	b := servertest.Open(t, o.credit, o.key)
	s := &fixture{account: b, key: b.Key, keys: b.Keys, ledger: b.Ledger, log: b.Log}
	price := rates(t, "input", "1", "output", "2")
	prices := map[string]*billing.Price{"delta-k3": price, "m": price, "sim-chat": price}
	routing := channels(t, router.Channel{Upstream: o.upstream, Models: map[string]string{"delta-k3": "delta-k3", "m": "m", "sim-chat": "sim-chat"}})
	options := gateway.Options{
		Upstream: routing, Meter: s.ledger, Prices: billing.NewPriceList(prices),
		Authenticator: &auth.Keys{Store: s.keys}, Logger: slog.New(slog.NewJSONHandler(s.log, nil)),
		Limiter: &auth.MemoryLimiter{Now: servertest.MidMinute},
	}
	if o.gateway != nil {
		o.gateway(&options)
	}
	var err error
	if s.g, err = gateway.New(options); err != nil {
		t.Fatal(err)
	}
	s.h = server.New(s.g, o.server)
	ts := httptest.NewServer(s.h)
	s.url, s.client = ts.URL, openapitest.Client(t)
	t.Cleanup(func() {
		ts.Close()
		if err := s.g.Close(); err != nil {
			t.Error(err)
		}
		b.Audit(t, s.owing)
	})
	return s
}

// rates is a price of pairs of a unit and an amount.
func rates(t testing.TB, pairs ...string) *billing.Price {
	t.Helper()
	var all []billing.Rate
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, billing.Rate{Unit: billing.Unit(pairs[i]), Amount: pairs[i+1]})
	}
	price, err := billing.NewPrice(all...)
	if err != nil {
		t.Fatal(err)
	}
	return price
}

// channels is a router; a channel without a name is "only".
func channels(t testing.TB, all ...router.Channel) *router.Router {
	t.Helper()
	for i := range all {
		all[i].Name = cmp.Or(all[i].Name, "only")
	}
	r, err := router.New(all, router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// request is a POST of JSON with the key.
func (s *fixture) request(t testing.TB, ctx context.Context, path string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key.Reveal())
	req.Header.Set("Content-Type", "application/json")
	return req
}

// mint adds a key of the account.
func (s *fixture) mint(t testing.TB, o auth.KeyOptions) secret.String {
	t.Helper()
	token, _ := s.account.Mint(t, o)
	return token
}

func (s *fixture) posted(t testing.TB) billing.Money {
	t.Helper()
	return s.account.Posted(t)
}

// answer is a response read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends one request; header lines are "Name: value".
func (s *fixture) do(t testing.TB, method, path, body string, header ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	all := []string{"Authorization: Bearer " + s.key.Reveal()}
	if body != "" {
		all = append(all, "Content-Type: application/json")
	}
	resp := servertest.Send(t, ctx, s.client, method, s.url+path, body, append(all, header...)...)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(data)}
}

// errorOf decodes the error member, and fails if it is not of the public form.
func (a answer) errorOf(t testing.TB) (e struct {
	Message, Type, Code string
	Param               *string
}) {
	t.Helper()
	var body map[string]json.RawMessage
	if err := json.Unmarshal([]byte(a.body), &body); err != nil {
		t.Fatalf("body %q: %v", a.body, err)
	}
	if err := json.Unmarshal(body["error"], &e); err != nil {
		t.Fatalf("body %q: %v", a.body, err)
	}
	if e.Message == "" {
		t.Errorf("body %q has no message", a.body)
	}
	return e
}
