package translate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	messagesop "github.com/tollhouse-ai/gateway/internal/operation/messages"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/messages"
)

// messagesToChatFields are the fields of a Messages request at an upstream that speaks only
// chat completions.
var messagesToChatFields = []field[*messagesToChatBuilder]{
	{name: "model", action: carried, note: "model"},
	{name: "max_tokens", action: carried, note: "max_tokens"},
	{name: "stop_sequences", action: carried, note: "stop; more than 4 are refused", chat: "stop", carry: (*messagesToChatBuilder).stop},
	{name: "metadata", action: carried, note: "user", carry: (*messagesToChatBuilder).user},
	{name: "system", action: carried, note: "one system message; several blocks become text parts", carry: (*messagesToChatBuilder).system},
	{name: "messages", action: carried, note: "messages", carry: (*messagesToChatBuilder).conversation},
	{name: "temperature", action: carried, note: "temperature"},
	{name: "top_p", action: carried, note: "top_p"},
	{name: "top_k", action: leftOut, note: "chat has no such field"},
	{name: "stream", action: carried, note: "stream"},
	{name: "tools", action: carried, note: "function tools", carry: (*messagesToChatBuilder).tools},
	{name: "tool_choice", action: carried, note: "tool_choice and parallel_tool_calls", carry: (*messagesToChatBuilder).toolChoice},
	{name: "thinking", action: carried, note: "the upstream's reasoning is shown where it is enabled", carry: (*messagesToChatBuilder).thinking},
	{name: "output_config", action: carried, note: "reasoning_effort and response_format", chat: "response_format", carry: (*messagesToChatBuilder).output},
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
	{name: "messages.content.signature", action: leftOut, note: "proves a thought to the vendor that had it; the gateway's own is not reported, and what it has of an upstream of responses, or of a vendor of chat that wants it back, is carried to it"},
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

// messagesToChatBuilder is a request for a message on its way to chat.
type messagesToChatBuilder struct {
	fieldMapper[*messagesToChatBuilder]
	r         *messages.Request
	c         *chat.Request
	functions []chat.Function // that the request offers

	known []blockRow   // the blocks that can be read
	at    string       // the block that is being read, for refusals: "messages[1].content[0]"
	turn  messageParts // the message that is being read
	group turnGroup    // the messages of one role that stand together
}

// messagesToChat translates a request for a message into one for a chat completion, as
// messagesToChatFields says field by field. dropped are the fields that chat has no words for
// and that are only hints. A field whose absence would change the answer's meaning is refused
// with a fault.InvalidRequest, unless drops has it.
func messagesToChat(r *messages.Request, drops ...string) (c *chatop.Request, dropped []string, err error) {
	body := r.Body
	if !body.IsObject() { // typed: members without a field are only in the JSON
		encoded, err := messagesop.Encode(r)
		if err != nil {
			return nil, nil, err
		}
		body = encoded.Body
	}
	b := &messagesToChatBuilder{
		fieldMapper: fieldMapper[*messagesToChatBuilder]{fields: messagesToChatFields, drops: drops, pathless: []string{"cache_control", "citations"}},
		r:           r, known: messageBlocks,
		c: &chat.Request{Model: r.Model, MaxTokens: r.MaxTokens, Temperature: r.Temperature, TopP: r.TopP, Stream: r.Stream},
	}
	b.dropUnmapped("", body.Members())
	if err := b.carry(b, body); err != nil {
		return nil, nil, err
	}
	c, err = checked(b.c, chatop.Encode)
	return c, b.dropped.List(), err
}

func (b *messagesToChatBuilder) stop([]byte) error {
	const most = 4 // of chat's stop
	if len(b.r.StopSequences) > most {
		return refusal("stop_sequences", "at most 4 strings for this model")
	}
	b.c.Stop = b.r.StopSequences
	return nil
}

// longestUser is the longest name of an end user that is carried, in bytes. Vendors of chat
// refuse longer names, and a cut name could be another user's.
const longestUser = 64

func (b *messagesToChatBuilder) user([]byte) error {
	m := b.r.Metadata
	switch {
	case m == nil:
		return nil
	case len(m.UserID) > longestUser:
		b.drop("metadata.", "user_id")
	default:
		b.c.User = m.UserID
	}
	b.dropUnknown("metadata.", m.Extra)
	return nil
}

// tools carries the tools that the caller runs.
func (b *messagesToChatBuilder) tools(raw []byte) error {
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
		strict := string(rawjson.Lookup(tool.Extra, "strict"))
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

// choiceOf is the tool_choice of chat that names a function.
func choiceOf(name string) jsontext.Value {
	return append(rawjson.Quote([]byte(`{"type":"function","function":{"name":`), name), "}}"...)
}

// isDelta reports whether the model is of the reasoning family. Its upstream refuses a tool
// call without reasoning_content, even an empty one, and takes a function for strict unless
// told otherwise.
func isDelta(model string) bool {
	for _, f := range chatop.Families() {
		if f.Name == "delta" {
			return slices.ContainsFunc(f.Models, func(m chatop.Model) bool { return m.ID == model })
		}
	}
	return false
}

// chatChoices are chat's words for the choices without a name.
var chatChoices = map[string]string{"auto": `"auto"`, "any": `"required"`, "none": `"none"`}

// toolChoice carries tool_choice. Without functions chat takes none, and a choice that
// forces one cannot be kept.
func (b *messagesToChatBuilder) toolChoice([]byte) error {
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
		b.c.ToolChoice = choiceOf(c.Name)
	default:
		b.c.ToolChoice = jsontext.Value(word)
	}
	if c.DisableParallelToolUse {
		b.c.Extra = jsontext.Value(`{"parallel_tool_calls":false}`)
	}
	return nil
}

// thinking drops what chat has no switch for. Whether reasoning is shown is looked up when the
// answer comes.
func (b *messagesToChatBuilder) thinking([]byte) error {
	if th := b.r.Thinking; th != nil {
		if th.BudgetTokens != 0 {
			b.drop("thinking.", "budget_tokens")
		}
		b.dropUnknown("thinking.", th.Extra)
	}
	return nil
}

// output carries what the answer is to be like.
func (b *messagesToChatBuilder) output([]byte) error {
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
func (b *messagesToChatBuilder) format(f *messages.OutputFormat) error {
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
	_, err := checked(probe, chatop.Encode)
	var f *fault.Error
	if errors.As(err, &f) && f.Param == field {
		return f
	}
	return nil
}

// blockRow says what becomes of a block of one type in one place.
type blockRow struct {
	place, block string
	action       string
	note         string
	carry        func(b *messagesToChatBuilder, block *messages.Block) error // nil if it is dropped
}

// The places of blocks.
const (
	inSystem    = "system turn"
	inUser      = "user turn"
	inAssistant = "assistant turn"
	inResult    = "tool result"
)

// messageBlocks are the blocks that are known. Any other is refused.
var messageBlocks = []blockRow{
	{inSystem, "text", carried, "text", (*messagesToChatBuilder).text},
	{inUser, "text", carried, "text", (*messagesToChatBuilder).text},
	{inUser, "image", carried, "image_url", (*messagesToChatBuilder).media},
	{inUser, "document", carried, "file or text", (*messagesToChatBuilder).media},
	{inUser, "tool_result", carried, "a tool message, before the rest of the turn", (*messagesToChatBuilder).toolResult},
	{inAssistant, "text", carried, "content", (*messagesToChatBuilder).text},
	{inAssistant, "thinking", carried, "reasoning_content", (*messagesToChatBuilder).thoughts},
	{inAssistant, "tool_use", carried, "tool_calls, on the last of the assistant's messages that stand together", (*messagesToChatBuilder).toolUse},
	{inAssistant, "redacted_thinking", leftOut, "only the vendor that wrote it can read it", nil},
	{inAssistant, "server_tool_use", leftOut, vendorRan, nil},
	{inAssistant, "web_search_tool_result", leftOut, vendorRan, nil},
	{inAssistant, "web_fetch_tool_result", leftOut, vendorRan, nil},
	{inAssistant, "code_execution_tool_result", leftOut, vendorRan, nil},
	{inAssistant, "bash_code_execution_tool_result", leftOut, vendorRan, nil},
	{inAssistant, "text_editor_code_execution_tool_result", leftOut, vendorRan, nil},
	{inAssistant, "tool_search_tool_result", leftOut, vendorRan, nil},
	{inAssistant, "mcp_tool_use", leftOut, vendorRan, nil},
	{inAssistant, "mcp_tool_result", leftOut, vendorRan, nil},
	{inResult, "text", carried, "text; several are joined by a blank line", (*messagesToChatBuilder).text},
	{inResult, "image", carried, "image_url of the user message that follows", (*messagesToChatBuilder).media},
	{inResult, "document", carried, "file of the user message that follows, or text", (*messagesToChatBuilder).media},
}

const vendorRan = "a step of a tool that the vendor ran; the text after it says what came of it"

// sourceRow says what becomes of an image or document by where it is.
type sourceRow struct {
	block, source string
	action        string
	note          string
	parts         func(b *messages.Block) []chat.Part // nil if it is refused
}

// messageSources are the sources that are known. Any other is refused: an attachment
// that got lost would be worse than a 400.
var messageSources = []sourceRow{
	{"image", "base64", carried, "image_url with a data URI", func(b *messages.Block) []chat.Part { return picture(dataURI(b)) }},
	{"image", "url", carried, "image_url", func(b *messages.Block) []chat.Part { return picture(b.Source.URL) }},
	{"image", "file", refused, "the file lies at another vendor", nil},
	{"document", "base64", carried, "file with a data URI, named by the title", fileParts},
	{"document", "text", carried, "text", textParts},
	{"document", "url", refused, "chat's file part holds data only, and the gateway fetches nothing", nil},
	{"document", "content", refused, "chat has no document made of blocks", nil},
	{"document", "file", refused, "the file lies at another vendor", nil},
}

// messageParts is one message while it is read.
type messageParts struct {
	parts    []chat.Part
	thoughts strings.Builder
	signed   strings.Builder // reasoning_signature, of what only the upstream can read
	results  int             // tool results in it
}

// turnGroup is the messages of one role that stand together. Messages takes them for
// one turn; chat wants a turn's tool calls last and its tool results first.
type turnGroup struct {
	role    string
	calls   []chat.ToolCall
	results []chat.Message
	rest    []chat.Message
}

// system carries the system text.
func (b *messagesToChatBuilder) system([]byte) error {
	if err := b.read(inSystem, "system", b.r.System); err != nil {
		return err
	}
	if len(b.turn.parts) > 0 {
		b.c.Messages = append(b.c.Messages, chat.Message{Role: "system", Content: content(b.turn.parts)})
	}
	return nil
}

// conversation carries the messages.
func (b *messagesToChatBuilder) conversation([]byte) error {
	places := map[string]string{"user": inUser, "assistant": inAssistant, "system": inSystem}
	for i := range b.r.Messages {
		m := &b.r.Messages[i]
		at := fmt.Sprintf("messages[%d]", i)
		if places[m.Role] == "" {
			return refusal(at+".role", rule.Words([]string{"user", "assistant", "system"}))
		}
		if m.Role != b.group.role {
			b.flushGroup()
			b.group.role = m.Role
		}
		b.turn = messageParts{}
		if err := b.read(places[m.Role], at+".content", m.Content); err != nil {
			return err
		}
		b.dropUnknown("messages.", m.Extra)
		b.addMessage()
	}
	b.flushGroup()
	return nil
}

// read takes content apart, block by block.
func (b *messagesToChatBuilder) read(place, at string, c messages.Content) error {
	blocks, err := c.Blocks()
	if err != nil {
		return refusal(at, "a string or an array of content blocks")
	}
	for i := range blocks {
		block := &blocks[i]
		b.at = fmt.Sprintf("%s[%d]", at, i)
		row := slices.IndexFunc(b.known, func(r blockRow) bool { return r.place == place && r.block == block.Type })
		switch {
		case row < 0:
			return refusal(b.at+".type", "a block that this model's upstream can take in a "+place+": "+rule.Words(b.carriedBlocks(place)))
		case b.known[row].carry == nil:
			b.drop("messages.content.", block.Type)
			continue
		}
		if err := b.known[row].carry(b, block); err != nil {
			return err
		}
		b.dropHints(block)
	}
	return nil
}

// carriedBlocks are the blocks of a place that are carried.
func (b *messagesToChatBuilder) carriedBlocks(place string) (types []string) {
	for _, r := range b.known {
		if r.place == place && r.action == carried {
			types = append(types, r.block)
		}
	}
	return types
}

// dropHints drops what a block has besides its content.
func (b *messagesToChatBuilder) dropHints(block *messages.Block) {
	const path = "messages.content."
	if !rawjson.IsNull(block.CacheControl) {
		b.drop(path, "cache_control")
	}
	if !rawjson.IsNull(block.Citations) {
		b.drop(path, "citations")
	}
	if block.Signature != nil && *block.Signature != "" && !isSynthetic(*block.Signature) {
		b.drop(path, "signature")
	}
	b.dropUnknown(path, block.Extra)
	if block.Source != nil {
		b.dropUnknown(path+"source.", block.Source.Extra)
	}
}

// addMessage puts the message that was read into its group.
func (b *messagesToChatBuilder) addMessage() {
	m := chat.Message{Role: b.group.role}
	switch {
	case m.Role == "assistant":
		m.ReasoningContent = b.turn.thoughts.String()
		text := joinedText(b.turn.parts, "")
		if m.ReasoningContent == "" && text == "" && b.turn.signed.Len() == 0 {
			return
		}
		if b.turn.signed.Len() > 0 {
			m.Extra = rawjson.Apply([]byte("{}"), rawjson.Set(reasoningSignature, rawjson.Quote(nil, b.turn.signed.String())))
		}
		m.Content = chat.Text(text)
	case len(b.turn.parts) == 0 && b.turn.results > 0:
		return
	default:
		m.Content = content(b.turn.parts)
	}
	b.group.rest = append(b.group.rest, m)
}

// flushGroup ends the group.
func (b *messagesToChatBuilder) flushGroup() {
	g := &b.group
	if len(g.calls) > 0 {
		if len(g.rest) == 0 {
			g.rest = []chat.Message{{Role: g.role}}
		}
		last := &g.rest[len(g.rest)-1]
		last.ToolCalls = g.calls
		if last.ReasoningContent == "" && isDelta(b.r.Model) {
			if last.Extra == nil {
				last.Extra = []byte("{}")
			}
			last.Extra = rawjson.Apply(last.Extra, rawjson.Set("reasoning_content", []byte(`""`)))
		}
	}
	b.c.Messages = append(append(b.c.Messages, g.results...), g.rest...)
	b.group = turnGroup{}
}

// content is parts in their simplest form: one text is a string.
func content(parts []chat.Part) chat.Content {
	switch {
	case len(parts) == 0:
		return chat.Text("")
	case len(parts) == 1 && parts[0].Type == "text":
		return chat.Text(parts[0].Text)
	}
	return chat.Parts(parts...)
}

// joinedText is the text of all text parts.
func joinedText(parts []chat.Part, separator string) string {
	var texts []string
	for i := range parts {
		if parts[i].Type == "text" {
			texts = append(texts, parts[i].Text)
		}
	}
	return strings.Join(texts, separator)
}

func (b *messagesToChatBuilder) text(block *messages.Block) error {
	b.turn.parts = append(b.turn.parts, textPart(block.Text))
	return nil
}

// thoughts carries reasoning, and the part that only the upstream can read. The signature of
// another vendor is of no use to an upstream of chat.
func (b *messagesToChatBuilder) thoughts(block *messages.Block) error {
	b.turn.thoughts.WriteString(block.Thinking)
	if block.Signature != nil && isSynthetic(*block.Signature) {
		b.turn.signed.WriteString(strings.TrimPrefix((*block.Signature)[len(syntheticSignature):], "."))
	}
	return nil
}

// toolUse carries a call with its input as it is spelled.
func (b *messagesToChatBuilder) toolUse(block *messages.Block) error {
	arguments := "{}"
	if !rawjson.IsNull(block.Input) {
		arguments = string(block.Input)
	}
	b.group.calls = append(b.group.calls, chat.ToolCall{
		ID: block.ID, Type: "function",
		Function: chat.CalledFunction{Name: block.Name, Arguments: arguments},
	})
	return nil
}

// toolResult makes a tool message of the result's text. Its media follow in the user
// message, since most vendors take only text in a tool message.
func (b *messagesToChatBuilder) toolResult(block *messages.Block) error {
	said := b.turn.parts
	b.turn.parts = nil
	if err := b.read(inResult, b.at+".content", block.Content); err != nil {
		return err
	}
	text, media := resultParts(block.ToolUseID, b.turn.parts, "\n\n")
	b.turn.parts = append(said, media...)
	b.turn.results++
	switch {
	case block.IsError && text == "":
		text = "Error"
	case block.IsError:
		text = "Error: " + text
	}
	b.group.results = append(b.group.results, chat.Message{Role: "tool", ToolCallID: block.ToolUseID, Content: chat.Text(text)})
	return nil
}

// resultParts are the text of a call's result, and its media behind a line that names the
// call.
func resultParts(callID string, parts []chat.Part, separator string) (text string, media []chat.Part) {
	text = joinedText(parts, separator)
	media = []chat.Part{textPart("Attachments of the result of tool call " + callID + ":")}
	for i := range parts {
		if parts[i].Type != "text" {
			media = append(media, parts[i])
		}
	}
	switch {
	case len(media) == 1:
		return text, nil
	case text == "":
		text = "The result is attached to the next message."
	}
	return text, media
}

// media carries an image or a document.
func (b *messagesToChatBuilder) media(block *messages.Block) error {
	if block.Source == nil {
		return refusal(b.at+".source", "an object")
	}
	var takes []string
	for _, r := range messageSources {
		switch {
		case r.block != block.Type || r.parts == nil:
		case r.source == block.Source.Type:
			b.turn.parts = append(b.turn.parts, r.parts(block)...)
			return nil
		default:
			takes = append(takes, r.source)
		}
	}
	return refusal(b.at+".source.type", "a source of "+block.Type+"s that this model's upstream can take: "+rule.Words(takes))
}

func textPart(s string) chat.Part { return chat.Part{Type: "text", Text: s} }

func picture(link string) []chat.Part {
	return []chat.Part{{Type: "image_url", ImageURL: &chat.Link{URL: link}}}
}

func dataURI(b *messages.Block) string {
	return "data:" + b.Source.MediaType + ";base64," + b.Source.Data
}

// textParts is a document that is text, after its title.
func textParts(b *messages.Block) (parts []chat.Part) {
	if b.Title != "" {
		parts = append(parts, textPart(b.Title))
	}
	return append(append(parts, contextParts(b)...), textPart(b.Source.Data))
}

// fileParts is a document that is not text.
func fileParts(b *messages.Block) []chat.Part {
	name := b.Title
	if name == "" {
		name = "document"
	}
	if b.Source.MediaType == "application/pdf" && !strings.HasSuffix(strings.ToLower(name), ".pdf") {
		name += ".pdf" // some vendors go by the name
	}
	return append(contextParts(b), filePart(name, dataURI(b)))
}

// filePart is a file that the request holds.
func filePart(name, data string) chat.Part {
	file, err := json.Marshal(struct {
		Name string `json:"filename,omitzero"`
		Data string `json:"file_data"`
	}{name, data})
	if err != nil { // strings that were decoded can be encoded
		file = []byte("{}")
	}
	return chat.Part{Type: "file", File: file}
}

// contextParts is what a document says of itself before its content.
func contextParts(b *messages.Block) []chat.Part {
	if context := rawjson.LookupString(b.Extra, "context"); context != "" {
		return []chat.Part{textPart(context)}
	}
	return nil
}
