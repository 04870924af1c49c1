// Package embeddings is what the gateway does with requests of package embeddings and with
// their answers. It has the rules of fields and model families, the bounds of a price, and the
// splitting and joining of large batches.
package embeddings

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/embeddings"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a parsed request.
type Request struct {
	embeddings.Request
	body    upstream.Body
	object  rawjson.Object
	problem rule.Problem   // the first rule that the request breaks
	family  Family         // of the model
	items   []rawjson.Span // of a list that is too long not all
	listed  int            // how many the list has
	tokens  bool           // the input is of token numbers
	bound   int64          // the most tokens that the input can be

	Unknown rule.Unknown // members of the body that are left out
}

// The values of encoding_format.
const (
	formatFloat  = "float"
	FormatBase64 = "base64"
)

// fields is the table of the fields, their rules and their places.
var fields = rule.Fields[Request]{
	{Name: "model", Check: rule.ModelID(), Into: func(r *Request) any { return &r.Model }},
	{Name: "input", Into: func(r *Request) any { return &r.Input }},
	{Name: "encoding_format", Check: rule.OneOf(formatFloat, FormatBase64), Into: func(r *Request) any { return &r.EncodingFormat }},
	{Name: "dimensions", Check: rule.Integer(1, math.MaxInt32), Into: func(r *Request) any { return &r.Dimensions }},
	{Name: "user", Check: rule.String(), Into: func(r *Request) any { return &r.User }},
}

// Parse reads a request body in one pass. It fails with a 400 that names the
// byte offset if data is not one strict JSON object; other rules are for
// [Request.Check]. The Request refers to data, which must not change any
// more.
func Parse(data []byte) (*Request, error) { return read(data, nil) }

// Encode marshals a typed request and checks the bytes as [Parse] does.
func Encode(typed *embeddings.Request) (*Request, error) {
	type members embeddings.Request
	return rule.Encode(typed, (*members)(typed), len(typed.Extra) > 0, read)
}

// read indexes and checks a request body. The fields are typed's, but for the
// input, or are decoded if that is nil.
func read(data []byte, typed *embeddings.Request) (*Request, error) {
	r := &Request{}
	if typed != nil {
		r.Request = *typed
		r.Input = nil
	}
	err := rule.Read(&r.object, rule.Numbers, data, "input", func(rd *rawjson.Reader) error { return r.readInput(rd, data) })
	if err != nil {
		return nil, err
	}
	r.body = upstream.ObjectBody(r.object)
	fields.Read(r, &r.object, &r.problem, typed != nil)
	if typed != nil && r.problem.Found() { // a field that breaks its rule stays unset
		return read(data, nil)
	}
	r.bound = r.maxTokens()
	r.family = familyOf(r.Model)
	return r, nil
}

// Check reports the first rule of the API that the request breaks, nil if
// there is none.
func (r *Request) Check(m *operation.Facts, _ *billing.Price, _ operation.Channels) error {
	if err := r.problem.Err(); err != nil {
		return err
	}
	if r.Model == "" {
		return rule.NoModel()
	}
	if err := r.checkInput(); err != nil {
		return err
	}
	return r.checkDimensions(m.Dimensions)
}

func (r *Request) checkDimensions(allowed []int64) error {
	if allowed == nil {
		allowed = r.family.Dimensions
	}
	if r.Dimensions == 0 || len(allowed) == 0 || slices.Contains(allowed, r.Dimensions) {
		return nil
	}
	words := strings.Trim(strings.ReplaceAll(fmt.Sprint(allowed), " ", ", "), "[]")
	return fault.Invalid("dimensions", fmt.Sprintf(`"dimensions" must be one of %s for the model %q.`, words, r.Model))
}

// Source is the body as the caller sent it; for a part of [Request.Split], the whole body. It
// is nil for a Request that did not come from [Parse]. It must not be modified.
func (r *Request) Source() []byte { return r.object.Src }

// Count is the number of vectors that the request asks for.
func (r *Request) Count() int { return len(r.items) }

// Outgoing is what an upstream gets: the caller's body, but for base64 where the family's
// upstream gives numbers only, and for what Unknown names.
func (r *Request) Outgoing(int64) operation.Outgoing {
	body := r.body
	for _, name := range r.Unknown {
		body = body.Delete(name)
	}
	if r.family.Floats && r.EncodingFormat == FormatBase64 {
		body = body.Set("encoding_format", []byte(`"`+formatFloat+`"`))
	}
	return operation.Outgoing{Body: body, View: &r.Request, Omitted: r.Unknown}
}

// Family is a group of models that obey the same rules.
type Family struct {
	Models     []string // public ids
	Batch      int      // the most texts of one upstream call
	Dimensions []int64  // the lengths that a vector can have; empty means whatever the upstream takes
	// Floats says that the upstream gives numbers only: base64 is made here.
	Floats bool
	// Texts says that the upstream takes only text, no tokens.
	Texts bool
}

// Families are the models that the gateway knows, with the limits of their
// vendors' pages. They are read-only.
var Families = []Family{
	{Models: []string{"text-embedding-v4"}, Batch: 10, Dimensions: []int64{64, 128, 256, 512, 768, 1024, 1536, 2048}, Floats: true, Texts: true},
	{Models: []string{"text-embedding-004", "embx-001", "embx-2-preview"}, Batch: 100, Floats: true, Texts: true},
	{Models: []string{"vox-4-large", "vox-4", "vox-4-lite"}, Batch: 1000, Dimensions: []int64{256, 512, 1024, 2048}, Texts: true},
}

// familyOf is the model's; for one that no table describes it has OpenAI's limits.
func familyOf(model string) Family {
	for _, f := range Families {
		if slices.Contains(f.Models, model) {
			return f
		}
	}
	return Family{Batch: 2048}
}

// Split cuts a request that has more inputs than one upstream call of its model takes.
func (r *Request) Split(m *operation.Facts) []operation.Request {
	var parts []operation.Request
	for _, p := range r.split(m.Batch) {
		parts = append(parts, p)
	}
	return parts
}

// split cuts a request into parts of at most batch inputs each, in order; nil
// if it need not be cut. A batch of 0 is the family's. The parts share the
// request's memory, and are written when they are sent.
func (r *Request) split(batch int) []*Request {
	if batch == 0 {
		batch = r.family.Batch
	}
	items := r.items
	if len(items) <= batch {
		return nil
	}
	var parts []*Request
	for len(items) > 0 {
		n := min(batch, len(items))
		parts, items = append(parts, r.part(items[:n])), items[n:]
	}
	return parts
}

// part is the same request for some of its inputs.
func (r *Request) part(items []rawjson.Span) *Request {
	src := r.Source()
	input := []byte{'['}
	for i, item := range items {
		if i > 0 {
			input = append(input, ',')
		}
		input = append(input, item.Of(src)...)
	}
	input = append(input, ']')
	part := *r
	part.Input = input
	part.items = items
	part.bound = part.maxTokens()
	part.body = r.body.Set("input", input)
	return &part
}

// Unpriced refuses the first member that chooses another model or account than
// the gateway has priced, unless pass lets it through. pass gets the name as the
// table spells it and as the caller does. Members that the gateway does not know are not
// refused but left out: see [rule.Unknown].
func (r *Request) Unpriced(_ http.Header, pass func(name, spelled string) bool) error {
	if err := rule.CheckUnpriced(&r.object, rule.Other, nil, pass); err != nil {
		return err
	}
	return r.Unknown.Find(&r.object, isKnown, pass)
}

// isKnown reports whether a member has a rule, a price to be checked, or costs nothing.
func isKnown(name string) bool {
	return fields.Find(name) != nil || slices.Contains(freeFields, name) || rule.Unpriced(name)
}

// freeFields are members that vendors take besides OpenAI's, by their public references
// (Voyage, Cohere, Jina, NVIDIA, DashScope, vLLM, TEI). They say what the vectors are for, and
// how the input is cut. Fields that ask for other vectors than lists of numbers are not here
// (embedding_types, output_dtype): no caller could read these in this wire.
var freeFields = []string{
	"input_type", "task", "task_type", "text_type", "prompt_name", "title", "instruct", "instruction",
	"truncate", "truncation", "truncation_direction", "truncate_prompt_tokens", "late_chunking", "add_special_tokens",
	"normalize", "normalized", "output_dimension", "metadata",
}
