package chatapi

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// Report gathers the usage objects of one answer. Reports are cumulative, not
// additive: each count keeps its largest value. The zero Report is ready; it is not
// safe for concurrent use.
type Report struct{ tokencount.Report }

// The fields of a Report.
const (
	prompt = iota
	cached
	cacheWrite
	output
	reasoning
	total
)

// usageMembers are those of a usage object.
var usageMembers = []tokencount.Member{
	{Name: "prompt_tokens", Field: prompt},
	{Name: "completion_tokens", Field: output},
	{Name: "total_tokens", Field: total},
	{Name: "cached_tokens", Field: cached},
	{Name: "prompt_tokens_details", Inner: []tokencount.Member{
		{Name: "cached_tokens", Field: cached},
		{Name: "cache_write_tokens", Field: cacheWrite},
	}},
	{Name: "completion_tokens_details", Inner: []tokencount.Member{{Name: "reasoning_tokens", Field: reasoning}}},
}

// Read takes in one usage object and reports whether it counts the output. Null and
// what is no object are ignored.
func (p *Report) Read(usage []byte) (counted bool) { return p.Report.Read(usage, usageMembers)[output] }

// Known says which sides were reported, be it as 0: the prompt and the completion.
func (p *Report) Known() (in, out bool) { return p.Has[prompt], p.Has[output] }

// output is what was reported of it. Vendors that count reasoning beside the
// completion (xAI, Gemini) tell all of it only in the total.
func (p *Report) output() int64 {
	if !p.Has[prompt] || !p.Has[output] {
		return p.N[output]
	}
	return max(p.N[output], p.N[total]-p.N[prompt])
}

// Usage is what was reported, in disjoint buckets; a count that was not reported is 0.
func (p *Report) Usage() billing.Usage {
	c, output := p.N, p.output()
	u := billing.Usage{
		Input:       c[prompt] - c[cached] - c[cacheWrite],
		CachedInput: c[cached],
		CacheWrite:  c[cacheWrite],
		Output:      output,
		Reasoning:   min(c[reasoning], output),
		Zero:        c[prompt] == 0 && output == 0,
		Anomaly:     p.Anomaly,
	}
	if u.Input < 0 { // more was cached than sent: believe the total
		u.Input, u.CachedInput, u.CacheWrite = c[prompt], 0, 0
		u.Anomaly = true
	}
	return u
}

// usage is what was reported; a side of it that was not, or not as a usable
// count, is estimated from the text.
func (r *Request) usage(p *Report, quarters int64, b chat.MediaBound) billing.Usage {
	full := *p
	c := &full.N
	if !p.Has[prompt] {
		c[prompt] = max(r.InputEstimate(b), c[cached]+c[cacheWrite])
	}
	if !p.Has[output] {
		c[output] = max(tokencount.Tokens(quarters), c[reasoning])
	}
	u := full.Usage()
	u.Estimated = !p.Has[prompt] || !p.Has[output]
	u.Zero = u.Zero && !u.Estimated
	return u
}

// wireUsage is usage as the public wire shows it.
func wireUsage(u billing.Usage) *chat.Usage {
	w := &chat.Usage{
		PromptTokens:     u.Input + u.CachedInput + u.CacheWrite,
		CompletionTokens: u.Output,
	}
	w.TotalTokens = w.PromptTokens + w.CompletionTokens
	if u.CachedInput > 0 {
		w.PromptTokensDetails = &chat.PromptDetails{CachedTokens: u.CachedInput}
	}
	if u.Reasoning > 0 {
		w.CompletionTokensDetails = &chat.CompletionDetails{ReasoningTokens: u.Reasoning}
	}
	return w
}

// InputBound is an upper bound of the request's input tokens: a token is at least
// one byte of the body, and media count by the configured bound.
func (r *Request) InputBound(b chat.MediaBound) int64 {
	return r.parsed.InputBound(b)
}

// LinkedBound is how many input tokens above [Request.InputBound] a vendor may
// count, for media by URL and large files in the body.
func (r *Request) LinkedBound(b chat.MediaBound) int64 {
	return r.parsed.LinkedBound(b)
}

// InputEstimate is the likely number of input tokens, for a charge where the
// upstream reported nothing.
func (r *Request) InputEstimate(b chat.MediaBound) int64 {
	m := r.parsed.Media
	return tokencount.Tokens(max(r.quarters()-m.Quarters, 0)+m.Text) + completion.MediaTokens(b, m.Images, m.Files-m.TextFiles)
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
	return r.parsed.TextQuarters(uncounted, func(yield func([]byte) bool) {
		for i := range r.Messages {
			if !yield(r.Messages[i].Content) {
				return
			}
		}
	})
}
