package mcp

import (
	"fmt"
	"slices"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
)

// The argument of estimate_cost that holds those of the other tool.
const argumentsField = "arguments"

func estimateTool() *tool {
	return &tool{
		name: "estimate_cost", title: "Estimate a cost",
		about: "Says what a call of another tool would cost, before it is made, and whether its arguments are right. Costs nothing and makes nothing.",
		fields: []field{
			{name: "tool", kind: text, required: true, about: "The tool that is to be called.", enum: []string{
				"chat", "generate_image", "edit_image", "generate_video", "create_embeddings", "text_to_speech",
			}},
			{name: argumentsField, kind: object, required: true, about: "The arguments that it is to be called with, model among them."},
		},
		output: outputOf[estimateResult](),
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

func (c *call) estimate() (*sdk.CallToolResult, error) {
	name := c.args.text("tool")
	t := c.tools[slices.IndexFunc(c.tools, func(t *tool) bool { return t.name == name })] // one of the enum
	a, err := read(t.arguments(), c.args.values[argumentsField])
	if err != nil {
		return nil, within(err)
	}
	q, err := t.ask(a)
	if err != nil {
		return nil, within(err)
	}
	var e gateway.Estimate
	if q.form != nil {
		e, err = c.x.EstimateForm(q.op, q.form)
	} else {
		e, err = c.x.Estimate(q.op, q.body)
	}
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
	return success(result, say("%s", fmt.Sprintf(words, result.Most, result.Currency, result.Least))), nil
}

// within names an argument of the other tool as it stands here.
func within(err error) error {
	f := fault.From(err)
	if f.Param == "" {
		return f
	}
	return f.With(func(e *fault.Error) { e.Param = argumentsField + "." + f.Param })
}
