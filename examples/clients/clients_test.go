// Package clients tests the gateway through the wire with SDKs that are not ours.
// It is a Go module of its own, so that a program which imports the gateway does
// not have the SDKs among its requirements.
package clients

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/png"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/examples/internal/programs"
	"github.com/tollhouse-ai/gateway/internal/openapitest"
	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

func TestEveryExamplePrintsWhatItSays(t *testing.T) { programs.Check(t, 4) }

// fixture is a served gateway with one account, one key, and a model of each kind.
type fixture struct {
	*servertest.Account
	url     string
	client  *http.Client // checks its traffic against the OpenAPI document
	handler *server.Handler
	gateway *gateway.Gateway
}

// options say how a fixture is not the usual one.
type options struct {
	credit   billing.Money // 1 if zero
	key      auth.KeyOptions
	upstream upstream.Upstream // the simulator if nil
	observe  []gateway.Observer
	kept     gateway.ResponsesMode
	timeout  router.Timeouts // of the channel
	owing    bool            // a video may be open at the end
}

// What the models cost, by their kind: for a million tokens or characters, for an
// image, a second or a request.
var rates = map[string][]billing.Rate{
	"chat":       {{Unit: billing.Input, Amount: "1"}, {Unit: billing.Output, Amount: "2"}},
	"embeddings": {{Unit: billing.Input, Amount: "1"}},
	"rerank":     {{Unit: billing.SearchUnit, Amount: "0.002"}},
	"ranking":    {{Unit: billing.Input, Amount: "1"}},
	"image":      {{Unit: billing.Image, Amount: "0.1"}},
	"speech":     {{Unit: billing.Character, Amount: "1"}},
	"moderation": {{Unit: billing.Request, Amount: "0.001"}},
	"video":      {{Unit: billing.Second, Variant: "720p", Amount: "0.1"}},
}

var kinds = map[string]string{
	"delta-k3": "chat", "sim-chat": "chat", "model": "chat", "gpt-5.6-sol": "chat", "vectors": "embeddings", "imagegen-2": "image", "imagegen-legacy-2": "image",
	"rerank-v3.5": "rerank", "jina-reranker-v3": "ranking", "rerank-2.5": "ranking",
	"alpha3-tts-flash": "speech", "beta2.7-t2v": "video", "omni-moderation-latest": "moderation",
}

func newFixture(t *testing.T, o options) *fixture {
	t.Helper()
	if o.credit == 0 {
		o.credit = billing.One
	}
	if o.upstream == nil {
		o.upstream = sim.New(sim.Options{})
	}
	s := &fixture{Account: servertest.Open(t, o.credit, o.key)}
	models, prices := map[string]string{}, map[string]*billing.Price{}
	for id, kind := range kinds {
		price, err := billing.NewPrice(rates[kind]...)
		if err != nil {
			t.Fatal(err)
		}
		models[id], prices[id] = id, price
	}
	routing, err := router.New([]router.Channel{{Name: "only", Upstream: o.upstream, Models: models, Timeout: o.timeout}}, router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{
		Upstream: routing, Meter: s.Ledger, Prices: billing.NewPriceList(prices),
		Models:        []gateway.Model{{ID: "vectors", Kind: gateway.KindEmbeddings, Batch: 2}},
		Authenticator: &auth.Keys{Store: s.Keys}, Logger: slog.New(slog.NewJSONHandler(s.Log, nil)), Observe: o.observe,
		Responses: gateway.ResponsesOptions{Mode: o.kept},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.gateway, s.handler = g, server.New(g, server.Options{})
	ts := httptest.NewServer(s.handler)
	s.url, s.client = ts.URL, openapitest.Client(t)
	t.Cleanup(func() {
		ts.Close()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		s.Audit(t, o.owing)
	})
	return s
}

// spends checks that f costs the account what it returns, which is more than nothing.
func (s *fixture) spends(t *testing.T, f func() billing.Money) {
	t.Helper()
	before := s.Posted(t)
	want := f()
	if got := before - s.Posted(t); got != want || got == 0 {
		t.Errorf("it cost %s, want %s", got, want)
	}
}

// chatCost is the price of an answer of a chat model.
func chatCost(input, output int64) billing.Money { return billing.Money(1000*input + 2000*output) }

// picture is a PNG file of so many pixels in height and width.
func picture(t *testing.T, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, size, size))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// isPNG checks that base64 text is a picture.
func isPNG(t *testing.T, b64 string) {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(b64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := png.DecodeConfig(bytes.NewReader(data)); err != nil {
		t.Errorf("no PNG: %v", err)
	}
}
