package messages

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/estimate"
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

// The fields of a report, in disjoint buckets but for the last.
const (
	input = iota
	cached
	cacheWrite
	output
	reasoning
)

// absurd is a count that no context window reaches.
const absurd = 1 << 30

// counters are the members of a usage object.
var counters = []struct {
	name  string
	field int
}{
	{"input_tokens", input},
	{"cache_read_input_tokens", cached},
	{"cache_creation_input_tokens", cacheWrite},
	{"output_tokens", output},
}

// read takes in one usage object and reports whether it counts the output.
// Anything else is ignored.
func (p *report) read(raw []byte) (told bool) {
	if rawjson.IsNull(raw) {
		return false
	}
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if err := rawjson.IndexInto(o, raw, nil, nil); err != nil {
		p.anomaly = true
		return false
	}
	for _, c := range counters {
		if p.take(c.field, o.Raw(c.name)) {
			told = told || c.field == output
		}
	}
	details := rawjson.Borrow()
	defer rawjson.GiveBack(details)
	if raw := o.Raw("output_tokens_details"); !rawjson.IsNull(raw) && rawjson.IndexInto(details, raw, nil, nil) == nil {
		p.take(reasoning, details.Raw("thinking_tokens"))
	}
	return told
}

// begin takes in the usage of message_start. Its output is a count so far, and
// an input of nothing at all means that the upstream does not know it yet.
func (p *report) begin(raw []byte) {
	var first report
	first.read(raw)
	first.has[output] = false
	if first.counts[input]+first.counts[cached]+first.counts[cacheWrite] == 0 {
		first.has[input] = false
	}
	p.anomaly = p.anomaly || first.anomaly
	for i := range p.counts {
		p.has[i] = p.has[i] || first.has[i]
		p.counts[i] = max(p.counts[i], first.counts[i])
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

// usage is what was reported; a side of it that was not, or not as a usable
// count, is estimated from the text.
func (r *Request) usage(p *report, quarters int64, b chat.MediaBound) billing.Usage {
	c := p.counts
	if !p.has[input] {
		c[input] = max(r.InputEstimate(b)-c[cached]-c[cacheWrite], c[input])
	}
	if !p.has[output] {
		c[output] = max(estimate.Tokens(quarters), c[output], c[reasoning])
	}
	u := billing.Usage{
		Input: c[input], CachedInput: c[cached], CacheWrite: c[cacheWrite],
		Output: c[output], Reasoning: min(c[reasoning], c[output]),
		Estimated: !p.has[input] || !p.has[output],
		Anomaly:   p.anomaly,
	}
	u.Zero = u.IsZero() && !u.Estimated
	return u
}

// shownUsage is usage as the public wire shows it.
func shownUsage(u billing.Usage) Usage {
	return Usage{
		InputTokens: u.Input, CacheReadInputTokens: u.CachedInput, CacheCreationInputTokens: u.CacheWrite,
		OutputTokens: u.Output,
	}
}
