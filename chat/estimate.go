package chat

import "github.com/tollhouse-ai/gateway/internal/estimate"

// MediaBound is how many input tokens are reserved for media that the gateway
// does not look into (decisions.md, Chat).
type MediaBound struct {
	Image int64 // a picture; 0 means 2,000
	Video int64 // video, audio or a file; 0 means 50,000
}

// Tokens is the bound of so many pictures, and of videos, sounds and files.
func (b MediaBound) Tokens(images, videos int64) int64 {
	if b.Image == 0 {
		b.Image = 2_000
	}
	if b.Video == 0 {
		b.Video = 50_000
	}
	return images*b.Image + videos*b.Video
}

// InputBound is an upper bound of the request's input tokens: a token is at
// least one byte of the body, and media count by the configured bound.
func (r *Request) InputBound(b MediaBound) int64 {
	m := r.parsed.media
	return r.parsed.size - m.bytes + b.Tokens(m.images, m.videos)
}

// InputEstimate is the likely number of input tokens, for a charge where the
// upstream reported nothing.
func (r *Request) InputEstimate(b MediaBound) int64 {
	m := r.parsed.media
	return estimate.Tokens(max(r.quarters()-m.bytes, 0)) + b.Tokens(m.images, m.videos)
}

// quarters are those of the tokens of all that the request says.
func (r *Request) quarters() int64 {
	if r.parsed.gist != nil {
		return r.parsed.gist.quarters
	}
	const perMessage = 4 // role and separators
	quarters := estimate.Quarters(r.Tools)
	for i := range r.Messages {
		m := &r.Messages[i]
		quarters += perMessage * 4
		quarters += estimate.Quarters(m.Content.raw)
		for _, c := range m.ToolCalls {
			quarters += int64(len(c.Function.Name) + len(c.Function.Arguments))
		}
	}
	return quarters
}
