package responses

import (
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// What is read of an item, of a response and of an event.
var (
	textParts = []conversation.Part{{Name: "text"}, {Name: "refusal"}, {Name: "transcript"}}
	itemParts = []conversation.Part{
		{Name: "content", As: conversation.AsList, Parts: textParts},
		{Name: "summary", As: conversation.AsList, Parts: textParts},
		{Name: "name"}, {Name: "arguments"}, {Name: "input"}, {Name: "code"},
		{Name: "encrypted_content", As: conversation.AsEncrypted},
	}
	responseParts = []conversation.Part{
		{Name: "output", As: conversation.AsList, Parts: itemParts},
		{Name: "usage", As: conversation.AsUsage},
	}
	eventParts = []conversation.Part{ // besides a response
		{Name: "delta"},
		{Name: "item", As: conversation.AsObject, Parts: itemParts},
	}
)

// form is that of an answer.
var form = conversation.Form{
	Parts: responseParts,
	Type:  "response", In: "object", Usage: usageMembers,
	Wrong:  "The upstream's answer is not a response with output.",
	Failed: failed, Error: publicError,
}

// failed is the error that a response without any output ended with; nil for every
// other one, which the caller gets as it is.
func failed(o *rawjson.Object, said int64) error {
	status, _ := rawjson.String(o.Raw("status"))
	e := o.Raw("error")
	if rawjson.IsNull(e) && status != "failed" || said > 0 {
		return nil
	}
	return vendorError(e)
}

// usageMembers are those of a usage object.
var usageMembers = []tokencount.Member{
	{Name: "input_tokens", Field: conversation.Prompt},
	{Name: "input_tokens_details", Inner: []tokencount.Member{
		{Name: "cached_tokens", Field: conversation.Cached},
		{Name: "cache_write_tokens", Field: conversation.CacheWrite},
	}},
	{Name: "output_tokens", Field: conversation.Output},
	{Name: "output_tokens_details", Inner: []tokencount.Member{{Name: "reasoning_tokens", Field: conversation.Reasoning}}},
	{Name: "total_tokens", Field: conversation.Total},
}

// ReadUsage takes in one usage object and reports whether it counts the output. Anything
// else is ignored.
func ReadUsage(p *conversation.Report, raw []byte) (counted bool) { return p.Read(raw, usageMembers) }

// ReadAnswer checks an upstream's 200 answer to the request and reads its
// usage. An empty, cut or malformed body and a response that failed without output are a
// fault.BadGateway. The answer does not refer to data.
func (r *Request) ReadAnswer(data []byte, o operation.AnswerOptions) (operation.Answer, error) {
	return r.Parsed.ReadAnswer(r.Model, data, &form, o.Media)
}

// CountAnswer is the answer to a request to count tokens.
func CountAnswer(tokens int64) []byte {
	return append(strconv.AppendInt([]byte(`{"object":"response.input_tokens","input_tokens":`), tokens, 10), '}')
}
