package mcp

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
)

// tool is one row of the table of tools. A tool that costs money has request, which makes a
// request of the API, and answer, which makes a result of its answer. Any other has run.
type tool struct {
	name, title, description string
	fields                   []field
	models                   func(gateway.Model) bool // those that its argument "model" may name
	output                   any                      // the JSON Schema of the structured result

	request func(a arguments) (*gateway.Request, error)
	answer  func(c *call, r *gateway.Response) (*sdk.CallToolResult, error)
	run     func(c *call) (*sdk.CallToolResult, error)
}

// paid reports whether a call costs money.
func (t *tool) paid() bool { return t.request != nil }

// tools is the table of tools.
func tools() []*tool {
	return []*tool{
		chatTool(), imageTool(), editTool(), videoTool(), getVideoTool(), embeddingsTool(), rerankTool(), speechTool(),
		modelsTool(), estimateTool(), balanceTool(),
	}
}

// modelField is the argument that names the model.
func modelField(about string) field {
	return field{name: "model", kind: stringKind, required: true, description: about + " list_models says what each costs."}
}

// field is one argument of a tool.
type field struct {
	name         string
	kind         kind
	description  string // for the model that fills it in
	required     bool
	enum         []string // the values of a text; nil for any
	min          int64    // of a number, or fewest members
	max          int64    // of a number, most members, or most characters; 0 for any
	defaultValue any      // what leaving it out means, for the reader; nil says nothing
}

// kind is the type of an argument.
type kind string

const (
	stringKind kind = "string"
	integer    kind = "integer"
	number     kind = "number"
	boolean    kind = "boolean"
	stringList kind = "array" // of texts
	object     kind = "object"
)

// labelField is the argument of each tool that costs money.
var labelField = field{
	name: "task_label", kind: stringKind, max: 128,
	description: "A short name that you choose for this one piece of work, such as \"cover-image-1\". Keep it when you repeat the call with " +
		"the same arguments, for instance after a time-out: the work is then done and paid once, and you get the first answer. " +
		"Use another one for other work. It is remembered for 24 hours.",
}

// schema returns the JSON Schema of the argument for a key that may use the models of c.
func (f *field) schema(t *tool, c catalog) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: string(f.kind), Description: f.description}
	for _, v := range f.enum {
		s.Enum = append(s.Enum, v)
	}
	low, high := float64(f.min), float64(f.max)
	most := int(f.max)
	switch f.kind {
	case stringKind:
		if f.max > 0 {
			s.MaxLength = &most
		}
		if f.required {
			s.MinLength = new(1)
		}
	case integer, number:
		s.Minimum = &low
		if f.max > 0 {
			s.Maximum = &high
		}
	case stringList:
		s.Items = &jsonschema.Schema{Type: string(stringKind)}
		s.MinItems = new(1)
		if f.max > 0 {
			s.MaxItems = &most
		}
	}
	if f.defaultValue != nil {
		s.Default, _ = json.Marshal(f.defaultValue) // a constant of the table
	}
	if f.name == "model" && t.models != nil {
		t.listModels(s, c)
	}
	return s
}

// listModels lists the models that there are to choose from: all of them, or
// some where others can be called too.
func (t *tool) listModels(s *jsonschema.Schema, c catalog) {
	ids, all := c.modelsFor(t.models)
	var list []any
	for _, id := range ids {
		list = append(list, id)
	}
	switch {
	case len(ids) == 0:
		s.Description += " None that this key may use is listed."
	case all:
		s.Enum = list
	default:
		s.Examples = list
	}
}

// describe is the tool as a client sees it.
func (t *tool) describe(c catalog) *sdk.Tool {
	in := &jsonschema.Schema{
		Type: "object", Properties: make(map[string]*jsonschema.Schema), AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
	}
	for _, f := range t.arguments() {
		in.Properties[f.name] = f.schema(t, c)
		in.PropertyOrder = append(in.PropertyOrder, f.name)
		if f.required {
			in.Required = append(in.Required, f.name)
		}
	}
	open, destroys := t.paid(), false
	return &sdk.Tool{
		Name: t.name, Title: t.title, Description: t.description, InputSchema: in, OutputSchema: t.output,
		Annotations: &sdk.ToolAnnotations{Title: t.title, ReadOnlyHint: !t.paid(), IdempotentHint: !t.paid(), DestructiveHint: &destroys, OpenWorldHint: &open},
	}
}

// arguments are the fields of the tool, with the one that all paid tools have.
func (t *tool) arguments() []field {
	if !t.paid() {
		return t.fields
	}
	return append(slices.Clone(t.fields), labelField)
}

// fieldNames is a list for a sentence.
func fieldNames(fields []field) string {
	var list []string
	for _, f := range fields {
		list = append(list, f.name)
	}
	return strings.Join(list, ", ")
}

// outputSchema is the JSON Schema of a Go type. The type is one of this package, so
// that it has one.
func outputSchema[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		return &jsonschema.Schema{Type: "object", Description: fmt.Sprint(err)}
	}
	dropNull(s)
	return s
}

// dropNull takes the null off lists and objects, which are never null here.
func dropNull(s *jsonschema.Schema) {
	if s == nil {
		return
	}
	if n := slices.Index(s.Types, "null"); n >= 0 && len(s.Types) == 2 {
		s.Type, s.Types = s.Types[1-n], nil
	}
	for _, p := range s.Properties {
		dropNull(p)
	}
	dropNull(s.Items)
}

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
			return a, fault.Wrap(fault.InvalidRequest, "The arguments must be one JSON object without duplicate names.", err)
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
			return a, fault.Invalid(name[:min(len(name), 64)], fmt.Sprintf("There is no argument %q. This tool takes: %s.", safetext.Quoted(name), fieldNames(fields)))
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

// checkText checks the characters and not the bytes of a text, as JSON Schema counts them.
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
	if f.enum != nil && !slices.Contains(f.enum, s) {
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

// checkTexts leaves the lengths of the texts to the rules of the model.
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

// request is the request of an operation. Its bytes are always the same for the same
// arguments, so that a repeated call is known again.
func (b body) request(op upstream.Op) (*gateway.Request, error) {
	data, err := json.Marshal(b, json.Deterministic(true))
	if err != nil {
		return nil, fault.Wrap(fault.InvalidRequest, "The arguments cannot be written as JSON.", err)
	}
	return &gateway.Request{Op: op, Body: data}, nil
}

// refuseArguments is the error of arguments that the model has no use for.
func refuseArguments(a arguments, model, reason string, names ...string) error {
	for _, name := range names {
		if a.has(name) {
			return fault.Invalid(name, fmt.Sprintf("The model %q does not take %q%s.", safetext.Quoted(model), name, reason))
		}
	}
	return nil
}
