// Command anthropicgo calls a chat model with Anthropic's official Go SDK,
// without a socket.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/examples/internal/vendor"
	"github.com/tollhouse-ai/gateway/server"
)

func main() {
	up, err := vendor.New()
	if err != nil {
		log.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{Upstream: up})
	if err != nil {
		log.Fatal(err)
	}
	client := anthropic.NewClient(
		option.WithAPIKey("none"), // no Authenticator, so any will do
		option.WithBaseURL("http://gateway"),
		option.WithHTTPClient(server.Client(server.New(g, server.Options{}))),
	)
	stream := client.Messages.NewStreaming(context.Background(), anthropic.MessageNewParams{
		Model: vendor.Model(), MaxTokens: 1024,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Is the gate open?"))},
	})
	var m anthropic.Message
	for stream.Next() {
		if err := m.Accumulate(stream.Current()); err != nil {
			log.Fatal(err)
		}
	}
	if err := stream.Err(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Content[0].Text)
	fmt.Printf("%s after %d tokens\n", m.StopReason, m.Usage.OutputTokens)
}

// Output:
// This is a simulated answer: no model was called. You said: "Is the gate open?"
// end_turn after 21 tokens
