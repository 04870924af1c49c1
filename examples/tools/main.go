// Command tools lets the model call a Go function and answer with its result.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/examples/internal/vendor"
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
	if err := ask(context.Background(), g, "What is the toll of a cart with two horses?"); err != nil {
		log.Fatal(err)
	}
}

func ask(ctx context.Context, g *gateway.Gateway, question string) error {
	tools, err := chat.Tools(chat.Function{
		Name: "toll", Description: "The toll of a cart, in pence.",
		Parameters: []byte(`{"type":"object","properties":{"horses":{"type":"integer","minimum":2}},"required":["horses"]}`),
	})
	if err != nil {
		return err
	}
	request := &chat.Request{
		Model: vendor.Model(), Tools: tools,
		Messages: []chat.Message{{Role: "user", Content: chat.Text(question)}},
	}
	for range 4 { // a model that calls and calls must not cost for ever
		answer, err := g.Chat(ctx, request)
		if err != nil {
			return err
		}
		said := answer.Choices[0].Message
		if len(said.ToolCalls) == 0 {
			fmt.Println(said.Content)
			return nil
		}
		// The message goes back as it came, followed by one result for each call.
		request.Messages = append(request.Messages, said)
		for _, call := range said.ToolCalls {
			result := toll(call.Function.Arguments)
			fmt.Printf("%s(%s) = %s\n", call.Function.Name, call.Function.Arguments, result)
			request.Messages = append(request.Messages, chat.Message{
				Role: "tool", ToolCallID: call.ID, Content: chat.Text(result),
			})
		}
	}
	return errors.New("the model did not stop calling tools")
}

// toll is the tool. Its arguments come from a model and may be anything: what
// is wrong with them is the model's to hear.
func toll(arguments string) string {
	var in struct{ Horses int }
	if err := json.Unmarshal([]byte(arguments), &in); err != nil {
		return "bad arguments: " + err.Error()
	}
	return fmt.Sprintf("%d pence", 3*in.Horses)
}

// Output:
// toll({"horses":2}) = 6 pence
// This is a simulated answer: no model was called. The tool answered: "6 pence"
