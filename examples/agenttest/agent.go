// Package agenttest is an agent that answers customers, and a test of it without a vendor: see
// agent_test.go.
package agenttest

import (
	"context"
	"fmt"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
)

// Order is what the agent looks up. The model gets its JSON Schema.
type Order struct {
	Number int `json:"number" jsonschema:"the number on the receipt"`
}

// Agent answers questions about orders.
type Agent struct {
	Caller chat.Caller // a *gateway.Gateway
	Model  string
	Orders map[int]string // what became of each order
}

// Answer answers a question, in at most five calls of the model that cost at most a cent.
func (a *Agent) Answer(ctx context.Context, question string) (string, billing.Money, error) {
	find := chat.NewTool("find_order", "What became of an order.", func(_ context.Context, o Order) (string, error) {
		state, ok := a.Orders[o.Number]
		if !ok {
			return "", fmt.Errorf("there is no order %d", o.Number)
		}
		return state, nil
	})
	request := &chat.Request{Model: a.Model, Messages: []chat.Message{
		{Role: "system", Content: chat.Text("You answer customers of a shop.")},
		{Role: "user", Content: chat.Text(question)},
	}}
	var last chat.Step
	for step, err := range chat.Loop(ctx, a.Caller, request, []chat.Tool{find}, chat.LoopOptions{MaxRounds: 5, MaxCost: billing.One / 100}) {
		if err != nil {
			return "", step.Cost, err
		}
		last = step
	}
	return last.Response.Choices[0].Message.Content.String(), last.Cost, nil
}
