package gateway_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// TestACallCostsAtMostWhatItsContextSays: a vendor that would make 1,000 words is asked for
// fewer, in money: 1.00 for a million tokens of input and 2.00 of output.
func TestACallCostsAtMostWhatItsContextSays(t *testing.T) {
	long := strings.Repeat("word ", 1_000)
	endless := sim.New(sim.Options{Text: func(*chat.Request) string { return long }})
	dropping, err := router.New([]router.Channel{
		{Name: "x", Upstream: endless, Models: map[string]string{gatewaytest.Model: "m"}, Drop: []string{"max_tokens"}},
	}, router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	counting := memory.NewLedger(memory.LedgerOptions{Count: true})
	for _, c := range []struct {
		name      string
		most      billing.Money
		maxTokens int64
		meter     billing.Meter
		up        upstream.Upstream
		refused   bool
		whole     bool // the answer has all 1,000 words
	}{
		{name: "enough", most: billing.One, whole: true},
		{name: "less than the answer", most: 200_000},
		{name: "less than the caller's bound", most: 200_000, maxTokens: 900},
		{name: "more than the caller's bound", most: billing.One, maxTokens: 900},
		{name: "less than the input", most: 2_000, refused: true},
		{name: "nothing", most: 0, refused: true},
		{name: "less than nothing", most: -5, refused: true},
		{name: "of a ledger that counts", most: 200_000, meter: counting},
		{name: "a vendor that is not told", most: 200_000, up: dropping, refused: true},
	} {
		for _, stream := range []bool{false, true} {
			name := c.name
			if stream {
				name += ", streamed"
			}
			t.Run(name, func(t *testing.T) {
				g := gatewaytest.New(t, func(o *gateway.Options) {
					o.Upstream = endless
					if c.up != nil {
						o.Upstream = c.up
					}
					if c.meter != nil {
						o.Meter = c.meter
					}
				})
				ctx := gateway.WithMaxCost(t.Context(), c.most)
				text, err := answerText(g, ctx, stream, &chat.Request{
					Model: gatewaytest.Model, MaxTokens: c.maxTokens, Messages: []chat.Message{{Role: "user", Content: chat.Text("Hello.")}},
				})
				f := fault.From(err)
				if c.refused {
					if !errors.Is(err, fault.BudgetExceeded) || f.HTTPStatus() != 402 || f.Param != "X-Gateway-Max-Cost" || len(gatewaytest.Charges(t)) > 0 {
						t.Errorf("got %v, receipts %+v", err, gatewaytest.Charges(t))
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				receipts := gatewaytest.Charges(t)
				if len(receipts) != 1 || receipts[0].Charge > c.most || receipts[0].Charge == 0 {
					t.Errorf("receipts %+v, of at most %s", receipts, c.most)
				}
				if words := strings.Count(text, "word"); (words == 1_000) != c.whole || words == 0 {
					t.Errorf("%d words", words)
				}
			})
		}
	}
}

// answerText is the text of an answer.
func answerText(g *gateway.Gateway, ctx context.Context, stream bool, r *chat.Request) (string, error) {
	if !stream {
		answer, err := g.Chat(ctx, r)
		if err != nil {
			return "", err
		}
		return answer.Choices[0].Message.Content.String(), nil
	}
	s, err := g.ChatStream(ctx, r)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for chunk, err := range s.Chunks() {
		if err != nil {
			return "", err
		}
		for _, choice := range chunk.Choices {
			text.WriteString(choice.Delta.Content.String())
		}
	}
	return text.String(), nil
}

// A vendor that makes more than it was asked for is cut where the money ends.
func TestAStreamOfAVendorThatIgnoresItsBoundIsCutAtTheMaxCost(t *testing.T) {
	long := strings.Repeat("word ", 20_000)
	up := chat.ServeStream(nil, func(ctx context.Context, r *chat.Request) iter.Seq2[*chat.Chunk, error] {
		return func(yield func(*chat.Chunk, error) bool) {
			for word := range strings.SplitAfterSeq(long, " ") {
				if !yield(&chat.Chunk{Model: r.Model, Choices: []chat.ChunkChoice{{Delta: chat.Message{Content: chat.Text(word)}}}}, nil) {
					return
				}
			}
		}
	})
	g := gatewaytest.New(t, func(o *gateway.Options) { o.Upstream = up })
	const most = 3_000_000 // 1,500 tokens of output
	_, err := answerText(g, gateway.WithMaxCost(t.Context(), most), true, &chat.Request{
		Model: gatewaytest.Model, Messages: []chat.Message{{Role: "user", Content: chat.Text("Hello.")}},
	})
	receipts := gatewaytest.Charges(t)
	if len(receipts) != 1 || receipts[0].Charge > most || receipts[0].Charge < most*9/10 {
		t.Errorf("%v; receipts %+v, of at most %s", err, receipts, billing.Money(most))
	}
}

func TestMaxCostsOfOtherRequests(t *testing.T) {
	g := gatewaytest.New(t)
	ctx := gateway.WithMaxCost(gateway.WithMaxCost(t.Context(), 30_000), billing.One) // the lower one holds
	input := embeddings.Text("one two three")
	if _, err := g.Embeddings(ctx, &embeddings.Request{Model: gatewaytest.Model, Input: input}); err != nil {
		t.Errorf("3 tokens for 30,000: %v", err)
	}
	_, err := g.Do(ctx, gateway.Caller{}, &gateway.Request{Op: upstream.Embeddings, Body: []byte(`{"model":"test-model","input":"` + strings.Repeat("many words ", 100) + `"}`)})
	if !errors.Is(err, fault.BudgetExceeded) {
		t.Errorf("more than 30,000: %v", err)
	}
	if _, err := g.Chat(ctx, &chat.Request{Model: "free-model", Messages: []chat.Message{{Role: "user", Content: chat.Text("Hello.")}}}); err != nil {
		t.Errorf("a model without a price: %v", err)
	}
}
