package mcp

import (
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
)

func modelsTool() *tool {
	kinds := make([]string, 0, len(gateway.Kinds()))
	for _, k := range gateway.Kinds() {
		kinds = append(kinds, string(k))
	}
	return &tool{
		name: "list_models", title: "List the models",
		about:  "Lists the models that this key may use, the tools that take them, and what they cost. Costs nothing.",
		fields: []field{{name: "kind", kind: text, enum: kinds, about: "Only the models of this kind."}},
		output: outputOf[modelsResult](),
		run:    (*call).listModels,
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
	Unit    string `json:"unit" jsonschema:"input, cached_input, output, image_input or image_output tokens, image, second, or character"`
	Variant string `json:"variant,omitzero" jsonschema:"of seconds: the videos that it is for, such as 720p"`
	Amount  string `json:"amount" jsonschema:"a decimal number"`
	Per     int64  `json:"per" jsonschema:"for how many units that is"`
}

func (c *call) listModels() (*sdk.CallToolResult, error) {
	list, err := c.catalogOf(c.ctx, c.x.Principal())
	if err != nil {
		return nil, err
	}
	result := modelsResult{Models: []modelRow{}, Currency: c.currency(), Others: !list.closed}
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
	return success(result, say("%s", strings.Join(lines, "\n"))), nil
}

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
		row.Prices = append(row.Prices, priceRow{string(r.Unit), r.Variant, r.Amount, per(r.Unit)})
	}
	return row
}

// per is how many units a price is for (server.md, prices).
func per(u billing.Unit) int64 {
	switch u {
	case billing.Image, billing.Second:
		return 1
	}
	return 1_000_000
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
