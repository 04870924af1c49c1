package chat

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// tool is one element of a request's tools.
type tool struct {
	Type     string   `json:"type"`
	Function Function `json:"function,omitzero"`
}

// Tools makes the `tools` member of a request from functions. It fails if a
// function's Parameters are not JSON.
func Tools(functions ...Function) (jsontext.Value, error) {
	tools := make([]tool, len(functions))
	for i, f := range functions {
		tools[i] = tool{Type: "function", Function: f}
	}
	raw, err := json.Marshal(tools)
	if err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	return raw, nil
}

// Functions decodes the tools of type "function". Tools of other types are
// left out.
func (r *Request) Functions() ([]Function, error) {
	if len(r.Tools) == 0 {
		return nil, nil
	}
	var tools []tool
	if err := json.Unmarshal(r.Tools, &tools); err != nil {
		return nil, fmt.Errorf("tools: %w", err)
	}
	var functions []Function
	for _, t := range tools {
		if t.Type == "function" {
			functions = append(functions, t.Function)
		}
	}
	return functions, nil
}

// JSONSchema makes a `response_format` that forces output to follow a JSON
// Schema (draft 2020-12).
func JSONSchema(name string, schema jsontext.Value, strict bool) (jsontext.Value, error) {
	type described struct {
		Name   string         `json:"name"`
		Strict bool           `json:"strict,omitzero"`
		Schema jsontext.Value `json:"schema"`
	}
	raw, err := json.Marshal(struct {
		Type       string    `json:"type"`
		JSONSchema described `json:"json_schema"`
	}{"json_schema", described{name, strict, schema}})
	if err != nil {
		return nil, fmt.Errorf("response_format: %w", err)
	}
	return raw, nil
}

// JSONObject is the `response_format` that forces output to be a JSON object.
func JSONObject() jsontext.Value { return jsontext.Value(`{"type":"json_object"}`) }
