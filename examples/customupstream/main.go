// Command customupstream serves a model that is a Go function: it gets the same
// checks, streams and receipts as a vendor's model.
package main

import (
	"context"
	"fmt"
	"log"
	"strings"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

func main() {
	// A channel names the model; next to it may stand channels of vendors.
	router, err := router.New([]router.Channel{{
		Name: "in-process", Upstream: chat.Serve(reverse), Models: map[string]string{"reverser": "reverser"},
	}}, router.Options{})
	if err != nil {
		log.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{Upstream: router})
	if err != nil {
		log.Fatal(err)
	}
	for _, text := range []string{"bridge the over", " "} {
		fmt.Println(ask(context.Background(), g, text))
	}
}

// reverse is the model. It says what it used, as a vendor would: without that
// the gateway would have to estimate. A *fault.Error reaches the caller as it
// is; another error would become a 500 that tells nothing.
func reverse(_ context.Context, r *chat.Request) (*chat.Response, error) {
	words := strings.Fields(r.Messages[len(r.Messages)-1].Content.String())
	if len(words) == 0 {
		return nil, fault.Invalid("messages", "Say at least one word.")
	}
	answer := make([]string, 0, len(words))
	for _, w := range words {
		answer = append([]string{w}, answer...)
	}
	return &chat.Response{
		ID: "reversed", Object: "chat.completion", Model: r.Model,
		Choices: []chat.Choice{{
			Message:      chat.Message{Role: "assistant", Content: chat.Text(strings.Join(answer, " "))},
			FinishReason: "stop",
		}},
		Usage: &chat.Usage{
			PromptTokens: int64(len(words)), CompletionTokens: int64(len(answer)), TotalTokens: int64(2 * len(words)),
		},
	}, nil
}

func ask(ctx context.Context, g *gateway.Gateway, text string) string {
	answer, err := g.Chat(ctx, &chat.Request{
		Model: "reverser", Messages: []chat.Message{{Role: "user", Content: chat.Text(text)}},
	})
	if f := fault.From(err); f != nil {
		return fmt.Sprintf("%d %s", f.HTTPStatus(), f.Message)
	}
	return answer.Choices[0].Message.Content.String()
}

// Output:
// over the bridge
// 400 Say at least one word.
