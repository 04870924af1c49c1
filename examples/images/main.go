// Command images makes pictures in both forms of request, says what they cost,
// and writes the first to a PNG file: go run ./examples/images cube.png
package main

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"log"
	"os"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// requests are the alpha family's form, and OpenAI's for every other.
var requests = []*images.Request{
	{
		Model: "alpha-image-2.0", Parameters: &images.Parameters{Size: "1280*720"},
		Input: &images.Input{Messages: []images.Message{{Role: "user", Content: []images.Block{{Text: "a red cube"}}}}},
	},
	{Model: "imagegen-legacy-2", Prompt: "a red cube", N: 2, Size: "256x256"},
}

func main() {
	perImage, err := billing.NewPrice(billing.Rate{Unit: billing.Image, Amount: "0.035"})
	if err != nil {
		log.Fatal(err)
	}
	ctx, ledger := context.Background(), memory.NewLedger(memory.LedgerOptions{})
	if err := ledger.CreateAccount(ctx, "local", billing.One); err != nil {
		log.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{
		Upstream: sim.New(sim.Options{}), Meter: ledger,
		Prices: billing.NewPriceList(map[string]*billing.Price{"alpha-image-2.0": perImage, "imagegen-legacy-2": perImage}),
	})
	if err != nil {
		log.Fatal(err)
	}
	var first []byte
	for _, request := range requests {
		r, err := g.Images(ctx, request)
		if err != nil {
			log.Fatal(err)
		}
		for _, picture := range r.Images() { // a vendor may give a URL instead of the bytes
			file, err := picture.Bytes()
			if err != nil {
				log.Fatal(err)
			}
			c, err := png.DecodeConfig(bytes.NewReader(file))
			if err != nil {
				log.Fatal(err)
			}
			fmt.Printf("%s: %d x %d\n", request.Model, c.Width, c.Height)
			if first == nil {
				first = file
			}
		}
		fmt.Println("charge:", r.Charge)
	}
	if len(os.Args) > 1 {
		if err := os.WriteFile(os.Args[1], first, 0o600); err != nil {
			log.Fatal(err)
		}
	}
}

// Output:
// alpha-image-2.0: 1280 x 720
// charge: 0.035
// imagegen-legacy-2: 256 x 256
// imagegen-legacy-2: 256 x 256
// charge: 0.07
