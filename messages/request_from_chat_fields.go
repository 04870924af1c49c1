package messages

import (
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// What becomes of a field of a chat completion request.
const (
	carried = "carried"
	leftOut = "dropped" // left out, and reported
	refused = "refused" // 400
	handled = "settled" // has its effect without reaching the upstream
)

// chatFate is a row of fromChatFields.
type chatFate struct {
	field string // dotted, without indexes
	fate  string
	how   string                              // for a reader
	put   func(*messagesRequestBuilder) error // carries or refuses it; nil where another row's does, or nothing is to be done
	idle  string                              // a value that asks for nothing, and whose loss is not reported
}

// idles reports whether a value asks for nothing.
func (f *chatFate) idles(raw []byte) bool {
	if f.idle == "0" {
		n, ok := rawjson.Float(raw)
		return ok && n == 0
	}
	return f.idle != "" && string(raw) == f.idle
}

// fateOf is the row of a top-level field; nil for one that the table does not
// name, which is dropped.
func fateOf(field string) *chatFate {
	for i := range fromChatFields {
		if fromChatFields[i].field == field {
			return &fromChatFields[i]
		}
	}
	return nil
}

// fromChatFields is what becomes of every field of a chat completion request at an
// upstream that speaks only Messages. A field that has no row is dropped. Rows
// are worked off in their order: thinking looks at max_tokens, and tool_choice at
// the tools that were carried.
var fromChatFields = []chatFate{
	{field: "model", fate: carried, how: "model", put: (*messagesRequestBuilder).model},
	{field: "messages", fate: carried, how: "messages and system, see below", put: (*messagesRequestBuilder).conversation},
	{field: "temperature", fate: carried, how: "temperature; above 1 it is dropped, for the upstream's range ends at 1, its default", put: (*messagesRequestBuilder).temperature},
	{field: "top_p", fate: carried, how: "top_p", put: (*messagesRequestBuilder).topP},
	{field: "max_tokens", fate: carried, how: "max_tokens, the smaller of both; the model's bound where neither is given", put: (*messagesRequestBuilder).maxTokens},
	{field: "max_completion_tokens", fate: carried, how: "max_tokens, see there"},
	{field: "n", fate: refused, how: "above 1; 1 is what the upstream gives", put: (*messagesRequestBuilder).candidates},
	{field: "stream", fate: carried, how: "stream", put: (*messagesRequestBuilder).stream},
	{field: "stream_options", fate: handled, how: "the usage chunk is made of the upstream's counts"},
	{field: "stop", fate: carried, how: "stop_sequences; entries without a visible character are dropped, which the upstream refuses", put: (*messagesRequestBuilder).stop},
	{field: "presence_penalty", fate: leftOut, idle: "0"},
	{field: "frequency_penalty", fate: leftOut, idle: "0"},
	{field: "reasoning_effort", fate: carried, how: "output_config.effort if it is low, medium, high, xhigh or max; else dropped", put: (*messagesRequestBuilder).effort},
	{field: "tools", fate: carried, how: "tools, see below", put: (*messagesRequestBuilder).tools},
	{field: "tool_choice", fate: carried, how: "tool_choice: none, auto, required as any, a function as tool; others are refused", put: (*messagesRequestBuilder).toolChoice},
	{field: "parallel_tool_calls", fate: carried, how: "tool_choice.disable_parallel_tool_use if it is false and there are tools"},
	{field: "response_format", fate: carried, how: "output_config.format if it is json_schema (name, description and strict have no effect: the schema is always kept to); text is the default; json_object is refused, for the upstream has no such mode", put: (*messagesRequestBuilder).responseFormat},
	{field: "user", fate: carried, how: "metadata.user_id", put: (*messagesRequestBuilder).user},
	{field: "service_tier", fate: carried, how: "service_tier if it is auto or standard_only; else dropped", put: (*messagesRequestBuilder).serviceTier},
	{field: "thinking", fate: carried, how: "thinking if it is of the upstream's form and its budget is below max_tokens; else dropped", put: (*messagesRequestBuilder).thinking},
	{field: "top_k", fate: carried, how: "top_k if it is a whole number; else dropped", put: (*messagesRequestBuilder).topK},
	{field: "seed", fate: leftOut},
	{field: "logprobs", fate: leftOut, idle: "false"},
	{field: "top_logprobs", fate: leftOut, idle: "0"},
	{field: "logit_bias", fate: leftOut, idle: "{}"},
	{field: "metadata", fate: leftOut, idle: "{}"},
	{field: "store", fate: leftOut, idle: "false"},
	{field: "modalities", fate: leftOut, idle: `["text"]`},

	{field: "messages.role", fate: carried, how: "user, assistant; system and developer, wherever they stand, are moved to system in their order; tool becomes tool_result in a user turn; turns of one role that follow each other become one"},
	{field: "messages.content", fate: carried, how: "blocks; text without a visible character is left out, for the upstream refuses it"},
	{field: "messages.reasoning_content", fate: carried, how: "thinking blocks where reasoning_signature fits it; else dropped, for the upstream takes no unsigned thought"},
	{field: "messages.reasoning_signature", fate: carried, how: "see reasoning_content; the answer gave it"},
	{field: "messages.name", fate: leftOut},
	{field: "messages.tool_call_id", fate: carried, how: "tool_result.tool_use_id; it must name an open call of the assistant's last turn"},
	{field: "messages.tool_calls", fate: carried, how: "tool_use; each must be answered before the assistant's next turn"},
	{field: "messages.tool_calls.index", fate: handled, how: "the order of the list"},
	{field: "messages.tool_calls.id", fate: carried, how: "tool_use.id; one of other letters than the upstream's, or used before, is replaced with its result's"},
	{field: "messages.tool_calls.type", fate: carried, how: "tool_use if it is function; others are refused"},
	{field: "messages.tool_calls.function", fate: carried, how: "tool_use"},
	{field: "messages.tool_calls.function.name", fate: carried, how: "tool_use.name"},
	{field: "messages.tool_calls.function.arguments", fate: carried, how: "tool_use.input; empty is {}; what is no JSON object is refused"},
	{field: "messages.content.type", fate: carried, how: "type"},
	{field: "messages.content.text", fate: carried, how: "text"},
	{field: "messages.content.image_url", fate: carried, how: "image of users and tools: a data URL as base64 (jpeg, png, gif, webp), http and https as url; others are refused"},
	{field: "messages.content.image_url.url", fate: carried, how: "source"},
	{field: "messages.content.image_url.detail", fate: leftOut, idle: `"auto"`},
	{field: "messages.content.file", fate: carried, how: "document of users and tools: file_data of a PDF or plain text, filename as title; others are refused"},
	{field: "messages.content.video_url", fate: refused},
	{field: "messages.content.audio_url", fate: refused},
	{field: "messages.content.input_audio", fate: refused},
	{field: "messages.content.cache_control", fate: carried, how: "cache_control"},
	{field: "tools.function", fate: carried, how: "a tool; tools of other types are dropped"},
	{field: "tools.function.name", fate: carried, how: "name"},
	{field: "tools.function.description", fate: carried, how: "description"},
	{field: "tools.function.parameters", fate: carried, how: `input_schema; type "object" is added where it has none`},
	{field: "tools.function.strict", fate: carried, how: "strict if it is true"},
	{field: "tools.cache_control", fate: carried, how: "cache_control"},
}
