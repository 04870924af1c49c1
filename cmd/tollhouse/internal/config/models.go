package config

import (
	"errors"
	"math"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
)

// prices reads the price rows. Each cell is checked by itself, so that a problem has
// the cell's position.
func (r *reader) prices(to map[string]Price) field {
	return func(n ast.Node, name string) {
		for _, model := range r.pairs(n, name, nil) {
			to[model.key] = r.price(model)
		}
	}
}

// price reads one row. An empty one is refused, since it would make the model free without
// a word of it.
func (r *reader) price(model pair) Price {
	p := Price{Pos: model.at}
	before := len(r.problems)
	cells := r.pairs(model.value, "the price of "+model.key, nil)
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
	return p
}

// cell reads the amount of one unit, or one for each variant of it.
func (r *reader) cell(cell pair) []billing.Rate {
	unit := billing.Unit(cell.key)
	switch r.resolve(cell.value).(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		var rates []billing.Rate
		for _, v := range r.pairs(cell.value, cell.key, nil) {
			rates = append(rates, r.rate(unit, v.key, v)...)
		}
		return rates
	}
	return r.rate(unit, "", cell)
}

// rate reads one decimal; a wrong one gives none.
func (r *reader) rate(unit billing.Unit, variant string, from pair) []billing.Rate {
	amount, ok := r.text(from.value, from.key, nil)
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
func (r *reader) models(to *[]Model) field {
	return func(n ast.Node, name string) {
		for _, p := range r.pairs(n, name, nil) {
			m := Model{Pos: p.at, Model: gateway.Model{ID: p.key}}
			r.object(p.value, "a model", fields{
				"kind":        into(r, &m.Kind, oneOf[gateway.Kind](gateway.Kinds())),
				"max_output":  r.count(&m.MaxOutput),
				"hold_tokens": r.count(&m.HoldTokens),
				"batch":       whole(r, &m.Batch, 0, math.MaxInt32, ", 0 or more"),
				"dimensions": r.list(func(n ast.Node, name string) {
					var length int64
					r.count(&length)(n, name)
					m.Dimensions = append(m.Dimensions, length)
				}),
				"voices":     r.words(&m.Voices),
				"ratios":     r.ratios(&m.Ratios),
				"priorities": r.words(&m.Priorities),
				"withdrawn":  into(r, &m.Withdrawn, parseDate),
				"reasoning":  into(r, &m.Reasoning, oneOf[gateway.Reasoning](gateway.Reasonings())),
				"affinity":   into(r, &m.Affinity, oneOf[gateway.Affinity](gateway.Affinities())),
			})
			*to = append(*to, m)
		}
	}
}

// parseDate reads a day or a moment.
func parseDate(text string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("write a day such as 2026-12-31")
}

// ratios reads a list of words such as "16:9", which YAML takes for a mapping without
// quotes.
func (r *reader) ratios(to *[]string) field {
	return r.list(func(n ast.Node, name string) {
		if _, single := scalar(r.resolve(n)); !single {
			r.problems.add(position(n), `an item of ratios must be in quotes, such as "16:9"`)
			return
		}
		var ratio string
		r.word(&ratio)(n, name)
		*to = append(*to, ratio)
	})
}
