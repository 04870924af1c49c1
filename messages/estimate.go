package messages

import (
	"strconv"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// InputBound is an upper bound of the request's input tokens: a token is at
// least one byte of the body, and pictures and documents count by the
// configured bound.
func (r *Request) InputBound(b chat.MediaBound) int64 {
	m := r.parsed.media
	return r.parsed.size - m.Bytes + b.Tokens(m.Images, m.Files)
}

// LinkedBound is how many input tokens above [Request.InputBound] a vendor may
// count, for pictures and documents by URL or id, and large documents in the body.
func (r *Request) LinkedBound(b chat.MediaBound) int64 {
	m := r.parsed.media
	return b.Linked(m.LinkedImages, m.LinkedFiles) + b.Inline(m.Files-m.LinkedFiles, m.Largest)
}

// InputEstimate is the likely number of input tokens, for a charge where the
// upstream reported nothing and for a count that no upstream makes.
func (r *Request) InputEstimate(b chat.MediaBound) int64 {
	m := r.parsed.media
	return tokencount.Tokens(max(r.quarters()-m.Quarters, 0)) + b.Tokens(m.Images, m.Files)
}

// uncounted are the top-level members that are no part of a prompt, whatever they
// hold: the numbers, flags and ids of the table of fields. Any other may be text
// that a vendor puts into the prompt and bills.
var uncounted = []string{
	"model", "messages", "max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "stream", "thinking", "metadata", "service_tier",
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

// OutputBound is max_tokens; 0 if it is not given.
func (r *Request) OutputBound() int64 { return r.MaxTokens }

// CountAnswer is the answer to a request to count tokens.
func CountAnswer(tokens int64) []byte {
	return append(strconv.AppendInt([]byte(`{"input_tokens":`), tokens, 10), '}')
}
