package messages

import (
	"errors"
	"strings"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// output carries what the answer is to be like.
func (t *outbound) output() error {
	if th := t.r.Thinking; th != nil {
		if th.BudgetTokens != 0 {
			t.drop("thinking.", "budget_tokens")
		}
		t.rest("thinking.", th.Extra)
	}
	o := t.r.OutputConfig
	if o == nil {
		return nil
	}
	t.rest("output_config.", o.Extra)
	t.effort(o.Effort)
	if o.Format == nil {
		return nil
	}
	t.rest("output_config.format.", o.Format.Extra)
	return t.format(o.Format)
}

// effort carries the word where the model's family has it. A family without
// rules gets it as it is: a channel says which fields its upstream refuses.
func (t *outbound) effort(word string) {
	if word == "" {
		return
	}
	if t.verdict(&chat.Request{ReasoningEffort: word}, "reasoning_effort") != nil {
		t.drop("output_config.", "effort")
		return
	}
	t.c.ReasoningEffort = word
}

// format carries the schema of the answer. Messages promises that the answer
// follows it, which chat does only where it is strict.
func (t *outbound) format(f *OutputFormat) error {
	if f.Type != "json_schema" {
		return refusedField("output_config.format.type", `"json_schema"`)
	}
	const schema, theirs = "output_config.format.schema", "response_format.json_schema.schema"
	if rawjson.IsNull(f.Schema) {
		return refusedField(schema, "a JSON Schema")
	}
	raw, err := chat.JSONSchema("answer", f.Schema, true)
	if err != nil {
		return refusedField(schema, "a JSON Schema")
	}
	if v := t.verdict(&chat.Request{ResponseFormat: raw}, theirs); v != nil {
		return fault.Invalid(schema, strings.ReplaceAll(v.Message, theirs, schema))
	}
	t.c.ResponseFormat = raw
	return nil
}

// verdict is what chat's rules say of one field for this model; nil if they
// allow it.
func (t *outbound) verdict(probe *chat.Request, field string) *fault.Error {
	probe.Model, probe.Messages = t.r.Model, []chat.Message{{Role: "user", Content: chat.Text("")}}
	c, err := chat.Encode(probe)
	if err == nil {
		err = c.Validate()
	}
	var f *fault.Error
	if errors.As(err, &f) && f.Param == field {
		return f
	}
	return nil
}
