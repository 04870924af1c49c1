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
	if p.first != nil {
		return
	}
	p.Refuse(param, fmt.Sprintf("%q must be %s.", param, must))
}

// Found reports whether there is one. Who reads on then only checks the syntax.
func (p *Problem) Found() bool { return p.first != nil }

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

// MaxElements is how many messages, content blocks, tools and tool calls a request
// may have in all, and how many elements any other list that is decoded.
const MaxElements = 16_384

// Elements counts the messages, content blocks, tools and tool calls of a request.
type Elements struct{ count int }

// Add counts one more in the field called param, and notes and reports false if
// the request has more than [MaxElements].
func (e *Elements) Add(p *Problem, param string) bool {
	if e.count++; e.count <= MaxElements {
		return true
	}
	if !p.Found() {
		p.Refuse(param, fmt.Sprintf("The request has more than %d messages, content blocks, tools and tool calls in all; %q has one too many.", MaxElements, param))
	}
	return false
}

// Schema notes a JSON Schema that is too large to be decoded, and reports whether
// it is not.
func (p *Problem) Schema(param string, raw []byte) bool {
	const most = 256 << 10
	if len(raw) <= most {
		return true
	}
	p.Refuse(param, fmt.Sprintf("%q is %d bytes long; a JSON Schema may have at most %d.", param, len(raw), most))
	return false
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
