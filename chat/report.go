package chat

import "github.com/tollhouse-ai/gateway/billing"

// Report gathers the usage objects of one answer, for a room that turns
// completions into another wire. The zero Report is ready; it is not safe for
// concurrent use.
type Report struct{ told report }

// Read takes in one usage object. Reports are cumulative, not additive: each
// count keeps its largest value. Null and what is no object are ignored.
func (r *Report) Read(usage []byte) { r.told.read(usage) }

// Usage is what was reported, in disjoint buckets; a count that was not
// reported is 0.
func (r *Report) Usage() billing.Usage { return r.told.usage() }

// Known says which sides were reported, be it as 0.
func (r *Report) Known() (input, output bool) { return r.told.Has[prompt], r.told.Has[completion] }
