package images

import (
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// around is what an upstream may put around a prompt, in tokens.
const around = 64

// mostInput bounds the input of a request whose form is not known: what no
// prompt is longer than, even where the body also holds pictures.
const mostInput = 100_000

// partialTokens is what a partial picture adds to the output.
const partialTokens = 100

// Count is the number of pictures that the request asks for.
func (r *Request) Count() int64 {
	n, ok := rawjson.Int(r.parsed.parameters.Raw("n"))
	if !ok {
		n = r.N
	}
	return max(n, r.N, 1)
}

// InputBound is the most tokens that the prompt can be: no token is shorter than
// a byte. The alpha family counts none.
func (r *Request) InputBound() int64 {
	switch {
	case r.parsed.family.Messages:
		return 0
	case r.parsed.known:
		return int64(len(r.Prompt)) + around
	}
	return min(int64(len(r.Source())), mostInput) + around
}

// Estimate is about how many tokens the prompt is.
func (r *Request) Estimate() int64 {
	if r.parsed.family.Messages {
		return 0
	}
	return int64(len(r.Prompt))/4 + 1
}

// OutputBound is the most tokens that the pictures are made of, by the vendor's
// tables; perImage, where it is not 0, is the operator's bound of one picture.
func (r *Request) OutputBound(perImage int64) int64 {
	switch {
	case r.parsed.family.Messages:
		return 0
	case perImage == 0:
		perImage = r.cost()
	}
	return r.Count() * (perImage + r.PartialImages*partialTokens)
}

// cost is the most output tokens of one picture.
func (r *Request) cost() int64 {
	if !r.parsed.known {
		return unknownCost
	}
	width, height, named := Pixels(r.Size)
	for _, c := range r.parsed.family.Quality {
		fits := c.Pixels == 0 || named && width*height <= c.Pixels
		if fits && (c.Quality == "" || c.Quality == r.Quality) {
			return c.Tokens
		}
	}
	return 0
}

// CountsTokens reports whether the model's vendor says how many tokens a picture
// took; of a model that no table describes, whether it has OpenAI's form.
func (r *Request) CountsTokens() bool {
	if r.parsed.known {
		return len(r.parsed.family.Quality) > 0
	}
	return r.Input == nil
}

// Known reports whether a table describes the model. What is not known passes
// through, and its counts are believed.
func (r *Request) Known() bool { return r.parsed.known }
