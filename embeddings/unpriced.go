package embeddings

import "github.com/tollhouse-ai/gateway/internal/rule"

// Unpriced refuses the first member that chooses another model or account than
// the gateway has priced, unless pass lets it through. pass gets the name as the
// table spells it and as the caller does.
func (r *Request) Unpriced(pass func(name, spelled string) bool) error {
	return rule.CheckRouting(&r.parsed.object, rule.Other, pass)
}
