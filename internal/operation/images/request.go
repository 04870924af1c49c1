// Package images is what the gateway does with requests of package images and with their
// answers. It has the rules of fields and model families, the bounds of a price, and the usage
// of an answer.
package images

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a parsed request to generate or edit images.
type Request struct {
	images.Request              // of an edit the fields that both have
	Edit           *images.Edit // nil where the images are made of text alone

	form        *upstream.Form // of an edit
	imageTokens int64          // about how many tokens its images are

	body       upstream.Body
	object     rawjson.Object // of a form that of its text fields
	parameters rawjson.Object // of a body that has them
	problem    rule.Problem   // the first rule that the request breaks
	family     Family
	row        Model
	known      bool // a table describes the model
	typed      bool // the fields came with the request and need not be decoded
}

// Parse reads a request body. It fails with a 400 that names the byte offset if
// data is not one strict JSON object; other rules are for [Request.Check].
// The Request refers to data, which must not change any more.
func Parse(data []byte) (*Request, error) { return read(data, nil) }

// Encode marshals a typed request and checks the bytes as [Parse] does.
func Encode(typed *images.Request) (*Request, error) {
	type members images.Request
	return rule.Encode(typed, (*members)(typed), len(typed.Extra) > 0, read)
}

// read indexes and checks a request body. The fields are typed's, or are decoded
// if that is nil.
func read(data []byte, typed *images.Request) (*Request, error) {
	r := &Request{typed: typed != nil}
	if err := rule.Read(&r.object, rule.Small, data, "", nil); err != nil {
		return nil, err
	}
	r.body = upstream.ObjectBody(r.object)
	if typed != nil {
		r.Request = *typed
		r.Input, r.Parameters = nil, nil // which are read where the model has them
	}
	r.readCommon()
	if r.family.Messages {
		return r, r.readMessages()
	}
	r.readFields()
	r.check()
	if r.known {
		return r, nil
	}
	// For a model without a table, this reads how many images are asked for, and what has the
	// alpha family's form.
	if parameters, err := rawjson.Index(r.object.Raw("parameters"), nil, nil); err == nil {
		r.parameters = parameters
		r.problem.AllObey(pictures, &parameters, "parameters.")
	}
	if raw := r.object.Raw("input"); len(raw) > 0 && raw[0] == '{' {
		r.Input, _ = decodeInput(raw)
	}
	return r, nil
}

// anyForm is how many of the fields are those of every model, whatever its form:
// what names it and what decides how the answer comes.
const anyForm = 2

// openAI is the table of the fields of OpenAI's form, of JSON bodies and of forms. The
// rules are those of models that a table describes.
var openAI = rule.Fields[images.Request]{
	{Name: "model", Check: rule.ModelID(), Into: func(r *images.Request) any { return &r.Model }},
	{Name: "stream", Check: rule.Bool(), Into: func(r *images.Request) any { return &r.Stream }},
	{Name: "prompt", Check: rule.NonEmptyString(), Into: func(r *images.Request) any { return &r.Prompt }},
	{Name: "n", Check: rule.Integer(1, 10), Into: func(r *images.Request) any { return &r.N }},
	{Name: "size", Check: rule.Check{Text: `"auto" or a width and a height such as "1024x1024"`, OK: isSize}, Into: func(r *images.Request) any { return &r.Size }},
	{Name: "quality", Check: rule.OneOf("auto", "low", "medium", "high", "standard", "hd"), Into: func(r *images.Request) any { return &r.Quality }},
	{Name: "background", Check: rule.OneOf("transparent", "opaque", "auto"), Into: func(r *images.Request) any { return &r.Background }},
	{Name: "output_format", Check: rule.OneOf("png", "jpeg", "webp"), Into: func(r *images.Request) any { return &r.OutputFormat }},
	{Name: "output_compression", Check: rule.Integer(0, 100), Into: func(r *images.Request) any { return &r.OutputCompression }},
	{Name: "response_format", Check: rule.OneOf("b64_json", "url"), Into: func(r *images.Request) any { return &r.ResponseFormat }},
	{Name: "partial_images", Check: rule.Integer(0, 3), Into: func(r *images.Request) any { return &r.PartialImages }},
	{Name: "user", Check: rule.String(), Into: func(r *images.Request) any { return &r.User }},
}

// readCommon reads the fields that every model has, and finds the model.
func (r *Request) readCommon() {
	openAI[:anyForm].ReadListed(&r.Request, &r.object, &r.problem, r.typed)
	r.family, r.row, r.known = FamilyOf(r.Model)
}

// readFields reads the other fields of OpenAI's form and, if a table describes the
// model, notes those that break their rules.
func (r *Request) readFields() {
	p := &r.problem
	if !r.known {
		p = nil
	}
	openAI[anyForm:].ReadListed(&r.Request, &r.object, p, r.typed)
}

var sized = regexp.MustCompile(`^[1-9][0-9]{0,4}x[1-9][0-9]{0,4}$`)

func isSize(raw []byte) bool {
	s, ok := rawjson.String(raw)
	return ok && (s == "auto" || sized.MatchString(s))
}

// pictures is the rule of the number of images, where no table says more.
var pictures = rule.Table{{Name: "n", Check: rule.Integer(1, maxUnknownImages)}}

// maxUnknownImages is the most images that one call may ask of a model without a table.
const maxUnknownImages = 100

// check checks what depends on the model or on several fields.
func (r *Request) check() {
	if r.Stream && r.N > 1 {
		r.problem.Refuse("n", `"n" must be 1 where "stream" is true: ask for several pictures without "stream".`)
	}
	if !r.known {
		r.problem.AllObey(pictures, &r.object, "")
		return
	}
	if r.Prompt == "" {
		r.problem.Refuse("prompt", `"prompt" is missing: it says what the picture is to show.`)
	}
	r.checkSize("size", r.Size)
	if r.Background == "transparent" && r.OutputFormat == "jpeg" {
		r.problem.Refuse("background", `"background" can be "transparent" only where "output_format" is "png" or "webp".`)
	}
}

// checkSize checks a size against the family's list.
func (r *Request) checkSize(param, size string) {
	allowed := r.family.Sizes
	if size != "" && len(allowed) > 0 && !slices.Contains(allowed, size) {
		r.problem.Refuse(param, fmt.Sprintf("The model %q makes pictures of the sizes %s, not %q.", r.Model, rule.Words(allowed), safetext.Truncate(size, maxQuoted)))
	}
}

// maxQuoted is how many bytes a message repeats of a caller's text.
const maxQuoted = 100

// Check reports the first rule of the API that the request breaks, nil if
// there is none.
func (r *Request) Check(*operation.Facts, *billing.Price, operation.Channels) error {
	if err := r.problem.Err(); err != nil || r.Model != "" {
		return err
	}
	return rule.NoModel()
}

// UnknownModel is the endpoint's answer to a model that does not exist: 400,
// not 404.
func UnknownModel(model string) error {
	return &fault.Error{
		Code: fault.ModelNotFound, Status: 400, Param: "model",
		Message: fmt.Sprintf("The model %q does not exist. GET /v1/models lists the models that this key may use.", model[:min(len(model), maxQuoted)]),
	}
}

// Source is the body as the caller sent it; nil for a form. It must not be
// modified.
func (r *Request) Source() []byte {
	if r.form != nil {
		return nil
	}
	return r.object.Src
}

// Outgoing is what an upstream gets: the caller's body, but for the defaults of the public
// API that the alpha family's upstream does not have.
func (r *Request) Outgoing(int64) operation.Outgoing {
	if r.Edit != nil {
		return operation.Outgoing{Body: r.sent(), View: r.Edit}
	}
	return operation.Outgoing{Body: r.sent(), View: &r.Request}
}

// sent is the body of Outgoing.
func (r *Request) sent() upstream.Body {
	switch {
	case r.form != nil:
		return r.preparedForm()
	case !r.known || !r.family.Messages:
		return r.body
	}
	given := r.parameters
	if given.Src == nil {
		given, _ = rawjson.Index([]byte("{}"), nil, nil) // which is a JSON object
	}
	var missing []rawjson.Edit
	for _, usual := range []rawjson.Edit{rawjson.Set("size", []byte(`"1024*1024"`)), rawjson.Set("n", []byte(`1`))} {
		if rawjson.IsNull(given.Raw(usual.Name)) {
			missing = append(missing, usual)
		}
	}
	if len(missing) == 0 {
		return r.body
	}
	return r.body.Set("parameters", given.Apply(nil, missing...))
}

// Pixels are the sides of a size that is written "1024x1024" or "1024*1024";
// false if it names none.
func Pixels(size string) (width, height int64, ok bool) {
	w, h, ok := strings.Cut(strings.Replace(size, "*", "x", 1), "x")
	if !ok {
		return 0, 0, false
	}
	width, err1 := strconv.ParseInt(w, 10, 32)
	height, err2 := strconv.ParseInt(h, 10, 32)
	return width, height, err1 == nil && err2 == nil && width > 0 && height > 0
}

// Unpriced refuses the first member or field that chooses another model or
// account than the gateway has priced, unless pass lets it through. pass gets the
// name as the table spells it and as the caller does.
func (r *Request) Unpriced(_ http.Header, pass func(name, spelled string) bool) error {
	if r.form == nil {
		return rule.CheckUnpriced(&r.object, rule.Other, nil, pass)
	}
	for i := range r.form.Parts {
		p := &r.form.Parts[i]
		if p.Size == 0 {
			continue
		}
		if err := rule.CheckUnpricedField(p.Name, pass); err != nil {
			return err
		}
	}
	return nil
}
