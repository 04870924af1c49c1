package messagesapi

import (
	"strconv"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/messages"
)

// report gathers what an upstream says of usage.
type report struct{ tokencount.Report }

// The fields of a report, in disjoint buckets but for the last.
const (
	input = iota
	cached
	cacheWrite
	output
	reasoning
)

// usageMembers are those of a usage object.
var usageMembers = []tokencount.Member{
	{Name: "input_tokens", Field: input},
	{Name: "cache_read_input_tokens", Field: cached},
	{Name: "cache_creation_input_tokens", Field: cacheWrite},
	{Name: "output_tokens", Field: output},
	{Name: "output_tokens_details", Inner: []tokencount.Member{{Name: "thinking_tokens", Field: reasoning}}},
}

// read takes in one usage object and reports whether it counts the output.
// Anything else is ignored.
func (p *report) read(raw []byte) (told bool) { return p.Read(raw, usageMembers)[output] }

// begin takes in the usage of message_start. Its output is a count so far, and
// an input of nothing at all means that the upstream does not know it yet.
func (p *report) begin(raw []byte) {
	var first report
	first.read(raw)
	first.Has[output] = false
	if first.N[input]+first.N[cached]+first.N[cacheWrite] == 0 {
		first.Has[input] = false
	}
	p.Anomaly = p.Anomaly || first.Anomaly
	for i := range p.N {
		p.Has[i] = p.Has[i] || first.Has[i]
		p.N[i] = max(p.N[i], first.N[i])
	}
}

// usage is what was reported; a side of it that was not, or not as a usable
// count, is estimated from the text.
func (r *Request) usage(p *report, quarters int64, b chat.MediaBound) billing.Usage {
	c := p.N
	if !p.Has[input] {
		c[input] = max(r.InputEstimate(b)-c[cached]-c[cacheWrite], c[input])
	}
	if !p.Has[output] {
		c[output] = max(tokencount.Tokens(quarters), c[output], c[reasoning])
	}
	u := billing.Usage{
		Input: c[input], CachedInput: c[cached], CacheWrite: c[cacheWrite],
		Output: c[output], Reasoning: min(c[reasoning], c[output]),
		Estimated: !p.Has[input] || !p.Has[output],
		Anomaly:   p.Anomaly,
	}
	u.Zero = u.IsZero() && !u.Estimated
	return u
}

// shownUsage is usage as the public wire shows it.
func shownUsage(u billing.Usage) messages.Usage {
	return messages.Usage{
		InputTokens: u.Input, CacheReadInputTokens: u.CachedInput, CacheCreationInputTokens: u.CacheWrite,
		OutputTokens: u.Output,
	}
}

// InputBound is an upper bound of the request's input tokens: a token is at
// least one byte of the body, and pictures and documents count by the
// configured bound.
func (r *Request) InputBound(b chat.MediaBound) int64 {
	return r.parsed.InputBound(b)
}

// LinkedBound is how many input tokens above [Request.InputBound] a vendor may
// count, for pictures and documents by URL or id, and large documents in the body.
func (r *Request) LinkedBound(b chat.MediaBound) int64 {
	return r.parsed.LinkedBound(b)
}

// InputEstimate is the likely number of input tokens, for a charge where the
// upstream reported nothing and for a count that no upstream makes.
func (r *Request) InputEstimate(b chat.MediaBound) int64 {
	m := r.parsed.Media
	return tokencount.Tokens(max(r.quarters()-m.Quarters, 0)) + completion.MediaTokens(b, m.Images, m.Files)
}

// uncounted are the top-level members that are no part of a prompt, whatever they
// hold: the numbers, flags and ids of the table of fields. Any other may be text
// that a vendor puts into the prompt and bills.
var uncounted = []string{
	"model", "messages", "max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "stream", "thinking", "metadata", "service_tier",
}

// quarters are those of the tokens of all that the request says.
func (r *Request) quarters() int64 {
	return r.parsed.TextQuarters(uncounted, func(yield func([]byte) bool) {
		for i := range r.Messages {
			if !yield(r.Messages[i].Content) {
				return
			}
		}
	})
}

// CountAnswer is the answer to a request to count tokens.
func CountAnswer(tokens int64) []byte {
	return append(strconv.AppendInt([]byte(`{"input_tokens":`), tokens, 10), '}')
}
