// Command mcp offers a gateway's models to an agent as tools, and is that agent itself.
// It asks what an image would cost, makes it once although it asks twice, and sees what
// is left: go run ./examples/mcp
package main

import (
	"context"
	"fmt"
	"log"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/server/mcp"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	picture, err := billing.NewPrice(billing.Rate{Unit: billing.Image, Amount: "0.035"})
	if err != nil {
		return err
	}
	ledger := memory.NewLedger(memory.LedgerOptions{})
	if err := ledger.CreateAccount(ctx, "local", billing.One); err != nil {
		return err
	}
	g, err := gateway.New(gateway.Options{
		Upstream: sim.New(sim.Options{}), Meter: ledger,
		Prices: billing.NewPriceList(map[string]*billing.Price{"alpha-image-2.0": picture}),
	})
	if err != nil {
		return err
	}
	defer func() { _ = g.Close() }()
	tools := mcp.New(g, mcp.Options{}) // an http.Handler, for any mux

	agent := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, nil)
	session, err := agent.Connect(ctx, &sdk.StreamableClientTransport{
		Endpoint: "http://gateway/mcp", HTTPClient: server.Client(tools), // without a socket
	}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = session.Close() }()
	wish := map[string]any{"model": "alpha-image-2.0", "prompt": "a boat on a lake", "task_label": "boat-1"}
	for _, call := range []sdk.CallToolParams{
		{Name: "estimate_cost", Arguments: map[string]any{"tool": "generate_image", "arguments": wish}},
		{Name: "generate_image", Arguments: wish},
		{Name: "generate_image", Arguments: wish}, // as after a time-out: not paid again
		{Name: "get_balance"},
	} {
		r, err := session.CallTool(ctx, &call)
		if err != nil {
			return err // the protocol's; a tool's own error is a result, with IsError
		}
		members, _ := r.StructuredContent.(map[string]any)
		fmt.Printf("%s: most %v, charge %v, replayed %v, available %v\n", call.Name, members["most"], members["charge"], members["replayed"], members["available"])
	}
	return nil
}

// Output:
// estimate_cost: most 0.035, charge <nil>, replayed <nil>, available <nil>
// generate_image: most <nil>, charge 0.035, replayed <nil>, available <nil>
// generate_image: most <nil>, charge 0.035, replayed true, available <nil>
// get_balance: most <nil>, charge <nil>, replayed <nil>, available 0.965
