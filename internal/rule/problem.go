package rule

import (
	"fmt"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Problem is the first rule that a request breaks. The zero value is none.
type Problem struct{ first *fault.Error }

// Note keeps a problem, unless there is one: must completes "… must be".
func (p *Problem) Note(param, must string) {
	p.Refuse(param, fmt.Sprintf("%q must be %s.", param, must))
}

// Refuse is Note in words of one's own.
func (p *Problem) Refuse(param, message string) {
	if p.first == nil {
		p.first = fault.Invalid(param, message)
	}
}

// Fail keeps a problem that has a code of its own, unless there is one.
func (p *Problem) Fail(e *fault.Error) {
	if p.first == nil {
		p.first = e
	}
}

// Adopt keeps the problem of a part, unless there is one.
func (p *Problem) Adopt(part Problem) {
	if p.first == nil {
		p.first = part.first
	}
}

// Obeys notes a value that breaks the table's rule of its name, and reports
// whether it obeys it. raw is valid JSON and not null.
func (p *Problem) Obeys(t Table, name string, raw []byte) bool {
	check, ok := t.Find(name)
	if !ok || check.OK(raw) {
		return true
	}
	p.Note(name, check.Text)
	return false
}

// AllObey is [Problem.Obeys] of the members of an object that the table names,
// prefix before their names. A null counts as absent.
func (p *Problem) AllObey(t Table, o *rawjson.Object, prefix string) bool {
	all := true
	for _, f := range t {
		if raw := o.Raw(f.Name); !rawjson.IsNull(raw) && !f.Check.OK(raw) {
			p.Note(prefix+f.Name, f.Check.Text)
			all = false
		}
	}
	return all
}

// Err is the problem; nil if there is none.
func (p *Problem) Err() error {
	if p.first == nil {
		return nil
	}
	return p.first
}

// NoModel is the refusal of a request that names no model.
func NoModel() error {
	return fault.Invalid("model", `"model" is missing: it names the model, and GET /v1/models lists those that there are.`)
}
