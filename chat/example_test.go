package chat_test

import (
	"context"
	"fmt"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// asking is a request of one message.
func asking(text string) *chat.Request {
	return &chat.Request{Model: "my-model", Messages: []chat.Message{{Role: "user", Content: chat.Text(text)}}}
}

// The first answer lacks a field. It is sent back once, and the second one fits.
func ExampleInto() {
	type Toll struct {
		Pence int    `json:"pence"`
		For   string `json:"for" jsonschema:"what is paid for"`
	}
	g, err := gateway.New(gateway.Options{Upstream: sim.Script(
		sim.Step{Text: `{"pence": 6}`},
		sim.Step{Text: "```json\n" + `{"pence": 6, "for": "two horses"}` + "\n```"},
	)})
	if err != nil {
		fmt.Println(err)
		return
	}
	toll, _, err := chat.Into[Toll](context.Background(), g, asking("What do two horses pay?"))
	fmt.Printf("%+v %v\n", toll, err)
	// Output:
	// {Pence:6 For:two horses} <nil>
}

// The model calls the tool twice in one answer: both calls run together.
func ExampleLoop() {
	g, err := gateway.New(gateway.Options{Upstream: sim.Script(
		sim.Step{Calls: []chat.ToolCall{
			{Function: chat.CalledFunction{Name: "toll", Arguments: `{"horses":2}`}},
			{Function: chat.CalledFunction{Name: "toll", Arguments: `{"horses":"four"}`}},
		}},
		sim.Step{Text: "Two horses pay 6 pence."},
	)})
	if err != nil {
		fmt.Println(err)
		return
	}
	type Cart struct {
		Horses int `json:"horses"`
	}
	toll := chat.NewTool("toll", "The toll of a cart, in pence.", func(_ context.Context, c Cart) (int, error) {
		return 3 * c.Horses, nil
	})
	for step, err := range chat.Loop(context.Background(), g, asking("What do horses pay?"), []chat.Tool{toll}, chat.LoopOptions{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, result := range step.Results {
			fmt.Printf("%.40s\n", result.Content)
		}
		fmt.Println(step.Response.Choices[0].Message.Content)
	}
	// Output:
	// 6
	// error: the arguments do not fit the sche
	//
	// Two horses pay 6 pence.
}

// Text yields what the model says while it does. Message is all of it, for the next request.
func ExampleStream_Message() {
	g, err := gateway.New(gateway.Options{Upstream: sim.Script(sim.Step{Text: "The gate is open."})})
	if err != nil {
		fmt.Println(err)
		return
	}
	stream, err := g.ChatStream(context.Background(), asking("Is it open?"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for text, err := range stream.Text() {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("[%s]", text)
	}
	said, err := stream.Message()
	fmt.Printf("\n%s: %s %v\n", said.Role, said.Content, err)
	// Output:
	// [The][ gate][ is][ open][.]
	// assistant: The gate is open. <nil>
}
