package translate

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/messages"
)

// offeredTool is one element of a chat request's tools.
type offeredTool struct {
	Type         string          `json:"type"`
	Function     offeredFunction `json:"function"`
	CacheControl jsontext.Value  `json:"cache_control,omitzero"`
	Extra        jsontext.Value  `json:",embed"`
}

type offeredFunction struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  jsontext.Value `json:"parameters"`
	Strict      bool           `json:"strict"`
	Extra       jsontext.Value `json:",embed"`
}

// tools carries the functions.
func (t *messagesRequestBuilder) tools() error {
	if rawjson.IsNull(t.c.Tools) {
		return nil
	}
	var list []offeredTool
	if err := json.Unmarshal(t.c.Tools, &list, jsontext.AllowDuplicateNames(true)); err != nil {
		return refusedField("tools", `an array of objects such as {"type":"function","function":{"name":…,"parameters":…}}`)
	}
	var tools []messages.Tool
	for i := range list {
		if list[i].Type != "function" {
			t.drop("tools." + list[i].Type)
			continue
		}
		tool, err := t.tool(&list[i], i)
		if err != nil {
			return err
		}
		tools = append(tools, tool)
	}
	if len(tools) == 0 {
		return nil
	}
	raw, err := json.Marshal(tools)
	if err != nil {
		return refusedField("tools", "JSON without repeated names")
	}
	t.r.Tools = raw
	return nil
}

// tool is one function as the upstream describes tools.
func (t *messagesRequestBuilder) tool(from *offeredTool, i int) (messages.Tool, error) {
	f := &from.Function
	t.dropUnknown("tools.function.", f.Extra)
	t.dropUnknown("tools.", from.Extra)
	schema, ok := inputSchema(f.Parameters)
	if !ok {
		return messages.Tool{}, refusedField(fmt.Sprintf("tools[%d].function.parameters", i), "a JSON Schema object without repeated names")
	}
	own := []rawjson.Edit{}
	if f.Strict {
		own = append(own, rawjson.Set("strict", []byte("true")))
	}
	if !rawjson.IsNull(from.CacheControl) {
		own = append(own, rawjson.Set("cache_control", from.CacheControl))
	}
	tool := messages.Tool{Name: f.Name, Description: f.Description, InputSchema: schema}
	if len(own) > 0 {
		tool.Extra = applied([]byte("{}"), own...)
	}
	return tool, nil
}

// applied is a JSON object with edits; nil if src is none.
func applied(src []byte, edits ...rawjson.Edit) []byte {
	o, err := rawjson.Index(src, nil, nil)
	if err != nil {
		return nil
	}
	return o.Apply(nil, edits...)
}

// inputSchema is the schema of a function's arguments. The upstream wants one,
// and its type.
func inputSchema(parameters jsontext.Value) (jsontext.Value, bool) {
	if rawjson.IsNull(parameters) {
		return jsontext.Value(`{"type":"object"}`), true
	}
	if !isObject(parameters) {
		return nil, false
	}
	o, err := rawjson.Index(parameters, nil, nil)
	if err != nil {
		return nil, false
	}
	if o.Raw("type") != nil {
		return parameters, true
	}
	return o.Apply(nil, rawjson.Set("type", []byte(`"object"`))), true
}

// toolWords are the words of tool_choice.
var toolWords = map[string]string{"none": "none", "auto": "auto", "required": "any"}

// toolChoice carries tool_choice and parallel_tool_calls. Where there are no
// tools the upstream takes neither.
func (t *messagesRequestBuilder) toolChoice() error {
	choice, err := t.chosen()
	if err != nil {
		return err
	}
	forced := choice != nil && (choice.Type == "any" || choice.Type == "tool")
	switch {
	case t.r.Tools == nil && forced:
		return refusedField("tool_choice", `"none" or "auto" where there is no tool of type "function"`)
	case t.r.Tools == nil:
		return nil
	}
	if string(t.c.Field("parallel_tool_calls")) == "false" {
		if choice == nil {
			choice = &messages.ToolChoice{Type: "auto"}
		}
		choice.DisableParallelToolUse = choice.Type != "none"
	}
	t.r.ToolChoice = choice
	return nil
}

// chosen reads tool_choice; nil if it is absent.
func (t *messagesRequestBuilder) chosen() (*messages.ToolChoice, error) {
	raw := t.c.ToolChoice
	if rawjson.IsNull(raw) {
		return nil, nil
	}
	if word, ok := rawjson.String(raw); ok && toolWords[word] != "" {
		return &messages.ToolChoice{Type: toolWords[word]}, nil
	}
	var named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	err := json.Unmarshal(raw, &named, jsontext.AllowDuplicateNames(true))
	if err != nil || named.Type != "function" || named.Function.Name == "" {
		return nil, refusedField("tool_choice", `"none", "auto", "required" or {"type":"function","function":{"name":…}} for this model`)
	}
	return &messages.ToolChoice{Type: "tool", Name: named.Function.Name}, nil
}

// tools carries the tools that the caller runs, and the choice among them.
func (t *chatRequestBuilder) tools() error {
	var tools []messages.Tool
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
		t.dropUnknown("tools.", tool.Extra)
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
func (t *chatRequestBuilder) function(tool *messages.Tool) chat.Function {
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
func (t *chatRequestBuilder) choice(functions []chat.Function) error {
	c := t.r.ToolChoice
	if c == nil {
		return nil
	}
	t.dropUnknown("tool_choice.", c.Extra)
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
