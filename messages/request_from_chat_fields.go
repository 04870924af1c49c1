package messages

import (
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// What becomes of a field of a chat completion request.
const (
	fateCarried = "carried"
	fateDropped = "dropped" // left out, and reported
	fateRefused = "refused" // 400
	fateSettled = "settled" // has its effect without reaching the upstream
)

// chatFate is a row of chatFates.
type chatFate struct {
	field string // dotted, without indexes
	fate  string
	how   string                // for a reader
	put   func(*chatCall) error // carries or refuses it; nil where another row's does, or nothing is to be done
	idle  string                // a value that asks for nothing, and whose loss is not reported
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
	for i := range chatFates {
		if chatFates[i].field == field {
			return &chatFates[i]
		}
	}
	return nil
}

// chatFates is what becomes of every field of a chat completion request at an
// upstream that speaks only Messages. A field that has no row is dropped. Rows
// are worked off in their order: thinking looks at max_tokens, and tool_choice at
// the tools that were carried.
var chatFates = []chatFate{
	{field: "model", fate: fateCarried, how: "model", put: (*chatCall).model},
	{field: "messages", fate: fateCarried, how: "messages and system, see below", put: (*chatCall).conversation},
	{field: "temperature", fate: fateCarried, how: "temperature; above 1 it is dropped, for the upstream's range ends at 1, its default", put: (*chatCall).temperature},
	{field: "top_p", fate: fateCarried, how: "top_p", put: (*chatCall).topP},
	{field: "max_tokens", fate: fateCarried, how: "max_tokens, the smaller of both; the model's bound where neither is given", put: (*chatCall).maxTokens},
	{field: "max_completion_tokens", fate: fateCarried, how: "max_tokens, see there"},
	{field: "n", fate: fateRefused, how: "above 1; 1 is what the upstream gives", put: (*chatCall).candidates},
	{field: "stream", fate: fateCarried, how: "stream", put: (*chatCall).stream},
	{field: "stream_options", fate: fateSettled, how: "the usage chunk is made of the upstream's counts"},
	{field: "stop", fate: fateCarried, how: "stop_sequences; entries without a visible character are dropped, which the upstream refuses", put: (*chatCall).stop},
	{field: "presence_penalty", fate: fateDropped, idle: "0"},
	{field: "frequency_penalty", fate: fateDropped, idle: "0"},
	{field: "reasoning_effort", fate: fateCarried, how: "output_config.effort if it is low, medium, high, xhigh or max; else dropped", put: (*chatCall).effort},
	{field: "tools", fate: fateCarried, how: "tools, see below", put: (*chatCall).tools},
	{field: "tool_choice", fate: fateCarried, how: "tool_choice: none, auto, required as any, a function as tool; others are refused", put: (*chatCall).toolChoice},
	{field: "parallel_tool_calls", fate: fateCarried, how: "tool_choice.disable_parallel_tool_use if it is false and there are tools"},
	{field: "response_format", fate: fateCarried, how: "output_config.format if it is json_schema (name, description and strict have no effect: the schema is always kept to); text is the default; json_object is refused, for the upstream has no such mode", put: (*chatCall).responseFormat},
	{field: "user", fate: fateCarried, how: "metadata.user_id", put: (*chatCall).user},
	{field: "service_tier", fate: fateCarried, how: "service_tier if it is auto or standard_only; else dropped", put: (*chatCall).serviceTier},
	{field: "thinking", fate: fateCarried, how: "thinking if it is of the upstream's form and its budget is below max_tokens; else dropped", put: (*chatCall).thinking},
	{field: "top_k", fate: fateCarried, how: "top_k if it is a whole number; else dropped", put: (*chatCall).topK},
	{field: "seed", fate: fateDropped},
	{field: "logprobs", fate: fateDropped, idle: "false"},
	{field: "top_logprobs", fate: fateDropped, idle: "0"},
	{field: "logit_bias", fate: fateDropped, idle: "{}"},
	{field: "metadata", fate: fateDropped, idle: "{}"},
	{field: "store", fate: fateDropped, idle: "false"},
	{field: "modalities", fate: fateDropped, idle: `["text"]`},

	{field: "messages.role", fate: fateCarried, how: "user, assistant; system and developer, wherever they stand, are moved to system in their order; tool becomes tool_result in a user turn; turns of one role that follow each other become one"},
	{field: "messages.content", fate: fateCarried, how: "blocks; text without a visible character is left out, for the upstream refuses it"},
	{field: "messages.reasoning_content", fate: fateCarried, how: "thinking blocks where reasoning_signature fits it; else dropped, for the upstream takes no unsigned thought"},
	{field: "messages.reasoning_signature", fate: fateCarried, how: "see reasoning_content; the answer gave it"},
	{field: "messages.name", fate: fateDropped},
	{field: "messages.tool_call_id", fate: fateCarried, how: "tool_result.tool_use_id; it must name an open call of the assistant's last turn"},
	{field: "messages.tool_calls", fate: fateCarried, how: "tool_use; each must be answered before the assistant's next turn"},
	{field: "messages.tool_calls.index", fate: fateSettled, how: "the order of the list"},
	{field: "messages.tool_calls.id", fate: fateCarried, how: "tool_use.id; one of other letters than the upstream's, or used before, is replaced with its result's"},
	{field: "messages.tool_calls.type", fate: fateCarried, how: "tool_use if it is function; others are refused"},
	{field: "messages.tool_calls.function", fate: fateCarried, how: "tool_use"},
	{field: "messages.tool_calls.function.name", fate: fateCarried, how: "tool_use.name"},
	{field: "messages.tool_calls.function.arguments", fate: fateCarried, how: "tool_use.input; empty is {}; what is no JSON object is refused"},
	{field: "messages.content.type", fate: fateCarried, how: "type"},
	{field: "messages.content.text", fate: fateCarried, how: "text"},
	{field: "messages.content.image_url", fate: fateCarried, how: "image of users and tools: a data URL as base64 (jpeg, png, gif, webp), http and https as url; others are refused"},
	{field: "messages.content.image_url.url", fate: fateCarried, how: "source"},
	{field: "messages.content.image_url.detail", fate: fateDropped, idle: `"auto"`},
	{field: "messages.content.file", fate: fateCarried, how: "document of users and tools: file_data of a PDF or plain text, filename as title; others are refused"},
	{field: "messages.content.video_url", fate: fateRefused},
	{field: "messages.content.audio_url", fate: fateRefused},
	{field: "messages.content.input_audio", fate: fateRefused},
	{field: "messages.content.cache_control", fate: fateCarried, how: "cache_control"},
	{field: "tools.function", fate: fateCarried, how: "a tool; tools of other types are dropped"},
	{field: "tools.function.name", fate: fateCarried, how: "name"},
	{field: "tools.function.description", fate: fateCarried, how: "description"},
	{field: "tools.function.parameters", fate: fateCarried, how: `input_schema; type "object" is added where it has none`},
	{field: "tools.function.strict", fate: fateCarried, how: "strict if it is true"},
	{field: "tools.cache_control", fate: fateCarried, how: "cache_control"},
}
