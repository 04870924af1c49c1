package server_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/server/openapi/openapitest"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// shop is a served gateway with one account and one key.
type shop struct {
	url    string
	key    secret.String
	keys   *auth.MemoryKeys
	ledger *billing.Ledger
	log    *lines
	g      *gateway.Gateway
	h      *server.Handler
	client *http.Client // checks its traffic against the document
}

// lines collects the log.
type lines struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

type shopOptions struct {
	upstream upstream.Upstream
	credit   billing.Money
	key      auth.KeyOptions
	server   server.Options
	gateway  func(*gateway.Options)
}

// open serves a gateway on loopback.
func open(t testing.TB, o shopOptions) *shop {
	t.Helper()
	s := &shop{keys: &auth.MemoryKeys{}, ledger: billing.NewLedger(billing.LedgerOptions{}), log: &lines{}}
	if o.credit == 0 {
		o.credit = billing.One
	}
	if o.upstream == nil {
		o.upstream = sim.New(sim.Options{})
	}
	ctx := context.Background()
	if err := s.ledger.CreateAccount(ctx, "acme", o.credit); err != nil {
		t.Fatal(err)
	}
	s.key = s.mint(t, o.key)
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Input, Amount: "1"}, billing.Rate{Unit: billing.Output, Amount: "2"})
	if err != nil {
		t.Fatal(err)
	}
	prices := map[string]*billing.Price{"delta-k3": price, "m": price, "sim-chat": price}
	router, err := upstream.NewRouter([]upstream.Channel{{
		Name: "only", Upstream: o.upstream, Models: map[string]string{"delta-k3": "delta-k3", "m": "m", "sim-chat": "sim-chat"},
	}}, upstream.RouterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	options := gateway.Options{
		Upstream: router, Meter: s.ledger, Prices: billing.NewPriceList(prices),
		Authenticator: &auth.Keys{Store: s.keys}, Logger: slog.New(slog.NewJSONHandler(s.log, nil)),
	}
	if o.gateway != nil {
		o.gateway(&options)
	}
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
		if err := s.ledger.Verify(ctx); err != nil {
			t.Error(err)
		}
		if b, err := s.ledger.Balance(ctx, "acme"); err != nil || b.Held != 0 {
			t.Errorf("balance %+v, %v", b, err)
		}
		if strings.Contains(s.log.String(), s.key.Reveal()) {
			t.Error("the log holds the key")
		}
	})
	return s
}

// mint adds a key of the account.
func (s *shop) mint(t testing.TB, o auth.KeyOptions) secret.String {
	t.Helper()
	o.Account = "acme"
	key, token, err := auth.NewKey(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.keys.Add(context.Background(), key); err != nil {
		t.Fatal(err)
	}
	return token
}

func (s *shop) posted(t testing.TB) billing.Money {
	t.Helper()
	b, err := s.ledger.Balance(context.Background(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	return b.Posted
}

// answer is a response read to its end.
type answer struct {
	status int
	header http.Header
	body   string
}

// do sends one request; header lines are "Name: value".
func (s *shop) do(t testing.TB, method, path, body string, header ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, r)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.key.Reveal())
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		if value == "" {
			req.Header.Del(name)
		} else {
			req.Header.Set(name, value)
		}
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
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
