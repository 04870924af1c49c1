package config

import (
	"strings"

	"github.com/goccy/go-yaml/ast"

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
