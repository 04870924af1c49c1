package server_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/operation/all"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// goodRequest is a good request of a route.
type goodRequest struct {
	path, body, contentType string
	number                  string // the name of a number of the body that is billed or bounds the bill
	bills                   string // "" for nothing, "call", or "task" for what is held until its video ends
}

// rankTwo asks for the better of two documents.
const rankTwo = `{"model":"rerank-v3.5","query":"q","documents":["a","b"],"top_n":1}`

// goodRequests are by route. Every route has one here, or the smallest that its endpoint takes.
func goodRequests(t *testing.T) map[string]goodRequest {
	const json = "application/json"
	edit, form := editBody(t, cube(t)...)
	good := map[string]goodRequest{
		"POST /v1/chat/completions":          {"", small, json, "max_tokens", "call"},
		"POST /v1/messages":                  {"", `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`, json, "max_tokens", "call"},
		"POST /v1/messages/count_tokens":     {"", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, json, "", ""},
		"POST /v1/responses":                 {"", askResponse, json, "max_output_tokens", "call"},
		"POST /v1/responses/input_tokens":    {"", `{"model":"m","input":"hi"}`, json, "", ""},
		"GET /v1/responses/{id}":             {path: "/v1/responses/resp_1"},
		"DELETE /v1/responses/{id}":          {path: "/v1/responses/resp_1"},
		"GET /v1/responses/{id}/input_items": {path: "/v1/responses/resp_1/input_items"},
		"POST /v1/images/generations":        {"", `{"model":"imagegen-2","n":1,"prompt":"a cube"}`, json, "n", "call"},
		"POST /v1/images/edits":              {"", edit, form, "", "call"},
		"POST /v1/videos/generations":        {"", `{"model":"beta2.7-t2v","duration":5,"resolution":"720p","input":{"prompt":"a boat"}}`, json, "duration", "task"},
		"GET /v1/videos/generations/{id}":    {path: "/v1/videos/generations/vid_1"},
		"POST /v1/embeddings":                {"", `{"model":"text-embedding-v4","dimensions":64,"input":"a"}`, json, "dimensions", "call"},
		"POST /v1/rerank":                    {"", rankTwo, json, "top_n", "call"},
		"POST /v2/rerank":                    {"", rankTwo, json, "top_n", "call"},
		"POST /rerank":                       {"", `{"model":"rerank-v3.5","query":"q","texts":["a","b"],"top_n":1}`, json, "top_n", "call"},
		"POST /v1/audio/speech":              {"", `{"model":"alpha3-tts-flash","input":"a","response_format":"wav"}`, json, "", "call"},
		"GET /v1/models":                     {},
		"GET /v1/models/{id}":                {path: "/v1/models/m"},
		"GET /v1/balance":                    {},
		"GET /v1/usage":                      {},
		"GET /v1/receipts/{id}":              {path: "/v1/receipts/req_1"},
		"GET /healthz":                       {},
		"GET /readyz":                        {},
		"GET /openapi.json":                  {},
	}
	for _, s := range all.Specs() {
		for _, path := range append([]string{s.Path}, s.Paths...) {
			if route := "POST " + path; s.Probe != nil && good[route].body == "" {
				model := s.Demo[0].ID
				good[route] = goodRequest{"", `{"model":"` + model + `",` + s.Probe(model) + `}`, json, "", "call"}
			}
		}
	}
	return good
}

// newRoutesFixture serves models of every route, for a price.
func newRoutesFixture(t *testing.T, o fixtureOptions) *fixture {
	t.Helper()
	prices, models := make(map[string]*billing.Price), make(map[string]string)
	for id, units := range map[string][]string{
		"m": {"input", "1", "output", "1"}, "delta-k3": {"input", "1", "output", "1"}, "alpha-image-2.0": {"image", "1"}, "alpha3-tts-instruct-flash": {"character", "1"},
		"text-embedding-v4": {"input", "1"}, "rerank-v3.5": {"search_unit", "1"}, "alpha3-tts-flash": {"character", "1"}, "imagegen-2": {"image", "1"}, "beta2.7-t2v": {"second", "1"},
	} {
		prices[id], models[id] = rates(t, units...), id
	}
	for _, s := range all.Specs() {
		if id := s.Demo; len(id) > 0 && prices[id[0].ID] == nil {
			prices[id[0].ID], models[id[0].ID] = rates(t, string(s.Units[0][0]), "1"), id[0].ID
		}
	}
	if o.upstream == nil {
		o.upstream = sim.New(sim.Options{})
	}
	routing := channels(t, router.Channel{Upstream: o.upstream, Models: models})
	edit := o.gateway
	o.gateway = func(g *gateway.Options) {
		g.Upstream, g.Prices = routing, billing.NewPriceList(prices)
		if edit != nil {
			edit(g)
		}
	}
	return newFixture(t, o)
}

// call sends the good request of a route, or another body in its place.
func (s *fixture) call(t *testing.T, r server.Route, key string, body io.Reader, length int64) *httptest.ResponseRecorder {
	t.Helper()
	good, ok := goodRequests(t)[r.Method+" "+r.Path]
	if !ok && r.Method != http.MethodPut {
		t.Fatalf("%s %s has no good request in this test", r.Method, r.Path)
	}
	if body == nil {
		body, length = strings.NewReader(good.body), int64(len(good.body))
	}
	path := good.path
	if path == "" {
		path = r.Path
	}
	req := httptest.NewRequestWithContext(t.Context(), r.Method, path, body)
	req.ContentLength = length
	req.Header.Set("Content-Type", good.contentType)
	req.Header.Set("Authorization", key)
	w := httptest.NewRecorder()
	s.owing = good.bills == "task"
	s.h.ServeHTTP(w, req)
	return w
}

// eachRoute walks over the routes.
func eachRoute(t *testing.T, o fixtureOptions, check func(t *testing.T, s *fixture, r server.Route, good goodRequest)) {
	for _, r := range newRoutesFixture(t, o).h.Routes() {
		t.Run(r.Method+r.Path, func(t *testing.T) {
			check(t, newRoutesFixture(t, o), r, goodRequests(t)[r.Method+" "+r.Path])
		})
	}
}

func TestEveryRouteIsInTheWalkAndNoOther(t *testing.T) {
	good := goodRequests(t)
	for _, r := range newRoutesFixture(t, fixtureOptions{}).h.Routes() {
		name := r.Method + " " + r.Path
		if _, ok := good[name]; !ok || (strings.HasPrefix(r.Path, "/v1/") || strings.HasSuffix(r.Path, "/rerank")) == r.Open {
			t.Errorf("%s: open %t, in the walk %t", name, r.Open, ok)
		}
		delete(good, name)
	}
	if len(good) > 0 {
		t.Errorf("there are no such routes: %v", good)
	}
}

// docs/reference/faults.md, row 30: no body is read before it is known whose it is.
func TestEveryRouteNeedsAKeyUnlessItIsOpen(t *testing.T) {
	eachRoute(t, fixtureOptions{}, func(t *testing.T, s *fixture, r server.Route, _ goodRequest) {
		for _, key := range []string{"", "Bearer sk-nobody", "Basic x"} {
			if w := s.call(t, r, key, mustNotRead{t}, 7); w.Code == http.StatusUnauthorized == r.Open {
				t.Errorf("key %q: %d %s", key, w.Code, w.Body)
			}
		}
		other := r
		other.Method = http.MethodPut
		if w := s.call(t, other, "", mustNotRead{t}, 7); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("another method: %d %s", w.Code, w.Body)
		}
	})
}

func TestEveryRouteCountsARequestOfItsKeyBeforeItReadsTheBody(t *testing.T) {
	eachRoute(t, fixtureOptions{credit: 1000 * billing.One, key: auth.KeyOptions{Limits: auth.Limits{RPM: 1}}}, func(t *testing.T, s *fixture, r server.Route, good goodRequest) {
		if w := s.call(t, r, "Bearer "+s.key.Reveal(), nil, 0); w.Code == http.StatusTooManyRequests {
			t.Errorf("the first request: %d %s", w.Code, w.Body)
		}
		if w := s.call(t, r, "Bearer "+s.key.Reveal(), mustNotRead{t}, 7); w.Code == http.StatusTooManyRequests == r.Open {
			t.Errorf("the second request: %d %s", w.Code, w.Body)
		}
	})
}

func TestEveryRouteWithABodyTakesASlotAndNoOtherDoes(t *testing.T) {
	limits := auth.KeyOptions{Limits: auth.Limits{MaxConcurrent: 1}}
	one := func(o *gateway.Options) { o.Admission = gateway.Admission{MaxCalls: 1, MaxWaiting: -1} }
	eachRoute(t, fixtureOptions{credit: 1000 * billing.One, gateway: one, key: limits}, func(t *testing.T, s *fixture, r server.Route, good goodRequest) {
		x, err := s.g.Enter(t.Context(), gateway.Caller{Token: s.key.Reveal()})
		if err := errors.Join(err, x.AcquireSlot(t.Context(), 0)); err != nil {
			t.Fatal(err)
		}
		if w := s.call(t, r, "Bearer "+s.key.Reveal(), nil, 0); (w.Code == http.StatusServiceUnavailable) != (good.body != "") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		x.End(200, nil)
	})
}

func TestEveryRouteRefusesABodyOverItsCapUnreadOrReadsNone(t *testing.T) {
	o := fixtureOptions{credit: 1000 * billing.One, server: server.Options{MaxBody: 1 << 10, MaxForm: 2 << 10}}
	eachRoute(t, o, func(t *testing.T, s *fixture, r server.Route, good goodRequest) {
		most := map[string]int64{"application/json": 1 << 10}[good.contentType]
		if r.Path == edits {
			most = 2 << 10
		}
		w := s.call(t, r, "Bearer "+s.key.Reveal(), mustNotRead{t}, most+1)
		if (w.Code == http.StatusRequestEntityTooLarge) != (good.body != "") {
			t.Errorf("a declared length: %d %s", w.Code, w.Body)
		}
		endless := &countedReader{}
		w = s.call(t, r, "Bearer "+s.key.Reveal(), endless, -1)
		if (w.Code == http.StatusRequestEntityTooLarge) != (good.body != "") && w.Code != http.StatusBadRequest {
			t.Errorf("an endless body: %d %s", w.Code, w.Body)
		}
		if endless.n > most+64<<10 {
			t.Errorf("%d bytes of it were read", endless.n)
		}
	})
}

// countedReader is an endless body of spaces.
type countedReader struct {
	zero
	n int64
}

func (c *countedReader) Read(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.zero.Read(p)
}

func TestEveryRouteHoldsMoneyAsItsClassSays(t *testing.T) {
	eachRoute(t, fixtureOptions{credit: 1}, func(t *testing.T, s *fixture, r server.Route, good goodRequest) { // a nano-unit
		w := s.call(t, r, "Bearer "+s.key.Reveal(), nil, 0)
		if (w.Code == http.StatusPaymentRequired) != (good.bills != "") {
			t.Errorf("without money: %d %s", w.Code, w.Body)
		}
	})
	eachRoute(t, fixtureOptions{credit: 1000 * billing.One}, func(t *testing.T, s *fixture, r server.Route, good goodRequest) {
		w := s.call(t, r, "Bearer "+s.key.Reveal(), nil, 0)
		b, err := s.ledger.Balance(t.Context(), "acme")
		if err != nil || w.Code >= 300 && good.bills != "" {
			t.Fatalf("%d %s, %v", w.Code, w.Body, err)
		}
		if charged, held := b.Posted < 1000*billing.One, b.Held > 0; charged != (good.bills == "call") || held != (good.bills == "task") {
			t.Errorf("charged %t, held %t: %+v", charged, held, b)
		}
	})
}

func TestARouteSaysWhichOneItsModelWants(t *testing.T) {
	eachRoute(t, fixtureOptions{credit: billing.One}, func(t *testing.T, s *fixture, r server.Route, good goodRequest) {
		if good.contentType != "application/json" {
			return
		}
		model, want := "rerank-v3.5", `is of kind rerank: call /v1/rerank, not `+r.Path+`."`
		if strings.HasSuffix(r.Path, "/rerank") {
			model, want = "delta-k3", `is of kind chat: call /v1/chat/completions, not /v1/rerank."`
		}
		_, rest, _ := strings.Cut(good.body, ",") // each good body begins with its model
		body := `{"model":"` + model + `",` + rest
		w := s.call(t, r, "Bearer "+s.key.Reveal(), strings.NewReader(body), int64(len(body)))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%d %s, want %s", w.Code, w.Body, want)
		}
	})
}

// A client that follows a redirect sends its body again or leaves it out, so that
// every path of another spelling is simply not there.
func TestAPathIsNeverRedirected(t *testing.T) {
	s := newRoutesFixture(t, fixtureOptions{})
	for _, test := range []struct{ path, want string }{
		{"", "Not found: . GET /openapi.json lists the paths."},
		{"*", "Not found"},
		{"/", "Not found"},
		{"//", "Not found"},
		{"/v1", "Not found"},
		{"/v1/", "Not found"},
		{"//v1/models", "Not found"},
		{"/v1//models", "Not found"},
		{"/v1/./models", "Not found"},
		{"/v1/x/../models", "Not found"},
		{"/v1/models/", "Not found"},
		{"/v1/models//m", "Not found"},
		{"/v1/models/m/", "m/"},
		{"/v1/models/a/b", "a/b"},
		{"/v1/models/a%2Fb", "a/b"},
		{"/v1/models/a%2F%2Fb", "a//b"},
		{"/v1/models/..%2Fm", "../m"},
		{"/v1/receipts", "Not found"},
		{"/v1/receipts/", "Not found"},
		{"/v1/videos/generations/", "Not found"},
		{"/v1%2Fmodels", "Not found"},
		{"/healthz/", "Not found"},
	} {
		t.Run(test.path, func(t *testing.T) {
			path, err := url.PathUnescape(test.path)
			if err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			r.URL = &url.URL{Path: path, RawPath: test.path}
			r.RequestURI = test.path
			r.Header.Set("Authorization", "Bearer "+s.key.Reveal())
			w := httptest.NewRecorder()
			s.h.ServeHTTP(w, r)
			h := w.Header()
			if w.Code != http.StatusNotFound || h.Get("Location") != "" || h.Get("Content-Type") != "application/json" || h.Get("X-Request-Id") == "" {
				t.Errorf("got %d, header %v", w.Code, h)
			}
			if !strings.Contains(w.Body.String(), test.want) {
				t.Errorf("got %s, want %q in it", w.Body, test.want)
			}
		})
	}
}
