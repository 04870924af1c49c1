package chatapi

import (
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// What is read of an answer and of a chunk: what the candidates say. Some vendors put the
// usage into a candidate.
var (
	answerParts = []completion.Part{{Name: "choices", As: completion.AsList, Parts: []completion.Part{
		{Name: "message", As: completion.AsObject, Parts: said},
		{Name: "finish_reason", As: completion.AsStop},
		{Name: "usage", As: completion.AsUsage},
	}}}
	chunkParts = []completion.Part{{Name: "choices", As: completion.AsList, Parts: []completion.Part{
		{Name: "delta", As: completion.AsObject, Parts: said},
		{Name: "finish_reason", As: completion.AsStop},
		{Name: "usage", As: completion.AsUsage},
	}}}
	said = []completion.Part{
		{Name: "content"}, {Name: "reasoning_content"}, {Name: "reasoning"}, {Name: "refusal"},
		{Name: "tool_calls", As: completion.AsList, Parts: []completion.Part{
			{Name: "function", As: completion.AsObject, Parts: []completion.Part{{Name: "name"}, {Name: "arguments"}}},
		}},
	}
)

// usageMembers are those of a usage object.
var usageMembers = []tokencount.Member{
	{Name: "prompt_tokens", Field: completion.Prompt},
	{Name: "completion_tokens", Field: completion.Output},
	{Name: "total_tokens", Field: completion.Total},
	{Name: "cached_tokens", Field: completion.Cached},
	{Name: "prompt_cache_hit_tokens", Field: completion.Cached}, // DeepSeek
	{Name: "prompt_tokens_details", Inner: []tokencount.Member{
		{Name: "cached_tokens", Field: completion.Cached},
		{Name: "cache_write_tokens", Field: completion.CacheWrite},
	}},
	{Name: "completion_tokens_details", Inner: []tokencount.Member{{Name: "reasoning_tokens", Field: completion.Reasoning}}},
}

// ReadUsage takes in one usage object and reports whether it counts the output.
func ReadUsage(p *completion.Report, raw []byte) (counted bool) { return p.Read(raw, usageMembers) }

// form is that of an answer.
var form = completion.Form{
	Parts: answerParts, Usage: usageMembers,
	Wrong: "The upstream's answer has no choices.", DropsError: true,
}

// ReadAnswer checks an upstream's 200 answer to the request and reads its
// usage. An empty, cut or malformed body and an error in a 200 body are a
// fault.BadGateway. The Answer does not refer to data.
func (r *Request) ReadAnswer(data []byte, b chat.MediaBound) (completion.Answer, error) {
	return r.Parsed.ReadAnswer(r.Model, data, &form, b)
}
