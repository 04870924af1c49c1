package images

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// tokensAround is what an upstream may put around a prompt, in tokens.
const tokensAround = 64

// maxInputTokens bounds the input of a request of unknown form. No prompt is longer, even if
// the body also holds images.
const maxInputTokens = 100_000

// partialTokens is what a partial image adds to the output.
const partialTokens = 100

// Count is the number of images that the request asks for.
func (r *Request) Count() int64 {
	n, ok := rawjson.Int(r.parameters.Raw("n"))
	if !ok {
		n = r.N
	}
	return max(n, r.N, 1)
}

// InputBound is the most tokens that the prompt can be, images apart: no token is shorter than
// a byte. The alpha family counts none.
func (r *Request) InputBound() int64 {
	switch {
	case r.family.Messages:
		return 0
	case r.known:
		return int64(len(r.Prompt)) + tokensAround
	}
	texts := int64(len(r.Source()))
	if r.form != nil {
		texts = textBytes(r.form)
	}
	return min(texts, maxInputTokens) + tokensAround
}

// ImageInputBound is the most tokens that the images of an edit can be.
func (r *Request) ImageInputBound() int64 {
	if !r.CountsTokens() {
		return 0
	}
	return maxImageTokens * int64(len(r.files()))
}

// Estimate is about how many tokens the prompt is, and the images of an edit.
func (r *Request) Estimate() (prompt, shown int64) {
	if r.family.Messages {
		return 0, 0
	}
	return int64(len(r.Prompt))/4 + 1, r.imageTokens
}

// OutputBound returns the most output tokens of the images, by the vendor's tables. perImage,
// if not 0, is the operator's bound of one image.
func (r *Request) OutputBound(perImage int64) int64 {
	switch {
	case r.family.Messages:
		return 0
	case perImage == 0:
		perImage = r.tokensPerImage()
	}
	return r.Count() * (perImage + r.PartialImages*partialTokens)
}

// tokensPerImage is the most output tokens of one image.
func (r *Request) tokensPerImage() int64 {
	if !r.known {
		return unknownCost
	}
	width, height, named := Pixels(r.Size)
	for _, c := range r.family.Quality {
		fits := c.Pixels == 0 || named && width*height <= c.Pixels
		if fits && (c.Quality == "" || c.Quality == r.Quality) {
			return c.Tokens
		}
	}
	return 0
}

// CountsTokens reports whether the model's vendor says how many tokens an image took. For a
// model without a table, it reports whether the model has OpenAI's form.
func (r *Request) CountsTokens() bool {
	if r.known {
		return len(r.family.Quality) > 0
	}
	return r.Input == nil
}

// Known reports whether a table describes the model. An unknown model passes through, and its
// counts are believed.
func (r *Request) Known() bool { return r.known }

// usage is what was reported, of made images that are in the answer. A missing count is
// computed or, if tokens are paid for, estimated.
func (r *Request) usage(raw []byte, made int64, tokens bool) billing.Usage {
	u := billing.Usage{Images: made}
	if made == 0 { // of a model whose answers have an unknown form
		u.Images, u.Estimated = r.Count(), true
	}
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		o, u.Anomaly = rawjson.Object{}, !rawjson.IsNull(raw)
	}
	count := func(raw []byte) (n int64, ok bool) {
		n, ok, anomaly := tokencount.Count(raw)
		u.Anomaly = u.Anomaly || anomaly
		return n, ok
	}
	pictures, counted, absurd := reportedPictures(&o)
	u.Anomaly = u.Anomaly || absurd
	if counted { // which is believed
		u.Images, u.Estimated, u.Zero = pictures, false, pictures == 0
	}
	input, hasInput := count(o.Raw("input_tokens"))
	output, hasOutput := count(o.Raw("output_tokens"))
	if total, ok := count(o.Raw("total_tokens")); ok && hasInput != hasOutput && total >= input+output {
		if hasInput { // the other one is the rest
			output, hasOutput = total-input, true
		} else {
			input, hasInput = total-output, true
		}
	}
	if hasInput || hasOutput { // OpenAI's report, in buckets that are disjoint
		shown, _ := count(rawjson.Lookup(o.Raw("input_tokens_details"), "image_tokens"))
		cached, _ := count(rawjson.Lookup(o.Raw("input_tokens_details"), "cached_tokens"))
		written, _ := count(rawjson.Lookup(o.Raw("output_tokens_details"), "text_tokens"))
		if shown+cached > input { // more parts than whole: believe the whole
			u.Anomaly, shown, cached = true, min(shown, input), 0
		}
		if written > output {
			u.Anomaly, written = true, 0
		}
		u.Input, u.CachedInput, u.ImageInput = input-shown-cached, cached, shown
		u.Output, u.ImageOutput = written, output-written
		u.Zero = u.Zero || hasInput && hasOutput && input+output == 0
	}
	if tokens && !hasOutput {
		u.Input, u.ImageInput = r.Estimate()
		u.ImageOutput, u.Estimated = r.OutputBound(0), true
	}
	return u
}

// reportedPictures is the count of images in a usage object, which is believed.
func reportedPictures(usage *rawjson.Object) (n int64, ok, anomaly bool) {
	for _, name := range [...]string{"image_count", "output_image_count"} {
		n, ok, absurd := tokencount.Count(usage.Raw(name))
		anomaly = anomaly || absurd
		if ok {
			return n, true, anomaly
		}
	}
	return 0, false, anomaly
}
