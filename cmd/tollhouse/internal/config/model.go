package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	gateway "github.com/tollhouse-ai/gateway"
)

// laterKinds are those that server.md names and that are to come, and
// laterFacts what it lets one say of such models.
var (
	laterKinds = []string{"messages", "embeddings", "image", "image_edit", "video", "speech"}
	laterFacts = []string{"ratios", "priorities", "voices", "batch", "dimensions"}
)

// models reads what the file says of models.
func (r *reader) models(n ast.Node) []Model {
	var models []Model
	for _, p := range r.pairs(n, "models") {
		m := Model{Pos: p.at, Model: gateway.Model{ID: p.key}}
		known := fields{
			"kind":        into(r, &m.Kind, "kind", kind),
			"max_output":  r.count(&m.MaxOutput, "max_output"),
			"hold_tokens": r.count(&m.HoldTokens, "hold_tokens"),
			"withdrawn":   into(r, &m.Withdrawn, "withdrawn", parseDate),
		}
		for _, fact := range laterFacts {
			known[fact] = func(n ast.Node) {
				r.problems.add(place(n), "%s belongs to kinds of models that are not part of this version yet", fact)
			}
		}
		r.object(p.value, "a model", known)
		models = append(models, m)
	}
	return models
}

func kind(text string) (gateway.Kind, error) {
	switch {
	case text == string(gateway.KindChat):
		return gateway.KindChat, nil
	case slices.Contains(laterKinds, text):
		return "", fmt.Errorf("models of kind %s are not part of this version yet; this one serves chat", text)
	}
	return "", errors.New("it must be one of chat, " + strings.Join(laterKinds, ", "))
}
