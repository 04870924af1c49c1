package messages

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// tools carries the tools that the caller runs, and the choice among them.
func (t *outbound) tools() error {
	var tools []Tool
	if !rawjson.IsNull(t.r.Tools) {
		if err := json.Unmarshal(t.r.Tools, &tools, jsontext.AllowDuplicateNames(true)); err != nil {
			return refusedField("tools", "an array of tool definitions")
		}
	}
	var functions []chat.Function
	for i := range tools {
		tool := &tools[i]
		if tool.Type != "" && tool.Type != "custom" {
			t.drop("tools.", tool.Type)
			continue
		}
		functions = append(functions, t.function(tool))
		t.rest("tools.", tool.Extra)
	}
	if len(functions) > 0 {
		raw, err := chat.Tools(functions...)
		if err != nil {
			return refusedField("tools", "an array of tool definitions")
		}
		t.c.Tools = raw
	}
	return t.choice(functions)
}

// function is a tool as chat knows it.
func (t *outbound) function(tool *Tool) chat.Function {
	f := chat.Function{Name: tool.Name, Description: tool.Description}
	if !rawjson.IsNull(tool.InputSchema) {
		f.Parameters = tool.InputSchema
	}
	var strict string
	if o, err := rawjson.Index(tool.Extra, nil, nil); err == nil {
		strict = string(o.Raw("strict"))
	}
	if yes := strict == "true"; yes || strict == "false" || isDelta(t.r.Model) {
		f.Strict = &yes
	}
	return f
}

// choices are chat's words for the choices without a name.
var choices = map[string]string{"auto": `"auto"`, "any": `"required"`, "none": `"none"`}

// choice carries tool_choice. Without functions chat takes none, and a choice
// that forces one cannot be kept.
func (t *outbound) choice(functions []chat.Function) error {
	c := t.r.ToolChoice
	if c == nil {
		return nil
	}
	t.rest("tool_choice.", c.Extra)
	word, known := choices[c.Type]
	switch {
	case !known && c.Type != "tool":
		return refusedField("tool_choice.type", rule.Words([]string{"auto", "any", "tool", "none"}))
	case c.Type == "any" && len(functions) == 0:
		return refusedField("tool_choice.type", `"auto" or "none" where no tool is left that this model's upstream can call`)
	case c.Type == "tool" && !named(functions, c.Name):
		return refusedField("tool_choice.name", "the name of a tool that this model's upstream can call")
	case len(functions) == 0:
		return nil
	case c.Type == "tool":
		t.c.ToolChoice = append(rawjson.Quote([]byte(`{"type":"function","function":{"name":`), c.Name), "}}"...)
	default:
		t.c.ToolChoice = jsontext.Value(word)
	}
	if c.DisableParallelToolUse {
		t.c.Extra = jsontext.Value(`{"parallel_tool_calls":false}`)
	}
	return nil
}

func named(functions []chat.Function, name string) bool {
	for i := range functions {
		if functions[i].Name == name {
			return true
		}
	}
	return false
}
