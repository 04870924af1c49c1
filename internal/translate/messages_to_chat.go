package translate

import (
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/chatapi"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/messages"
)

// messagesFields are the fields of a Messages request at an upstream that speaks only
// chat completions.
var messagesFields = []field[*chatBuilder]{
	{name: "model", action: carried, note: "model"},
	{name: "max_tokens", action: carried, note: "max_tokens"},
	{name: "stop_sequences", action: carried, note: "stop; more than 4 are refused", carry: (*chatBuilder).stop},
	{name: "metadata", action: carried, note: "user", carry: (*chatBuilder).user},
	{name: "system", action: carried, note: "one system message; several blocks become text parts", carry: (*chatBuilder).system},
	{name: "messages", action: carried, note: "messages", carry: (*chatBuilder).conversation},
	{name: "temperature", action: carried, note: "temperature"},
	{name: "top_p", action: carried, note: "top_p"},
	{name: "top_k", action: leftOut, note: "chat has no such field"},
	{name: "stream", action: carried, note: "stream"},
	{name: "tools", action: carried, note: "function tools", carry: (*chatBuilder).tools},
	{name: "tool_choice", action: carried, note: "tool_choice and parallel_tool_calls", carry: (*chatBuilder).toolChoice},
	{name: "thinking", action: carried, note: "the upstream's reasoning is shown where it is enabled", carry: (*chatBuilder).thinking},
	{name: "output_config", action: carried, note: "reasoning_effort and response_format", carry: (*chatBuilder).output},
	{name: "service_tier", action: leftOut, note: "its words are the vendor's own"},

	{name: "messages.role", action: carried, note: "role"},
	{name: "messages.content", action: carried, note: "content, reasoning_content, tool_calls and tool messages"},

	{name: "messages.content.type", action: carried, note: "see the blocks"},
	{name: "messages.content.text", action: carried, note: "text; in an assistant's turn all texts are joined"},
	{name: "messages.content.citations", action: leftOut, note: "reported as citations"},
	{name: "messages.content.source", action: carried, note: "see the sources"},
	{name: "messages.content.title", action: carried, note: "the file's name, or a text part before a document's text"},
	{name: "messages.content.context", action: carried, note: "a text part before a document"},
	{name: "messages.content.thinking", action: carried, note: "reasoning_content; all thoughts of a turn are joined"},
	{name: "messages.content.signature", action: leftOut, note: "proves a thought to the vendor that had it; the gateway's own is not reported, and what it has of an upstream of responses is carried to one"},
	{name: "messages.content.data", action: leftOut, note: "see the blocks"},
	{name: "messages.content.id", action: carried, note: "tool_calls.id"},
	{name: "messages.content.name", action: carried, note: "tool_calls.function.name"},
	{name: "messages.content.input", action: carried, note: "tool_calls.function.arguments, byte for byte"},
	{name: "messages.content.tool_use_id", action: carried, note: "tool_call_id"},
	{name: "messages.content.content", action: carried, note: "the tool message's text; media go into the user message after it, with a line that names the call"},
	{name: "messages.content.is_error", action: carried, note: `"Error: " before the text`},
	{name: "messages.content.cache_control", action: leftOut, note: "reported as cache_control"},

	{name: "messages.content.source.type", action: carried, note: "see the sources"},
	{name: "messages.content.source.media_type", action: carried, note: "the data URI's type"},
	{name: "messages.content.source.data", action: carried, note: "a data URI, or text"},
	{name: "messages.content.source.url", action: carried, note: "image_url.url"},
	{name: "messages.content.source.file_id", action: refused, note: "the file lies at another vendor"},

	{name: "tools.type", action: carried, note: "function; a tool that the vendor runs itself is dropped and reported by its type"},
	{name: "tools.name", action: carried, note: "function.name"},
	{name: "tools.description", action: carried, note: "function.description"},
	{name: "tools.input_schema", action: carried, note: "function.parameters"},
	{name: "tools.strict", action: carried, note: "function.strict; said to be false to delta models, which assume true"},

	{name: "tool_choice.type", action: carried, note: "auto, required (any), the function (tool) or none"},
	{name: "tool_choice.name", action: carried, note: "function.name; refused if its tool was dropped"},
	{name: "tool_choice.disable_parallel_tool_use", action: carried, note: "parallel_tool_calls, inverted"},

	{name: "thinking.type", action: carried, note: "enabled and adaptive show the upstream's reasoning; chat has no switch for it"},
	{name: "thinking.budget_tokens", action: leftOut, note: "chat has no such field"},

	{name: "output_config.effort", action: carried, note: "reasoning_effort, the same word; dropped where the model's family refuses it"},
	{name: "output_config.format", action: carried, note: "response_format"},
	{name: "output_config.format.type", action: carried, note: "json_schema; others are refused"},
	{name: "output_config.format.schema", action: carried, note: "json_schema.schema, strict"},

	{name: "metadata.user_id", action: carried, note: "user; dropped if longer than 64 bytes"},
}

// chatBuilder is a request for a message on its way to chat.
type chatBuilder struct {
	fieldMapper[*chatBuilder]
	r         *messages.Request
	c         *chat.Request
	functions []chat.Function // that the request offers

	known []blockRow   // the blocks that can be read
	at    string       // the one that is being read, for refusals: "messages[1].content[0]"
	turn  messageParts // the message that is being read
	group turnGroup    // the messages of one role that stand together
}

// messagesToChat translates a request for a message into one for a chat completion, as
// messagesFields says field by field. dropped are the fields that chat has no words
// for and that are hints only; a field that would change the answer's meaning by its
// absence is refused with a fault.InvalidRequest instead.
func messagesToChat(r *messages.Request) (c *chatapi.Request, dropped []string, err error) {
	body := r.Body
	if !body.IsObject() { // typed: what has no field of its own is found in the JSON alone
		encoded, err := messagesapi.Encode(r)
		if err != nil {
			return nil, nil, err
		}
		body = encoded.Body
	}
	b := &chatBuilder{
		fieldMapper: fieldMapper[*chatBuilder]{fields: messagesFields, pathless: []string{"cache_control", "citations"}},
		r:           r, known: messageBlocks,
		c: &chat.Request{Model: r.Model, MaxTokens: r.MaxTokens, Temperature: r.Temperature, TopP: r.TopP, Stream: r.Stream},
	}
	b.dropUnmapped("", body.Members())
	if err := b.carry(b, body); err != nil {
		return nil, nil, err
	}
	c, err = checked(b.c, chatapi.Encode)
	return c, b.dropped.List(), err
}

func (b *chatBuilder) stop([]byte) error {
	const most = 4 // of chat's stop
	if len(b.r.StopSequences) > most {
		return refusal("stop_sequences", "at most 4 strings for this model")
	}
	b.c.Stop = b.r.StopSequences
	return nil
}

// user carries the end user's name. Vendors refuse a long one, and a name that is cut
// would be somebody else's.
func (b *chatBuilder) user([]byte) error {
	const longest = 64
	m := b.r.Metadata
	switch {
	case m == nil:
		return nil
	case len(m.UserID) > longest:
		b.drop("metadata.", "user_id")
	default:
		b.c.User = m.UserID
	}
	b.dropUnknown("metadata.", m.Extra)
	return nil
}

// tools carries the tools that the caller runs.
func (b *chatBuilder) tools(raw []byte) error {
	var tools []messages.Tool
	if err := json.Unmarshal(raw, &tools, jsontext.AllowDuplicateNames(true)); err != nil {
		return refusal("tools", "an array of tool definitions")
	}
	var functions []chat.Function
	for i := range tools {
		tool := &tools[i]
		if tool.Type != "" && tool.Type != "custom" {
			b.drop("tools.", tool.Type)
			continue
		}
		f := chat.Function{Name: tool.Name, Description: tool.Description}
		if !rawjson.IsNull(tool.InputSchema) {
			f.Parameters = tool.InputSchema
		}
		strict := string(member(tool.Extra, "strict"))
		if yes := strict == "true"; yes || strict == "false" || isDelta(b.r.Model) {
			f.Strict = &yes
		}
		functions = append(functions, f)
		b.dropUnknown("tools.", tool.Extra)
	}
	if len(functions) == 0 {
		return nil
	}
	encoded, err := chat.Tools(functions...)
	if err != nil {
		return refusal("tools", "an array of tool definitions")
	}
	b.c.Tools, b.functions = encoded, functions
	return nil
}

// isDelta reports whether the model is of the reasoning family, whose upstream refuses
// a tool call without reasoning_content, be it empty, and takes a function for strict
// unless it is told otherwise.
func isDelta(model string) bool {
	for _, f := range chatapi.Families() {
		if f.Name == "delta" {
			return slices.ContainsFunc(f.Models, func(m chatapi.Model) bool { return m.ID == model })
		}
	}
	return false
}

// chatChoices are chat's words for the choices without a name.
var chatChoices = map[string]string{"auto": `"auto"`, "any": `"required"`, "none": `"none"`}

// toolChoice carries tool_choice. Without functions chat takes none, and a choice that
// forces one cannot be kept.
func (b *chatBuilder) toolChoice([]byte) error {
	c := b.r.ToolChoice
	if c == nil {
		return nil
	}
	b.dropUnknown("tool_choice.", c.Extra)
	word, known := chatChoices[c.Type]
	named := slices.ContainsFunc(b.functions, func(f chat.Function) bool { return f.Name == c.Name })
	switch {
	case !known && c.Type != "tool":
		return refusal("tool_choice.type", rule.Words([]string{"auto", "any", "tool", "none"}))
	case c.Type == "any" && len(b.functions) == 0:
		return refusal("tool_choice.type", `"auto" or "none" where no tool is left that this model's upstream can call`)
	case c.Type == "tool" && !named:
		return refusal("tool_choice.name", "the name of a tool that this model's upstream can call")
	case len(b.functions) == 0:
		return nil
	case c.Type == "tool":
		b.c.ToolChoice = append(rawjson.Quote([]byte(`{"type":"function","function":{"name":`), c.Name), "}}"...)
	default:
		b.c.ToolChoice = jsontext.Value(word)
	}
	if c.DisableParallelToolUse {
		b.c.Extra = jsontext.Value(`{"parallel_tool_calls":false}`)
	}
	return nil
}

// thinking drops what chat has no switch for: whether thoughts are shown is looked up
// when the answer comes.
func (b *chatBuilder) thinking([]byte) error {
	if th := b.r.Thinking; th != nil {
		if th.BudgetTokens != 0 {
			b.drop("thinking.", "budget_tokens")
		}
		b.dropUnknown("thinking.", th.Extra)
	}
	return nil
}

// output carries what the answer is to be like.
func (b *chatBuilder) output([]byte) error {
	o := b.r.OutputConfig
	if o == nil {
		return nil
	}
	b.dropUnknown("output_config.", o.Extra)
	if o.Effort != "" { // a family without rules gets the word as it is: a channel says which fields its upstream refuses
		if ruleBroken(b.r.Model, &chat.Request{ReasoningEffort: o.Effort}, "reasoning_effort") != nil {
			b.drop("output_config.", "effort")
		} else {
			b.c.ReasoningEffort = o.Effort
		}
	}
	if o.Format == nil {
		return nil
	}
	b.dropUnknown("output_config.format.", o.Format.Extra)
	return b.format(o.Format)
}

// format carries the schema of the answer. Messages promises that the answer follows
// it, which chat does only where it is strict.
func (b *chatBuilder) format(f *messages.OutputFormat) error {
	if f.Type != "json_schema" {
		return refusal("output_config.format.type", `"json_schema"`)
	}
	const schema, theirs = "output_config.format.schema", "response_format.json_schema.schema"
	raw, err := chat.JSONSchema("answer", f.Schema, true)
	if err != nil || rawjson.IsNull(f.Schema) {
		return refusal(schema, "a JSON Schema")
	}
	if v := ruleBroken(b.r.Model, &chat.Request{ResponseFormat: raw}, theirs); v != nil {
		return fault.Invalid(schema, strings.ReplaceAll(v.Message, theirs, schema))
	}
	b.c.ResponseFormat = raw
	return nil
}

// ruleBroken is what chat's rules say of one field for a model; nil if they allow it.
func ruleBroken(model string, probe *chat.Request, field string) *fault.Error {
	probe.Model, probe.Messages = model, []chat.Message{{Role: "user", Content: chat.Text("")}}
	_, err := checked(probe, chatapi.Encode)
	var f *fault.Error
	if errors.As(err, &f) && f.Param == field {
		return f
	}
	return nil
}
