package mcp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
)

// tool is one row of the table of tools. One that costs money has request, which
// makes a request of the API, and answer, which makes a result of its answer; any
// other has run.
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
		chatTool(), imageTool(), editTool(), videoTool(), getVideoTool(), embeddingsTool(), speechTool(),
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

// schema is the JSON Schema of the argument, for who may use the models of c.
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
			s.MinLength = jsonschema.Ptr(1)
		}
	case integer, number:
		s.Minimum = &low
		if f.max > 0 {
			s.Maximum = &high
		}
	case stringList:
		s.Items = &jsonschema.Schema{Type: string(stringKind)}
		s.MinItems = jsonschema.Ptr(1)
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
