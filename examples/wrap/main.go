// Command wrap puts a gateway around the go-openai client that a program has. The client keeps
// its address, its proxy and its headers; the rest of the program keeps its calls.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/sashabaranov/go-openai"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/goopenai"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	client := theClientYouHave()
	price, err := billing.NewPrice(billing.Rate{Unit: billing.Input, Amount: "1.00"}, billing.Rate{Unit: billing.Output, Amount: "4.00"}) // a million tokens
	if err != nil {
		return err
	}
	ledger := memory.NewLedger(memory.LedgerOptions{})
	if err := errors.Join(ledger.CreateAccount(ctx, "acme", billing.One), ledger.CreateAccount(ctx, "broke", 1)); err != nil {
		return err
	}
	g, err := gateway.New(gateway.Options{
		Upstream: goopenai.Upstream(client),
		Meter:    ledger, Prices: billing.NewPriceList(map[string]*billing.Price{"my-model": price}),
	})
	if err != nil {
		return err
	}
	client = goopenai.NewClient(g) // every call of the program now goes through the gateway

	request := openai.ChatCompletionRequest{
		Model: "my-model", Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "Is the gate open?"}},
	}
	for _, account := range []string{"acme", "broke"} {
		answer, err := client.CreateChatCompletion(auth.NewContext(ctx, &auth.Principal{Account: account}), request)
		if refused := new(openai.APIError); errors.As(err, &refused) {
			fmt.Println(account, "got", refused.HTTPStatusCode, refused.Code)
			continue
		} else if err != nil {
			return err
		}
		fmt.Println(answer.Choices[0].Message.Content)
		fmt.Println(account, "paid", answer.Header().Get("X-Gateway-Charge"))
	}
	return g.Close()
}

// theClientYouHave stands for the line of your program that makes its client. This one's vendor
// is the simulator.
func theClientYouHave() *openai.Client {
	g, err := gateway.New(gateway.Options{Upstream: sim.New(sim.Options{})})
	if err != nil {
		log.Fatal(err)
	}
	config := openai.DefaultConfig("sk-of-yours")
	config.HTTPClient = server.Client(server.New(g, server.Options{}))
	return openai.NewClientWithConfig(config)
}

// Output:
// This is a simulated answer: no model was called. You said: "Is the gate open?"
// acme paid 0.000089
// broke got 402 insufficient_balance
