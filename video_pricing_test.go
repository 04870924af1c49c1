package gateway_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/video"
)

// TestEveryVideoModelIsChargedExactly makes one video with each model: of the
// beta family by the second that was asked for, of gamma also by tokens.
func TestEveryVideoModelIsChargedExactly(t *testing.T) {
	asks := map[string]string{
		"t2v": `"input":{"prompt":"x"}`,
		"i2v": `"input":{"prompt":"x","img_url":"https://f.example/1.png","media":[{"type":"first_frame","url":"https://f.example/1.png"}]}`,
		"r2v": `"input":{"prompt":"x","reference_urls":["https://f.example/1.png"],"media":[{"type":"reference_image","url":"https://f.example/1.png"}]}`,
	}
	seconds := []billing.Rate{{Unit: billing.Second, Variant: "720p", Amount: "0.100000001"}}
	tokens := []billing.Rate{{Unit: billing.Output, Amount: "7.03"}}
	for _, f := range video.Families() {
		for _, id := range f.Models {
			ask := `"content":[{"type":"text","text":"x"}]`
			for suffix, members := range asks {
				if strings.Contains(id, suffix) {
					ask = members
				}
			}
			body := fmt.Sprintf(`{"model":%q,"duration":5,"resolution":"720p",%s}`, id, ask)
			s := script{gammaTaken, gammaDone}
			if f.Name == video.FamilyBeta {
				s = script{betaTaken, betaDone}
			}
			t.Run(id+" by seconds", func(t *testing.T) { show(t, id, body, s, seconds, 500_000_005) })
			if f.Name == video.FamilyGamma {
				t.Run(id+" by tokens", func(t *testing.T) { show(t, id, body, s, tokens, 344_505_150) })
			}
		}
	}
}

// script is what an upstream says to a submission, and of its end.
type script struct{ taken, done string }

// show makes one video and looks at the balance.
func show(t *testing.T, id, body string, s script, rates []billing.Rate, want billing.Money) {
	synctest.Test(t, func(t *testing.T) {
		row, err := billing.NewPrice(rates...)
		if err != nil {
			t.Fatal(err)
		}
		h := newHouse(t, &studio{submit: s.taken, polls: []string{s.done}}, "100", func(o *gateway.Options) {
			o.Prices = billing.NewPriceList(map[string]*billing.Price{id: row})
		})
		_, r, err := h.submit(t.Context(), body, "")
		if err != nil {
			t.Fatal(err)
		}
		if held := h.balance(t).Held; held < want {
			t.Errorf("held %s for %s", held, want)
		}
		time.Sleep(6 * time.Second)
		h.finish(t, idOf(t, r.Body))
		if got := h.spent(t, "100"); got != want {
			t.Errorf("spent %s, want %s", got, want)
		}
	})
}
