// Package moderations is the gateway's half of package moderations: the rules of fields in
// requests, and what an answer must hold.
package moderations

import (
	"fmt"
	"net/http"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/moderations"
	"github.com/tollhouse-ai/gateway/upstream"
)

// MaxItems bounds the texts or parts of one request, and with them the size of its answer.
const MaxItems = 1024

// Request is a parsed request.
type Request struct {
	moderations.Request
	object  rawjson.Object
	body    upstream.Body // as an upstream gets it
	problem rule.Problem  // the first rule that the request breaks
	items   int           // texts or parts of the input
	parts   bool          // the items are parts
}

// fields is the table of the fields, their rules and their places.
var fields = rule.Fields[Request]{
	{Name: "model", Check: rule.ModelID(), Into: func(r *Request) any { return &r.Model }},
	{Name: "input", Into: func(r *Request) any { return &r.Input }, Then: (*Request).readInput},
}

// The types of a part, by the member that holds its content.
const (
	textPart  = "text"
	imagePart = "image_url"
)

// partFields are the rules of the content of a part, by its type.
var partFields = map[string]rule.Field{
	textPart:  {Name: textPart, Check: rule.String()},
	imagePart: {Name: imagePart, Check: rule.Check{Text: `an object with a "url"`, OK: hasURL}},
}

// hasURL reports whether raw is an object with the address of an image, which vendors fetch
// and the gateway does not.
func hasURL(raw []byte) bool {
	o, err := rawjson.Index(raw, rule.Small, nil)
	if err != nil {
		return false
	}
	url, ok := rawjson.String(o.Raw("url"))
	return ok && url != ""
}

// Parse reads a request body in one pass. It fails with a 400 that names the byte offset if
// data is not one strict JSON object; other rules are for [Request.Check]. The Request refers
// to data, which must not change any more.
func Parse(data []byte) (*Request, error) { return read(data, nil) }

// Encode marshals a typed request and checks the bytes as [Parse] does.
func Encode(typed *moderations.Request) (*Request, error) {
	type members moderations.Request
	return rule.Encode(typed, (*members)(typed), len(typed.Extra) > 0, read)
}

// read indexes and checks a request body. The fields are typed's, but for the input, or are
// decoded if that is nil.
func read(data []byte, typed *moderations.Request) (*Request, error) {
	r := &Request{}
	if typed != nil {
		r.Request = *typed
		r.Input = nil
	}
	if err := rule.Read(&r.object, rule.Body, data, "", nil); err != nil {
		return nil, err
	}
	fields.Read(r, &r.object, &r.problem, typed != nil)
	if typed != nil && r.problem.Found() { // a field that breaks its rule stays unset
		return read(data, nil)
	}
	r.body = upstream.ObjectBody(r.object)
	if rawjson.IsNull(r.object.Raw("model")) {
		r.Model = moderations.DefaultModel
		r.body = r.body.Set("model", rawjson.Quote(nil, r.Model))
	}
	return r, nil
}

// readInput notes what the input holds, and the first rule that it breaks.
func (r *Request) readInput(raw []byte) {
	const kinds = "a string, an array of strings, or an array of text and image_url parts"
	switch raw[0] {
	case '"':
		r.items = 1
		return
	case '[':
	default:
		r.problem.Note("input", kinds)
		return
	}
	r.items = rawjson.Each(raw, func(i int, at rawjson.Span) {
		item := at.Of(raw)
		if i == 0 {
			r.parts = item[0] == '{'
		}
		switch {
		case i >= MaxItems || r.problem.Found(): // the first problem is told
		case item[0] == '{' && r.parts:
			r.readPart(i, item)
		case item[0] != '"' || r.parts:
			r.problem.Note("input", kinds)
		}
	})
	switch {
	case r.items == 0:
		r.problem.Refuse("input", `"input" must not be empty.`)
	case r.items > MaxItems:
		r.problem.Refuse("input", fmt.Sprintf(`"input" must hold at most %d texts or parts; it has %d.`, MaxItems, r.items))
	}
}

// readPart notes the first rule that a part of the input breaks.
func (r *Request) readPart(i int, raw []byte) {
	o, err := rawjson.Index(raw, rule.Small, nil)
	if err != nil {
		r.problem.Refuse("input", fmt.Sprintf(`"input[%d]" is not acceptable: %v.`, i, err))
		return
	}
	kind, _ := rawjson.String(o.Raw("type"))
	field, known := partFields[kind]
	switch content := o.Raw(kind); {
	case !known:
		r.problem.Refuse("input", fmt.Sprintf(`"input[%d].type" must be %s.`, i, rule.Words([]string{textPart, imagePart})))
	case rawjson.IsNull(content) || !field.Check.OK(content):
		r.problem.Refuse("input", fmt.Sprintf(`"input[%d].%s" must be %s.`, i, kind, field.Check.Text))
	}
}

// Check reports the first rule of the API that the request breaks, nil if there is none.
func (r *Request) Check(*operation.Facts, *billing.Price, operation.Channels) error {
	if err := r.problem.Err(); err != nil {
		return err
	}
	if r.items == 0 {
		return fault.Invalid("input", `"input" is missing: it holds the text, the texts, or the parts to judge.`)
	}
	return nil
}

// Together reports whether the input is an array of parts, which vendors judge together.
func (r *Request) Together() bool { return r.parts }

// Source is the body as the caller sent it. It must not be modified.
func (r *Request) Source() []byte { return r.object.Src }

// Outgoing is what an upstream gets: the caller's body, with a model in any case.
func (r *Request) Outgoing(int64) operation.Outgoing {
	return operation.Outgoing{Body: r.body, View: &r.Request}
}

// Unpriced refuses the first member that chooses another model or account than the gateway has
// priced, unless pass lets it through. pass gets the name as the table spells it and as the
// caller does.
func (r *Request) Unpriced(_ http.Header, pass func(name, spelled string) bool) error {
	return rule.CheckUnpriced(&r.object, rule.Other, nil, pass)
}
