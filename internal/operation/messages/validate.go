package messages

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// fields is the table of the request's fields. `messages` has rules of its own
// in parse.go; a field that is not listed passes unseen.
var fields = rule.Fields[Request]{
	{Name: "model", Check: rule.ModelID(), Into: func(r *Request) any { return &r.Model }},
	{Name: "max_tokens", Check: rule.Integer(1, math.MaxInt32), Into: func(r *Request) any { return &r.MaxTokens }},
	{Name: "system", Check: textOr("a string or an array of text blocks"), Into: func(r *Request) any { return (*jsontext.Value)(&r.System) }, Then: (*Request).checkSystem},
	{Name: "temperature", Check: rule.Number(0, 1), Into: func(r *Request) any { return &r.Temperature }},
	{Name: "top_p", Check: rule.Number(0, 1), Into: func(r *Request) any { return &r.TopP }},
	{Name: "top_k", Check: rule.Integer(0, math.MaxInt32), Into: func(r *Request) any { return &r.TopK }},
	{Name: "stop_sequences", Check: rule.Strings(rule.MaxElements), Into: func(r *Request) any { return &r.StopSequences }},
	{Name: "stream", Then: func(r *Request, raw []byte) { r.ReadStream(raw, &r.Stream) }},
	{Name: "tools", Check: rule.Array(), Into: func(r *Request) any { return &r.Tools }, Then: (*Request).checkTools},
	{Name: "tool_choice", Check: rule.Object(), Then: func(r *Request, raw []byte) {
		rule.Part(&r.Problem, "tool_choice", raw, toolChoiceFields, &r.ToolChoice)
	}},
	{Name: "thinking", Check: rule.Object(), Then: func(r *Request, raw []byte) { rule.Part(&r.Problem, "thinking", raw, thinkingFields, &r.Thinking) }},
	{Name: "output_config", Check: rule.Object(), Then: (*Request).readOutputConfig},
	{Name: "metadata", Check: rule.Object(), Then: func(r *Request, raw []byte) { rule.Part(&r.Problem, "metadata", raw, metadataFields, &r.Metadata) }},
	{Name: "service_tier", Check: rule.String(), Into: func(r *Request) any { return &r.ServiceTier }},
}

// The tables of the objects among them.
var (
	toolChoiceFields = rule.Table{
		{Name: "type", Check: rule.OneOf("auto", "any", "tool", "none")},
		{Name: "name", Check: rule.NonEmptyString()},
		{Name: "disable_parallel_tool_use", Check: rule.Bool()},
	}
	thinkingFields = rule.Table{
		{Name: "type", Check: rule.OneOf("enabled", "disabled", "adaptive")},
		{Name: "budget_tokens", Check: rule.Integer(0, math.MaxInt32)},
	}
	outputFields   = rule.Table{{Name: "effort", Check: rule.String()}}
	formatFields   = rule.Table{{Name: "type", Check: rule.NonEmptyString()}}
	metadataFields = rule.Table{{Name: "user_id", Check: rule.String()}}
	toolFields     = rule.Table{
		{Name: "type", Check: rule.NonEmptyString()},
		{Name: "name", Check: rule.NonEmptyString()},
		{Name: "description", Check: rule.String()},
	}
)

// textOr allows a string or an array.
func textOr(what string) rule.Check {
	return rule.Check{Text: what, OK: func(raw []byte) bool { return raw[0] == '"' || raw[0] == '[' }}
}

// readOutputConfig reads output_config. Its format has a type, and a json_schema holds
// a schema.
func (r *Request) readOutputConfig(raw []byte) {
	const name = "output_config.format"
	config, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return // the table of fields refused it
	}
	if format := config.Raw("format"); !rawjson.IsNull(format) {
		o, err := rawjson.Index(format, nil, nil)
		if err != nil {
			r.Problem.Note(name, "an object")
			return
		}
		if !r.Problem.AllObey(formatFields, &o, name+".") {
			return
		}
		kind, _ := rawjson.String(o.Raw("type"))
		if kind == "" {
			r.Problem.Note(name+".type", rule.NonEmptyString().Text)
		}
		schema := o.Raw("schema")
		if kind == "json_schema" && (rawjson.IsNull(schema) || schema[0] != '{') {
			r.Problem.Note(name+".schema", "an object that is a JSON Schema")
		}
		if !r.Problem.Schema(name+".schema", schema) {
			return
		}
	}
	rule.Part(&r.Problem, "output_config", raw, outputFields, &r.OutputConfig)
}

// Validate reports the first rule that the request breaks, as an
// invalid_request_error that names the field.
func (r *Request) Validate() error {
	if r.Model == "" {
		r.Problem.Note("model", "given: the id of a model")
	}
	if r.MaxTokens == 0 && !r.CountOnly {
		r.Problem.Note("max_tokens", "given: the most tokens that may be generated")
	}
	if len(r.Messages) == 0 {
		r.Problem.Note("messages", "a non-empty array of message objects")
	}
	return r.Problem.Err()
}

// leastBudget is the smallest budget of thinking, in tokens.
const leastBudget = 1024

// checkBudget checks what needs more than one field.
func (r *Request) checkBudget() {
	if c := r.ToolChoice; c != nil {
		if c.Type == "" {
			r.Problem.Note("tool_choice.type", toolChoiceFields[0].Check.Text)
		}
		if c.Type == "tool" && c.Name == "" {
			r.Problem.Note("tool_choice.name", rule.NonEmptyString().Text)
		}
	}
	t := r.Thinking
	switch {
	case t == nil:
	case t.Type == "":
		r.Problem.Note("thinking.type", thinkingFields[0].Check.Text)
	case t.Type != "enabled":
	case t.BudgetTokens < leastBudget:
		r.Problem.Note("thinking.budget_tokens", fmt.Sprintf("an integer of at least %d", leastBudget))
	case r.MaxTokens > 0 && t.BudgetTokens >= r.MaxTokens:
		r.Problem.Note("thinking.budget_tokens", fmt.Sprintf("less than max_tokens, which is %d", r.MaxTokens))
	}
}

// elementRules are those of a tool, and of a block of system: what is read of them
// is said once, and spelled exactly.
var elementRules = &rawjson.Rules{Once: true, Billed: []string{"type", "name", "description", "input_schema", "text"}}

// checkElements checks the elements of a list up to the first that breaks a rule.
func (r *Request) checkElements(name string, list []byte, check func(o *rawjson.Object, param string)) {
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	r.EachObject(name, list, func(raw []byte, param string) {
		if err := rawjson.IndexInto(o, raw, elementRules, nil); err != nil {
			r.Problem.Refuse(param, fmt.Sprintf("%q is not acceptable: %s.", param, rawjson.Inside(err)))
			return
		}
		check(o, param)
	})
}

// wrapping is what a tool is estimated to have more in chat, in tokens: the object in it.
const wrapping = 8

// checkTools checks the form of tools: objects with a name, unless the vendor
// runs them itself.
func (r *Request) checkTools(raw []byte) {
	r.checkElements("tools", raw, func(o *rawjson.Object, param string) {
		r.Paid.Tool(o, param, clientTool)
		if !r.Problem.AllObey(toolFields, o, param+".") {
			return
		}
		kind, _ := rawjson.String(o.Raw("type"))
		if kind != "" && kind != "custom" {
			return
		}
		r.Grow(wrapping)
		r.Quarters += 4 * wrapping
		if rawjson.IsNull(o.Raw("name")) {
			r.Problem.Note(param+".name", rule.NonEmptyString().Text)
		}
		schema := o.Raw("input_schema")
		if !rawjson.IsNull(schema) && schema[0] != '{' {
			r.Problem.Note(param+".input_schema", "an object that is a JSON Schema")
		}
		r.Problem.Schema(param+".input_schema", schema)
	})
}

// checkSystem checks that the blocks of system are text.
func (r *Request) checkSystem(raw []byte) {
	r.checkElements("system", raw, func(o *rawjson.Object, param string) {
		r.CacheControls(o, param)
		if kind, _ := rawjson.String(o.Raw("type")); kind != "text" {
			r.Problem.Note(param+".type", `"text"`)
		}
		if text := o.Raw("text"); len(text) == 0 || text[0] != '"' {
			r.Problem.Note(param+".text", "a string")
		}
	})
}

// freeTiers are the service tiers that cost no more than the price says.
var freeTiers = []string{"auto", "standard_only"}

// Unpriced refuses the first member, and the first beta feature of the header, that costs
// money without a price. It also refuses what chooses another model or account. pass may let
// it through. It gets the name as the table spells it, "tools", "cache_control" and
// "anthropic-beta" included, and as the client does. Members that the gateway does not know
// are left out instead: see [rule.Unknown]. A count of tokens costs nothing, so it is refused
// only for another model or account.
func (r *Request) Unpriced(h http.Header, pass func(name, spelled string) bool) error {
	if r.CountOnly {
		return rule.CheckUnpriced(&r.Object, rule.Count, nil, pass)
	}
	if err := rule.CheckUnpriced(&r.Object, rule.Generation, freeTiers, pass); err != nil {
		return err
	}
	if err := r.Paid.Check(pass); err != nil {
		return err
	}
	if err := rule.Betas(h, pass); err != nil {
		return err
	}
	return r.Unknown.Find(&r.Object, isKnown, pass)
}

// isKnown reports whether a member has a rule, a price to be checked, or costs nothing.
func isKnown(name string) bool {
	return name == "messages" || fields.Find(name) != nil || slices.Contains(freeFields, name) || rule.IsVendorField(name) || rule.Unpriced(name)
}

// freeFields are members without a rule that cost nothing. output_format is the older name of
// output_config.format; anthropic_version is the header on other clouds
// (https://docs.claude.com/en/api/messages).
var freeFields = []string{"output_format", "anthropic_version"}

// clientTool reports a type of tools that the client runs, or that searches the
// client's own tools, which costs nothing but tokens.
func clientTool(kind string) bool {
	if kind == "custom" {
		return true
	}
	for _, prefix := range [...]string{"bash_", "text_editor_", "computer_", "memory_", "tool_search_tool_"} {
		if strings.HasPrefix(kind, prefix) {
			return true
		}
	}
	return false
}
