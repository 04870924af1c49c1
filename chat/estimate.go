package chat

import "github.com/tollhouse-ai/gateway/internal/tokencount"

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
	return r.parsed.size - m.Bytes + b.Tokens(m.Images, m.Files)
}

// LinkedFactor is how many times its configured bound a medium may be counted as
// whose size is not known, because the request only names where it lies.
const LinkedFactor = 20

// Linked is how many tokens above their bound so many pictures, and videos, sounds
// and files, may be counted as that are not in a request's body.
func (b MediaBound) Linked(images, videos int64) int64 {
	return (LinkedFactor - 1) * b.Tokens(images, videos)
}

// Inline is how many tokens above their bound so many videos, sounds and files in a
// request's body may be counted as, which their bytes allow to be most tokens. It
// is no more than for as many that are elsewhere.
func (b MediaBound) Inline(videos, most int64) int64 {
	return min(max(most-b.Tokens(0, videos), 0), b.Linked(0, videos))
}

// LinkedBound is how many input tokens above [Request.InputBound] a vendor may
// count, for media by URL and large files in the body.
func (r *Request) LinkedBound(b MediaBound) int64 {
	m := r.parsed.media
	return b.Linked(m.LinkedImages, m.LinkedFiles) + b.Inline(m.Files-m.LinkedFiles, m.Largest)
}

// InputEstimate is the likely number of input tokens, for a charge where the
// upstream reported nothing.
func (r *Request) InputEstimate(b MediaBound) int64 {
	m := r.parsed.media
	return tokencount.Tokens(max(r.quarters()-m.Quarters, 0)+m.Text) + b.Tokens(m.Images, m.Files-m.TextFiles)
}

// uncounted are the top-level members that are no part of a prompt, whatever they
// hold: the numbers, flags and ids of the table of fields. Any other may be text
// that a vendor puts into the prompt and bills.
var uncounted = []string{
	"model", "messages", "temperature", "top_p", "max_tokens", "max_completion_tokens", "stream", "stream_options",
	"stop", "presence_penalty", "frequency_penalty", "n", "user", "reasoning_effort",
}

// quarters are those of the tokens of all that the request says.
func (r *Request) quarters() int64 {
	if r.parsed.gist != nil {
		return r.parsed.gist.quarters
	}
	const perMessage = 4 // role and separators
	quarters := r.parsed.quarters + tokencount.ObjectQuarters(&r.parsed.object, uncounted)
	for i := range r.Messages {
		quarters += perMessage*4 + tokencount.Quarters(r.Messages[i].Content.raw)
	}
	return quarters
}
