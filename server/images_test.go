package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

const generations = "/v1/images/generations"

// newImagesFixture serves image models; a picture costs a tenth.
func newImagesFixture(t *testing.T, o fixtureOptions) *fixture {
	t.Helper()
	if o.upstream == nil {
		o.upstream = sim.New(sim.Options{})
	}
	up := o.upstream
	o.gateway = func(options *gateway.Options) {
		models, prices := map[string]string{}, map[string]*billing.Price{}
		for _, id := range []string{"alpha-image-2.0", "alpha-image-edit", "imagegen-2", "imagegen-legacy-2", "delta-k3"} {
			models[id], prices[id] = id, rates(t, "image", "0.1")
		}
		options.Upstream, options.Prices = channels(t, router.Channel{Upstream: up, Models: models}), billing.NewPriceList(prices)
	}
	return newFixture(t, o)
}

const redCube = `{"model":"alpha-image-2.0","input":{"messages":[{"role":"user","content":[{"text":"a red cube"}]}]},"parameters":{"size":"1280*720"}}`

func TestTheAlphaFormGetsALinkAndOurRequestID(t *testing.T) {
	s := newImagesFixture(t, fixtureOptions{})
	a := s.do(t, "POST", generations, redCube)
	var r struct {
		RequestID string `json:"request_id"`
		Output    struct {
			Choices []struct {
				FinishReason string `json:"finish_reason"`
				Message      struct {
					Role    string
					Content []struct{ Image string }
				}
			}
		}
		Usage map[string]int64
	}
	if err := json.Unmarshal([]byte(a.body), &r); err != nil || a.status != 200 || len(r.Output.Choices) != 1 {
		t.Fatalf("%d %.200s, %v", a.status, a.body, err)
	}
	c := r.Output.Choices[0]
	if r.RequestID != a.header.Get("X-Request-Id") || c.FinishReason != "stop" || c.Message.Role != "assistant" || !maps.Equal(r.Usage, map[string]int64{"image_count": 1, "width": 1280, "height": 720}) {
		t.Errorf("%s, %+v, usage %v", a.header, r.RequestID, r.Usage)
	}
	if s.posted(t) != billing.One-billing.One/10 || a.header.Get("X-Gateway-Charge") != "0.10" {
		t.Errorf("posted %s, %s", s.posted(t), a.header.Get("X-Gateway-Charge"))
	}
}

// A vendor makes the pictures that it was asked for, whoever leaves.
func TestAClientThatHangsUpBeforeItsPicturesPaysForThemWithAKeyToo(t *testing.T) {
	for _, key := range []string{"", "Idempotency-Key: k"} {
		t.Run(key, func(t *testing.T) {
			asked, left := make(chan struct{}), make(chan struct{})
			s := newImagesFixture(t, fixtureOptions{upstream: upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
				close(asked)
				<-left
				return sim.New(sim.Options{}).Do(ctx, c)
			})})
			const body = `{"model":"imagegen-2","prompt":"a red cube","n":2}`
			before := s.posted(t)
			ctx, cancel := context.WithCancel(t.Context())
			req := s.request(t, ctx, generations, strings.NewReader(body))
			if name, value, ok := strings.Cut(key, ": "); ok {
				req.Header.Set(name, value)
			}
			done := make(chan error, 1)
			go func() {
				_, err := s.client.Do(req)
				done <- err
			}()
			<-asked
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			close(left)
			for s.g.Load().Running > 0 { // its end is not the client's to see
				select {
				case <-t.Context().Done():
					t.Fatal("the call does not end")
				case <-time.After(time.Millisecond):
				}
			}
			if spent := before - s.posted(t); spent != 2*billing.One/10 {
				t.Errorf("spent %s", spent)
			}
			if key == "" {
				return
			}
			a := s.do(t, "POST", generations, body, key)
			if a.status != 200 || a.header.Get("Idempotent-Replayed") != "true" || before-s.posted(t) != 2*billing.One/10 {
				t.Errorf("a duplicate: %d %v %s", a.status, a.header, a.body)
			}
		})
	}
}
