// Command rerank puts documents in the order of their relevance to a query, more of them
// than one upstream call takes: go run ./examples/rerank
package main

import (
	"context"
	"fmt"
	"log"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/rerank"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

func main() {
	price, err := billing.NewPrice(billing.Rate{Unit: billing.SearchUnit, Amount: "0.002"}) // a query with 100 documents
	if err != nil {
		log.Fatal(err)
	}
	ledger := memory.NewLedger(memory.LedgerOptions{})
	if err := ledger.CreateAccount(context.Background(), "acme", billing.One); err != nil {
		log.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{
		Upstream: sim.New(sim.Options{}), Meter: ledger, // the simulator counts the words that both have
		Prices: billing.NewPriceList(map[string]*billing.Price{"rerank-v3.5": price}),
		Models: []gateway.Model{{ID: "rerank-v3.5", Batch: 100}}, // documents of one call
	})
	if err != nil {
		log.Fatal(err)
	}
	documents := []string{"A horse eats hay.", "What a road costs."}
	for n := range 148 {
		documents = append(documents, fmt.Sprintf("Page %d.", n))
	}
	documents = append(documents, "A toll road costs money.")

	ctx := auth.NewContext(context.Background(), &auth.Principal{Account: "acme"})
	r, err := g.Rerank(ctx, &rerank.Request{Model: "rerank-v3.5", Query: "toll road money", Documents: documents, TopN: 2})
	if err != nil {
		log.Fatal(err)
	}
	for _, result := range r.Results {
		fmt.Printf("%.2f %s\n", result.RelevanceScore, documents[result.Index])
	}
	fmt.Printf("%d documents cost %s\n", len(documents), r.Charge)
}

// Output:
// 1.00 A toll road costs money.
// 0.33 What a road costs.
// 151 documents cost 0.004
