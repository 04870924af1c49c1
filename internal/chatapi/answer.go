package chatapi

import (
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// What is read of an answer, and of a chunk.
var (
	answerParts = candidates("message")
	chunkParts  = candidates("delta")
)

// candidates are the candidates, with what they say in the member called name. Some
// vendors put the usage into a candidate.
func candidates(name string) []completion.Part {
	function := []completion.Part{{Name: "name"}, {Name: "arguments"}}
	call := []completion.Part{{Name: "function", As: completion.AsObject, Parts: function}}
	said := []completion.Part{
		{Name: "content"}, {Name: "reasoning_content"}, {Name: "reasoning"}, {Name: "refusal"},
		{Name: "tool_calls", As: completion.AsList, Parts: call},
	}
	choice := []completion.Part{
		{Name: name, As: completion.AsObject, Parts: said},
		{Name: "finish_reason", As: completion.AsStop},
		{Name: "usage", As: completion.AsUsage},
	}
	return []completion.Part{{Name: "choices", As: completion.AsList, Parts: choice}}
}

// usageMembers are those of a usage object.
var usageMembers = []tokencount.Member{
	{Name: "prompt_tokens", Field: completion.Prompt},
	{Name: "completion_tokens", Field: completion.Output},
	{Name: "total_tokens", Field: completion.Total},
	{Name: "cached_tokens", Field: completion.Cached},
	{Name: "prompt_tokens_details", Inner: []tokencount.Member{
		{Name: "cached_tokens", Field: completion.Cached},
		{Name: "cache_write_tokens", Field: completion.CacheWrite},
	}},
	{Name: "completion_tokens_details", Inner: []tokencount.Member{{Name: "reasoning_tokens", Field: completion.Reasoning}}},
}

// Report is the usage that chat upstreams report.
type Report struct{ completion.Report }

// Read takes in one usage object and reports whether it counts the output.
func (p *Report) Read(usage []byte) (counted bool) { return p.Report.Read(usage, usageMembers) }

// Known says which sides were reported, be it as 0: the prompt and the completion.
func (p *Report) Known() (in, out bool) { return p.Has[completion.Prompt], p.Has[completion.Output] }

// Usage is what was reported, in disjoint buckets; a count that was not reported is 0.
func (p *Report) Usage() billing.Usage { return p.Reported() }

// ReadAnswer checks an upstream's 200 answer to the request and reads its
// usage. An empty, cut or malformed body and an error in a 200 body are a
// fault.BadGateway. The Answer does not refer to data.
func (r *Request) ReadAnswer(data []byte, b chat.MediaBound) (completion.Answer, error) {
	var s completion.Scan
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if err := answer.Whole(o, s.Read(o, data, answerParts)); err != nil {
		return completion.Answer{}, err
	}
	if !s.Listed {
		return completion.Answer{}, answer.Bad("The upstream's answer has no choices.", nil)
	}
	var p completion.Report
	p.Read(o.Raw("usage"), usageMembers)
	p.Read(s.Usage, usageMembers)
	var few [2]rawjson.Edit
	body := o.Apply(make([]byte, 0, len(data)+len(r.Model)+16), r.publicEdits(few[:0], o)...)
	usage := p.Usage(func() int64 { return r.InputEstimate(b) }, s.Text.Quarters)
	return completion.Answer{Body: body, Usage: usage, Said: tokencount.Tokens(s.Text.Quarters)}, nil
}

// publicEdits are the edits that every answer and chunk gets: the public
// model id, and no `"error": null`, which kills clients.
func (r *Request) publicEdits(edits []rawjson.Edit, o *rawjson.Object) []rawjson.Edit {
	if o.Raw("model") != nil {
		edits = append(edits, rawjson.Set("model", r.Spelled(r.Model)))
	}
	if o.Raw("error") != nil {
		edits = append(edits, rawjson.Delete("error"))
	}
	return edits
}
