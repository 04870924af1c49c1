package conversation

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// Report gathers the usage objects of one answer. Reports are cumulative, not
// additive: each count keeps its largest value. The zero Report is ready; it is not
// safe for concurrent use.
type Report struct {
	tokencount.Report
	// SaidNothing says that the answer began with an input of 0, which a vendor also says
	// that does not know it yet. It counts once a later report has no other.
	SaidNothing bool
}

// The fields of a Report. A vendor reports either the input or the prompt.
const (
	Input = iota // without what the cache read and wrote
	Cached
	CacheWrite
	Output
	Reasoning // is part of the output
	Prompt    // the input, with what the cache read and wrote
	Total     // of the prompt and all output
)

// Read takes in one usage object and reports whether it counts the output, be it in a
// total. Null and what is no object are ignored.
func (p *Report) Read(usage []byte, members []tokencount.Member) (counted bool) {
	told := p.Report.Read(usage, members)
	return told[Output] || told[Total]
}

// imply adds the counts that the others imply. A missing count is the total less the other
// one, if anything is left: an answer with text is not free because of a total. Vendors that
// count reasoning beside the completion (xAI, Gemini) report all of the output only in the
// total. Without a total, such an answer has more reasoning than output.
func (p *Report) imply() {
	n := &p.N
	if p.Has[Output] && n[Reasoning] > n[Output] && !(p.Has[Total] && p.Has[Prompt]) {
		n[Output] += n[Reasoning]
	}
	switch rest := n[Total] - n[Prompt] - n[Output]; { // a count that is missing is 0
	case !p.Has[Total] || rest <= 0:
	case p.Has[Prompt]:
		n[Output] += rest
		p.Has[Output] = true
	case p.Has[Output]:
		n[Prompt] = rest
		p.Has[Prompt] = true
	}
}

// Disjoint is the report with its input and output as they are billed, of counts that the
// others imply too.
func (p Report) Disjoint() Report {
	p.imply()
	if !p.Has[Prompt] {
		return p
	}
	n := &p.N
	p.Has[Input] = true
	n[Input] = n[Prompt] - n[Cached] - n[CacheWrite]
	if n[Input] < 0 { // more was cached than sent: believe the total
		n[Input], n[Cached], n[CacheWrite] = n[Prompt], 0, 0
		p.Anomaly = true
	}
	return p
}

// Usage is what was reported, in disjoint buckets. If no count tells or implies the input, it
// is estimated by the request. An output without a count is estimated by the quarters of its
// text.
func (p Report) Usage(r *Parsed, b chat.MediaBound, quarters int64) billing.Usage {
	p = p.Disjoint()
	c := &p.N
	if !p.Has[Input] {
		c[Input] = max(r.InputEstimate(b)-c[Cached]-c[CacheWrite], c[Input])
	}
	if !p.Has[Output] {
		c[Output] = max(tokencount.Tokens(quarters), c[Output], c[Reasoning])
	}
	u := billing.Usage{
		Input: c[Input], CachedInput: c[Cached], CacheWrite: c[CacheWrite],
		Output: c[Output], Reasoning: min(c[Reasoning], c[Output]),
		Estimated: !p.Has[Input] || !p.Has[Output],
		Anomaly:   p.Anomaly,
	}
	u.Zero = u.IsZero() && !u.Estimated
	return u
}
