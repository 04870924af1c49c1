package messages

import (
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// What is read of a block or a delta, and of an event.
var (
	blockParts = []conversation.Part{
		{Name: "text"}, {Name: "thinking"}, {Name: "partial_json"}, {Name: "name"},
		{Name: "input", As: conversation.AsJSON},
		{Name: "type", As: conversation.AsType},
		{Name: "stop_reason", As: conversation.AsStop},
	}
	eventParts = []conversation.Part{
		{Name: "delta", As: conversation.AsObject, Parts: blockParts},
		{Name: "content_block", As: conversation.AsObject, Parts: blockParts},
	}
)

// form is that of an answer.
var form = conversation.Form{
	Parts: []conversation.Part{{Name: "content", As: conversation.AsList, Parts: blockParts}},
	Type:  "message", Usage: usageMembers,
	Wrong: "The upstream's answer is not a message with content.",
}

// ReadAnswer checks an upstream's 200 answer to the request and reads its
// usage. An empty, cut or malformed body and an error in a 200 body are a
// fault.BadGateway. The answer does not refer to data.
func (r *Request) ReadAnswer(data []byte, o operation.AnswerOptions) (operation.Answer, error) {
	return r.Parsed.ReadAnswer(r.Model, data, &form, o.Media)
}

// CountAnswer is the answer to a request to count tokens.
func CountAnswer(tokens int64) []byte {
	return append(strconv.AppendInt([]byte(`{"input_tokens":`), tokens, 10), '}')
}

// usageMembers are those of a usage object, whose counts are disjoint but for the last.
var usageMembers = []tokencount.Member{
	{Name: "input_tokens", Field: conversation.Input},
	{Name: "cache_read_input_tokens", Field: conversation.Cached},
	{Name: "cache_creation_input_tokens", Field: conversation.CacheWrite},
	{Name: "output_tokens", Field: conversation.Output},
	{Name: "output_tokens_details", Inner: []tokencount.Member{{Name: "thinking_tokens", Field: conversation.Reasoning}}},
}

// ReadUsage takes in one usage object and reports whether it counts the output.
// Anything else is ignored.
func ReadUsage(p *conversation.Report, raw []byte) (counted bool) {
	counted = p.Read(raw, usageMembers)
	p.Has[conversation.Input] = p.Has[conversation.Input] || counted && p.SaidNothing
	return counted
}

// BeginUsage takes in the usage of message_start. Its output is a count so far, and so is
// an input of nothing at all: see [conversation.Report].
func BeginUsage(p *conversation.Report, raw []byte) {
	var first conversation.Report
	ReadUsage(&first, raw)
	n := &first.N
	told := first.Has[conversation.Input]
	known := told && n[conversation.Input]+n[conversation.Cached]+n[conversation.CacheWrite] > 0
	p.SaidNothing = told && !known
	before := p.Has
	ReadUsage(p, raw)
	p.Has[conversation.Input], p.Has[conversation.Output] = before[conversation.Input] || known, before[conversation.Output]
}
