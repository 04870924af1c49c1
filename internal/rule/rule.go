// Package rule holds the checks in the tables of request fields.
package rule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// Check is one rule about a JSON value. Text says what is right, as a sentence
// that completes "must be …"; OK decides. raw is valid JSON and never null.
type Check struct {
	Text string
	OK   func(raw []byte) bool
}

// Field is a row of a table: the field's name and its rule.
type Field struct {
	Name  string
	Check Check
}

// Table is the rules of the members of an object, each looked at in its turn. Where
// the members are also decoded, see [Fields].
type Table []Field

// Number allows numbers in [low, high].
func Number(low, high float64) Check {
	return Check{fmt.Sprintf("a number from %s to %s", decimal(low), decimal(high)), func(raw []byte) bool {
		f, ok := rawjson.Float(raw)
		return ok && f >= low && f <= high
	}}
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// Integer allows integers in [low, high], spelled without point or exponent.
func Integer(low, high int64) Check {
	return Check{fmt.Sprintf("an integer from %d to %d", low, high), func(raw []byte) bool {
		n, ok := rawjson.Int(raw)
		return ok && n >= low && n <= high
	}}
}

// Bool allows true and false.
func Bool() Check {
	return Check{"true or false", func(raw []byte) bool { return raw[0] == 't' || raw[0] == 'f' }}
}

// String allows any string.
func String() Check {
	return Check{"a string", func(raw []byte) bool { return raw[0] == '"' }}
}

// NonEmptyString allows any string but the empty one.
func NonEmptyString() Check {
	return Check{"a non-empty string", func(raw []byte) bool { return raw[0] == '"' && len(raw) > 2 }}
}

// Object allows any object.
func Object() Check {
	return Check{"an object", func(raw []byte) bool { return raw[0] == '{' }}
}

// Array allows any array.
func Array() Check {
	return Check{"an array", func(raw []byte) bool { return raw[0] == '[' }}
}

// OneOf allows exactly these strings.
func OneOf(words ...string) Check {
	return Check{Words(words), func(raw []byte) bool {
		s, ok := rawjson.String(raw)
		return ok && slices.Contains(words, s)
	}}
}

// Words lists words for a message: "a", "b" or "c".
func Words(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	if len(quoted) < 2 {
		return strings.Join(quoted, "")
	}
	last := len(quoted) - 1
	return strings.Join(quoted[:last], ", ") + " or " + quoted[last]
}

// StringOrStrings allows a string, or an array of at most most strings.
func StringOrStrings(most int) Check {
	return Check{fmt.Sprintf("a string or an array of at most %d strings", most), func(raw []byte) bool {
		strings := true
		count := rawjson.Each(raw, func(_ int, at rawjson.Span) { strings = strings && raw[at.Start] == '"' })
		return raw[0] == '"' || strings && count >= 0 && count <= most
	}}
}

// Strings allows an array of at most most strings.
func Strings(most int) Check {
	either := StringOrStrings(most)
	return Check{fmt.Sprintf("an array of at most %d strings", most), func(raw []byte) bool { return raw[0] == '[' && either.OK(raw) }}
}

// ModelID allows the id of a model.
func ModelID() Check {
	const most = 256 // bytes: it ends up in logs and receipts
	return Check{fmt.Sprintf("a non-empty string of at most %d bytes without a NUL", most), func(raw []byte) bool {
		id, ok := rawjson.String(raw)
		return ok && id != "" && len(id) <= most && strings.IndexByte(id, 0) < 0
	}}
}

// Problem is the first rule that a request breaks. The zero value means that it breaks none.
type Problem struct{ first *fault.Error }

// Note keeps a problem, unless there is one: must completes "… must be".
func (p *Problem) Note(param, must string) {
	if p.first != nil {
		return
	}
	p.Refuse(param, fmt.Sprintf("%q must be %s.", param, must))
}

// Found reports whether there is one. Further reading then only checks the syntax.
func (p *Problem) Found() bool { return p.first != nil }

// Refuse is Note in words of one's own.
func (p *Problem) Refuse(param, message string) {
	if p.first == nil {
		p.first = fault.Invalid(param, message)
	}
}

// Fail keeps a problem with its own code, unless there is a problem already.
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

// AllObey notes the first row of the table whose rule a member of the object breaks, with
// prefix before its name. It reports whether all members obey. A null counts as absent.
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

// MaxElements is the most messages, content blocks, tools and tool calls of a request
// together. It is also the most elements of any other list that is decoded.
const MaxElements = 16_384

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

// Err returns the problem, or nil.
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
