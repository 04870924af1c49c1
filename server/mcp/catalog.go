package mcp

import (
	"context"
	"slices"
	"strings"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/images"
)

// catalog is what one key may use.
type catalog struct {
	models []gateway.Model // sorted by id
	closed bool            // there are no others
}

// catalogOf is that of a principal.
func (b *box) catalogOf(ctx context.Context, p *auth.Principal) (catalog, error) {
	models, err := b.g.Models(auth.NewContext(ctx, p))
	return catalog{models, b.g.ListsAllModels()}, err
}

// name tells catalogs apart.
func (c catalog) name() string {
	var s strings.Builder
	for _, m := range c.models {
		s.WriteString(m.ID)
		s.WriteByte(' ')
		s.WriteString(string(m.Kind))
		s.WriteByte('\n')
	}
	if c.closed {
		s.WriteByte('.')
	}
	return s.String()
}

// of are the ids of the models that a tool takes. They are all only if each
// model's kind is known.
func (c catalog) of(takes func(gateway.Model) bool) (ids []string, all bool) {
	all = c.closed
	for _, m := range c.models {
		switch {
		case m.Kind == "":
			all = false
		case takes(m):
			ids = append(ids, m.ID)
		}
	}
	return ids, all
}

// kinds is the rule of a tool whose models are of these kinds.
func kinds(kinds ...gateway.Kind) func(gateway.Model) bool {
	return func(m gateway.Model) bool { return slices.Contains(kinds, m.Kind) }
}

// generates reports whether a model makes pictures from a text alone.
func generates(m gateway.Model) bool {
	_, row, _ := imageModel(m.ID)
	return m.Kind == gateway.KindImage && row.Fewest == 0
}

// edits reports whether a model changes pictures.
func edits(m gateway.Model) bool {
	f, row, known := imageModel(m.ID)
	switch m.Kind {
	case gateway.KindImageEdit:
		return true
	case gateway.KindImage:
		return !known || f.Edit != nil || row.Largest > 0
	}
	return false
}

// imageModel is the family of an image model and its row there. One that no
// table describes has the form that its name says (decisions.md, Images).
func imageModel(id string) (images.Family, images.Model, bool) {
	for _, f := range images.Families() {
		for _, m := range f.Models {
			if m.ID == id {
				return f, m, true
			}
		}
	}
	return images.Family{Messages: strings.HasPrefix(id, "alpha-")}, images.Model{ID: id}, false
}
