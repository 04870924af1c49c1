package chatapi

import (
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

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
			o, err := rawjson.Index(raw, nil, nil)
			if err != nil {
				return false
			}
			if kind, _ := rawjson.String(o.Raw("type")); kind != "function" {
				return false
			}
			f, err := rawjson.Index(orNull(o.Raw("function")), nil, nil)
			if err != nil {
				return false
			}
			name, ok := rawjson.String(f.Raw("name"))
			return ok && name != ""
		},
	}
}

// formatType allows an object whose type is one of words.
func formatType(words ...string) rule.Check {
	kinds := rule.OneOf(words...)
	return rule.Check{
		Text: "an object whose type is " + kinds.Text,
		OK: func(raw []byte) bool {
			o, err := rawjson.Index(raw, nil, nil)
			return err == nil && kinds.OK(orNull(o.Raw("type")))
		},
	}
}
