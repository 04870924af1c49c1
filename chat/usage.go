package chat

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// report gathers what an upstream says of usage.
type report struct{ tokencount.Report }

// The fields of a report.
const (
	prompt = iota
	cached
	cacheWrite
	completion
	reasoning
	total
)

// usageMembers are those of a usage object.
var usageMembers = []tokencount.Member{
	{Name: "prompt_tokens", Field: prompt},
	{Name: "completion_tokens", Field: completion},
	{Name: "total_tokens", Field: total},
	{Name: "cached_tokens", Field: cached},
	{Name: "prompt_tokens_details", Inner: []tokencount.Member{
		{Name: "cached_tokens", Field: cached},
		{Name: "cache_write_tokens", Field: cacheWrite},
	}},
	{Name: "completion_tokens_details", Inner: []tokencount.Member{{Name: "reasoning_tokens", Field: reasoning}}},
}

// read takes in one usage object and reports whether it counts the output.
// Anything else is ignored.
func (p *report) read(raw []byte) (output bool) { return p.Read(raw, usageMembers)[completion] }

// output is what was reported of it. Vendors that count reasoning beside the
// completion (xAI, Gemini) tell all of it only in the total.
func (p *report) output() int64 {
	if !p.Has[prompt] || !p.Has[completion] {
		return p.N[completion]
	}
	return max(p.N[completion], p.N[total]-p.N[prompt])
}

// usage is the report in disjoint buckets.
func (p *report) usage() billing.Usage {
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

// wireUsage is usage as the public wire shows it.
func wireUsage(u billing.Usage) *Usage {
	w := &Usage{
		PromptTokens:     u.Input + u.CachedInput + u.CacheWrite,
		CompletionTokens: u.Output,
	}
	w.TotalTokens = w.PromptTokens + w.CompletionTokens
	if u.CachedInput > 0 {
		w.PromptTokensDetails = &PromptDetails{CachedTokens: u.CachedInput}
	}
	if u.Reasoning > 0 {
		w.CompletionTokensDetails = &CompletionDetails{ReasoningTokens: u.Reasoning}
	}
	return w
}
