// Command embed is the smallest program with a gateway in it.
package main

import (
	"context"
	"fmt"
	"log"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

func main() {
	g, err := gateway.New(gateway.Options{Upstream: sim.New(sim.Options{})})
	if err != nil {
		log.Fatal(err)
	}
	question := chat.Message{Role: "user", Content: chat.Text("What does the bridge cost?")}
	answer, err := g.Chat(context.Background(), &chat.Request{Model: "delta-k3", Messages: []chat.Message{question}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Choices[0].Message.Content)
}

// Output:
// This is a simulated answer: no model was called. You said: "What does the bridge cost?"
