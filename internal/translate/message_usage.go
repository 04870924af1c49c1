package translate

import "github.com/tollhouse-ai/gateway/internal/tokencount"

// report gathers what an upstream of messages says of usage.
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

// read takes in one usage object.
func (p *report) read(raw []byte) { p.Read(raw, usageMembers) }

// begin takes in the usage of message_start. Its output is a count so far, and
// an input of nothing at all means that the upstream does not know it yet.
func (p *report) begin(raw []byte) {
	p.read(raw)
	p.Has[output] = false
	if p.N[input]+p.N[cached]+p.N[cacheWrite] == 0 {
		p.Has[input] = false
	}
}
