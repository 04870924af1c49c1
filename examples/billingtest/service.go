// Package billingtest is a program that sells answers, and a test of what it
// charges: see service_test.go.
package billingtest

import (
	"context"
	"fmt"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/upstream"
)

// model is the one model that the service sells.
const model = "delta-k3"

// Service answers the questions of customers, each on an account of its own.
type Service struct{ gateway *gateway.Gateway }

// NewService returns a service in front of an upstream. What it is given decides
// whether it is the real one or one under test; the service itself is the same.
func NewService(up upstream.Upstream, meter billing.Meter) (*Service, error) {
	price, err := billing.NewPrice( // per million tokens
		billing.Rate{Unit: billing.Input, Amount: "1.00"},
		billing.Rate{Unit: billing.Output, Amount: "4.00"},
	)
	if err != nil {
		return nil, fmt.Errorf("price of %s: %w", model, err)
	}
	g, err := gateway.New(gateway.Options{
		Upstream: up, Meter: meter, RequirePrice: true, // a model without a price is no model
		Prices: billing.NewPriceList(map[string]*billing.Price{model: price}),
	})
	return &Service{g}, err
}

// Answer answers a question in at most so many tokens and says what it cost.
func (s *Service) Answer(ctx context.Context, customer, question string, most int64) (string, billing.Money, error) {
	ctx = auth.NewContext(ctx, &auth.Principal{Account: customer, Key: "service"})
	answer, err := s.gateway.Chat(ctx, &chat.Request{
		Model: model, MaxTokens: most,
		Messages: []chat.Message{{Role: "user", Content: chat.Text(question)}},
	})
	if err != nil {
		return "", 0, err
	}
	return answer.Choices[0].Message.Content.String(), answer.Charge, nil
}
