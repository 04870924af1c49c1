package images

import "github.com/tollhouse-ai/gateway/internal/rule"

// Unpriced refuses the first member that chooses another model or account than
// the gateway has priced, unless pass lets it through. pass gets the name as the
// table spells it and as the caller does.
func (r *Request) Unpriced(pass func(name, spelled string) bool) error {
	return rule.CheckRouting(&r.parsed.object, rule.Other, pass)
}

// Unpriced is [Request.Unpriced] of an edit's form.
func (e *Edit) Unpriced(pass func(name, spelled string) bool) error {
	for i := range e.form.Parts {
		p := &e.form.Parts[i]
		if p.Size == 0 {
			continue
		}
		if err := rule.CheckRoutingField(p.Name, pass); err != nil {
			return err
		}
	}
	return nil
}
