package mcp

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/word"
)

// arguments are those of one call, each of the kind that its field says.
type arguments struct {
	values map[string]jsontext.Value
	stream bool // the answer is wanted as it comes
}

// parseArguments checks what a model filled in. Its errors are for the model.
func parseArguments(fields []field, data []byte) (arguments, error) {
	a := arguments{values: make(map[string]jsontext.Value)}
	if len(data) > 0 {
		if err := json.Unmarshal(data, &a.values); err != nil {
			return a, fault.Wrap(fault.InvalidRequest, "The arguments must be one JSON object in which no name stands twice.", err)
		}
	}
	known := make(map[string]bool, len(fields))
	for i := range fields {
		f := &fields[i]
		known[f.name] = true
		v, given := a.values[f.name]
		if given && v.Kind() == 'n' {
			delete(a.values, f.name)
			given = false
		}
		if !given {
			if f.required {
				return a, fault.Invalid(f.name, fmt.Sprintf("The argument %q is missing.", f.name))
			}
			continue
		}
		v, err := f.check(v)
		if err != nil {
			return a, err
		}
		a.values[f.name] = v
	}
	for name := range a.values {
		if !known[name] {
			return a, fault.Invalid(name[:min(len(name), 64)], fmt.Sprintf("There is no argument %q. This tool takes: %s.", clip(name), fieldNames(fields)))
		}
	}
	return a, nil
}

// check gives the value as the API's bodies have it.
func (f *field) check(v jsontext.Value) (jsontext.Value, error) {
	switch f.kind {
	case stringKind:
		return v, f.checkText(v)
	case integer, number:
		return f.checkNumber(v)
	case boolean:
		if v.Kind() != 't' && v.Kind() != 'f' {
			return v, f.wrong("true or false")
		}
	case stringList:
		return v, f.checkTexts(v)
	case object:
		if v.Kind() != '{' {
			return v, f.wrong("an object")
		}
	}
	return v, nil
}

func (f *field) wrong(right string) error {
	return fault.Invalid(f.name, fmt.Sprintf("The argument %q must be %s.", f.name, right))
}

func (f *field) checkText(v jsontext.Value) error {
	var s string
	if v.Kind() != '"' || json.Unmarshal(v, &s) != nil {
		return f.wrong("a text")
	}
	switch {
	case s == "" && f.required:
		return f.wrong("a text that is not empty")
	case f.max > 0 && int64(utf8.RuneCountInString(s)) > f.max:
		return f.wrong(fmt.Sprintf("at most %d characters long", f.max))
	}
	for _, word := range f.enum {
		if s == word {
			return nil
		}
	}
	if f.enum != nil {
		return f.wrong("one of " + strings.Join(f.enum, ", "))
	}
	return nil
}

// checkNumber takes 5.0 for a whole number, as JSON Schema does.
func (f *field) checkNumber(v jsontext.Value) (jsontext.Value, error) {
	n, err := strconv.ParseFloat(string(v), 64)
	whole := f.kind == integer
	bounds := "at least " + strconv.FormatInt(f.min, 10)
	if f.max > 0 {
		bounds = fmt.Sprintf("from %d to %d", f.min, f.max)
	}
	const exact = 1 << 53
	switch {
	case v.Kind() != '0' || err != nil || whole && (n != math.Trunc(n) || math.Abs(n) > exact):
		if whole {
			return v, f.wrong("a whole number " + bounds)
		}
		return v, f.wrong("a number " + bounds)
	case n < float64(f.min), f.max > 0 && n > float64(f.max):
		return v, f.wrong(bounds)
	case whole:
		return jsontext.Value(strconv.FormatInt(int64(n), 10)), nil
	}
	return v, nil
}

func (f *field) checkTexts(v jsontext.Value) error {
	var list []jsontext.Value
	if v.Kind() != '[' || json.Unmarshal(v, &list) != nil {
		return f.wrong("a list of texts")
	}
	if len(list) == 0 || f.max > 0 && int64(len(list)) > f.max {
		return f.wrong(fmt.Sprintf("a list of 1 to %d texts", max(f.max, 1)))
	}
	for _, member := range list {
		if member.Kind() != '"' {
			return f.wrong("a list of texts")
		}
	}
	return nil
}

// has reports whether the model filled the argument in.
func (a arguments) has(name string) bool { return a.values[name] != nil }

// text is that of an argument; empty if it was left out.
func (a arguments) text(name string) (s string) {
	_ = json.Unmarshal(a.values[name], &s) // checked before
	return s
}

// list is that of an argument; nil if it was left out.
func (a arguments) list(name string) (s []string) {
	_ = json.Unmarshal(a.values[name], &s) // checked before
	return s
}

// truth is that of an argument; false if it was left out.
func (a arguments) truth(name string) bool { return a.values[name].Kind() == 't' }

// count is that of an argument; 0 if it was left out.
func (a arguments) count(name string) (n int64) {
	_ = json.Unmarshal(a.values[name], &n) // checked before
	return n
}

// body is the JSON of a request.
type body map[string]any

// copy copies arguments that the API has under the same name.
func (b body) copy(a arguments, names ...string) body {
	for _, name := range names {
		b.copyAs(a, name, name)
	}
	return b
}

// copyAs copies an argument to a member of another name.
func (b body) copyAs(a arguments, name, member string) {
	if v := a.values[name]; v != nil {
		b[member] = v
	}
}

// bytes are always the same for the same arguments, so that a repeated call is
// known again.
func (b body) bytes() ([]byte, error) {
	data, err := json.Marshal(b, json.Deterministic(true))
	if err != nil {
		return nil, fault.Wrap(fault.InvalidRequest, "The arguments cannot be written as JSON.", err)
	}
	return data, nil
}

// refuseArguments is the error of arguments that the model has no use for.
func refuseArguments(a arguments, model, reason string, names ...string) error {
	for _, name := range names {
		if a.has(name) {
			return fault.Invalid(name, fmt.Sprintf("The model %q does not take %q%s.", clip(model), name, reason))
		}
	}
	return nil
}

// clip bounds a text of the caller's in a message.
func clip(s string) string { return word.Truncate(s, 100) }
