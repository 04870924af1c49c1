package messages

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Parse reads a request body in one pass. It fails with a 400 that names the
// byte offset if data is not one strict JSON object (decisions.md, Bodies).
// Fields that break a rule do not fail it: [Request.Validate] reports the
// first of them, so that an unknown model is noticed before a bad field.
//
// The Request refers to data, which must not change any more. Its fields are a
// read-only view: the request's own Extra is empty, use [Request.Field] for
// other members.
func Parse(data []byte) (*Request, error) { return parse(data, false) }

// ParseCount is [Parse] for a count of tokens: max_tokens may be missing, and
// stream is not looked at.
func ParseCount(data []byte) (*Request, error) { return parse(data, true) }

// Encode marshals a typed request and reads it again as [Parse] does, so that
// a request made in Go obeys the same rules as one that came over the wire.
func Encode(typed *Request) (*Request, error) { return rule.Encode(typed, Parse) }

// EncodeCount is [Encode] for a count of tokens.
func EncodeCount(typed *Request) (*Request, error) { return rule.Encode(typed, ParseCount) }

func parse(data []byte, count bool) (*Request, error) {
	r := &Request{}
	o, err := rule.Read(data, "messages", func(rd *rawjson.Reader) error { return r.readMessages(rd, data) })
	if err != nil {
		return nil, err
	}
	r.parsed.count, r.parsed.object, r.parsed.body = count, o, upstream.ObjectBody(o)
	r.parsed.size = int64(len(data))
	for i := range o.Members {
		m := &o.Members[i]
		r.readField(m.Name, m.Value.Of(data))
	}
	r.checkBudget()
	return r, nil
}

// Source is the body as the caller sent it; nil for a Request that did not come
// from [Parse]. It must not be modified.
func (r *Request) Source() []byte { return r.parsed.object.Src }

// Body is the request as it goes upstream before any edit. It is empty for a
// Request that did not come from [Parse].
func (r *Request) Body() upstream.Body { return r.parsed.body }

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

// readField checks one top-level member against its table and copies it into
// the view. A null counts as absent.
func (r *Request) readField(name string, raw []byte) {
	if rule.IsCacheControl([]byte(name)) {
		r.parsed.paid.CacheControl(raw, "")
	}
	if name == "messages" || rawjson.IsNull(raw) || name == "stream" && r.parsed.count || !r.parsed.problem.Obeys(fields, name, raw) {
		return
	}
	switch name {
	case "model":
		r.Model, _ = rawjson.String(raw)
	case "max_tokens":
		r.MaxTokens, _ = rawjson.Int(raw)
	case "system":
		r.System = Content{raw}
		r.checkSystem(raw)
	case "temperature":
		r.Temperature = number(raw)
	case "top_p":
		r.TopP = number(raw)
	case "top_k":
		k, _ := rawjson.Int(raw)
		r.TopK = &k
	case "stop_sequences":
		r.view(name, raw, &r.StopSequences)
	case "stream":
		r.Stream = raw[0] == 't'
	case "tools":
		r.Tools = raw
		r.checkTools(raw)
	case "tool_choice":
		r.ToolChoice = part[ToolChoice](r, name, raw, toolChoiceFields)
	case "thinking":
		r.Thinking = part[Thinking](r, name, raw, thinkingFields)
	case "output_config":
		if r.checkFormat(raw) {
			r.OutputConfig = part[OutputConfig](r, name, raw, outputFields)
		}
	case "metadata":
		r.Metadata = part[Metadata](r, name, raw, metadataFields)
	case "service_tier":
		r.ServiceTier, _ = rawjson.String(raw)
	}
}

func number(raw []byte) *float64 {
	f, _ := rawjson.Float(raw)
	return &f
}

// part checks an object's members against their table and decodes it; nil if
// one of them breaks its rule.
func part[T any](r *Request, name string, raw []byte, table rule.Table) *T {
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return nil // the table of fields refused it
	}
	if !r.parsed.problem.AllObey(table, &o, name+".") {
		return nil
	}
	v := new(T)
	if !r.view(name, raw, v) {
		return nil
	}
	return v
}

// view decodes raw into a part of the view.
func (r *Request) view(name string, raw []byte, into any) bool {
	err := json.Unmarshal(raw, into, jsontext.AllowDuplicateNames(true))
	if err != nil { // two members of one name, of which only the first was checked
		r.parsed.problem.Refuse(name, fmt.Sprintf("%q is ambiguous: a member is given twice.", name))
	}
	return err == nil
}
