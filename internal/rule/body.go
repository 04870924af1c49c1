package rule

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// The rules of JSON request bodies. Names are unique. Names that the gateway reads, edits or
// counts are spelled exactly. That holds at the top level and directly inside the objects that
// decide a price or a bound. A body holds no more than its bounds allow. They are read-only.
var (
	// Body is for conversations, with the properties of their tools' schemas.
	Body = &rawjson.Rules{
		Unique: true, Billed: billed, Nested: nested,
		Bounds: rawjson.Bounds{TopMembers: 1024, Members: 16_384, Tokens: 1 << 20},
	}
	// Items is Body for a conversation of items.
	Items = &rawjson.Rules{
		Unique: true, Billed: slices.Concat(billed, billedOfItems), Nested: slices.Concat(nested, []string{"text", "reasoning"}),
		Bounds: rawjson.Bounds{TopMembers: 1024, Members: 16_384, Tokens: 1 << 20},
	}
	// Small is for bodies with few fields, some of them long: those of images, videos and
	// speech.
	Small = &rawjson.Rules{
		Unique: true, Billed: billed, Nested: nested,
		Bounds: rawjson.Bounds{TopMembers: 1024, Members: 1024, Tokens: 16_384},
	}
	// Numbers is for a body with long lists of token numbers: more than any vendor
	// takes in one call.
	Numbers = &rawjson.Rules{
		Unique: true, Billed: billed, Nested: nested,
		Bounds: rawjson.Bounds{TopMembers: 1024, Members: 16_384, Tokens: 4 << 20},
	}
	// Documents is Body for a list of documents that are ranked.
	Documents = &rawjson.Rules{
		Unique: true, Billed: slices.Concat(billed, billedOfDocuments), Nested: nested,
		Bounds: rawjson.Bounds{TopMembers: 1024, Members: 16_384, Tokens: 1 << 20},
	}
)

// nested are the objects whose members are read or edited one by one.
var nested = []string{"parameters", "stream_options", "response_format", "thinking", "output_config", "tool_choice"}

// billed are the members that some operation reads, edits, prices or counts. One list serves
// all vendors: none uses names that differ only in case. Members without a price are
// [Unpriced], in any spelling.
var billed = []string{
	"model", "n", "max_tokens", "max_completion_tokens", "stream", "duration", "resolution",
	"aspect_ratio", "frames", "draft", "generate_audio", "size", "quality", "input", "parameters",
	"audio",
	// text
	"messages", "system", "prompt", "content", "instructions", "negative_prompt", "tools",
	"functions", "response_format", "output_config", "json_schema", "schema", "format",
	// how much is made, and of what
	"stream_options", "include_usage", "function_call", "tool_choice", "parallel_tool_calls",
	"thinking", "budget_tokens", "reasoning", "reasoning_effort", "effort", "stop", "stop_sequences", "type",
	"temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "service_tier",
	"metadata", "user", "name",
	"encoding_format", "dimensions", "voice", "stream_format", "speed",
	"background", "output_format", "output_compression", "partial_images",
	"webhook_url", "callback_url", "wait", "execution_expires_after", "ratio", "seed",
	"camera_fixed", "watermark", "return_last_frame", "safety_identifier", "priority", "prompt_extend", "shot_type",
}

// billedOfItems are the members that only conversations of items have.
var billedOfItems = []string{
	"max_output_tokens", "text", "verbosity", "previous_response_id", "conversation", "store", "include", "top_logprobs",
	"truncation", "prompt_cache_key", "max_tool_calls", "context_management", "moderation",
}

// billedOfDocuments are the members that only requests to rank documents have.
var billedOfDocuments = []string{
	"query", "documents", "texts", "top_n", "rank_fields", "return_documents", "return_text", "raw_scores",
	"max_tokens_per_doc", "max_chunks_per_doc", "truncation", "truncate",
}

// Unacceptable is the refusal of a body that its rules do not allow. It names the field
// where the error does.
func Unacceptable(err error) error {
	var param string
	if at, ok := errors.AsType[*rawjson.SyntaxError](err); ok {
		param = at.Field
	}
	return fault.Invalid(param, "The request body is not acceptable: "+err.Error()+".")
}

// Read indexes a request body that obeys the rules into o, whose memory is used. visit, when it is not nil, is
// called at the value of the member called name, which it must consume. The error
// is the refusal of the body.
func Read(o *rawjson.Object, rules *rawjson.Rules, data []byte, name string, visit func(rd *rawjson.Reader) error) error {
	var at func(*rawjson.Reader, []byte) error
	if visit != nil {
		at = func(rd *rawjson.Reader, member []byte) error {
			if string(member) == name {
				return visit(rd)
			}
			_, err := rd.Skip()
			return err
		}
	}
	if err := rawjson.IndexInto(o, data, rules, at); err != nil {
		return Unacceptable(err)
	}
	return nil
}

// Encode marshals a request that was made in Go and reads it like one over the wire, so that
// both obey the same rules. read also gets the typed request, whose fields it need not decode
// again. It gets nil if the request has an Extra, which may name a member that has a field.
// members is typed without its methods: its MarshalJSON, for encoding/json, would copy the
// body and read all of it a second time.
func Encode[T, R any](typed *T, members any, hasExtra bool, read func(data []byte, typed *T) (*R, error)) (*R, error) {
	data, err := json.Marshal(members)
	switch {
	case err != nil:
		return nil, fault.Invalid("", "The request cannot be written as JSON: "+err.Error()+".")
	case hasExtra:
		return read(data, nil)
	}
	return read(data, typed)
}

// Fields is the table of the fields of a request R: their rules, and where their values
// go. A field that is not listed passes unseen.
type Fields[R any] []Row[R]

// Row is a row of [Fields].
type Row[R any] struct {
	Name  string
	Check Check                    // without OK, if every value is allowed
	Into  func(r *R) any           // points to where the value goes; nil if it goes nowhere
	Then  func(r *R, value []byte) // what is done with a valid value besides; may be nil
}

// Read checks the members of a request's body in their order and copies the valid ones into r.
// A null counts as absent. For a typed request, whose fields r has already, it copies only the
// values that r keeps as JSON.
func (t Fields[R]) Read(r *R, o *rawjson.Object, p *Problem, typed bool) {
	for i := range o.Members {
		m := &o.Members[i]
		raw := m.Value.Of(o.Src)
		f := t.Find(m.Name)
		switch {
		case f == nil, rawjson.IsNull(raw):
			continue
		case f.Check.OK != nil && !f.Check.OK(raw):
			p.Note(f.Name, f.Check.Text)
			continue
		}
		f.take(r, raw, typed)
	}
}

// ReadListed is Read in the order of the table, so that of several problems the first
// of the table is noted. A value that breaks its rule is copied too, if it is of the
// field's kind. Without p the rules do not count.
func (t Fields[R]) ReadListed(r *R, o *rawjson.Object, p *Problem, typed bool) {
	for i := range t {
		f := &t[i]
		raw := o.Raw(f.Name)
		if rawjson.IsNull(raw) {
			continue
		}
		if p != nil && f.Check.OK != nil && !f.Check.OK(raw) {
			p.Note(f.Name, f.Check.Text)
		}
		f.take(r, raw, typed)
	}
}

// take copies a value into r and calls Then.
func (f *Row[R]) take(r *R, raw []byte, typed bool) {
	if f.Into != nil {
		Set(f.Into(r), raw, typed)
	}
	if f.Then != nil {
		f.Then(r, raw)
	}
}

// Part checks an object's members against their table and decodes the object into a field of
// the view, unless a member breaks its rule. A field that is set already is a typed request's
// and stays. A value that is not an object is passed over.
func Part[T any](p *Problem, name string, raw []byte, table Table, into **T) {
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil || !p.AllObey(table, &o, name+".") || *into != nil {
		return
	}
	v := new(T)
	if err := json.Unmarshal(raw, v, jsontext.AllowDuplicateNames(true)); err != nil { // two members of one name: only the first was checked
		p.Refuse(name, fmt.Sprintf("%q is ambiguous: a member is given twice.", name))
		return
	}
	*into = v
}

// Find returns the row of a field, or nil.
func (t Fields[R]) Find(name string) *Row[R] {
	for i := range t {
		if t[i].Name == name {
			return &t[i]
		}
	}
	return nil
}

// Set copies a value, which is not null, into the field that into points to. A value of
// another kind leaves the field empty. A field that is kept as JSON shares the body's memory.
// It is copied for a typed request too, spelled as it was marshalled.
func Set(into any, raw []byte, typed bool) {
	if value, ok := into.(*jsontext.Value); ok {
		*value = raw
		return
	}
	if typed {
		return
	}
	switch into := into.(type) {
	case *string:
		*into, _ = rawjson.String(raw)
	case *[]string:
		*into = texts(raw)
	case *bool:
		*into = raw[0] == 't'
	case *int64:
		*into, _ = rawjson.Int(raw)
	case **int64:
		if n, ok := rawjson.Int(raw); ok {
			*into = &n
		}
	case *float64:
		*into, _ = rawjson.Float(raw)
	case **float64:
		if f, ok := rawjson.Float(raw); ok {
			*into = &f
		}
	case **bool:
		if raw[0] == 't' || raw[0] == 'f' {
			is := raw[0] == 't'
			*into = &is
		}
	}
}

// texts returns the strings of a list, or the one string that stands instead of a list.
func texts(raw []byte) []string {
	if s, ok := rawjson.String(raw); ok {
		return []string{s}
	}
	list := []string{}
	rawjson.Each(raw, func(_ int, at rawjson.Span) {
		s, _ := rawjson.String(at.Of(raw))
		list = append(list, s)
	})
	return list
}
