package chat

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// report gathers what an upstream says of usage. Reports are cumulative, not
// additive: each field keeps its largest value, so that order and repetition
// do not matter (faults.md, row 6).
type report struct {
	has     [5]bool // which fields had a usable count
	anomaly bool
	counts  [5]int64
}

// The fields of a report.
const (
	prompt = iota
	cached
	cacheWrite
	completion
	reasoning
)

// absurd is a count that no context window reaches.
const absurd = 1 << 30

// read takes in one usage object and reports whether it counts the output.
// Anything else is ignored.
func (p *report) read(raw []byte) (output bool) {
	if rawjson.IsNull(raw) {
		return false
	}
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if err := rawjson.IndexInto(o, raw, nil, nil); err != nil {
		p.anomaly = true
		return false
	}
	p.take(prompt, o.Raw("prompt_tokens"))
	output = p.take(completion, o.Raw("completion_tokens"))
	p.take(cached, o.Raw("cached_tokens"))
	p.takeDetails(o.Raw("prompt_tokens_details"), promptDetails)
	p.takeDetails(o.Raw("completion_tokens_details"), completionDetails)
	return output
}

// detail is a member of a details object and the count that it is.
type detail struct {
	name  string
	field int
}

var (
	promptDetails     = []detail{{"cached_tokens", cached}, {"cache_write_tokens", cacheWrite}}
	completionDetails = []detail{{"reasoning_tokens", reasoning}}
)

// takeDetails takes in a details object. Anything else is ignored.
func (p *report) takeDetails(raw []byte, details []detail) {
	if rawjson.IsNull(raw) {
		return
	}
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if rawjson.IndexInto(o, raw, nil, nil) != nil {
		return
	}
	for _, d := range details {
		p.take(d.field, o.Raw(d.name))
	}
}

// take keeps a count; false if it is absent or not a count at all.
func (p *report) take(field int, raw []byte) bool {
	if rawjson.IsNull(raw) {
		return false
	}
	n, ok := rawjson.Int(raw)
	if !ok || n < 0 {
		p.anomaly = true
		return false
	}
	if n > absurd {
		p.anomaly, n = true, absurd
	}
	p.counts[field], p.has[field] = max(p.counts[field], n), true
	return true
}

// usage is the report in disjoint buckets.
func (p *report) usage() billing.Usage {
	c := p.counts
	u := billing.Usage{
		Input:       c[prompt] - c[cached] - c[cacheWrite],
		CachedInput: c[cached],
		CacheWrite:  c[cacheWrite],
		Output:      c[completion],
		Reasoning:   min(c[reasoning], c[completion]),
		Zero:        c[prompt] == 0 && c[completion] == 0,
		Anomaly:     p.anomaly,
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
