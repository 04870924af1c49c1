package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
)

// prices reads the price rows. Each cell is checked by itself, so that a
// mistake is found where it stands.
func (r *reader) prices(n ast.Node, to map[string]Price) {
	for _, model := range r.pairs(n, "prices") {
		p := Price{Pos: model.at}
		before := len(r.problems)
		cells := r.pairs(model.value, "the price of "+model.key)
		if len(cells) == 0 && len(r.problems) == before {
			r.problems.add(model.at, "the price of %s is empty; a free model has the price {input: \"0\"}", model.key)
		}
		for _, cell := range cells {
			p.Rates = append(p.Rates, r.cell(cell)...)
		}
		row, err := billing.NewPrice(p.Rates...)
		if err != nil {
			r.problems.add(model.at, "%v", err)
		}
		p.Row = row
		to[model.key] = p
	}
}

// cell reads the amount of one unit, or one for each variant of it.
func (r *reader) cell(cell pair) []billing.Rate {
	unit := billing.Unit(cell.key)
	switch r.resolve(cell.value).(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		var rates []billing.Rate
		for _, v := range r.pairs(cell.value, cell.key) {
			rates = append(rates, r.rate(unit, v.key, v)...)
		}
		return rates
	}
	return r.rate(unit, "", cell)
}

// rate reads one decimal; a wrong one gives none.
func (r *reader) rate(unit billing.Unit, variant string, from pair) []billing.Rate {
	amount, ok := r.text(from.value, from.key)
	if !ok {
		return nil
	}
	rate := billing.Rate{Unit: unit, Variant: variant, Amount: amount}
	if _, err := billing.NewPrice(rate); err != nil {
		at := position(from.value)
		if strings.HasPrefix(err.Error(), "unknown price unit") {
			at = from.at
		}
		r.problems.add(at, "%v", err)
		return nil
	}
	return []billing.Rate{rate}
}

// models reads what the file says of models.
func (r *reader) models(n ast.Node) []Model {
	var models []Model
	for _, p := range r.pairs(n, "models") {
		m := Model{Pos: p.at, Model: gateway.Model{ID: p.key}}
		var batch int64
		r.object(p.value, "a model", fields{
			"kind":        into(r, &m.Kind, "kind", kind),
			"max_output":  r.count(&m.MaxOutput, "max_output"),
			"hold_tokens": r.count(&m.HoldTokens, "hold_tokens"),
			"batch":       r.count(&batch, "batch"),
			"dimensions":  r.dimensions(&m.Dimensions),
			"voices":      r.words(&m.Voices, "voices"),
			"ratios":      r.ratios(&m.Ratios),
			"priorities":  r.words(&m.Priorities, "priorities"),
			"withdrawn":   into(r, &m.Withdrawn, "withdrawn", parseDate),
		})
		m.Batch = int(batch)
		models = append(models, m)
	}
	return models
}

func kind(text string) (gateway.Kind, error) {
	kinds := gateway.Kinds()
	if slices.Contains(kinds, gateway.Kind(text)) {
		return gateway.Kind(text), nil
	}
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = string(k)
	}
	return "", errors.New("it must be one of " + strings.Join(names, ", "))
}

// dimensions reads a list of whole numbers.
func (r *reader) dimensions(to *[]int64) func(ast.Node) {
	return func(n ast.Node) {
		r.list(n, "dimensions", func(n ast.Node) {
			var d int64
			r.count(&d, "a dimension")(n)
			*to = append(*to, d)
		})
	}
}

// ratios reads a list of words such as "16:9", which without quotes are taken for
// a mapping.
func (r *reader) ratios(to *[]string) func(ast.Node) {
	return func(n ast.Node) {
		r.list(n, "ratios", func(item ast.Node) {
			if _, single := scalar(r.resolve(item)); !single {
				r.problems.add(position(item), `an item of ratios must be in quotes, such as "16:9"`)
				return
			}
			var w string
			r.word(&w, "an item of ratios")(item)
			*to = append(*to, w)
		})
	}
}
