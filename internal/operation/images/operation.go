package images

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Spec is the endpoint that generates images.
var Spec = operation.Spec{
	Op: upstream.GenerateImage, Path: "/v1/images/generations", Kinds: []string{"image"},
	Dialect: operation.Images, Trace: operation.Trace{Name: "generate_image", Output: "image"},
	Units:       units,
	Parse:       operation.Parser(Parse),
	Unknown:     UnknownModel,
	Unstoppable: true,
	Models:      models,
	Probe:       probe, ProbeCost: 2,
	Demo: []operation.DemoModel{
		{ID: "alpha-image-2.0", Rates: []billing.Rate{{Unit: billing.Image, Amount: "0.035"}}},
		{ID: "imagegen-2", Rates: []billing.Rate{
			{Unit: billing.Input, Amount: "5.00"}, {Unit: billing.ImageInput, Amount: "8.00"}, {Unit: billing.ImageOutput, Amount: "32.00"},
		}},
	},
}

// models are those of all families.
func models() map[string]operation.Facts {
	known := make(map[string]operation.Facts)
	for _, f := range Families {
		for _, m := range f.Models {
			known[m.ID] = operation.Facts{}
		}
	}
	return known
}

// probe has its prompt in a message for the models whose family takes no other.
func probe(model string) string {
	if f, _, known := FamilyOf(model); known && f.Messages {
		return `"input":{"messages":[{"role":"user","content":[{"text":"Hi"}]}]}`
	}
	return `"prompt":"Hi"`
}

// EditSpec is the endpoint that edits images. Its requests are forms.
var EditSpec = operation.Spec{
	Op: upstream.EditImage, Path: "/v1/images/edits", Kinds: []string{"image", "image_edit"},
	Dialect: operation.Plain, Trace: operation.Trace{Name: "edit_image", Output: "image"},
	Units:       units,
	ParseForm:   operation.Parser(ParseForm),
	Unstoppable: true,
	Demo:        []operation.DemoModel{{ID: "alpha-image-edit", Rates: []billing.Rate{{Unit: billing.Image, Amount: "0.045"}}}},
}

// units are those of a complete price.
var units = [][]billing.Unit{{billing.Image}, {billing.Input, billing.ImageOutput}}

// Info is what the pipeline reads of every request.
func (r *Request) Info() operation.Info {
	info := operation.Info{Model: r.Model, Source: r.Source(), Form: r.form}
	if r.Stream {
		info.Stream = r
	}
	return info
}

// Quote is what the request may cost. It is exact for images. The tokens are those that the
// vendor's tables or the operator say that an image takes. Little is known of a model without
// a table, so more is believed.
func (r *Request) Quote(m *operation.Facts, _ *billing.Price, _ bool) operation.Quote {
	const several = 100
	most := billing.Usage{Input: r.InputBound(), ImageInput: r.ImageInputBound(), ImageOutput: r.OutputBound(m.MaxOutput), Images: r.Count()}
	p := operation.Plausible{
		Input: 2*(most.Input+most.ImageInput) + operation.CountSlack, Output: 2*most.ImageOutput + operation.CountSlack, Images: most.Images,
	}
	if !r.known {
		p = operation.Plausible{Input: operation.MaxContext, Output: operation.MaxContext, Images: max(most.Images, several)}
	}
	return operation.Exactly(most, p)
}

// Ordered is what a vendor counts at least that got the request and failed.
func (r *Request) Ordered(*operation.Facts, *billing.Price) billing.Usage {
	prompt, shown := r.Estimate()
	return billing.Usage{Input: prompt, ImageInput: shown, Images: r.Count(), Estimated: true}
}

// AsksForReasoning is false: no image model shows any.
func (r *Request) AsksForReasoning() bool { return false }

// paysTokens reports whether a price is for more than images: only then a missing report of
// tokens is worth an estimate.
func paysTokens(price *billing.Price) bool {
	for _, rate := range price.Rates() {
		if rate.Unit != billing.Image {
			return true
		}
	}
	return false
}
