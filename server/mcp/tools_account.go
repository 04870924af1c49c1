package mcp

import (
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
)

// modelsTool is list_models, which a model calls before it chooses one.
func modelsTool() *tool {
	kinds := make([]string, 0, len(gateway.Kinds()))
	for _, k := range gateway.Kinds() {
		kinds = append(kinds, string(k))
	}
	return &tool{
		name: "list_models", title: "List the models",
		description: "Lists the models that this key may use, the tools that take them, and what they cost. Costs nothing.",
		fields:      []field{{name: "kind", kind: stringKind, enum: kinds, description: "Only the models of this kind."}},
		output:      outputSchema[modelsResult](),
		run:         (*call).listModels,
	}
}

// modelsResult is the structured result of list_models.
type modelsResult struct {
	Models   []modelRow `json:"models"`
	Currency string     `json:"currency,omitzero" jsonschema:"what the prices are in"`
	Others   bool       `json:"others" jsonschema:"models that are not listed can be called too"`
}

// modelRow is one model.
type modelRow struct {
	ID         string     `json:"id" jsonschema:"what the argument model is given"`
	Name       string     `json:"name" jsonschema:"what it is called"`
	Kind       string     `json:"kind,omitzero" jsonschema:"what it makes; absent where that is not known"`
	Tools      []string   `json:"tools" jsonschema:"the tools that take it"`
	Prices     []priceRow `json:"prices,omitzero" jsonschema:"what it costs; absent where it has no price and costs nothing"`
	MaxOutput  int64      `json:"max_output,omitzero" jsonschema:"the most tokens of an answer"`
	Dimensions []int64    `json:"dimensions,omitzero" jsonschema:"the lengths that its vectors can have"`
	Voices     []string   `json:"voices,omitzero" jsonschema:"its voices; the first is the usual one"`
}

// priceRow is one price of a model.
type priceRow struct {
	Unit    string `json:"unit" jsonschema:"input, cached_input, output, image_input or image_output tokens, image, second, character, search_unit, or request"`
	Variant string `json:"variant,omitzero" jsonschema:"of seconds: the videos that it is for, such as 720p"`
	Amount  string `json:"amount" jsonschema:"a decimal number"`
	Per     int64  `json:"per" jsonschema:"for how many units that is"`
}

func (c *call) listModels() (*sdk.CallToolResult, error) {
	list, err := c.catalogOf(c.ctx, c.entry.Principal())
	if err != nil {
		return nil, err
	}
	result := modelsResult{Models: []modelRow{}, Currency: c.currency(), Others: !list.complete}
	var lines []string
	for _, m := range list.models {
		if c.args.has("kind") && string(m.Kind) != c.args.text("kind") {
			continue
		}
		row := c.modelRow(m)
		result.Models = append(result.Models, row)
		lines = append(lines, row.line(result.Currency))
	}
	if len(lines) == 0 {
		lines = []string{"There is no such model that this key may use."}
	}
	if result.Others {
		lines = append(lines, "Other models can be called too, by the names that their vendors give them.")
	}
	return success(result, textContent("%s", strings.Join(lines, "\n"))), nil
}

// modelRow is a model with the tools that take it: all tools where its kind is not known.
func (c *call) modelRow(m gateway.Model) modelRow {
	row := modelRow{
		ID: m.ID, Name: m.DisplayName, Kind: string(m.Kind), Tools: []string{},
		MaxOutput: m.MaxOutput, Dimensions: m.Dimensions, Voices: m.Voices,
	}
	for _, t := range c.tools {
		if t.models != nil && (m.Kind == "" || t.models(m)) {
			row.Tools = append(row.Tools, t.name)
		}
	}
	for _, r := range c.g.Price(m.ID).Rates() {
		row.Prices = append(row.Prices, priceRow{string(r.Unit), r.Variant, r.Amount, r.Unit.Per()})
	}
	return row
}

// line is the model for a reader.
func (r *modelRow) line(currency string) string {
	var prices []string
	for _, p := range r.Prices {
		unit := p.Unit
		if p.Variant != "" {
			unit += " " + p.Variant
		}
		if p.Per > 1 {
			unit = "million " + unit
		}
		prices = append(prices, fmt.Sprintf("%s %s per %s", p.Amount, currency, unit))
	}
	if prices == nil {
		prices = []string{"no price"}
	}
	return fmt.Sprintf("%s (%s): %s", r.ID, strings.Join(r.Tools, ", "), strings.Join(prices, ", "))
}

// The argument of estimate_cost that holds those of the other tool.
const argumentsField = "arguments"

// estimateTool is estimate_cost. It takes the arguments of the other tool as one object, which
// that tool's own fields check.
func estimateTool() *tool {
	return &tool{
		name: "estimate_cost", title: "Estimate a cost",
		description: "Says what a call of another tool would cost, before it is made, and whether its arguments are right. Costs nothing and makes nothing.",
		fields: []field{
			{name: "tool", kind: stringKind, required: true, description: "The tool that is to be called.", enum: []string{
				"chat", "generate_image", "edit_image", "generate_video", "create_embeddings", "rerank", "text_to_speech",
			}},
			{name: argumentsField, kind: object, required: true, description: "The arguments that it is to be called with, model among them."},
		},
		output: outputSchema[estimateResult](),
		run:    (*call).estimate,
	}
}

// estimateResult is the structured result of estimate_cost.
type estimateResult struct {
	Tool     string           `json:"tool"`
	Model    string           `json:"model"`
	Exact    bool             `json:"exact" jsonschema:"whether a call that succeeds costs just most; else it costs what it then uses, at most that"`
	Open     bool             `json:"open" jsonschema:"whether the call can cost more than most, since no max_tokens bounds it"`
	Most     string           `json:"most" jsonschema:"what is set aside while the call runs and, unless open, the most that it can cost; a decimal number"`
	Least    string           `json:"least" jsonschema:"what the account must have left for the call to begin"`
	Currency string           `json:"currency,omitzero" jsonschema:"what the amounts are in"`
	Usage    map[string]int64 `json:"usage" jsonschema:"what most pays for, by unit"`
}

// estimate makes the request that the other tool would make, and asks the gateway what it
// holds for it. Nothing is held.
func (c *call) estimate() (*sdk.CallToolResult, error) {
	name := c.args.text("tool")
	t := c.tools[slices.IndexFunc(c.tools, func(t *tool) bool { return t.name == name })] // one of the enum
	a, err := parseArguments(t.arguments(), c.args.values[argumentsField])
	if err != nil {
		return nil, nestedArgument(err)
	}
	q, err := t.request(a)
	if err != nil {
		return nil, nestedArgument(err)
	}
	e, err := c.entry.Estimate(c.ctx, q)
	if err != nil {
		return nil, err
	}
	result := estimateResult{
		Tool: name, Model: e.Model, Exact: e.Exact, Open: e.Open, Most: e.Most.String(), Least: e.Least.String(),
		Currency: c.currency(), Usage: units(e.Usage),
	}
	words := "It costs what it uses, at most %s %s; the account must have %s."
	switch {
	case e.Open:
		words = "It costs what it uses, and can cost more than the %s %s that are set aside: give max_tokens to bound it. The account must have %s."
	case e.Exact:
		words = "It costs %s %s if it succeeds; the account must have %s."
	}
	return success(result, textContent("%s", fmt.Sprintf(words, result.Most, result.Currency, result.Least))), nil
}

// nestedArgument names an argument of the other tool as it stands here.
func nestedArgument(err error) error {
	f := fault.From(err)
	if f.Param == "" {
		return f
	}
	return f.With(func(e *fault.Error) { e.Param = argumentsField + "." + f.Param })
}

// defaultDays is how far back get_balance looks by default.
const defaultDays = 30

func balanceTool() *tool {
	return &tool{
		name: "get_balance", title: "Show the balance",
		description: "Says what the key's account has left and what it has used, by model. Costs nothing.",
		fields: []field{
			{name: "days", kind: integer, min: 1, max: 366, description: "How many days of use are summed up.", defaultValue: defaultDays},
		},
		output: outputSchema[balanceResult](),
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
	reports, ok := c.g.Meter().(billing.Reports)
	if !ok {
		return nil, fault.New(fault.NotFound, "This gateway keeps no ledger, so there is no balance.")
	}
	account := c.entry.Principal().Account
	days := int64(defaultDays)
	if c.args.has("days") {
		days = c.args.count("days")
	}
	balance, err := reports.Balance(c.ctx, account)
	if err != nil {
		return nil, err
	}
	rows, err := reports.Usage(c.ctx, billing.Query{
		Account: account, By: billing.ByModel, Since: time.Now().AddDate(0, 0, -int(days)),
	})
	if err != nil {
		return nil, err
	}
	result := balanceResult{Account: account, Currency: reports.Currency(), Billing: "prepaid", Days: days, Used: []usageRow{}}
	if reports.Counting() {
		result.Billing = "count"
	} else {
		result.Posted, result.Held, result.Available = balance.Posted.String(), balance.Held.String(), balance.Available().String()
	}
	for _, r := range rows {
		result.Used = append(result.Used, usageRow{r.Group, r.Requests, units(r.Usage), r.Charge.String()})
	}
	return success(result, textContent("%s", result.text())), nil
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
