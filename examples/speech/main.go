// Command speech speaks a text into a WAV file, as the audio comes.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Character, Amount: "10.00"}) // a million
	if err != nil {
		return err
	}
	// The simulator's voice is a tone for each character.
	g, err := gateway.New(gateway.Options{
		Upstream: sim.New(sim.Options{}), Meter: memory.NewLedger(memory.LedgerOptions{Count: true}),
		Prices: billing.NewPriceList(map[string]*billing.Price{"alpha3-tts-flash": price}),
	})
	if err != nil {
		return err
	}
	defer func() { _ = g.Close() }()

	audio, err := g.Speech(ctx, &speech.Request{
		Model: "alpha3-tts-flash", Voice: "Serena", ResponseFormat: speech.WAV, Input: "The gate is open.",
	})
	if err != nil {
		return err // refused, or failed before the first byte
	}
	name := filepath.Join(os.TempDir(), "tollhouse-speech.wav")
	size, err := save(name, audio)
	if err = errors.Join(err, audio.Close()); err != nil {
		return err // the audio broke off; what had come is charged
	}
	receipt, _ := audio.Receipt() // known once all of it was read
	fmt.Printf("%s: %d bytes of %s\n", filepath.Base(name), size, audio.ContentType)
	fmt.Printf("%d characters cost %s\n", receipt.Usage.Characters, receipt.Charge)
	return nil
}

func save(name string, audio io.Reader) (int64, error) {
	file, err := os.Create(name)
	if err != nil {
		return 0, err
	}
	size, err := io.Copy(file, audio)
	return size, errors.Join(err, file.Close())
}

// Output:
// tollhouse-speech.wav: 16426 bytes of audio/wav
// 17 characters cost 0.00017
