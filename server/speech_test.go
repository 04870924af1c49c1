package server_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	speechop "github.com/tollhouse-ai/gateway/internal/operation/speech"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// newSpeechFixture serves speech, at a micro-unit a character.
func newSpeechFixture(t testing.TB, up upstream.Upstream, credit billing.Money) *fixture {
	t.Helper()
	if up == nil {
		up = sim.New(sim.Options{})
	}
	price := rates(t, "character", "1")
	models := map[string]string{"alpha3-tts-flash": "v1", "alpha3-tts-instruct-flash": "v2", "delta-k3": "v3"}
	routing := channels(t, router.Channel{Upstream: up, Models: models})
	return newFixture(t, fixtureOptions{credit: credit, gateway: func(o *gateway.Options) {
		o.Upstream = routing
		o.Prices = billing.NewPriceList(map[string]*billing.Price{"alpha3-tts-flash": price, "alpha3-tts-instruct-flash": price, "delta-k3": price})
	}})
}

func TestSpeechMovesTheBalanceByItsCharactersAndIsReplayed(t *testing.T) {
	s := newSpeechFixture(t, nil, 0)
	before := s.posted(t)
	const body = `{"model":"alpha3-tts-flash","input":"héllo","response_format":"wav"}`
	a := s.do(t, "POST", "/v1/audio/speech", body, "Idempotency-Key: k")
	b := s.do(t, "POST", "/v1/audio/speech", body, "Idempotency-Key: k")
	if before-s.posted(t) != 5_000 || a.body != b.body || b.header.Get("Idempotent-Replayed") != "true" ||
		b.header.Get("Content-Type") != "audio/wav" || b.header.Get("X-Request-Id") != a.header.Get("X-Request-Id") || b.header.Get("X-Gateway-Charge") != "0.000005" {
		t.Errorf("spent %s, headers %v", before-s.posted(t), b.header)
	}
}

// speechVendor is an upstream whose audio breaks off after some of it.
func speechVendor(sent string) upstream.Upstream {
	return speech.Serve(func(context.Context, *speech.Request) (io.ReadCloser, string, error) {
		head := speechop.WAVHeader(speech.PCM{Channels: 1, Rate: 24_000, Bits: 16})
		return io.NopCloser(io.MultiReader(strings.NewReader(string(head)+sent), cutSpeechVendor{})), "audio/wav", nil
	})
}

type cutSpeechVendor struct{}

func (cutSpeechVendor) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestSpeechThatBreaksAfterBytesWentOutBreaksTheConnection(t *testing.T) {
	s := newSpeechFixture(t, speechVendor(strings.Repeat("x", 50_000)), 0)
	before := s.posted(t)
	for name, client := range map[string]*http.Client{"over a socket": s.client, "in process": server.Client(s.h)} {
		req := s.request(t, t.Context(), "/v1/audio/speech", strings.NewReader(`{"model":"alpha3-tts-flash","input":"hi","response_format":"wav"}`))
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 200 || err == nil || len(data) < 50_000 || len(data) >= 50_044 || strings.Contains(string(data), "error") {
			t.Errorf("%s: %d, %d bytes, %v", name, resp.StatusCode, len(data), err)
		}
	}
	if spent := before - s.posted(t); spent != 4_000 {
		t.Errorf("spent %s", spent)
	}
	var line struct {
		Outcome string
		Status  int
	}
	first, _, _ := strings.Cut(s.log.String(), "\n")
	if err := json.Unmarshal([]byte(first), &line); err != nil || line.Outcome != "BadGateway" || line.Status != 200 {
		t.Errorf("the log says %s", first)
	}
}

func TestUnknownFieldsOfSpeechTravelToAnUpstreamOfTheSameWire(t *testing.T) {
	var got string
	s := newSpeechFixture(t, upstream.Func(func(_ context.Context, c *upstream.Call) (*upstream.Reply, error) {
		data, err := c.Body.Bytes()
		got = string(data)
		return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"audio/mpeg"}}, Body: io.NopCloser(strings.NewReader("ID3 and so on"))}, err
	}), 0)
	a := s.do(t, "POST", "/v1/audio/speech", `{"model":"alpha3-tts-flash", "input":"hi","voice":"Ono Anna","x_big":9007199254740993,"speed":1.0}`)
	if a.status != 200 || a.header.Get("Content-Type") != "audio/mpeg" || a.body != "ID3 and so on" ||
		got != `{"model":"v1", "input":"hi","voice":"Ono Anna","x_big":9007199254740993,"speed":1.0}` {
		t.Errorf("%d %s, sent %s", a.status, a.body, got)
	}
}
