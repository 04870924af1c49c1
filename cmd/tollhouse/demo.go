package main

import (
	"time"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/cmd/tollhouse/internal/config"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// demoModels are the models of the demo and what they would cost.
var demoModels = []struct {
	id    string
	rates []billing.Rate
}{
	{"delta-k3", []billing.Rate{
		{Unit: billing.Input, Amount: "0.60"}, {Unit: billing.CachedInput, Amount: "0.15"}, {Unit: billing.Output, Amount: "2.50"},
	}},
	{"sim-chat", []billing.Rate{{Unit: billing.Input, Amount: "0.10"}, {Unit: billing.Output, Amount: "0.40"}}},
	{"alpha-image-2.0", []billing.Rate{{Unit: billing.Image, Amount: "0.035"}}},
	{"alpha-image-edit", []billing.Rate{{Unit: billing.Image, Amount: "0.045"}}},
	{"imagegen-2", []billing.Rate{
		{Unit: billing.Input, Amount: "5.00"}, {Unit: billing.ImageInput, Amount: "8.00"}, {Unit: billing.ImageOutput, Amount: "32.00"},
	}},
	{"alpha3-tts-flash", []billing.Rate{{Unit: billing.Character, Amount: "10.00"}}},
	{"alpha3-tts-instruct-flash", []billing.Rate{{Unit: billing.Character, Amount: "12.00"}}},
	{"beta2.6-t2v", []billing.Rate{
		{Unit: billing.Second, Variant: "720p", Amount: "0.10"}, {Unit: billing.Second, Variant: "1080p", Amount: "0.15"},
	}},
	{"gamma-2-0-260128", []billing.Rate{{Unit: billing.Output, Amount: "7.00"}}},
	{"text-embedding-v4", []billing.Rate{{Unit: billing.Input, Amount: "0.07"}}},
}

const (
	demoAccount = "demo"
	demoCredit  = 25 * billing.One
	demoPace    = 30 * time.Millisecond // between the words of a stream
	demoPoll    = time.Second           // between two looks at a video
)

// demo is a configuration in which nothing is real but the money's arithmetic.
func (p *program) demo() (*source, error) {
	routes, prices := map[string]string{}, map[string]config.Price{}
	for _, m := range demoModels {
		row, err := billing.NewPrice(m.rates...)
		if err != nil {
			return nil, err
		}
		routes[m.id], prices[m.id] = m.id, config.Price{Rates: m.rates, Row: row}
	}
	simulated := sim.Options{FirstDelay: 5 * demoPace, Pace: demoPace, Now: time.Now}
	looks := config.Video{Poll: demoPoll}
	if p.instantVideos {
		simulated.VideoTime, looks.Poll = -1, 1
	}
	return &source{demo: true, firstAccount: demoAccount, config: &config.Config{
		Channels: []config.Channel{{
			Name: "demo", Driver: "sim", Models: routes,
			Upstream: sim.New(simulated),
		}},
		Prices:   prices,
		Video:    looks,
		Webhooks: config.Webhooks{AllowPrivate: true}, // the receiver is on this machine too
		Accounts: []config.Account{{Name: demoAccount, Credit: demoCredit}},
	}}, nil
}
