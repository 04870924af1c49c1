// Command stream prints an answer while it is produced, and then what was used.
package main

import (
	"context"
	"fmt"
	"log"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/examples/internal/vendor"
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	up, err := vendor.New()
	if err != nil {
		return err
	}
	g, err := gateway.New(gateway.Options{Upstream: up})
	if err != nil {
		return err
	}
	// Close cancels and settles whatever still runs.
	defer func() { _ = g.Close() }()

	stream, err := g.ChatStream(ctx, &chat.Request{
		Model:    vendor.Model(),
		Messages: []chat.Message{{Role: "user", Content: chat.Text("Count the horses, please.")}},
	})
	if err != nil {
		return err // refused, or failed before the first chunk
	}
	for chunk, err := range stream.Chunks() {
		if err != nil {
			return err // the stream broke off; what had come is charged
		}
		for _, choice := range chunk.Choices {
			fmt.Print(choice.Delta.Content)
		}
	}
	receipt, _ := stream.Receipt() // known once the stream has ended
	fmt.Printf("\n%d tokens in, %d out: %s\n", receipt.Usage.Input, receipt.Usage.Output, receipt.Reason)
	return nil
}

// Output:
// This is a simulated answer: no model was called. You said: "Count the horses, please."
// 6 tokens in, 22 out: complete
