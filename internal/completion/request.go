// Package completion holds what chat completions and messages have in common:
// the reading of requests, the bounds of their input, and what a stream needs to
// count its text.
package completion

import (
	"bytes"
	"cmp"
	"iter"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// Request is what a parser finds besides the typed fields of a request.
type Request struct {
	Object  rawjson.Object // the index of the body
	Problem rule.Problem   // the first rule that the request breaks
	Paid    rule.Paid      // what has no price, below the top level

	Elements rule.Elements
	Media    tokencount.Media
	Quarters int64 // of the tokens of what the messages hold besides content

	size    int64    // of the body, in bytes
	summary *summary // of a request whose bytes are gone
}

// summary is what is kept of what [Request.Summary] leaves out.
type summary struct {
	model    []byte // its id, as the request spells it
	quarters int64  // of the tokens of the text
}

// SetBody keeps the indexed body.
func (r *Request) SetBody(o rawjson.Object) {
	r.Object, r.size = o, int64(len(o.Src))
}

// Model is the request's own spelling of its model's id.
func (r *Request) Model(id string) []byte {
	if r.summary != nil {
		return r.summary.model
	}
	if raw := r.Object.Raw("model"); raw != nil {
		return raw
	}
	return rawjson.Quote(nil, id)
}

// Summary returns what bounds, estimates and streams need of the request, and
// none of its bytes. quarters are its [Request.TextQuarters].
func (r *Request) Summary(model string, quarters int64) Request {
	return Request{
		size: r.size, Media: r.Media,
		summary: &summary{bytes.Clone(r.Model(model)), quarters},
	}
}

// TextQuarters are the quarters of the tokens of all that the request says:
// members of the top level but for those called as in uncounted, and the contents
// of its messages.
func (r *Request) TextQuarters(uncounted []string, contents iter.Seq[[]byte]) int64 {
	if r.summary != nil {
		return r.summary.quarters
	}
	const perMessage = 4 // tokens: role and separators
	quarters := r.Quarters + tokencount.ObjectQuarters(&r.Object, uncounted)
	for content := range contents {
		quarters += perMessage*4 + tokencount.Quarters(content)
	}
	return quarters
}

// InputBound is an upper bound of the request's input tokens: a token is at least
// one byte of the body, and media count by the configured bound.
func (r *Request) InputBound(b chat.MediaBound) int64 {
	return r.size - r.Media.Bytes + MediaTokens(b, r.Media.Images, r.Media.Files)
}

// LinkedBound is how many input tokens above [Request.InputBound] a vendor may
// count, for media by URL and large files in the body.
func (r *Request) LinkedBound(b chat.MediaBound) int64 {
	m := r.Media
	inline := m.Files - m.LinkedFiles // which their bytes allow to be m.Largest tokens
	more := min(max(m.Largest-MediaTokens(b, 0, inline), 0), linkedTokens(b, 0, inline))
	return linkedTokens(b, m.LinkedImages, m.LinkedFiles) + more
}

// MediaTokens is the bound of so many pictures, and of videos, sounds and files.
func MediaTokens(b chat.MediaBound, images, files int64) int64 {
	return images*cmp.Or(b.Image, 2_000) + files*cmp.Or(b.Video, 50_000)
}

// linkedFactor is how many times its configured bound a medium may be counted as
// whose size is not known, because the request only names where it lies.
const linkedFactor = 20

// linkedTokens is how many tokens above their bound so many media may be counted as
// that are not in a request's body.
func linkedTokens(b chat.MediaBound, images, files int64) int64 {
	return (linkedFactor - 1) * MediaTokens(b, images, files)
}

// CountElement counts one more message, content block, tool or tool call of the
// field called list. It is false if there are too many, or a rule was broken before:
// then nothing is made of what follows.
func (r *Request) CountElement(list string) bool {
	return !r.Problem.Found() && r.Elements.Add(&r.Problem, list)
}
