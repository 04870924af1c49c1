package billing_test

import (
	"context"
	"fmt"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/store/memory"
)

// A request is held at its upper bound before it is sent and settled at what it
// used.
func Example() {
	ctx := context.Background()
	price, err := billing.NewPrice(
		billing.Rate{Unit: billing.Input, Amount: "0.60"}, // per million tokens
		billing.Rate{Unit: billing.Output, Amount: "2.50"},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	ledger := memory.NewLedger(memory.LedgerOptions{})
	if err := ledger.CreateAccount(ctx, "acme", billing.One); err != nil {
		fmt.Println(err)
		return
	}
	hold, err := ledger.Reserve(ctx, billing.HoldRequest{
		Account: "acme", RequestID: "req_1", Operation: "chat", Model: "delta-k3", Price: price,
		Bound: billing.Usage{Input: 1_000, Output: 4_096},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held", hold.Amount, "of", hold.Amount+hold.Available)

	receipt, err := ledger.Settle(ctx, hold, billing.Usage{Input: 812, Output: 150},
		billing.Outcome{Reason: billing.ReasonComplete, Channel: "main"})
	if err != nil {
		fmt.Println(err)
		return
	}
	balance, err := ledger.Balance(ctx, "acme")
	fmt.Println(receipt.Status, receipt.Charge, "left", balance.Available(), err)

	// Output:
	// held 0.01084 of 1.00
	// captured 0.0008622 left 0.9991378 <nil>
}
