package messages

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
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
func (t *chatCall) tools() error {
	if rawjson.IsNull(t.c.Tools) {
		return nil
	}
	var list []offeredTool
	if err := json.Unmarshal(t.c.Tools, &list, jsontext.AllowDuplicateNames(true)); err != nil {
		return refusedField("tools", `an array of objects such as {"type":"function","function":{"name":…,"parameters":…}}`)
	}
	var tools []Tool
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
func (t *chatCall) tool(from *offeredTool, i int) (Tool, error) {
	f := &from.Function
	t.dropMembers(f.Extra, "tools.function.")
	t.dropMembers(from.Extra, "tools.")
	schema, ok := inputSchema(f.Parameters)
	if !ok {
		return Tool{}, refusedField(fmt.Sprintf("tools[%d].function.parameters", i), "a JSON Schema object without repeated names")
	}
	own := []rawjson.Edit{}
	if f.Strict {
		own = append(own, rawjson.Set("strict", []byte("true")))
	}
	if !rawjson.IsNull(from.CacheControl) {
		own = append(own, rawjson.Set("cache_control", from.CacheControl))
	}
	tool := Tool{Name: f.Name, Description: f.Description, InputSchema: schema}
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
func (t *chatCall) toolChoice() error {
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
			choice = &ToolChoice{Type: "auto"}
		}
		choice.DisableParallelToolUse = choice.Type != "none"
	}
	t.r.ToolChoice = choice
	return nil
}

// chosen reads tool_choice; nil if it is absent.
func (t *chatCall) chosen() (*ToolChoice, error) {
	raw := t.c.ToolChoice
	if rawjson.IsNull(raw) {
		return nil, nil
	}
	if word, ok := rawjson.String(raw); ok && toolWords[word] != "" {
		return &ToolChoice{Type: toolWords[word]}, nil
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
	return &ToolChoice{Type: "tool", Name: named.Function.Name}, nil
}
