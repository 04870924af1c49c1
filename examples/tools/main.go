// Command tools is an agent: a model that calls Go functions until it has the answer, within a
// number of rounds and an amount of money.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/examples/internal/vendor"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/store/memory"
)

// Cart is what the tool takes. The model gets its JSON Schema.
type Cart struct {
	Horses int `json:"horses" jsonschema:"how many horses draw it"`
}

func main() {
	ctx := context.Background()
	price, err := billing.NewPrice( // per million tokens
		billing.Rate{Unit: billing.Input, Amount: "0.60"},
		billing.Rate{Unit: billing.Output, Amount: "2.50"},
	)
	ledger := memory.NewLedger(memory.LedgerOptions{})
	up, err2 := vendor.New()
	if err := errors.Join(err, err2, ledger.CreateAccount(ctx, "local", billing.One)); err != nil {
		log.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{
		Upstream: up, Meter: ledger, Prices: billing.NewPriceList(map[string]*billing.Price{vendor.Model(): price}),
	})
	if err != nil {
		log.Fatal(err)
	}
	toll := chat.NewTool("toll", "The toll of a cart, in pence.", func(_ context.Context, c Cart) (string, error) {
		return fmt.Sprintf("%d pence", 10+3*c.Horses), nil
	})
	question := &chat.Request{
		Model:    vendor.Model(),
		Messages: []chat.Message{{Role: "user", Content: chat.Text("What is the toll of a cart without horses?")}},
	}
	for _, ceiling := range []billing.Money{billing.One / 100, billing.One / 1_000_000} {
		ask(ctx, g, question, toll, ceiling)
	}
}

// ask prints each round of an agent.
func ask(ctx context.Context, g *gateway.Gateway, question *chat.Request, toll chat.Tool, ceiling billing.Money) {
	for step, err := range chat.Loop(ctx, g, question, []chat.Tool{toll}, chat.LoopOptions{MaxRounds: 4, MaxCost: ceiling}) {
		switch {
		case errors.Is(err, fault.BudgetExceeded):
			fmt.Printf("%s is not enough, %s was spent\n", ceiling, step.Cost)
			return
		case err != nil:
			log.Fatal(err)
		}
		said := step.Response.Choices[0].Message
		for i, call := range said.ToolCalls {
			fmt.Printf("%s(%s) = %s\n", call.Function.Name, call.Function.Arguments, step.Results[i].Content)
		}
		if len(said.ToolCalls) == 0 {
			fmt.Printf("%s\nfor %s\n", said.Content, step.Cost)
		}
	}
}

// Output:
// toll({"horses":0}) = 10 pence
// This is a simulated answer: no model was called. The tool answered: "10 pence"
// for 0.0002103
// 0.000001 is not enough, 0.00 was spent
