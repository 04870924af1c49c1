package translate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/messages"
)

// blockRow says what becomes of a block of one type in one place.
type blockRow struct {
	place, block string
	action       string
	note         string
	carry        func(b *chatBuilder, block *messages.Block) error // nil if it is dropped
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
	{inSystem, "text", carried, "text", (*chatBuilder).text},
	{inUser, "text", carried, "text", (*chatBuilder).text},
	{inUser, "image", carried, "image_url", (*chatBuilder).media},
	{inUser, "document", carried, "file or text", (*chatBuilder).media},
	{inUser, "tool_result", carried, "a tool message, before the rest of the turn", (*chatBuilder).toolResult},
	{inAssistant, "text", carried, "content", (*chatBuilder).text},
	{inAssistant, "thinking", carried, "reasoning_content", (*chatBuilder).thoughts},
	{inAssistant, "tool_use", carried, "tool_calls, on the last of the assistant's messages that stand together", (*chatBuilder).toolUse},
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
	{inResult, "text", carried, "text; several are joined by a blank line", (*chatBuilder).text},
	{inResult, "image", carried, "image_url of the user message that follows", (*chatBuilder).media},
	{inResult, "document", carried, "file of the user message that follows, or text", (*chatBuilder).media},
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
	signed   strings.Builder // reasoning_signature, of thoughts that an upstream of responses encrypted
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
func (b *chatBuilder) system([]byte) error {
	if err := b.read(inSystem, "system", b.r.System); err != nil {
		return err
	}
	if len(b.turn.parts) > 0 {
		b.c.Messages = append(b.c.Messages, chat.Message{Role: "system", Content: content(b.turn.parts)})
	}
	return nil
}

// conversation carries the messages.
func (b *chatBuilder) conversation([]byte) error {
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
func (b *chatBuilder) read(place, at string, c messages.Content) error {
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
func (b *chatBuilder) carriedBlocks(place string) (types []string) {
	for _, r := range b.known {
		if r.place == place && r.action == carried {
			types = append(types, r.block)
		}
	}
	return types
}

// dropHints drops what stands in a block beside its content.
func (b *chatBuilder) dropHints(block *messages.Block) {
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
func (b *chatBuilder) addMessage() {
	m := chat.Message{Role: b.group.role}
	switch {
	case m.Role == "assistant":
		m.ReasoningContent = b.turn.thoughts.String()
		text := joinedText(b.turn.parts, "")
		if m.ReasoningContent == "" && text == "" && b.turn.signed.Len() == 0 {
			return
		}
		if b.turn.signed.Len() > 0 {
			m.Extra = edited([]byte("{}"), rawjson.Set(reasoningSignature, rawjson.Quote(nil, b.turn.signed.String())))
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
func (b *chatBuilder) flushGroup() {
	g := &b.group
	if len(g.calls) > 0 {
		if len(g.rest) == 0 {
			g.rest = []chat.Message{{Role: g.role}}
		}
		last := &g.rest[len(g.rest)-1]
		last.ToolCalls = g.calls
		if last.ReasoningContent == "" && isDelta(b.r.Model) {
			last.Extra = []byte(`{"reasoning_content":""}`)
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

func (b *chatBuilder) text(block *messages.Block) error {
	b.turn.parts = append(b.turn.parts, textPart(block.Text))
	return nil
}

func (b *chatBuilder) thoughts(block *messages.Block) error {
	b.turn.thoughts.WriteString(block.Thinking)
	if block.Signature != nil && isSynthetic(*block.Signature) {
		b.turn.signed.WriteString(strings.TrimPrefix((*block.Signature)[len(syntheticSignature):], "."))
	}
	return nil
}

func (b *chatBuilder) toolUse(block *messages.Block) error {
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
func (b *chatBuilder) toolResult(block *messages.Block) error {
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
func (b *chatBuilder) media(block *messages.Block) error {
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
	if context := stringMember(b.Extra, "context"); context != "" {
		return []chat.Part{textPart(context)}
	}
	return nil
}
