package responses

import (
	"bytes"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// fields is the table of the request's fields. `input` has rules of its own in
// parse.go; a field that is not listed passes unseen.
var fields = rule.Fields[Request]{
	{Name: "model", Check: rule.ModelID(), Into: func(r *Request) any { return &r.Model }},
	{Name: "instructions", Check: rule.String(), Into: func(r *Request) any { return (*jsontext.Value)(&r.Instructions) }},
	{Name: "max_output_tokens", Check: rule.Integer(1, math.MaxInt32), Into: func(r *Request) any { return &r.MaxOutputTokens }},
	{Name: "stream", Then: func(r *Request, raw []byte) { r.ReadStream(raw, &r.Stream) }},
	{Name: "stream_options", Check: rule.Object()},
	{Name: "temperature", Check: rule.Number(0, 2), Into: func(r *Request) any { return &r.Temperature }},
	{Name: "top_p", Check: rule.Number(0, 1), Into: func(r *Request) any { return &r.TopP }},
	{Name: "top_logprobs", Check: rule.Integer(0, 20), Into: func(r *Request) any { return &r.TopLogprobs }},
	{Name: "tools", Check: rule.Array(), Into: func(r *Request) any { return &r.Tools }, Then: func(r *Request, raw []byte) { r.checkTools("tools", raw, nil) }},
	{Name: "tool_choice", Check: toolChoice(), Into: func(r *Request) any { return &r.ToolChoice }},
	{Name: "parallel_tool_calls", Check: rule.Bool(), Into: func(r *Request) any { return &r.ParallelToolCalls }},
	{Name: "reasoning", Check: rule.Object(), Then: func(r *Request, raw []byte) { rule.Part(&r.Problem, "reasoning", raw, reasoningFields, &r.Reasoning) }},
	{Name: "text", Check: rule.Object(), Then: (*Request).readText},
	{Name: "include", Check: rule.Strings(64), Into: func(r *Request) any { return &r.Include }},
	{Name: "store", Check: rule.Bool(), Into: func(r *Request) any { return &r.Store }},
	{Name: "previous_response_id", Check: rule.ModelID(), Into: func(r *Request) any { return &r.PreviousResponseID }},
	{Name: "prompt_cache_key", Check: rule.String(), Into: func(r *Request) any { return &r.PromptCacheKey }},
	{Name: "prompt_cache_retention", Check: rule.String()},
	{Name: "safety_identifier", Check: rule.String()},
	{Name: "service_tier", Check: rule.String(), Into: func(r *Request) any { return &r.ServiceTier }},
	{Name: "truncation", Check: rule.OneOf("auto", "disabled"), Into: func(r *Request) any { return &r.Truncation }},
	{Name: "user", Check: rule.String(), Into: func(r *Request) any { return &r.User }},
	{Name: "max_tool_calls", Check: rule.Integer(1, math.MaxInt32)},
	{Name: "metadata", Check: rule.Object(), Into: func(r *Request) any { return &r.Metadata }, Then: (*Request).checkMetadata},
	{Name: "background", Then: unsupported("background")},
	{Name: "conversation", Then: unsupported("conversation")},
	{Name: "prompt", Then: unsupported("prompt")},
	{Name: "context_management", Then: unsupported("context_management")},
	{Name: "moderation", Then: unsupported("moderation")},
}

// The tables of the objects among them.
var (
	reasoningFields = rule.Table{
		{Name: "effort", Check: rule.String()},
		{Name: "summary", Check: rule.String()},
	}
	textFields = rule.Table{
		{Name: "format", Check: rule.Object()},
		{Name: "verbosity", Check: rule.OneOf("low", "medium", "high")},
	}
	formatFields = rule.Table{
		{Name: "type", Check: rule.OneOf("text", "json_object", "json_schema")},
		{Name: "name", Check: rule.NonEmptyString()},
		{Name: "description", Check: rule.String()},
		{Name: "schema", Check: rule.Object()},
		{Name: "strict", Check: rule.Bool()},
	}
	toolFields = rule.Table{
		{Name: "type", Check: rule.NonEmptyString()},
		{Name: "name", Check: rule.NonEmptyString()},
		{Name: "description", Check: rule.String()},
		{Name: "parameters", Check: rule.Object()},
		{Name: "tools", Check: rule.Array()},
	}
)

// unsupported refuses a field with any value but false.
func unsupported(name string) func(r *Request, raw []byte) {
	return func(r *Request, raw []byte) {
		if string(raw) == "false" {
			return
		}
		r.Problem.Fail(&fault.Error{
			Code: fault.UnsupportedParameter, Param: name, Retry: fault.RetryNo,
			Message: fmt.Sprintf("The field %q is not supported by this gateway. Leave it out.", name),
		})
	}
}

// toolChoice allows the three words, or an object with a type.
func toolChoice() rule.Check {
	words := rule.OneOf("auto", "none", "required")
	return rule.Check{Text: words.Text + `, or an object with a type such as {"type":"function","name":…}`, OK: func(raw []byte) bool {
		if raw[0] != '{' {
			return words.OK(raw)
		}
		return rawjson.LookupString(raw, "type") != ""
	}}
}

// readText reads text. Its format has a type, and a json_schema a name and a schema.
func (r *Request) readText(raw []byte) {
	text, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return // the table of fields refused it
	}
	if format := text.Raw("format"); !rawjson.IsNull(format) && format[0] == '{' {
		const name = "text.format"
		o, err := rawjson.Index(format, nil, nil)
		if err != nil || !r.Problem.AllObey(formatFields, &o, name+".") {
			return
		}
		needs := []string{"type"}
		if kind, _ := rawjson.String(o.Raw("type")); kind == "json_schema" {
			needs = []string{"name", "schema"}
			defer func() { r.Problem.JSONSchema(name+".schema", o.Raw("schema")) }()
		}
		for _, member := range needs {
			if rawjson.IsNull(o.Raw(member)) {
				r.Problem.Note(name+"."+member, "given")
			}
		}
	}
	rule.Part(&r.Problem, "text", raw, textFields, &r.Text)
}

// checkMetadata checks how much a caller notes on a request.
func (r *Request) checkMetadata(raw []byte) {
	const mostPairs, longestKey, longestValue = 16, 64, 512
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return // the table of fields refused it
	}
	if len(o.Members) > mostPairs {
		r.Problem.Note("metadata", fmt.Sprintf("an object of at most %d members", mostPairs))
		return
	}
	for i := range o.Members {
		m := &o.Members[i]
		value, ok := rawjson.String(m.Value.Of(raw))
		if !ok || utf8.RuneCountInString(m.Name) > longestKey || utf8.RuneCountInString(value) > longestValue {
			r.Problem.Note("metadata", fmt.Sprintf("an object whose names have at most %d characters and whose values are strings of at most %d", longestKey, longestValue))
			return
		}
	}
}

// toolRules are those of a tool: what is read of it is said once, and spelled exactly.
var toolRules = &rawjson.Rules{Once: true, Billed: []string{"type", "name", "description", "parameters", "tools", "format", "execution"}}

// translatedTool is how many more tokens a tool may have in chat than it has bytes here. They
// are the schema of a custom tool's input, or the name of its namespace.
const translatedTool = 64

// What a tool is estimated to have more in chat, in quarters of a token. wrapping is the
// object in it; customInput is the schema of a custom tool's input, with what leads to its
// grammar. emptySchema is the schema of a function without one, and longestName the most of
// the name of its namespace.
const wrapping, customInput, emptySchema, longestName = 16, 190, 42, 64

// checkTools checks the form of tools, those of a namespace included. They are objects with a
// type, and with a name unless the vendor runs them itself. namespace is the name of their
// namespace, as JSON; nil without one.
func (r *Request) checkTools(name string, raw, namespace []byte) {
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	r.EachObject(name, raw, func(raw []byte, param string) {
		if err := rawjson.IndexInto(o, raw, toolRules, nil); err != nil {
			r.Problem.Refuse(param, fmt.Sprintf("%q is not acceptable: %s.", param, rawjson.Inside(err)))
			return
		}
		r.CacheControls(o, param)
		kind, _ := rawjson.String(o.Raw("type"))
		if kind == "" {
			r.Problem.Note(param+".type", `a string such as "function"`)
			return
		}
		if kind, ok := hostedTool(o); ok {
			r.hosted.note(kind)
			r.noteShared(o, param)
			return
		}
		switch {
		case !r.Problem.AllObey(toolFields, o, param+"."):
		case kind == "namespace" && namespace != nil:
			r.Problem.Note(param+".type", `"function" or "custom" within a namespace`)
		case kind == "namespace":
			r.needName(o, param)
			if tools := o.Raw("tools"); !rawjson.IsNull(tools) {
				r.checkTools(param+".tools", tools, bytes.Clone(o.Raw("name")))
			}
			return
		case kind == "function" || kind == "custom":
			r.needName(o, param)
		}
		r.hosted.clients++
		r.Grow(translatedTool)
		switch r.Quarters += wrapping + min(tokencount.StringQuarters(namespace), longestName); {
		case kind == "custom":
			r.Quarters += customInput
		case rawjson.IsNull(o.Raw("parameters")):
			r.Quarters += emptySchema
		}
		r.Problem.Schema(param+".parameters", o.Raw("parameters"))
	})
}

// needName notes a tool without a name.
func (r *Request) needName(o *rawjson.Object, param string) {
	if rawjson.IsNull(o.Raw("name")) {
		r.Problem.Note(param+".name", rule.NonEmptyString().Text)
	}
}

// Validate reports the first rule that the request breaks, as an
// invalid_request_error that names the field.
func (r *Request) Validate() error {
	if r.Model == "" {
		r.Problem.Note("model", "given: the id of a model")
	}
	if !r.hasInput && r.PreviousResponseID == "" {
		r.Problem.Note("input", "given: a non-empty string or a non-empty array of items")
	}
	return r.Problem.Err()
}
