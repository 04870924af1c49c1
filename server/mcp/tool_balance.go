package mcp

import (
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// usualDays is how far back get_balance looks if nobody says.
const usualDays = 30

func balanceTool() *tool {
	return &tool{
		name: "get_balance", title: "Show the balance",
		about: "Says what the key's account has left and what it has used, by model. Costs nothing.",
		fields: []field{
			{name: "days", kind: integer, low: 1, high: 366, about: "How many days of use are summed up.", preset: usualDays},
		},
		output: outputOf[balanceResult](),
		run:    (*call).balance,
	}
}

// balanceResult is the structured result of get_balance.
type balanceResult struct {
	Account   string     `json:"account"`
	Currency  string     `json:"currency"`
	Billing   string     `json:"billing" jsonschema:"prepaid: calls are paid from the balance; count: use is recorded and no money moves"`
	Posted    string     `json:"posted,omitzero" jsonschema:"what is in the account, as a decimal number"`
	Held      string     `json:"held,omitzero" jsonschema:"what of it is set aside for calls that run"`
	Available string     `json:"available,omitzero" jsonschema:"what can be spent"`
	Days      int64      `json:"days" jsonschema:"how many days of use are summed up"`
	Used      []usageRow `json:"used"`
}

// usageRow is what one model was used for.
type usageRow struct {
	Model    string           `json:"model"`
	Requests int64            `json:"requests"`
	Units    map[string]int64 `json:"units"`
	Charge   string           `json:"charge"`
}

func (c *call) balance() (*sdk.CallToolResult, error) {
	books, ok := c.g.Meter().(billing.Reports)
	if !ok {
		return nil, fault.New(fault.NotFound, "No books are kept here, so there is no balance.")
	}
	account := c.x.Principal().Account
	days := int64(usualDays)
	if c.args.has("days") {
		days = c.args.count("days")
	}
	balance, err := books.Balance(c.ctx, account)
	if err != nil {
		return nil, err
	}
	rows, err := books.Usage(c.ctx, billing.Query{
		Account: account, By: billing.ByModel, Since: time.Now().AddDate(0, 0, -int(days)),
	})
	if err != nil {
		return nil, err
	}
	result := balanceResult{Account: account, Currency: books.Currency(), Billing: "prepaid", Days: days, Used: []usageRow{}}
	if books.Counting() {
		result.Billing = "count"
	} else {
		result.Posted, result.Held, result.Available = balance.Posted.String(), balance.Held.String(), balance.Available().String()
	}
	for _, r := range rows {
		result.Used = append(result.Used, usageRow{r.Group, r.Requests, units(r.Usage), r.Charge.String()})
	}
	return success(result, say("%s", result.text())), nil
}

// text is the balance for a reader.
func (r *balanceResult) text() string {
	lines := []string{"Use is recorded and no money moves."}
	if r.Available != "" {
		lines[0] = fmt.Sprintf("%s %s can be spent; %s is in the account, %s of it set aside for calls that run.", r.Available, r.Currency, r.Posted, r.Held)
	}
	for _, u := range r.Used {
		lines = append(lines, fmt.Sprintf("%s: %d calls for %s %s in %d days", u.Model, u.Requests, u.Charge, r.Currency, r.Days))
	}
	return strings.Join(lines, "\n")
}
