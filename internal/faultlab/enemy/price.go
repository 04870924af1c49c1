package enemy

import (
	"fmt"

	"github.com/tollhouse-ai/gateway/billing"
)

// rate is a price in nano-units of the currency: of one token or character, of
// one picture, of one second.
type rate struct {
	unit    billing.Unit
	variant string
	nano    int64
}

// The models of the lab. Those of the demo cost what they cost there.
const (
	plainChat   = "sim-chat"
	renamedChat = "delta-k3" // its channel renames max_tokens
	droppedChat = "drop-chat"
	nativeChat  = "native-chat" // speaks Anthropic's wire
	dearChat    = "dear-chat"
	tokenImage  = "imagegen-2"
	pieceImage  = "picture-1"
	alphaImage  = "alpha-image-2.0"
	alphaSpeech = "alpha3-tts-flash"
	otherSpeech = "voice-1"
	betaVideo   = "beta2.6-t2v"
	gammaVideo  = "gamma-2-0-260128"
	plainVector = "text-embedding-v4"
	otherVector = "voyage-3"
)

var prices = map[string][]rate{
	plainChat:   {{billing.Input, "", 100}, {billing.Output, "", 400}},
	renamedChat: {{billing.Input, "", 600}, {billing.CachedInput, "", 150}, {billing.Output, "", 2_500}},
	droppedChat: {{billing.Input, "", 1_000}, {billing.Output, "", 10_000}},
	nativeChat:  {{billing.Input, "", 3_000}, {billing.CachedInput, "", 300}, {billing.CacheWrite, "", 3_750}, {billing.Output, "", 15_000}},
	dearChat:    {{billing.Input, "", 30_000}, {billing.Output, "", 120_000}},
	tokenImage:  {{billing.Input, "", 5_000}, {billing.ImageInput, "", 8_000}, {billing.ImageOutput, "", 32_000}},
	pieceImage:  {{billing.Image, "", 20_000_000}},
	alphaImage:  {{billing.Image, "", 35_000_000}},
	alphaSpeech: {{billing.Character, "", 10_000}},
	otherSpeech: {{billing.Character, "", 15_000}},
	betaVideo:   {{billing.Second, "720p", 100_000_000}, {billing.Second, "1080p", 150_000_000}},
	gammaVideo:  {{billing.Output, "", 7_000}},
	plainVector: {{billing.Input, "", 70}},
	otherVector: {{billing.Input, "", 60}},
}

// priceList is the gateway's list of the same prices, less a part of a hundred.
func priceList(discount int64) (*billing.PriceList, error) {
	all := map[string]*billing.Price{}
	for model, row := range prices {
		var rates []billing.Rate
		for _, r := range row {
			amount := r.nano * 1_000_000 // of a million tokens
			if r.unit == billing.Image || r.unit == billing.Second {
				amount = r.nano
			}
			amount -= amount * discount / 100
			rates = append(rates, billing.Rate{Unit: r.unit, Variant: r.variant, Amount: billing.Money(amount).String()})
		}
		p, err := billing.NewPrice(rates...)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", model, err)
		}
		all[model] = p
	}
	return billing.NewPriceList(all), nil
}

// cost is what so many units of a model cost; what has no price is dear.
func cost(model string, unit billing.Unit, variant string, n int64) billing.Money {
	for _, r := range prices[model] {
		if r.unit == unit && r.variant == variant {
			return billing.Money(n * r.nano)
		}
	}
	return billing.Money(n) * billing.One
}
