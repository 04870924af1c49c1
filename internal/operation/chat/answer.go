package chat

import (
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// What is read of an answer and of a chunk: what the candidates say. Some vendors put the
// usage into a candidate.
var (
	answerParts = []conversation.Part{{Name: "choices", As: conversation.AsList, Parts: []conversation.Part{
		{Name: "message", As: conversation.AsObject, Parts: said},
		{Name: "finish_reason", As: conversation.AsStop},
		{Name: "usage", As: conversation.AsUsage},
	}}}
	chunkParts = []conversation.Part{{Name: "choices", As: conversation.AsList, Parts: []conversation.Part{
		{Name: "delta", As: conversation.AsObject, Parts: said},
		{Name: "finish_reason", As: conversation.AsStop},
		{Name: "usage", As: conversation.AsUsage},
	}}}
	said = []conversation.Part{
		{Name: "content", Parts: blockParts}, {Name: "reasoning_content"}, {Name: "reasoning"}, {Name: "refusal"},
		{Name: "tool_calls", As: conversation.AsCalls, Parts: []conversation.Part{
			{Name: "function", As: conversation.AsObject, Parts: []conversation.Part{{Name: "name"}, {Name: "arguments", As: conversation.AsArguments}}},
			{Name: "custom", As: conversation.AsObject, Parts: []conversation.Part{{Name: "name"}, {Name: "input"}}},
		}},
	}
	// Mistral's content is a list of blocks where the model reasons.
	blockParts = []conversation.Part{
		{Name: "text"}, {Name: "refusal"}, {Name: "reasoning"},
		{Name: "thinking", Parts: []conversation.Part{{Name: "text"}}},
	}
)

// usageMembers are those of a usage object.
var usageMembers = []tokencount.Member{
	{Name: "prompt_tokens", Field: conversation.Prompt},
	{Name: "completion_tokens", Field: conversation.Output},
	{Name: "total_tokens", Field: conversation.Total},
	{Name: "cached_tokens", Field: conversation.Cached},
	{Name: "prompt_cache_hit_tokens", Field: conversation.Cached}, // DeepSeek
	{Name: "prompt_tokens_details", Inner: []tokencount.Member{
		{Name: "cached_tokens", Field: conversation.Cached},
		{Name: "cache_write_tokens", Field: conversation.CacheWrite},
		{Name: "cache_creation_input_tokens", Field: conversation.CacheWrite}, // Qwen
	}},
	{Name: "completion_tokens_details", Inner: []tokencount.Member{{Name: "reasoning_tokens", Field: conversation.Reasoning}}},
}

// ReadUsage takes in one usage object and reports whether it counts the output.
func ReadUsage(p *conversation.Report, raw []byte) (counted bool) { return p.Read(raw, usageMembers) }

// form is that of an answer.
var form = conversation.Form{
	Parts: answerParts, Usage: usageMembers,
	Wrong: "The upstream's answer has no choices.", Needs: "message", DropsError: true,
}

// ReadAnswer checks an upstream's 200 answer to the request and reads its
// usage. An empty, cut or malformed body and an error in a 200 body are a
// fault.BadGateway. The answer does not refer to data.
func (r *Request) ReadAnswer(data []byte, o operation.AnswerOptions) (operation.Answer, error) {
	return r.Parsed.ReadAnswer(r.Model, data, &form, o.Media)
}
