package messages

import (
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// fate is what becomes of a field of a Messages request when the upstream
// speaks chat completions.
type fate struct {
	field string // dotted, without indexes
	kind  string // fateCarried, fateDropped or fateRefused; a dropped field is a hint, without a refused one the answer would mean something else
	note  string // as what it is carried, or why not
}

// fates is a table of fields.
type fates []fate

func (f fates) find(field string) (fate, bool) {
	for i := range f {
		if f[i].field == field {
			return f[i], true
		}
	}
	return fate{}, false
}

// requestFates are the top-level fields. One that is not listed is dropped.
var requestFates = fates{
	{"model", fateCarried, "model"},
	{"max_tokens", fateCarried, "max_tokens"},
	{"system", fateCarried, "one system message; several blocks become text parts"},
	{"messages", fateCarried, "messages"},
	{"temperature", fateCarried, "temperature"},
	{"top_p", fateCarried, "top_p"},
	{"top_k", fateDropped, "chat has no such field"},
	{"stop_sequences", fateCarried, "stop; more than 4 are refused"},
	{"stream", fateCarried, "stream"},
	{"tools", fateCarried, "function tools"},
	{"tool_choice", fateCarried, "tool_choice and parallel_tool_calls"},
	{"thinking", fateCarried, "the upstream's reasoning is shown where it is enabled"},
	{"output_config", fateCarried, "reasoning_effort and response_format"},
	{"metadata", fateCarried, "user"},
	{"service_tier", fateDropped, "its words are the vendor's own"},
}

// partFates are the fields of the request's parts. One that is not listed is
// dropped.
var partFates = fates{
	{"messages.role", fateCarried, "role"},
	{"messages.content", fateCarried, "content, reasoning_content, tool_calls and tool messages"},

	{"messages.content.type", fateCarried, "see the blocks"},
	{"messages.content.text", fateCarried, "text; in an assistant's turn all texts are joined"},
	{"messages.content.citations", fateDropped, "reported as citations"},
	{"messages.content.source", fateCarried, "see the sources"},
	{"messages.content.title", fateCarried, "the file's name, or a text part before a document's text"},
	{"messages.content.context", fateCarried, "a text part before a document"},
	{"messages.content.thinking", fateCarried, "reasoning_content; all thoughts of a turn are joined"},
	{"messages.content.signature", fateDropped, "proves a thought to the vendor that had it; the gateway's own is not reported"},
	{"messages.content.data", fateDropped, "see the blocks"},
	{"messages.content.id", fateCarried, "tool_calls.id"},
	{"messages.content.name", fateCarried, "tool_calls.function.name"},
	{"messages.content.input", fateCarried, "tool_calls.function.arguments, byte for byte"},
	{"messages.content.tool_use_id", fateCarried, "tool_call_id"},
	{"messages.content.content", fateCarried, "the tool message's text; media go into the user message after it, with a line that names the call"},
	{"messages.content.is_error", fateCarried, `"Error: " before the text`},
	{"messages.content.cache_control", fateDropped, "reported as cache_control"},

	{"messages.content.source.type", fateCarried, "see the sources"},
	{"messages.content.source.media_type", fateCarried, "the data URI's type"},
	{"messages.content.source.data", fateCarried, "a data URI, or text"},
	{"messages.content.source.url", fateCarried, "image_url.url"},
	{"messages.content.source.file_id", fateRefused, "the file lies at another vendor"},

	{"tools.type", fateCarried, "function; a tool that the vendor runs itself is dropped and reported by its type"},
	{"tools.name", fateCarried, "function.name"},
	{"tools.description", fateCarried, "function.description"},
	{"tools.input_schema", fateCarried, "function.parameters"},
	{"tools.strict", fateCarried, "function.strict; said to be false to delta models, which assume true"},

	{"tool_choice.type", fateCarried, "auto, required (any), the function (tool) or none"},
	{"tool_choice.name", fateCarried, "function.name; refused if its tool was dropped"},
	{"tool_choice.disable_parallel_tool_use", fateCarried, "parallel_tool_calls, inverted"},

	{"thinking.type", fateCarried, "enabled and adaptive show the upstream's reasoning; chat has no switch for it"},
	{"thinking.budget_tokens", fateDropped, "chat has no such field"},

	{"output_config.effort", fateCarried, "reasoning_effort, the same word; dropped where the model's family refuses it"},
	{"output_config.format", fateCarried, "response_format"},
	{"output_config.format.type", fateCarried, "json_schema; others are refused"},
	{"output_config.format.schema", fateCarried, "json_schema.schema, strict"},

	{"metadata.user_id", fateCarried, "user; dropped if longer than 64 bytes"},
}

// blockFate is what becomes of a block of one type in the turns of one role.
type blockFate struct {
	role, block string
	kind        string
	note        string
	carry       func(t *outbound, b *Block) error // nil if it is dropped
}

// blockFates are the blocks that are known. Any other is refused.
var blockFates = []blockFate{
	{"system", "text", fateCarried, "text", (*outbound).text},
	{"user", "text", fateCarried, "text", (*outbound).text},
	{"user", "image", fateCarried, "image_url", (*outbound).media},
	{"user", "document", fateCarried, "file or text", (*outbound).media},
	{"user", "tool_result", fateCarried, "a tool message, before the rest of the turn", (*outbound).toolResult},
	{"assistant", "text", fateCarried, "content", (*outbound).text},
	{"assistant", "thinking", fateCarried, "reasoning_content", (*outbound).thinking},
	{"assistant", "tool_use", fateCarried, "tool_calls, on the last of the assistant's messages that stand together", (*outbound).toolUse},
	{"assistant", "redacted_thinking", fateDropped, "only the vendor that wrote it can read it", nil},
	{"assistant", "server_tool_use", fateDropped, vendorRan, nil},
	{"assistant", "web_search_tool_result", fateDropped, vendorRan, nil},
	{"assistant", "web_fetch_tool_result", fateDropped, vendorRan, nil},
	{"assistant", "code_execution_tool_result", fateDropped, vendorRan, nil},
	{"assistant", "bash_code_execution_tool_result", fateDropped, vendorRan, nil},
	{"assistant", "text_editor_code_execution_tool_result", fateDropped, vendorRan, nil},
	{"assistant", "tool_search_tool_result", fateDropped, vendorRan, nil},
	{"assistant", "mcp_tool_use", fateDropped, vendorRan, nil},
	{"assistant", "mcp_tool_result", fateDropped, vendorRan, nil},
}

const vendorRan = "a step of a tool that the vendor ran; the text after it says what came of it"

// blockFateOf finds the row of a block; false if there is none.
func blockFateOf(table []blockFate, role, block string) (blockFate, bool) {
	for i := range table {
		if table[i].role == role && table[i].block == block {
			return table[i], true
		}
	}
	return blockFate{}, false
}

// sourceFate is what becomes of an image or document by where it is.
type sourceFate struct {
	block, source string
	kind          string
	note          string
	parts         func(b *Block) []chat.Part // nil if it is refused
}

// sourceFates are the sources that are known. Any other is refused: an
// attachment that got lost would be worse than a 400.
var sourceFates = []sourceFate{
	{"image", "base64", fateCarried, "image_url with a data URI", func(b *Block) []chat.Part { return picture(dataURI(b)) }},
	{"image", "url", fateCarried, "image_url", func(b *Block) []chat.Part { return picture(b.Source.URL) }},
	{"image", "file", fateRefused, "the file lies at another vendor", nil},
	{"document", "base64", fateCarried, "file with a data URI, named by the title", fileParts},
	{"document", "text", fateCarried, "text", func(b *Block) []chat.Part { return append(heading(b, true), textPart(b.Source.Data)) }},
	{"document", "url", fateRefused, "chat's file part holds data only, and the gateway fetches nothing", nil},
	{"document", "content", fateRefused, "chat has no document made of blocks", nil},
	{"document", "file", fateRefused, "the file lies at another vendor", nil},
}

// media carries an image or a document.
func (t *outbound) media(b *Block) error {
	if b.Source == nil {
		return refusedField(t.at+".source", "an object")
	}
	for _, f := range sourceFates {
		if f.block == b.Type && f.source == b.Source.Type && f.parts != nil {
			t.turn.parts = append(t.turn.parts, f.parts(b)...)
			return nil
		}
	}
	return refusedField(t.at+".source.type", "a source of "+b.Type+"s that this model's upstream can take: "+rule.Words(sourcesOf(b.Type)))
}

// sourcesOf are the sources of a block that are carried.
func sourcesOf(block string) (types []string) {
	for _, f := range sourceFates {
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
