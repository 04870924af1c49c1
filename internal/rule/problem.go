package rule

import (
	"fmt"

	"github.com/tollhouse-ai/gateway/fault"
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
