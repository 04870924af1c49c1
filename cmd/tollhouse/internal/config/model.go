package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	gateway "github.com/tollhouse-ai/gateway"
)

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
