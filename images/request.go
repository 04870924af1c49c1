// Package images is the capability of making pictures of texts and of pictures:
// the forms of its requests, the rules of its model families, and what an answer
// says of usage.
package images

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Request is a request for pictures (api.md, Image generation). Models whose
// ids begin with "alpha-" take Input and Parameters, all others Prompt and what
// follows it. A field that the API does not name goes into Extra and travels
// unchanged.
type Request struct {
	Model string `json:"model"`

	Prompt            string `json:"prompt,omitzero"`
	N                 int64  `json:"n,omitzero"`    // pictures; 0 means 1
	Size              string `json:"size,omitzero"` // "1024x1024"
	Quality           string `json:"quality,omitzero"`
	Background        string `json:"background,omitzero"`      // transparent, opaque or auto
	OutputFormat      string `json:"output_format,omitzero"`   // png, jpeg or webp
	ResponseFormat    string `json:"response_format,omitzero"` // b64_json or url
	OutputCompression *int64 `json:"output_compression,omitzero"`
	Stream            bool   `json:"stream,omitzero"` // read by the server; in process there is no stream of pictures
	PartialImages     int64  `json:"partial_images,omitzero"`
	User              string `json:"user,omitzero"`

	Input      *Input      `json:"input,omitzero"`
	Parameters *Parameters `json:"parameters,omitzero"`

	Extra jsontext.Value `json:",embed"` // a JSON object of every other field

	parsed parsed
}

// Input is what the alpha family draws: exactly one message.
type Input struct {
	Messages []Message      `json:"messages"`
	Extra    jsontext.Value `json:",embed"`
}

// Message is the alpha family's message, of role "user".
type Message struct {
	Role    string         `json:"role"`
	Content []Block        `json:"content"`
	Extra   jsontext.Value `json:",embed"`
}

// Block is a text or the https address of an image.
type Block struct {
	Text  string         `json:"text,omitzero"`
	Image string         `json:"image,omitzero"`
	Extra jsontext.Value `json:",embed"`
}

// Parameters are the alpha family's; nil members have the API's defaults.
type Parameters struct {
	Size           string         `json:"size,omitzero"` // "1024*1024"
	N              *int64         `json:"n,omitzero"`
	Seed           *int64         `json:"seed,omitzero"`
	Watermark      *bool          `json:"watermark,omitzero"`
	NegativePrompt string         `json:"negative_prompt,omitzero"`
	PromptExtend   *bool          `json:"prompt_extend,omitzero"`
	Extra          jsontext.Value `json:",embed"`
}

// parsed is what Parse finds besides the fields.
type parsed struct {
	body       upstream.Body
	object     rawjson.Object
	parameters rawjson.Object // of a form that has them
	problem    rule.Problem   // the first rule that the request breaks
	family     Family
	row        Model
	known      bool  // a table describes the model
	shown      int64 // about how many tokens the images of an edit are
}

// Parse reads a request body. It fails with a 400 that names the byte offset if
// data is not one strict JSON object (decisions.md, Bodies); other rules are for
// [Request.Validate]. The Request refers to data, which must not change any
// more.
func Parse(data []byte) (*Request, error) {
	r := &Request{}
	o, err := rule.ReadSmall(data)
	if err != nil {
		return nil, err
	}
	p := &r.parsed
	p.object, p.body = o, upstream.ObjectBody(o)
	r.parsed.problem.AllObey(common, &o, "")
	if raw := o.Raw("model"); !rawjson.IsNull(raw) {
		r.Model, _ = rawjson.String(raw)
	}
	p.family, p.row, p.known = family(r.Model)
	switch {
	case p.family.Messages:
		return r, r.readMessages()
	case p.known:
		r.parsed.problem.AllObey(openAI, &o, "")
	}
	r.read()
	if !p.known {
		r.readUnknown()
	}
	return r, nil
}

// readUnknown reads of a model that no table describes how many pictures are
// asked for, and what has the alpha family's form.
func (r *Request) readUnknown() {
	o := &r.parsed.object
	if parameters, err := rawjson.Index(o.Raw("parameters"), nil, nil); err == nil {
		r.parsed.parameters = parameters
		r.parsed.problem.AllObey(pictures, &parameters, "parameters.")
	}
	if raw := o.Raw("input"); len(raw) > 0 && raw[0] == '{' {
		r.Input = &Input{}
		if json.Unmarshal(raw, r.Input, jsontext.AllowDuplicateNames(true)) != nil {
			r.Input = nil
		}
	}
}

// Encode marshals a typed request and reads it again as [Parse] does.
func Encode(typed *Request) (*Request, error) { return rule.Encode(typed, Parse) }

// Validate reports the first rule of the API that the request breaks, nil if
// there is none.
func (r *Request) Validate() error {
	if err := r.parsed.problem.Err(); err != nil || r.Model != "" {
		return err
	}
	return rule.NoModel()
}

// UnknownModel is the endpoint's answer to a model that does not exist: 400,
// not 404 (decisions.md, Error bodies).
func UnknownModel(model string) error {
	const most = 100
	if len(model) > most {
		model = model[:most]
	}
	return &fault.Error{
		Code: fault.ModelNotFound, Status: 400, Param: "model",
		Message: fmt.Sprintf("The model %q does not exist. GET /v1/models lists the models that this key may use.", model),
	}
}

// Field is the JSON of any top-level member; nil if there is none.
func (r *Request) Field(name string) []byte { return r.parsed.object.Raw(name) }

// Source is the body as the caller sent it; nil for a Request that did not come
// from [Parse]. It must not be modified.
func (r *Request) Source() []byte { return r.parsed.object.Src }

// Prepared is the request's body as an upstream gets it: the caller's, but for
// the defaults of api.md that the alpha family's upstream does not have.
func (r *Request) Prepared() upstream.Body {
	p := &r.parsed
	if !p.known || !p.family.Messages {
		return p.body
	}
	const size, n = `"1024*1024"`, `1`
	given := p.parameters
	var add []rawjson.Edit
	if rawjson.IsNull(given.Raw("size")) {
		add = append(add, rawjson.Set("size", []byte(size)))
	}
	if rawjson.IsNull(given.Raw("n")) {
		add = append(add, rawjson.Set("n", []byte(n)))
	}
	switch {
	case given.Src == nil:
		return p.body.Set("parameters", []byte(`{"size":`+size+`,"n":`+n+`}`))
	case len(add) > 0:
		return p.body.Set("parameters", given.Apply(nil, add...))
	}
	return p.body
}
