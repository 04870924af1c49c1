package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	gateway "github.com/tollhouse-ai/gateway"
)

// kindNames are the kinds of server.md, of which this version need not serve
// all, and laterFacts what it lets one say of models that are to come.
var (
	kindNames  = []string{"chat", "messages", "embeddings", "image", "image_edit", "video", "speech"}
	laterFacts = []string{"ratios", "priorities"}
)

// models reads what the file says of models.
func (r *reader) models(n ast.Node) []Model {
	var models []Model
	for _, p := range r.pairs(n, "models") {
		m := Model{Pos: p.at, Model: gateway.Model{ID: p.key}}
		var batch int64
		known := fields{
			"kind":        into(r, &m.Kind, "kind", kind),
			"max_output":  r.count(&m.MaxOutput, "max_output"),
			"hold_tokens": r.count(&m.HoldTokens, "hold_tokens"),
			"batch":       r.count(&batch, "batch"),
			"dimensions":  r.dimensions(&m.Dimensions),
			"voices":      r.words(&m.Voices, "voices"),
			"withdrawn":   into(r, &m.Withdrawn, "withdrawn", parseDate),
		}
		for _, fact := range laterFacts {
			known[fact] = func(n ast.Node) {
				r.problems.add(place(n), "%s belongs to kinds of models that are not part of this version yet", fact)
			}
		}
		r.object(p.value, "a model", known)
		m.Batch = int(batch)
		models = append(models, m)
	}
	return models
}

func kind(text string) (gateway.Kind, error) {
	switch {
	case slices.Contains(gateway.Kinds(), gateway.Kind(text)):
		return gateway.Kind(text), nil
	case slices.Contains(kindNames, text):
		return "", fmt.Errorf("models of kind %s are not part of this version yet", text)
	}
	return "", errors.New("it must be one of " + strings.Join(kindNames, ", "))
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
