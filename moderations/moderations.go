// Package moderations is the moderation capability: whether texts and images are harmful, and
// in which way. It has the requests and answers, and models that are written in Go.
// A *gateway.Gateway answers requests; g stands for one here:
//
//	answer, err := g.Moderations(ctx, &moderations.Request{Input: moderations.Text("I hate you.")})
//	if answer.Results[0].Flagged {         // and in which way: Categories
//	up := moderations.Serve(handler)       // a model that is a Go function
package moderations

import (
	"context"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/funcmodel"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/upstream"
)

// DefaultModel answers a request that names no model.
const DefaultModel = "omni-moderation-latest"

// Request asks whether texts and images are harmful. A field that the API does not name goes
// into Extra and travels unchanged.
type Request struct {
	Model string `json:"model,omitzero"` // empty means DefaultModel
	// Input is what is judged: a JSON string, an array of strings, or an array of [Part].
	// [Text], [Texts] and [Parts] make one.
	Input jsontext.Value `json:"input"`

	Extra jsontext.Value `json:",embed"` // a JSON object of every other field
}

// MarshalJSON writes the members of Extra beside the others, also for the classic
// encoding/json, which does not know embedded members.
func (r Request) MarshalJSON() ([]byte, error) {
	type members Request
	return json.Marshal(members(r))
}

// Part is a text or an image of an input, by its Type. Vendors judge all parts together.
type Part struct {
	Type     string    `json:"type"`               // "text" or "image_url"
	Text     string    `json:"text,omitzero"`      // of the type "text"
	ImageURL *ImageURL `json:"image_url,omitzero"` // of the type "image_url"

	Extra jsontext.Value `json:",embed"`
}

// ImageURL is where an image lies.
type ImageURL struct {
	URL string `json:"url"` // https:, or data: with the image in base64

	Extra jsontext.Value `json:",embed"`
}

// Text is an Input of one text.
func Text(text string) jsontext.Value { return rawjson.Quote(nil, text) }

// Texts is an Input of several texts, which get a result each.
func Texts(texts ...string) jsontext.Value {
	raw := []byte{'['}
	for i, t := range texts {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = rawjson.Quote(raw, t)
	}
	return append(raw, ']')
}

// Parts is an Input of texts and images. It fails if the Extra of a part is not a JSON object.
func Parts(parts ...Part) (jsontext.Value, error) { return json.Marshal(parts) }

// Items are the parts of the input, in order. A text without a type is a part of the type
// "text".
func (r *Request) Items() []Part {
	if text, ok := rawjson.String(r.Input); ok {
		return []Part{{Type: "text", Text: text}}
	}
	var items []Part
	rawjson.Each(r.Input, func(_ int, at rawjson.Span) {
		raw := at.Of(r.Input)
		var item Part
		if text, ok := rawjson.String(raw); ok {
			item = Part{Type: "text", Text: text}
		} else if json.Unmarshal(raw, &item) != nil {
			return // the gateway refuses such a part
		}
		items = append(items, item)
	})
	return items
}

// Handler judges an input in Go. It must be safe for concurrent use and must not change the
// request. It returns one result for each text; for an array of parts one in all, or one for
// each. The caller gets a *fault.Error as it is; any other error becomes an internal error
// without details.
type Handler func(ctx context.Context, r *Request) (*Response, error)

// Serve makes an upstream of a Go function.
func Serve(h Handler) upstream.Upstream {
	return funcmodel.Function[Request, Response]{Op: upstream.Moderations, Read: funcmodel.View[Request], Answer: h}
}

// Response has the results. Fields that the API does not name are in Extra, here and in the
// results.
type Response struct {
	ID      string         `json:"id,omitzero"`
	Model   string         `json:"model,omitzero"` // public id
	Results []Result       `json:"results"`        // one for each text; of an array of parts one in all
	Extra   jsontext.Value `json:",embed"`

	// Raw is the answer as JSON.
	Raw jsontext.Value `json:"-"`
	// RequestID is the gateway's id of the call, by which its receipt is found.
	RequestID string `json:"-"`
	// Charge is what the call cost the account.
	Charge billing.Money `json:"-"`
	// Dropped are request fields that the upstream refuses and did not get.
	Dropped []string `json:"-"`
}

// Result says what is harmful about a text, or about the parts of an input.
type Result struct {
	Flagged bool `json:"flagged"` // any category is
	// Categories are those that the model knows, by their names, such as "violence/graphic",
	// and whether the input is harmful in this way.
	Categories map[string]bool `json:"categories,omitzero"`
	// CategoryScores are from 0 to 1, by category. They grow with the model's confidence.
	CategoryScores map[string]float64 `json:"category_scores,omitzero"`
	// CategoryAppliedInputTypes are the types of parts that a score is of, by category: "text",
	// "image" or both.
	CategoryAppliedInputTypes map[string][]string `json:"category_applied_input_types,omitzero"`

	Extra jsontext.Value `json:",embed"`
}
