// Command structanswer gets a Go struct from a model: the schema is made of the type, and an
// answer that does not fit is sent back once.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/examples/internal/vendor"
	"github.com/tollhouse-ai/gateway/fault"
)

// Invoice is what the model is asked for. The tag jsonschema tells it what a field is.
type Invoice struct {
	Customer string `json:"customer" jsonschema:"the company that pays"`
	Lines    []Line `json:"lines" jsonschema:"what was bought"`
	Due      string `json:"due,omitempty" jsonschema:"the last day to pay, as 2006-01-02"`
}

// Line is one position of an invoice.
type Line struct {
	Text   string  `json:"text"`
	Amount float64 `json:"amount" jsonschema:"in euros"`
}

func main() {
	up, err := vendor.New()
	if err != nil {
		log.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{Upstream: up})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	invoice, answer, err := chat.Into[Invoice](ctx, g, question("Extract: ACME pays 12.50 for two horses by 1 May 2026."))
	switch {
	case errors.Is(err, fault.BadGateway):
		log.Fatalf("the model did not give an invoice: %v", err)
	case err != nil:
		log.Fatal(err)
	}
	fmt.Printf("customer %q, %d lines\n", invoice.Customer, len(invoice.Lines))
	fmt.Println("the model wrote", answer.Choices[0].Message.Content)

	// A list, or any other type, works too.
	words, _, err := chat.Into[[]string](ctx, g, question("Three words for a toll."))
	fmt.Println(len(words), "words", err)
}

func question(text string) *chat.Request {
	return &chat.Request{Model: vendor.Model(), Messages: []chat.Message{{Role: "user", Content: chat.Text(text)}}}
}

// Output:
// customer "simulated", 0 lines
// the model wrote {"customer":"simulated","due":"simulated","lines":[]}
// 0 words <nil>
