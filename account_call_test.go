package gateway_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
)

// TestEveryCallOfAnUpstreamNamesItsAccount since channels count failures by it.
func TestEveryCallOfAnUpstreamNamesItsAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		got := map[upstream.Op]int{}
		film := &studio{submit: betaTaken, polls: []string{betaDone}}
		up := upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
			mu.Lock()
			got[c.Op]++
			mu.Unlock()
			if c.Account != "local" {
				t.Errorf("%s: account %q", c.Op, c.Account)
			}
			switch c.Op {
			case upstream.ChatCompletion:
				return jsonReply(whole(`,"usage":{"prompt_tokens":20,"completion_tokens":30}`)), nil
			case upstream.Embeddings:
				return vectorsFor(c)
			case upstream.Speech:
				return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"audio/wav"}}, Body: io.NopCloser(wav("ab"))}, nil
			}
			return film.Do(ctx, c)
		})
		characters, err := billing.NewPrice(billing.Rate{Unit: billing.Character, Amount: "1"})
		if err != nil {
			t.Fatal(err)
		}
		seconds, err := billing.NewPrice(billing.Rate{Unit: billing.Second, Amount: "0.10"})
		if err != nil {
			t.Fatal(err)
		}
		h := newHouse(t, up, "10.00", func(o *gateway.Options) {
			o.Prices = billing.NewPriceList(map[string]*billing.Price{"m": price(t, "1", "1"), "e": price(t, "1", "1"), flash: characters, "beta2.6-t2v": seconds})
			o.Models = []gateway.Model{{ID: "e", Kind: gateway.KindEmbeddings, Batch: 2}}
		})
		if _, _, err := h.ask(t.Context(), `{"model":"m","messages":[{"role":"user","content":"hi"}]}`); err != nil {
			t.Error(err)
		}
		if _, _, err := h.embed(t.Context(), "", strings.Replace(texts(5), `"m"`, `"e"`, 1)); err != nil {
			t.Error(err)
		}
		if _, _, err := h.speak(t, &speech.Request{Model: flash, Input: strings.Repeat("a b. ", 400), ResponseFormat: speech.WAV}); err != nil {
			t.Error(err)
		}
		_, r, err := h.submit(t.Context(), askBeta, "")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		h.finish(t, idOf(t, r.Body))
		for op, least := range map[upstream.Op]int{upstream.ChatCompletion: 1, upstream.Embeddings: 3, upstream.Speech: 2, upstream.SubmitVideo: 1, upstream.PollVideo: 1} {
			if got[op] < least {
				t.Errorf("%s was asked %d times, want at least %d", op, got[op], least)
			}
		}
	})
}
