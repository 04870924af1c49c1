// Command messages talks to a chat model by Anthropic's Messages. It streams an answer
// that calls a tool, and sends it back with the tool's result as the next turn.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/go-json-experiment/json/jsontext"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/examples/internal/vendor"
	"github.com/tollhouse-ai/gateway/messages"
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
	r := &messages.Request{
		Model: vendor.Model(), MaxTokens: 1024,
		Messages: []messages.Message{{Role: "user", Content: messages.Text("What is the toll for a horse?")}},
		Tools: jsontext.Value(`[{"name":"toll","description":"The toll of an animal.","input_schema":
			{"type":"object","properties":{"animal":{"type":"string"}},"required":["animal"]}}]`),
	}
	stream, err := g.MessagesStream(context.Background(), r)
	if err != nil {
		log.Fatal(err)
	}
	m, err := stream.Message() // or range over stream.Events()
	if err != nil {
		log.Fatal(err)
	}
	r.Messages = append(r.Messages, messages.Message{Role: m.Role, Content: messages.Blocks(m.Content...)})
	var results []messages.Block
	for _, b := range m.Content {
		if b.Type == "tool_use" {
			fmt.Printf("the model calls %s(%s)\n", b.Name, b.Input)
			results = append(results, messages.Block{Type: "tool_result", ToolUseID: b.ID, Content: messages.Text("two pence")})
		}
	}
	r.Messages = append(r.Messages, messages.Message{Role: "user", Content: messages.Blocks(results...)})
	answer, err := g.Messages(context.Background(), r)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(messages.Blocks(answer.Content...))
	fmt.Printf("%d tokens in, %d out, dropped: %v\n", answer.Usage.InputTokens, answer.Usage.OutputTokens, answer.Dropped)
}

// Output:
// the model calls toll({"animal":"simulated"})
// This is a simulated answer: no model was called. The tool answered: "two pence"
// 102 tokens in, 19 out, dropped: []
