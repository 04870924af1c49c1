package chatapi

import (
	"fmt"
	"math"
	"strconv"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// fields is the table of the chat completion request. `messages` has
// rules of its own in messages.go; a field that is not listed passes unseen.
var fields = rule.Table{
	{Name: "model", Check: rule.ModelID()},
	{Name: "temperature", Check: rule.Number(0, 2)},
	{Name: "top_p", Check: rule.Number(0, 1)},
	{Name: "max_tokens", Check: rule.Integer(1, math.MaxInt32)},
	{Name: "max_completion_tokens", Check: rule.Integer(1, math.MaxInt32)},
	{Name: "stream", Check: rule.Bool()},
	{Name: "stream_options", Check: rule.Object()},
	{Name: "stop", Check: rule.StringOrStrings(4)},
	{Name: "presence_penalty", Check: rule.Number(-2, 2)},
	{Name: "frequency_penalty", Check: rule.Number(-2, 2)},
	{Name: "n", Check: rule.Integer(1, 128)},
	{Name: "tools", Check: rule.Array()},
	{Name: "response_format", Check: rule.Object()},
	{Name: "user", Check: rule.String()},
}

// Validate reports the first rule that the request breaks, as an
// invalid_request_error that names the field.
func (r *Request) Validate() error {
	if r.Model == "" {
		r.parsed.Problem.Note("model", "given: the id of a model")
	}
	if len(r.Messages) == 0 {
		r.parsed.Problem.Note("messages", "a non-empty array of message objects")
	}
	if r.MaxTokens > 0 && r.MaxCompletionTokens > 0 && r.MaxTokens != r.MaxCompletionTokens {
		r.parsed.Problem.Refuse("max_completion_tokens", fmt.Sprintf(
			`"max_tokens" is %d and "max_completion_tokens" is %d. They bound the same: send one of them, or the same number in both.`, r.MaxTokens, r.MaxCompletionTokens))
	}
	for _, f := range Families() {
		for _, m := range f.Models {
			if m.ID == r.Model {
				r.parsed.Problem.AllObey(f.fields, &r.parsed.Object, "")
			}
		}
	}
	return r.parsed.Problem.Err()
}

// checkTools checks the form of tools: objects with a type, and a named
// function where the type is "function".
func (r *Request) checkTools(raw []byte) {
	rawjson.EachUntil(raw, func(i int, at rawjson.Span) bool {
		if r.parsed.CountElement("tools") {
			r.checkTool(at.Of(raw), i)
		}
		return !r.parsed.Problem.Found()
	})
}

// toolRules are those of a tool and of the function in it: what names them and
// what they hold is said once, and spelled exactly.
var toolRules = &rawjson.Rules{Once: true, Billed: []string{"type", "function", "name", "description", "parameters", "strict"}}

func (r *Request) checkTool(raw []byte, i int) {
	note := func(member, must string) { r.parsed.Problem.Note(fmt.Sprintf("tools[%d]%s", i, member), must) }
	if raw[0] != '{' {
		note("", "an object")
		return
	}
	o, f := rawjson.Borrow(), rawjson.Borrow()
	defer rawjson.GiveBack(o)
	defer rawjson.GiveBack(f)
	if err := rawjson.IndexInto(o, raw, toolRules, nil); err != nil {
		r.parsed.Problem.Refuse("tools", fmt.Sprintf("tools[%d] is not acceptable: %s of it.", i, err))
		return
	}
	r.parsed.Paid.Tool(o, "tools["+strconv.Itoa(i)+"]", clientTool)
	kind, ok := rawjson.String(o.Raw("type"))
	if !ok || kind == "" {
		note(".type", `a string such as "function"`)
		return
	}
	if kind != "function" {
		return
	}
	function := orNull(o.Raw("function"))
	if function[0] != '{' {
		note(".function", "an object")
		return
	}
	if err := rawjson.IndexInto(f, function, toolRules, nil); err != nil {
		r.parsed.Problem.Refuse("tools", fmt.Sprintf("tools[%d].function is not acceptable: %s of it.", i, err))
		return
	}
	if name, ok := rawjson.String(f.Raw("name")); !ok || name == "" {
		note(".function.name", "a non-empty string")
		return
	}
	r.parsed.Problem.Schema("tools["+strconv.Itoa(i)+"].function.parameters", f.Raw("parameters"))
}

// orNull makes an absent member readable.
func orNull(raw []byte) []byte {
	if raw == nil {
		return []byte("null")
	}
	return raw
}

// UnknownModel is the chat endpoint's answer to a model that does not exist:
// 400, not 404, as the endpoint's clients expect.
func UnknownModel(model string) error {
	return &fault.Error{
		Code: fault.ModelNotFound, Status: 400, Param: "model",
		Message: fmt.Sprintf("The model %q does not exist. GET /v1/models lists the models that this key may use.", truncate(model, 100)),
	}
}

// freeTiers are the service tiers that cost no more than the price says.
var freeTiers = []string{"auto", "default", "flex", "standard_only"}

// Unpriced refuses the first member that costs money without a price, or chooses
// another model or account, unless pass lets it through. pass gets the name as the
// table spells it, "tools" and "cache_control" included, and as the caller does.
func (r *Request) Unpriced(pass func(name, spelled string) bool) error {
	if err := rule.CheckUnpriced(&r.parsed.Object, rule.Generation, freeTiers, pass); err != nil {
		return err
	}
	return r.parsed.Paid.Check(pass)
}

// clientTool reports a type of tools that the client runs. Vendors charge for
// each call of those that they run themselves.
func clientTool(kind string) bool { return kind == "function" || kind == "custom" }
