package messagesapi

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// fields is the table of the request's fields. `messages` has rules of its own
// in messages.go; a field that is not listed passes unseen.
var fields = rule.Table{
	{Name: "model", Check: rule.ModelID()},
	{Name: "max_tokens", Check: rule.Integer(1, math.MaxInt32)},
	{Name: "system", Check: textOr("a string or an array of text blocks")},
	{Name: "temperature", Check: rule.Number(0, 1)},
	{Name: "top_p", Check: rule.Number(0, 1)},
	{Name: "top_k", Check: rule.Integer(0, math.MaxInt32)},
	{Name: "stop_sequences", Check: stringList()},
	{Name: "stream", Check: rule.Bool()},
	{Name: "tools", Check: rule.Array()},
	{Name: "tool_choice", Check: rule.Object()},
	{Name: "thinking", Check: rule.Object()},
	{Name: "output_config", Check: rule.Object()},
	{Name: "metadata", Check: rule.Object()},
	{Name: "service_tier", Check: rule.String()},
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

// stringList allows an array of strings.
func stringList() rule.Check {
	either := rule.StringOrStrings(rule.MaxElements)
	return rule.Check{Text: fmt.Sprintf("an array of at most %d strings", rule.MaxElements), OK: func(raw []byte) bool { return raw[0] == '[' && either.OK(raw) }}
}

// Validate reports the first rule that the request breaks, as an
// invalid_request_error that names the field.
func (r *Request) Validate() error {
	if r.Model == "" {
		r.parsed.Problem.Note("model", "given: the id of a model")
	}
	if r.MaxTokens == 0 && !r.countOnly {
		r.parsed.Problem.Note("max_tokens", "given: the most tokens that may be generated")
	}
	if len(r.Messages) == 0 {
		r.parsed.Problem.Note("messages", "a non-empty array of message objects")
	}
	return r.parsed.Problem.Err()
}

// noteMissing notes a member that is missing, in the words of its rule.
func (r *Request) noteMissing(missing bool, name, member string, table rule.Table) {
	if missing {
		check, _ := table.Find(member)
		r.parsed.Problem.Note(name+"."+member, check.Text)
	}
}

// leastBudget is the smallest budget of thinking, in tokens.
const leastBudget = 1024

// checkBudget checks what needs more than one field.
func (r *Request) checkBudget() {
	if c := r.ToolChoice; c != nil {
		r.noteMissing(c.Type == "", "tool_choice", "type", toolChoiceFields)
		r.noteMissing(c.Type == "tool" && c.Name == "", "tool_choice", "name", toolChoiceFields)
	}
	t := r.Thinking
	if t == nil {
		return
	}
	r.noteMissing(t.Type == "", "thinking", "type", thinkingFields)
	switch {
	case t.Type != "enabled":
	case t.BudgetTokens < leastBudget:
		r.parsed.Problem.Note("thinking.budget_tokens", fmt.Sprintf("an integer of at least %d", leastBudget))
	case r.MaxTokens > 0 && t.BudgetTokens >= r.MaxTokens:
		r.parsed.Problem.Note("thinking.budget_tokens", fmt.Sprintf("less than max_tokens, which is %d", r.MaxTokens))
	}
}

// checkFormat checks output_config.format: a json_schema holds a schema. It is
// false if the form of one is not as the table says.
func (r *Request) checkFormat(raw []byte) bool {
	const name = "output_config.format"
	config, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return false // the table of fields refused it
	}
	format := config.Raw("format")
	if rawjson.IsNull(format) {
		return true
	}
	o, err := rawjson.Index(format, nil, nil)
	if err != nil {
		r.parsed.Problem.Note(name, "an object")
		return false
	}
	if !r.parsed.Problem.AllObey(formatFields, &o, name+".") {
		return false
	}
	kind, schema := o.Raw("type"), o.Raw("schema")
	r.noteMissing(rawjson.IsNull(kind), name, "type", formatFields)
	if s, _ := rawjson.String(kind); s == "json_schema" && (rawjson.IsNull(schema) || schema[0] != '{') {
		r.parsed.Problem.Note(name+".schema", "an object that is a JSON Schema")
	}
	return r.parsed.Problem.Schema(name+".schema", schema)
}

// checkTools checks the form of tools: objects with a name, unless the vendor
// runs them itself.
func (r *Request) checkTools(raw []byte) { r.checkElements("tools", raw, r.checkTool) }

// elementRules are those of a tool, and of a block of system: what is read of them
// is said once, and spelled exactly.
var elementRules = &rawjson.Rules{Once: true, Billed: []string{"type", "name", "description", "input_schema", "text"}}

// checkElements checks the elements of a list up to the first that breaks a rule, or that is
// one too many. They must be objects.
func (r *Request) checkElements(name string, list []byte, check func(o *rawjson.Object, param string)) {
	p := &r.parsed.Problem
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	rawjson.EachUntil(list, func(i int, at rawjson.Span) bool {
		if !r.parsed.CountElement(name) {
			return false
		}
		raw, param := at.Of(list), name+"["+strconv.Itoa(i)+"]"
		if raw[0] != '{' {
			p.Note(param, "an object")
		} else if err := rawjson.IndexInto(o, raw, elementRules, nil); err != nil {
			p.Refuse(param, fmt.Sprintf("%q is not acceptable: %s of it.", param, err))
		} else {
			check(o, param)
		}
		return !p.Found()
	})
}

func (r *Request) checkTool(o *rawjson.Object, param string) {
	r.parsed.Paid.Tool(o, param, clientTool)
	if !r.parsed.Problem.AllObey(toolFields, o, param+".") {
		return
	}
	kind, _ := rawjson.String(o.Raw("type"))
	if kind != "" && kind != "custom" {
		return
	}
	r.noteMissing(rawjson.IsNull(o.Raw("name")), param, "name", toolFields)
	schema := o.Raw("input_schema")
	if !rawjson.IsNull(schema) && schema[0] != '{' {
		r.parsed.Problem.Note(param+".input_schema", "an object that is a JSON Schema")
	}
	r.parsed.Problem.Schema(param+".input_schema", schema)
}

// checkSystem checks that the blocks of system are text.
func (r *Request) checkSystem(raw []byte) {
	r.checkElements("system", raw, func(o *rawjson.Object, param string) {
		for _, m := range o.Members {
			if rule.IsCacheControl([]byte(m.Name)) {
				r.parsed.Paid.CacheControl(m.Value.Of(o.Src), param)
			}
		}
		if kind, _ := rawjson.String(o.Raw("type")); kind != "text" {
			r.parsed.Problem.Note(param+".type", `"text"`)
		}
		if text := o.Raw("text"); len(text) == 0 || text[0] != '"' {
			r.parsed.Problem.Note(param+".text", "a string")
		}
	})
}

// freeTiers are the service tiers that cost no more than the price says.
var freeTiers = []string{"auto", "standard_only"}

// Unpriced refuses the first member, and the first beta feature of the header,
// that costs money without a price, or chooses another model or account, unless
// pass lets it through. pass gets the name as the table spells it, "tools",
// "cache_control" and "anthropic-beta" included, and as the caller does. A count of
// tokens costs nothing, and so may only not choose another model or account.
func (r *Request) Unpriced(h http.Header, pass func(name, spelled string) bool) error {
	if r.countOnly {
		return rule.CheckUnpriced(&r.parsed.Object, rule.Count, nil, pass)
	}
	if err := rule.CheckUnpriced(&r.parsed.Object, rule.Generation, freeTiers, pass); err != nil {
		return err
	}
	if err := r.parsed.Paid.Check(pass); err != nil {
		return err
	}
	return rule.Betas(h, pass)
}

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
