// Package chat is the chat completion capability: its wire types, the rules of
// its fields and model families, and what reads usage from its answers.
package chat

import (
	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// Parse reads a request body in one pass. It fails with a 400 that names the
// byte offset if data is not one strict JSON object (decisions.md, Bodies).
// Fields that break a rule do not fail it: [Request.Validate] reports the
// first of them, so that an unknown model is noticed before a bad field.
//
// The Request refers to data, which must not change any more. Its fields are a
// read-only view: Extra is empty, use [Request.Field] for other members.
func Parse(data []byte) (*Request, error) {
	r := &Request{}
	o, err := rule.Read(data, "messages", func(rd *rawjson.Reader) error { return r.readMessages(rd, data) })
	if err != nil {
		return nil, err
	}
	r.keep(o)
	for i := range o.Members {
		m := &o.Members[i]
		r.readField(m.Name, m.Value.Of(data))
	}
	return r, nil
}

// Encode marshals a typed request and reads it again as [Parse] does, so that
// a request made in Go obeys the same rules as one that came over the wire.
func Encode(typed *Request) (*Request, error) { return rule.Encode(typed, Parse) }

// Field is the JSON of any top-level member; nil if there is none.
func (r *Request) Field(name string) []byte {
	if r.parsed.object.Src != nil {
		return r.parsed.object.Raw(name)
	}
	if o, err := rawjson.Index(r.Extra, nil, nil); err == nil {
		return o.Raw(name)
	}
	return nil
}

// readField checks one top-level member against the common table and copies
// it into the view. A null counts as absent.
func (r *Request) readField(name string, raw []byte) {
	if rule.IsCacheControl([]byte(name)) {
		r.parsed.paid.CacheControl(raw, "")
	}
	if name == "messages" || rawjson.IsNull(raw) || !r.parsed.problem.Obeys(fields, name, raw) {
		return
	}
	switch name {
	case "model":
		r.Model, _ = rawjson.String(raw)
	case "temperature":
		r.Temperature = number(raw)
	case "top_p":
		r.TopP = number(raw)
	case "presence_penalty":
		r.PresencePenalty = number(raw)
	case "frequency_penalty":
		r.FrequencyPenalty = number(raw)
	case "max_tokens":
		r.MaxTokens, _ = rawjson.Int(raw)
	case "max_completion_tokens":
		r.MaxCompletionTokens, _ = rawjson.Int(raw)
	case "n":
		r.N, _ = rawjson.Int(raw)
	case "stream":
		r.Stream = raw[0] == 't'
	case "stream_options":
		r.readStreamOptions(raw)
	case "stop":
		r.readStop(raw)
	case "reasoning_effort":
		r.ReasoningEffort, _ = rawjson.String(raw)
	case "tools":
		r.Tools = raw
		r.checkTools(raw)
	case "tool_choice":
		r.ToolChoice = raw
	case "response_format":
		r.ResponseFormat = raw
		r.checkFormat(raw)
	case "user":
		r.User, _ = rawjson.String(raw)
	}
}

func number(raw []byte) *float64 {
	f, _ := rawjson.Float(raw)
	return &f
}

func (r *Request) readStreamOptions(raw []byte) {
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return // the whole body was read before: raw is valid
	}
	include := o.Raw("include_usage")
	if !rawjson.IsNull(include) && !rule.Bool().OK(include) {
		r.parsed.problem.Note("stream_options.include_usage", rule.Bool().Text)
	}
	r.StreamOptions = &StreamOptions{IncludeUsage: string(include) == "true"}
}

func (r *Request) readStop(raw []byte) {
	if s, ok := rawjson.String(raw); ok {
		r.Stop = []string{s}
		return
	}
	if err := json.Unmarshal(raw, &r.Stop); err != nil {
		r.parsed.problem.Note("stop", "a list of strings")
	}
}
