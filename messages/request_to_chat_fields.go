package messages

import (
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// fieldMapping says what becomes of a field of a Messages request when the upstream
// speaks chat completions.
type fieldMapping struct {
	field string // dotted, without indexes
	kind  string // fateCarried, fateDropped or fateRefused; a dropped field is a hint, without a refused one the answer would mean something else
	note  string // as what it is carried, or why not
}

// fieldMappings is a table of fields.
type fieldMappings []fieldMapping

func (f fieldMappings) find(field string) (fieldMapping, bool) {
	for i := range f {
		if f[i].field == field {
			return f[i], true
		}
	}
	return fieldMapping{}, false
}

// toChatFields are the top-level fields. One that is not listed is dropped.
var toChatFields = fieldMappings{
	{"model", carried, "model"},
	{"max_tokens", carried, "max_tokens"},
	{"system", carried, "one system message; several blocks become text parts"},
	{"messages", carried, "messages"},
	{"temperature", carried, "temperature"},
	{"top_p", carried, "top_p"},
	{"top_k", leftOut, "chat has no such field"},
	{"stop_sequences", carried, "stop; more than 4 are refused"},
	{"stream", carried, "stream"},
	{"tools", carried, "function tools"},
	{"tool_choice", carried, "tool_choice and parallel_tool_calls"},
	{"thinking", carried, "the upstream's reasoning is shown where it is enabled"},
	{"output_config", carried, "reasoning_effort and response_format"},
	{"metadata", carried, "user"},
	{"service_tier", leftOut, "its words are the vendor's own"},
}

// toChatPartFields are the fields of the request's parts. One that is not listed is
// dropped.
var toChatPartFields = fieldMappings{
	{"messages.role", carried, "role"},
	{"messages.content", carried, "content, reasoning_content, tool_calls and tool messages"},

	{"messages.content.type", carried, "see the blocks"},
	{"messages.content.text", carried, "text; in an assistant's turn all texts are joined"},
	{"messages.content.citations", leftOut, "reported as citations"},
	{"messages.content.source", carried, "see the sources"},
	{"messages.content.title", carried, "the file's name, or a text part before a document's text"},
	{"messages.content.context", carried, "a text part before a document"},
	{"messages.content.thinking", carried, "reasoning_content; all thoughts of a turn are joined"},
	{"messages.content.signature", leftOut, "proves a thought to the vendor that had it; the gateway's own is not reported"},
	{"messages.content.data", leftOut, "see the blocks"},
	{"messages.content.id", carried, "tool_calls.id"},
	{"messages.content.name", carried, "tool_calls.function.name"},
	{"messages.content.input", carried, "tool_calls.function.arguments, byte for byte"},
	{"messages.content.tool_use_id", carried, "tool_call_id"},
	{"messages.content.content", carried, "the tool message's text; media go into the user message after it, with a line that names the call"},
	{"messages.content.is_error", carried, `"Error: " before the text`},
	{"messages.content.cache_control", leftOut, "reported as cache_control"},

	{"messages.content.source.type", carried, "see the sources"},
	{"messages.content.source.media_type", carried, "the data URI's type"},
	{"messages.content.source.data", carried, "a data URI, or text"},
	{"messages.content.source.url", carried, "image_url.url"},
	{"messages.content.source.file_id", refused, "the file lies at another vendor"},

	{"tools.type", carried, "function; a tool that the vendor runs itself is dropped and reported by its type"},
	{"tools.name", carried, "function.name"},
	{"tools.description", carried, "function.description"},
	{"tools.input_schema", carried, "function.parameters"},
	{"tools.strict", carried, "function.strict; said to be false to delta models, which assume true"},

	{"tool_choice.type", carried, "auto, required (any), the function (tool) or none"},
	{"tool_choice.name", carried, "function.name; refused if its tool was dropped"},
	{"tool_choice.disable_parallel_tool_use", carried, "parallel_tool_calls, inverted"},

	{"thinking.type", carried, "enabled and adaptive show the upstream's reasoning; chat has no switch for it"},
	{"thinking.budget_tokens", leftOut, "chat has no such field"},

	{"output_config.effort", carried, "reasoning_effort, the same word; dropped where the model's family refuses it"},
	{"output_config.format", carried, "response_format"},
	{"output_config.format.type", carried, "json_schema; others are refused"},
	{"output_config.format.schema", carried, "json_schema.schema, strict"},

	{"metadata.user_id", carried, "user; dropped if longer than 64 bytes"},
}

// blockMapping says what becomes of a block of one type in the turns of one role.
type blockMapping struct {
	role, block string
	kind        string
	note        string
	carry       func(t *chatRequestBuilder, b *Block) error // nil if it is dropped
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

// sourceMapping says what becomes of an image or document by where it is.
type sourceMapping struct {
	block, source string
	kind          string
	note          string
	parts         func(b *Block) []chat.Part // nil if it is refused
}

// toChatSources are the sources that are known. Any other is refused: an
// attachment that got lost would be worse than a 400.
var toChatSources = []sourceMapping{
	{"image", "base64", carried, "image_url with a data URI", func(b *Block) []chat.Part { return picture(dataURI(b)) }},
	{"image", "url", carried, "image_url", func(b *Block) []chat.Part { return picture(b.Source.URL) }},
	{"image", "file", refused, "the file lies at another vendor", nil},
	{"document", "base64", carried, "file with a data URI, named by the title", fileParts},
	{"document", "text", carried, "text", func(b *Block) []chat.Part { return append(heading(b, true), textPart(b.Source.Data)) }},
	{"document", "url", refused, "chat's file part holds data only, and the gateway fetches nothing", nil},
	{"document", "content", refused, "chat has no document made of blocks", nil},
	{"document", "file", refused, "the file lies at another vendor", nil},
}

// media carries an image or a document.
func (t *chatRequestBuilder) media(b *Block) error {
	if b.Source == nil {
		return refusedField(t.at+".source", "an object")
	}
	for _, f := range toChatSources {
		if f.block == b.Type && f.source == b.Source.Type && f.parts != nil {
			t.turn.parts = append(t.turn.parts, f.parts(b)...)
			return nil
		}
	}
	return refusedField(t.at+".source.type", "a source of "+b.Type+"s that this model's upstream can take: "+rule.Words(sourcesOf(b.Type)))
}

// sourcesOf are the sources of a block that are carried.
func sourcesOf(block string) (types []string) {
	for _, f := range toChatSources {
		if f.block == block && f.parts != nil {
			types = append(types, f.source)
		}
	}
	return types
}

func picture(link string) []chat.Part {
	return []chat.Part{{Type: "image_url", ImageURL: &chat.Link{URL: link}}}
}

func dataURI(b *Block) string { return "data:" + b.Source.MediaType + ";base64," + b.Source.Data }

// fileParts is a document that is not text.
func fileParts(b *Block) []chat.Part {
	name := b.Title
	if name == "" {
		name = "document"
	}
	if b.Source.MediaType == "application/pdf" && !strings.HasSuffix(strings.ToLower(name), ".pdf") {
		name += ".pdf" // some vendors go by the name
	}
	file, err := json.Marshal(struct {
		Name string `json:"filename"`
		Data string `json:"file_data"`
	}{name, dataURI(b)})
	if err != nil { // strings that were decoded can be encoded
		file = []byte("{}")
	}
	return append(heading(b, false), chat.Part{Type: "file", File: file})
}

// heading is what a document says of itself before its content.
func heading(b *Block, title bool) (parts []chat.Part) {
	if title && b.Title != "" {
		parts = append(parts, textPart(b.Title))
	}
	if o, err := rawjson.Index(b.Extra, nil, nil); err == nil {
		if context, _ := rawjson.String(o.Raw("context")); context != "" {
			parts = append(parts, textPart(context))
		}
	}
	return parts
}
