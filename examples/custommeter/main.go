// Command custommeter bills in a currency of its own: every account may spend
// so many output tokens. The gateway's order of things stays: reserve before
// anything is sent, settle whatever happened.
package main

import (
	"context"
	"fmt"
	"log"
	"sync"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/examples/internal/vendor"
	"github.com/tollhouse-ai/gateway/fault"
)

// quota is a Meter. The number that it holds is the request's upper bound, so
// that requests at the same time cannot spend the same tokens.
type quota struct {
	mu   sync.Mutex
	left map[string]int64 // by account
	held map[string]int64 // by request
}

// Reserve takes the upper bound away; 402 where there is not so much left.
func (q *quota) Reserve(_ context.Context, c billing.HoldRequest) (billing.Hold, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.left[c.Account] < c.Bound.Output {
		return billing.Hold{}, fault.New(fault.InsufficientBalance, "Your tokens are used up.")
	}
	q.left[c.Account] -= c.Bound.Output
	q.held[c.RequestID] = c.Bound.Output
	return billing.Hold{ID: c.RequestID, Account: c.Account, Available: billing.Unlimited}, nil
}

// Extend is for holds of money that run short; this one never does.
func (q *quota) Extend(context.Context, billing.Hold, billing.Usage, billing.Money) error { return nil }

// Settle gives back what was not used. A second time it has nothing to give.
func (q *quota) Settle(_ context.Context, h billing.Hold, u billing.Usage, _ ...billing.Record) (billing.Receipt, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if held, ok := q.held[h.ID]; ok {
		q.left[h.Account] += held - u.Output
		delete(q.held, h.ID)
	}
	return billing.Receipt{ID: h.ID, Account: h.Account, Usage: u}, nil
}

func main() {
	up, err := vendor.New()
	if err != nil {
		log.Fatal(err)
	}
	q := &quota{left: map[string]int64{"acme": 100}, held: map[string]int64{}}
	g, err := gateway.New(gateway.Options{Upstream: up, Meter: q})
	if err != nil {
		log.Fatal(err)
	}
	ctx := auth.NewContext(context.Background(), &auth.Principal{Account: "acme"})
	for _, most := range []int64{90, 90} {
		_, err := g.Chat(ctx, &chat.Request{
			Model: vendor.Model(), MaxTokens: most,
			Messages: []chat.Message{{Role: "user", Content: chat.Text("May I pass?")}},
		})
		fmt.Printf("asked for %d, left %d, error: %v\n", most, q.left["acme"], err)
	}
}

// Output:
// asked for 90, left 80, error: <nil>
// asked for 90, left 80, error: insufficient_balance: Your tokens are used up.
