package gateway_test

import (
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/video"
)

func TestAGatewayThatFollowsAnotherInOneProcessEndsItsVideos(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := gateway.NewMemoryTasks(nil, nil)
		s := &studio{submit: betaTaken, polls: []string{betaDone}}
		var options gateway.Options
		h := cinema(t, s, func(o *gateway.Options) { o.Tasks, options = tasks, *o; options.Tasks = tasks })
		_, r, err := h.submit(t.Context(), askBeta, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		dearer, err := billing.NewPrice(billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "9.00"})
		if err != nil {
			t.Fatal(err)
		}
		options.Prices = billing.NewPriceList(map[string]*billing.Price{"beta2.6-t2v": dearer})
		heir, err := gateway.New(options)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		got, err := heir.Video(t.Context(), idOf(t, r.Body))
		if err != nil || got.Status != video.Succeeded {
			t.Fatalf("got %+v, %v", got, err)
		}
		if spent := h.spent(t, "10.00"); spent != billing.One/2 {
			t.Errorf("spent %s, want the price at which it was submitted", spent)
		}
		if err := heir.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
