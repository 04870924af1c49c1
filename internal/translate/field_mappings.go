package translate

import (
	"iter"
	"strings"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/messages"
)

// The tables of this file say field by field what becomes of a request in the other
// format. Both ways the code looks up in them what it drops; what they say of the
// others is printed by the tests into testdata/*_fates.golden, to which
// docs/messages.md links, and each row has a test.

// What becomes of a field.
const (
	carried = "carried"
	leftOut = "dropped" // and reported: it is a hint
	refused = "refused" // 400: without it the answer would mean something else
	handled = "settled" // has its effect without reaching the upstream
)

// fieldMapping says what becomes of one field.
type fieldMapping struct {
	field  string // dotted, without indexes
	action string
	note   string // as what it is carried, or why not
	noop   string // a value that asks for nothing, and whose loss is not reported
}

// isNoop reports whether a value asks for nothing.
func (f *fieldMapping) isNoop(raw []byte) bool {
	if f.noop == "0" {
		n, ok := rawjson.Float(raw)
		return ok && n == 0
	}
	return f.noop != "" && string(raw) == f.noop
}

// fieldMappings is a table of fields. One that is not listed is dropped.
type fieldMappings []fieldMapping

// find is the row of a field; without a field if there is none, which is dropped.
func (m fieldMappings) find(field string) fieldMapping {
	for i := range m {
		if m[i].field == field {
			return m[i]
		}
	}
	return fieldMapping{action: leftOut}
}

// unmapped calls drop for every member of an object that no row carries, and that
// asks for something. path is that of the object; it is empty or ends in a point.
func (m fieldMappings) unmapped(members iter.Seq2[string, []byte], path string, drop func(name string, raw []byte)) {
	for name, raw := range members {
		f := m.find(path + name)
		if strings.Contains(name, ".") { // what looks like the row of a part is none
			f = fieldMapping{action: leftOut}
		}
		if f.action == leftOut && !rawjson.IsNull(raw) && !f.isNoop(raw) {
			drop(name, raw)
		}
	}
}

// fromChatFields are the fields of a chat completion request at an upstream that
// speaks only Messages.
var fromChatFields = fieldMappings{
	{field: "model", action: carried, note: "model"},
	{field: "messages", action: carried, note: "messages and system, see below"},
	{field: "temperature", action: carried, note: "temperature; above 1 it is dropped, for the upstream's range ends at 1, its default"},
	{field: "top_p", action: carried, note: "top_p"},
	{field: "max_tokens", action: carried, note: "max_tokens, the smaller of both; the model's bound where neither is given"},
	{field: "max_completion_tokens", action: carried, note: "max_tokens, see there"},
	{field: "n", action: refused, note: "above 1; 1 is what the upstream gives"},
	{field: "stream", action: carried, note: "stream"},
	{field: "stream_options", action: handled, note: "the usage chunk is made of the upstream's counts"},
	{field: "stop", action: carried, note: "stop_sequences; entries without a visible character are dropped, which the upstream refuses"},
	{field: "presence_penalty", action: leftOut, noop: "0"},
	{field: "frequency_penalty", action: leftOut, noop: "0"},
	{field: "reasoning_effort", action: carried, note: "output_config.effort if it is low, medium, high, xhigh or max; else dropped"},
	{field: "tools", action: carried, note: "tools, see below"},
	{field: "tool_choice", action: carried, note: "tool_choice: none, auto, required as any, a function as tool; others are refused"},
	{field: "parallel_tool_calls", action: carried, note: "tool_choice.disable_parallel_tool_use if it is false and there are tools"},
	{field: "response_format", action: carried, note: "output_config.format if it is json_schema (name, description and strict have no effect: the schema is always kept to); text is the default; json_object is refused, for the upstream has no such mode"},
	{field: "user", action: carried, note: "metadata.user_id"},
	{field: "service_tier", action: carried, note: "service_tier if it is auto or standard_only; else dropped"},
	{field: "thinking", action: carried, note: "thinking if it is of the upstream's form and its budget is below max_tokens; else dropped"},
	{field: "top_k", action: carried, note: "top_k if it is a whole number; else dropped"},
	{field: "seed", action: leftOut},
	{field: "logprobs", action: leftOut, noop: "false"},
	{field: "top_logprobs", action: leftOut, noop: "0"},
	{field: "logit_bias", action: leftOut, noop: "{}"},
	{field: "metadata", action: leftOut, noop: "{}"},
	{field: "store", action: leftOut, noop: "false"},
	{field: "modalities", action: leftOut, noop: `["text"]`},

	{field: "messages.role", action: carried, note: "user, assistant; system and developer, wherever they stand, are moved to system in their order; tool becomes tool_result in a user turn; turns of one role that follow each other become one"},
	{field: "messages.content", action: carried, note: "blocks; text without a visible character is left out, for the upstream refuses it"},
	{field: "messages.reasoning_content", action: carried, note: "thinking blocks where reasoning_signature fits it; else dropped, for the upstream takes no unsigned thought"},
	{field: "messages.reasoning_signature", action: carried, note: "see reasoning_content; the answer gave it"},
	{field: "messages.name", action: leftOut},
	{field: "messages.tool_call_id", action: carried, note: "tool_result.tool_use_id; it must name an open call of the assistant's last turn"},
	{field: "messages.tool_calls", action: carried, note: "tool_use; each must be answered before the assistant's next turn"},
	{field: "messages.tool_calls.index", action: handled, note: "the order of the list"},
	{field: "messages.tool_calls.id", action: carried, note: "tool_use.id; one of other letters than the upstream's, or used before, is replaced with its result's"},
	{field: "messages.tool_calls.type", action: carried, note: "tool_use if it is function; others are refused"},
	{field: "messages.tool_calls.function", action: carried, note: "tool_use"},
	{field: "messages.tool_calls.function.name", action: carried, note: "tool_use.name"},
	{field: "messages.tool_calls.function.arguments", action: carried, note: "tool_use.input; empty is {}; what is no JSON object is refused"},
	{field: "messages.content.type", action: carried, note: "type"},
	{field: "messages.content.text", action: carried, note: "text"},
	{field: "messages.content.image_url", action: carried, note: "image of users and tools: a data URL as base64 (jpeg, png, gif, webp), http and https as url; others are refused"},
	{field: "messages.content.image_url.url", action: carried, note: "source"},
	{field: "messages.content.image_url.detail", action: leftOut, noop: `"auto"`},
	{field: "messages.content.file", action: carried, note: "document of users and tools: file_data of a PDF or plain text, filename as title; others are refused"},
	{field: "messages.content.video_url", action: refused},
	{field: "messages.content.audio_url", action: refused},
	{field: "messages.content.input_audio", action: refused},
	{field: "messages.content.cache_control", action: carried, note: "cache_control"},
	{field: "tools.function", action: carried, note: "a tool; tools of other types are dropped"},
	{field: "tools.function.name", action: carried, note: "name"},
	{field: "tools.function.description", action: carried, note: "description"},
	{field: "tools.function.parameters", action: carried, note: `input_schema; type "object" is added where it has none`},
	{field: "tools.function.strict", action: carried, note: "strict if it is true"},
	{field: "tools.cache_control", action: carried, note: "cache_control"},
}

// toChatFields are the fields of a Messages request at an upstream that speaks only
// chat completions.
var toChatFields = fieldMappings{
	{field: "model", action: carried, note: "model"},
	{field: "max_tokens", action: carried, note: "max_tokens"},
	{field: "system", action: carried, note: "one system message; several blocks become text parts"},
	{field: "messages", action: carried, note: "messages"},
	{field: "temperature", action: carried, note: "temperature"},
	{field: "top_p", action: carried, note: "top_p"},
	{field: "top_k", action: leftOut, note: "chat has no such field"},
	{field: "stop_sequences", action: carried, note: "stop; more than 4 are refused"},
	{field: "stream", action: carried, note: "stream"},
	{field: "tools", action: carried, note: "function tools"},
	{field: "tool_choice", action: carried, note: "tool_choice and parallel_tool_calls"},
	{field: "thinking", action: carried, note: "the upstream's reasoning is shown where it is enabled"},
	{field: "output_config", action: carried, note: "reasoning_effort and response_format"},
	{field: "metadata", action: carried, note: "user"},
	{field: "service_tier", action: leftOut, note: "its words are the vendor's own"},

	{field: "messages.role", action: carried, note: "role"},
	{field: "messages.content", action: carried, note: "content, reasoning_content, tool_calls and tool messages"},

	{field: "messages.content.type", action: carried, note: "see the blocks"},
	{field: "messages.content.text", action: carried, note: "text; in an assistant's turn all texts are joined"},
	{field: "messages.content.citations", action: leftOut, note: "reported as citations"},
	{field: "messages.content.source", action: carried, note: "see the sources"},
	{field: "messages.content.title", action: carried, note: "the file's name, or a text part before a document's text"},
	{field: "messages.content.context", action: carried, note: "a text part before a document"},
	{field: "messages.content.thinking", action: carried, note: "reasoning_content; all thoughts of a turn are joined"},
	{field: "messages.content.signature", action: leftOut, note: "proves a thought to the vendor that had it; the gateway's own is not reported"},
	{field: "messages.content.data", action: leftOut, note: "see the blocks"},
	{field: "messages.content.id", action: carried, note: "tool_calls.id"},
	{field: "messages.content.name", action: carried, note: "tool_calls.function.name"},
	{field: "messages.content.input", action: carried, note: "tool_calls.function.arguments, byte for byte"},
	{field: "messages.content.tool_use_id", action: carried, note: "tool_call_id"},
	{field: "messages.content.content", action: carried, note: "the tool message's text; media go into the user message after it, with a line that names the call"},
	{field: "messages.content.is_error", action: carried, note: `"Error: " before the text`},
	{field: "messages.content.cache_control", action: leftOut, note: "reported as cache_control"},

	{field: "messages.content.source.type", action: carried, note: "see the sources"},
	{field: "messages.content.source.media_type", action: carried, note: "the data URI's type"},
	{field: "messages.content.source.data", action: carried, note: "a data URI, or text"},
	{field: "messages.content.source.url", action: carried, note: "image_url.url"},
	{field: "messages.content.source.file_id", action: refused, note: "the file lies at another vendor"},

	{field: "tools.type", action: carried, note: "function; a tool that the vendor runs itself is dropped and reported by its type"},
	{field: "tools.name", action: carried, note: "function.name"},
	{field: "tools.description", action: carried, note: "function.description"},
	{field: "tools.input_schema", action: carried, note: "function.parameters"},
	{field: "tools.strict", action: carried, note: "function.strict; said to be false to delta models, which assume true"},

	{field: "tool_choice.type", action: carried, note: "auto, required (any), the function (tool) or none"},
	{field: "tool_choice.name", action: carried, note: "function.name; refused if its tool was dropped"},
	{field: "tool_choice.disable_parallel_tool_use", action: carried, note: "parallel_tool_calls, inverted"},

	{field: "thinking.type", action: carried, note: "enabled and adaptive show the upstream's reasoning; chat has no switch for it"},
	{field: "thinking.budget_tokens", action: leftOut, note: "chat has no such field"},

	{field: "output_config.effort", action: carried, note: "reasoning_effort, the same word; dropped where the model's family refuses it"},
	{field: "output_config.format", action: carried, note: "response_format"},
	{field: "output_config.format.type", action: carried, note: "json_schema; others are refused"},
	{field: "output_config.format.schema", action: carried, note: "json_schema.schema, strict"},

	{field: "metadata.user_id", action: carried, note: "user; dropped if longer than 64 bytes"},
}

// blockMapping says what becomes of a block of one type in the turns of one role.
type blockMapping struct {
	role, block string
	action      string
	note        string
	carry       func(t *chatRequestBuilder, b *messages.Block) error // nil if it is dropped
}

// toChatBlocks are the blocks that are known. Any other is refused.
var toChatBlocks = []blockMapping{
	{"system", "text", carried, "text", (*chatRequestBuilder).text},
	{"user", "text", carried, "text", (*chatRequestBuilder).text},
	{"user", "image", carried, "image_url", (*chatRequestBuilder).media},
	{"user", "document", carried, "file or text", (*chatRequestBuilder).media},
	{"user", "tool_result", carried, "a tool message, before the rest of the turn", (*chatRequestBuilder).toolResult},
	{"assistant", "text", carried, "content", (*chatRequestBuilder).text},
	{"assistant", "thinking", carried, "reasoning_content", (*chatRequestBuilder).thinking},
	{"assistant", "tool_use", carried, "tool_calls, on the last of the assistant's messages that stand together", (*chatRequestBuilder).toolUse},
	{"assistant", "redacted_thinking", leftOut, "only the vendor that wrote it can read it", nil},
	{"assistant", "server_tool_use", leftOut, vendorRan, nil},
	{"assistant", "web_search_tool_result", leftOut, vendorRan, nil},
	{"assistant", "web_fetch_tool_result", leftOut, vendorRan, nil},
	{"assistant", "code_execution_tool_result", leftOut, vendorRan, nil},
	{"assistant", "bash_code_execution_tool_result", leftOut, vendorRan, nil},
	{"assistant", "text_editor_code_execution_tool_result", leftOut, vendorRan, nil},
	{"assistant", "tool_search_tool_result", leftOut, vendorRan, nil},
	{"assistant", "mcp_tool_use", leftOut, vendorRan, nil},
	{"assistant", "mcp_tool_result", leftOut, vendorRan, nil},
}

const vendorRan = "a step of a tool that the vendor ran; the text after it says what came of it"

// findBlock finds the row of a block; false if there is none.
func findBlock(table []blockMapping, role, block string) (blockMapping, bool) {
	for i := range table {
		if table[i].role == role && table[i].block == block {
			return table[i], true
		}
	}
	return blockMapping{}, false
}

// toChatResultBlocks are the blocks of a tool result. Any other is refused.
var toChatResultBlocks = []blockMapping{
	{"user", "text", carried, "text; several are joined by a blank line", (*chatRequestBuilder).text},
	{"user", "image", carried, "image_url of the user message that follows", (*chatRequestBuilder).media},
	{"user", "document", carried, "file of the user message that follows, or text", (*chatRequestBuilder).media},
}

var resultBlocks = []string{"text", "image", "document"}

// sourceMapping says what becomes of an image or document by where it is.
type sourceMapping struct {
	block, source string
	action        string
	note          string
	parts         func(b *messages.Block) []chat.Part // nil if it is refused
}

// toChatSources are the sources that are known. Any other is refused: an
// attachment that got lost would be worse than a 400.
var toChatSources = []sourceMapping{
	{"image", "base64", carried, "image_url with a data URI", func(b *messages.Block) []chat.Part { return picture(dataURI(b)) }},
	{"image", "url", carried, "image_url", func(b *messages.Block) []chat.Part { return picture(b.Source.URL) }},
	{"image", "file", refused, "the file lies at another vendor", nil},
	{"document", "base64", carried, "file with a data URI, named by the title", fileParts},
	{"document", "text", carried, "text", func(b *messages.Block) []chat.Part { return append(heading(b, true), textPart(b.Source.Data)) }},
	{"document", "url", refused, "chat's file part holds data only, and the gateway fetches nothing", nil},
	{"document", "content", refused, "chat has no document made of blocks", nil},
	{"document", "file", refused, "the file lies at another vendor", nil},
}
