package chat

import (
	"fmt"
	"math"
	"net/http"
	"slices"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/safetext"
)

// fields is the table of the chat completion request. `messages` has rules of its own
// in parse.go; a field that is not listed passes unseen.
var fields = rule.Fields[Request]{
	{Name: "model", Check: rule.ModelID(), Into: func(r *Request) any { return &r.Model }},
	{Name: "temperature", Check: rule.Number(0, 2), Into: func(r *Request) any { return &r.Temperature }},
	{Name: "top_p", Check: rule.Number(0, 1), Into: func(r *Request) any { return &r.TopP }},
	{Name: "max_tokens", Check: rule.Integer(1, math.MaxInt32), Into: func(r *Request) any { return &r.MaxTokens }},
	{Name: "max_completion_tokens", Check: rule.Integer(1, math.MaxInt32), Into: func(r *Request) any { return &r.MaxCompletionTokens }},
	{Name: "stream", Check: rule.Bool(), Into: func(r *Request) any { return &r.Stream }},
	{Name: "stream_options", Check: rule.Object(), Then: (*Request).readStreamOptions},
	{Name: "stop", Check: rule.StringOrStrings(4), Into: func(r *Request) any { return &r.Stop }},
	{Name: "presence_penalty", Check: rule.Number(-2, 2), Into: func(r *Request) any { return &r.PresencePenalty }},
	{Name: "frequency_penalty", Check: rule.Number(-2, 2), Into: func(r *Request) any { return &r.FrequencyPenalty }},
	{Name: "n", Check: rule.Integer(1, 128), Into: func(r *Request) any { return &r.N }},
	{Name: "tools", Check: rule.Array(), Into: func(r *Request) any { return &r.Tools }, Then: func(r *Request, raw []byte) { r.EachObject("tools", raw, r.checkTool) }},
	{Name: "response_format", Check: rule.Object(), Into: func(r *Request) any { return &r.ResponseFormat }, Then: (*Request).checkFormat},
	{Name: "user", Check: rule.String(), Into: func(r *Request) any { return &r.User }},
	// The values of these two are their models' business.
	{Name: "tool_choice", Into: func(r *Request) any { return &r.ToolChoice }},
	{Name: "reasoning_effort", Into: func(r *Request) any { return &r.ReasoningEffort }},
}

// readStreamOptions reads the one member of stream_options that the gateway knows.
func (r *Request) readStreamOptions(raw []byte) {
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil || r.typed != nil {
		return // the whole body was read before: raw is valid
	}
	include := o.Raw("include_usage")
	if !rawjson.IsNull(include) && !rule.Bool().OK(include) {
		r.Problem.Note("stream_options.include_usage", rule.Bool().Text)
	}
	r.StreamOptions = &chat.StreamOptions{IncludeUsage: string(include) == "true"}
}

// checkFormat checks response_format: it has a type, and a json_schema holds a
// valid JSON Schema.
func (r *Request) checkFormat(raw []byte) {
	kind, ok := rawjson.String(rawjson.Lookup(raw, "type"))
	if !ok {
		r.Problem.Note("response_format.type", `a string such as "json_object"`)
		return
	}
	if kind != "json_schema" {
		return
	}
	const param = "response_format.json_schema"
	described := rawjson.Lookup(raw, "json_schema")
	if rawjson.IsNull(described) || described[0] != '{' {
		r.Problem.Note(param, "an object that holds a schema")
		return
	}
	r.Problem.JSONSchema(param+".schema", rawjson.Lookup(described, "schema"))
}

// checkDraft checks the schema by the draft that it names, as the reasoning family's vendor
// does. What no draft takes for valid has been refused.
func (r *Request) checkDraft() {
	format := r.Object.Raw("response_format")
	if schema := rawjson.Lookup(format, "json_schema", "schema"); rawjson.LookupString(format, "type") == "json_schema" && r.Problem.Err() == nil {
		r.Problem.JSONSchemaOfDraft("response_format.json_schema.schema", schema)
	}
}

// Validate reports the first rule that the request breaks, as an
// invalid_request_error that names the field.
func (r *Request) Validate() error {
	if r.Model == "" {
		r.Problem.Note("model", "given: the id of a model")
	}
	if len(r.Messages) == 0 {
		r.Problem.Note("messages", "a non-empty array of message objects")
	}
	if r.MaxTokens > 0 && r.MaxCompletionTokens > 0 && r.MaxTokens != r.MaxCompletionTokens {
		r.Problem.Refuse("max_completion_tokens", fmt.Sprintf(
			`"max_tokens" is %d and "max_completion_tokens" is %d. They bound the same: send one of them, or the same number in both.`, r.MaxTokens, r.MaxCompletionTokens))
	}
	for _, f := range Families() {
		for _, m := range f.Models {
			if m.ID == r.Model {
				r.Problem.AllObey(f.fields, &r.Object, "")
				r.checkDraft()
			}
		}
	}
	return r.Problem.Err()
}

// UnknownModel is the chat endpoint's answer to a model that does not exist:
// 400, not 404, as the endpoint's clients expect.
func UnknownModel(model string) error {
	return &fault.Error{
		Code: fault.ModelNotFound, Status: 400, Param: "model",
		Message: fmt.Sprintf("The model %q does not exist. GET /v1/models lists the models that this key may use.", safetext.Quoted(model)),
	}
}

// freeTiers are the service tiers that cost no more than the price says.
var freeTiers = []string{"auto", "default", "flex", "standard_only"}

// isKnown reports whether a member has a rule, a price to be checked, or costs nothing.
func isKnown(name string) bool {
	return name == "messages" || fields.Find(name) != nil || slices.Contains(freeFields, name) || rule.IsVendorField(name) || rule.Unpriced(name)
}

// freeFields are members of OpenAI's that no rule is about, and that cost nothing
// (https://platform.openai.com/docs/api-reference/chat/create), besides those that
// [rule.IsVendorField] knows.
var freeFields = []string{"functions", "function_call"}

// Unpriced refuses the first member that costs money without a price, or chooses
// another model or account, unless pass lets it through. pass gets the name as the
// table spells it, "tools" and "cache_control" included, and as the caller does. Members
// that the gateway does not know are not refused but left out: see [rule.Unknown].
func (r *Request) Unpriced(_ http.Header, pass func(name, spelled string) bool) error {
	if err := rule.CheckUnpriced(&r.Object, rule.Generation, freeTiers, pass); err != nil {
		return err
	}
	if err := r.Paid.Check(pass); err != nil {
		return err
	}
	return r.Unknown.Find(&r.Object, isKnown, pass)
}

// Family is a group of models with rules of their own beside the common ones.
type Family struct {
	Name   string
	Models []Model
	fields rule.Table
}

// Model is what is known of one public model id.
type Model struct {
	ID        string
	MaxOutput int64 // most tokens of one candidate
}

// Families are the families that this package knows. A model of none of them
// gets the common checks only.
func Families() []Family { return []Family{delta} }

// delta is the reasoning family.
// Thinking is always on and max_tokens bounds reasoning and answer together.
var delta = Family{
	Name:   "delta",
	Models: []Model{{ID: "delta-k3", MaxOutput: 1_048_576}},
	fields: rule.Table{
		{Name: "reasoning_effort", Check: rule.OneOf("max")},
		{Name: "tool_choice", Check: toolChoice()},
		{Name: "response_format", Check: formatType("text", "json_object", "json_schema")},
	},
}

// toolChoice allows the three words, or an object that names a function.
func toolChoice() rule.Check {
	words := rule.OneOf("auto", "none", "required")
	return rule.Check{
		Text: words.Text + `, or {"type":"function","function":{"name":…}}`,
		OK: func(raw []byte) bool {
			if raw[0] != '{' {
				return words.OK(raw)
			}
			return rawjson.LookupString(raw, "type") == "function" && rawjson.LookupString(raw, "function", "name") != ""
		},
	}
}

// formatType allows an object whose type is one of words.
func formatType(words ...string) rule.Check {
	kinds := rule.OneOf(words...)
	return rule.Check{
		Text: "an object whose type is " + kinds.Text,
		OK:   func(raw []byte) bool { return kinds.OK(rawjson.Lookup(raw, "type")) },
	}
}
