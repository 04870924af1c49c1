package messages

import "bytes"

// gist is what is kept of what [Request.Summary] leaves out.
type gist struct {
	model    []byte // its id, as the request spells it
	quarters int64  // of the tokens of the text
}

// Summary returns what of the request matters once a stream has begun: bounds,
// estimates and a [Tap] say the same by it. It refers to none of the request's
// bytes, which may be many, and has neither a body nor messages.
func (r *Request) Summary() *Request {
	return &Request{
		Model: r.Model, MaxTokens: r.MaxTokens, Stream: r.Stream,
		parsed: parsed{
			size: r.parsed.size, media: r.parsed.media,
			gist: &gist{bytes.Clone(r.quotedModel()), r.quarters()},
		},
	}
}

// Outline has the Tap refer to an outline of its request from now on.
func (t *Tap) Outline(r *Request) { t.request = r }
