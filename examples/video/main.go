// Command video asks for a video, waits until it is there, and says what it cost. It
// writes it to a file if one is named: go run ./examples/video boat.mp4
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream/sim"
	"github.com/tollhouse-ai/gateway/video"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	second, err := billing.NewPrice(billing.Rate{Unit: billing.Second, Variant: "720p", Amount: "0.10"})
	if err != nil {
		return err
	}
	ledger := memory.NewLedger(memory.LedgerOptions{})
	if err := ledger.CreateAccount(ctx, "local", billing.One); err != nil {
		return err
	}
	g, err := gateway.New(gateway.Options{
		Upstream: sim.New(sim.Options{VideoTime: -1}), // each video is there when it is asked after
		Meter:    ledger, Prices: billing.NewPriceList(map[string]*billing.Price{"beta2.6-t2v": second}),
		Video: gateway.VideoOptions{Poll: 10 * time.Millisecond},
	})
	if err != nil {
		return err
	}
	defer func() { _ = g.Close() }()

	task, err := g.SubmitVideo(ctx, &video.Request{
		Model: "beta2.6-t2v", Duration: 5, Resolution: "720p", Input: []byte(`{"prompt":"a boat on a lake"}`),
	})
	if err != nil {
		return err // refused, and nothing is held; a 504 names a task that may be there
	}
	balance, _ := ledger.Balance(ctx, "local")
	fmt.Printf("%s, %s held\n", task.Status, balance.Held)
	for r, err := range g.WaitVideo(ctx, task.ID) { // at each change of the status
		if err != nil {
			return err // the task goes on
		}
		task = r
	}
	if task.Status != video.Succeeded {
		return fmt.Errorf("%s, which costs nothing: %v", task.Status, task.Error)
	}
	// A vendor gives an address that lives for a day; the simulator a "data:" one.
	_, clip, _ := strings.Cut(task.URL(), "base64,")
	file, err := base64.StdEncoding.DecodeString(clip)
	fmt.Printf("%s for %s: an MP4 file: %t\n", task.Status, task.Charge, bytes.Contains(file, []byte("ftyp")))
	if err == nil && len(os.Args) > 1 {
		err = os.WriteFile(os.Args[1], file, 0o600)
	}
	return err
}

// Output:
// processing, 0.50 held
// succeeded for 0.50: an MP4 file: true
