// Command responses talks to a chat model by /v1/responses. It streams an answer that
// calls a tool, and sends its items back with the tool's output.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/go-json-experiment/json/jsontext"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/examples/internal/vendor"
	"github.com/tollhouse-ai/gateway/responses"
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
	items := []responses.Item{{Type: "message", Role: "user", Content: responses.ContentText("What is the toll for a horse?")}}
	r := &responses.Request{
		Model: vendor.Model(), Input: responses.Items(items...),
		Tools: jsontext.Value(`[{"type":"function","name":"toll","description":"The toll of an animal.","parameters":
			{"type":"object","properties":{"animal":{"type":"string"}},"required":["animal"]}}]`),
	}
	stream, err := g.ResponsesStream(context.Background(), r)
	if err != nil {
		log.Fatal(err)
	}
	first, err := stream.Response() // or range over stream.Events()
	if err != nil {
		log.Fatal(err)
	}
	items = append(items, first.Output...)
	for _, item := range first.Output {
		if item.Type == "function_call" {
			fmt.Printf("the model calls %s(%s)\n", item.Name, item.ArgumentsText())
			items = append(items, responses.Item{Type: "function_call_output", CallID: item.CallID, Output: responses.ContentText("two pence")})
		}
	}
	r.Input = responses.Items(items...)
	answer, err := g.Responses(context.Background(), r)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Text())
	fmt.Printf("%d tokens in, %d out, dropped: %v\n", answer.Usage.InputTokens, answer.Usage.OutputTokens, answer.Dropped)
}

// Output:
// the model calls toll({"animal":"simulated"})
// This is a simulated answer: no model was called. The tool answered: "two pence"
// 102 tokens in, 19 out, dropped: []
