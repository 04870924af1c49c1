package mcp

import (
	"fmt"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// paid is what each result of a paid tool says of its price.
type paid struct {
	RequestID string           `json:"request_id" jsonschema:"the id by which the charge is found"`
	Charge    string           `json:"charge,omitzero" jsonschema:"what the call cost, as a decimal number; absent until that is known"`
	Currency  string           `json:"currency,omitzero" jsonschema:"what the charge is in"`
	Usage     map[string]int64 `json:"usage,omitzero" jsonschema:"what is charged for, by unit: tokens (input, output, ...), images, seconds or characters"`
	Estimated bool             `json:"estimated,omitzero" jsonschema:"the vendor did not say what was used, so that it was counted here"`
	Replayed  bool             `json:"replayed,omitzero" jsonschema:"this is the answer to an earlier call with the same task_label, which was not charged again"`
	Dropped   []string         `json:"dropped,omitzero" jsonschema:"arguments that the model's vendor does not take and did not get"`
}

// receipt is what is known of the call's price now.
func (c *call) receipt(r *gateway.Result) paid {
	p := paid{RequestID: c.x.ID, Currency: c.currency()}
	if r != nil {
		p.Replayed, p.Dropped = r.Replayed, r.Dropped
	}
	receipt, ok := c.x.Receipt()
	if !ok {
		return p
	}
	if p.Replayed {
		p.RequestID = receipt.ID
	}
	p.Charge, p.Usage, p.Estimated = receipt.Charge.String(), units(receipt.Usage), receipt.Usage.Estimated
	return p
}

func units(u billing.Usage) map[string]int64 {
	counts := make(map[string]int64)
	for unit, n := range u.Units {
		counts[string(unit)] = n
	}
	return counts
}

// currency is that of the account's books; empty where none are kept.
func (b *box) currency() string {
	if books, ok := b.g.Meter().(billing.Reports); ok {
		return books.Currency()
	}
	return ""
}

// line is the receipt for a reader.
func (p paid) line() string {
	s := "request_id: " + p.RequestID
	if p.Charge != "" {
		s += fmt.Sprintf(", charge: %s %s", p.Charge, p.Currency)
	}
	if p.Replayed {
		s += " (paid by the first call with this task_label)"
	}
	return s
}

// success is a result: what there is to see, then the receipt.
func success(structured any, content ...sdk.Content) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: content, StructuredContent: structured}
}

func say(format string, args ...any) sdk.Content {
	return &sdk.TextContent{Text: fmt.Sprintf(format, args...)}
}

// fits refuses a result that is larger than a client is likely to take. It was
// charged all the same.
func (c *call) fits(size int64, advice string) error {
	if size <= c.o.MaxResult {
		return nil
	}
	return fault.New(fault.RequestTooLarge, fmt.Sprintf("The result has more than %d bytes, which is more than a tool may give. %s", c.o.MaxResult, advice))
}
