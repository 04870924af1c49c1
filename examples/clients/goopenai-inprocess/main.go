// Command goopenai-inprocess drives the gateway with go-openai and no socket: its client is
// answered in the same process.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"

	"github.com/sashabaranov/go-openai"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/examples/internal/vendor"
	"github.com/tollhouse-ai/gateway/goopenai"
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
	if err := ask(context.Background(), goopenai.NewClient(g)); err != nil {
		log.Fatal(err)
	}
}

func ask(ctx context.Context, client *openai.Client) error {
	request := openai.ChatCompletionRequest{
		Model:    vendor.Model(),
		Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "Is the gate open?"}},
	}
	answer, err := client.CreateChatCompletion(ctx, request)
	if err != nil {
		return err
	}
	fmt.Println("whole: ", answer.Choices[0].Message.Content)

	stream, err := client.CreateChatCompletionStream(ctx, request)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	fmt.Print("stream: ")
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			fmt.Println()
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Print(chunk.Choices[0].Delta.Content)
	}
}

// Output:
// whole:  This is a simulated answer: no model was called. You said: "Is the gate open?"
// stream: This is a simulated answer: no model was called. You said: "Is the gate open?"
