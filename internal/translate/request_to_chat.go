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
	"github.com/tollhouse-ai/gateway/internal/chatapi"
	"github.com/tollhouse-ai/gateway/internal/dropped"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/messages"
)

// toChat translates a request for a message into one for a chat completion.
// dropped are the fields that chat has no words for and that are hints only; a
// field that would change the answer's meaning by its absence is refused with a
// fault.InvalidRequest instead. The tables of field_mappings.go say which is which.
func toChat(r *messages.Request) (c *chat.Request, dropped []string, err error) {
	t := &chatRequestBuilder{r: r, c: &chat.Request{Model: r.Model}}
	for _, step := range [...]func() error{t.fields, t.system, t.messages, t.tools, t.output} {
		if err := step(); err != nil {
			return nil, nil, err
		}
	}
	return t.c, t.dropped.List(), nil
}

// chatRequestBuilder is a request on its way from Messages to chat.
type chatRequestBuilder struct {
	r       *messages.Request
	c       *chat.Request
	dropped dropped.Fields

	at    string       // the block that is being read, for refusals: "messages[1].content[0]"
	turn  messageParts // the message that is being read
	group turnGroup    // the messages of one role that stand together
}

// fields carries what has the same meaning under another name, and drops the
// top-level fields that the table does not carry.
func (t *chatRequestBuilder) fields() error {
	body := t.r.Body
	if !body.IsObject() { // typed: what has no field of its own is found in the JSON alone
		encoded, err := messagesapi.Encode(t.r)
		if err != nil {
			return err
		}
		body = encoded.Body
	}
	toChatFields.unmapped(body.Members(), "", func(name string, _ []byte) { t.drop("", name) })
	r, c := t.r, t.c
	c.MaxTokens, c.Temperature, c.TopP, c.Stream = r.MaxTokens, r.Temperature, r.TopP, r.Stream
	const most = 4 // of chat's stop
	if len(r.StopSequences) > most {
		return refusedField("stop_sequences", "at most 4 strings for this model")
	}
	c.Stop = r.StopSequences
	t.user()
	return nil
}

// user carries the end user's name. Vendors refuse a long one, and a name that
// is cut would be somebody else's.
func (t *chatRequestBuilder) user() {
	const longest = 64
	m := t.r.Metadata
	switch {
	case m == nil:
		return
	case len(m.UserID) > longest:
		t.drop("metadata.", "user_id")
	default:
		t.c.User = m.UserID
	}
	t.dropUnknown("metadata.", m.Extra)
}

// dropUnknown drops the members of an object that its type does not name, but for
// those that the table carries. path ends in a point.
func (t *chatRequestBuilder) dropUnknown(path string, extra jsontext.Value) {
	if o, err := rawjson.Index(extra, nil, nil); err == nil {
		toChatFields.unmapped(o.All(), path, func(name string, _ []byte) { t.drop(path, name) })
	}
}

// drop notes that a field was left out. What means the same wherever it stands
// is named without its path, which ends in a point.
func (t *chatRequestBuilder) drop(path, name string) {
	if name != "cache_control" && name != "citations" {
		name = path + name
	}
	t.dropped.Note(name)
}

// messageParts is one message while it is read.
type messageParts struct {
	parts    []chat.Part
	thoughts strings.Builder
	results  int // tool results in it
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
func (t *chatRequestBuilder) system() error {
	if err := t.read("system", "system", t.r.System); err != nil {
		return err
	}
	if len(t.turn.parts) > 0 {
		t.c.Messages = append(t.c.Messages, chat.Message{Role: "system", Content: content(t.turn.parts)})
	}
	return nil
}

// roles are what messages[].role may be.
var roles = []string{"user", "assistant", "system"}

// messages carries the conversation.
func (t *chatRequestBuilder) messages() error {
	for i := range t.r.Messages {
		m := &t.r.Messages[i]
		at := fmt.Sprintf("messages[%d]", i)
		if !slices.Contains(roles, m.Role) {
			return refusedField(at+".role", rule.Words(roles))
		}
		if m.Role != t.group.role {
			t.flushGroup()
			t.group.role = m.Role
		}
		if err := t.read(m.Role, at+".content", m.Content); err != nil {
			return err
		}
		t.dropUnknown("messages.", m.Extra)
		t.addMessage()
	}
	t.flushGroup()
	return nil
}

// read takes one message's content apart, block by block.
func (t *chatRequestBuilder) read(role, at string, c messages.Content) error {
	t.turn = messageParts{}
	blocks, err := c.Blocks()
	if err != nil {
		return refusedField(at, "a string or an array of content blocks")
	}
	for i := range blocks {
		b := &blocks[i]
		t.at = fmt.Sprintf("%s[%d]", at, i)
		f, known := findBlock(toChatBlocks, role, b.Type)
		switch {
		case !known:
			return refusedField(t.at+".type", "a block that this model's upstream can take in a "+role+" turn: "+rule.Words(blocksOf(role)))
		case f.carry == nil:
			t.drop("messages.content.", b.Type)
			continue
		}
		if err := f.carry(t, b); err != nil {
			return err
		}
		t.dropHints(b)
	}
	return nil
}

// blocksOf are the blocks of a role that are carried.
func blocksOf(role string) (types []string) {
	for _, f := range toChatBlocks {
		if f.role == role && f.action == carried {
			types = append(types, f.block)
		}
	}
	return types
}

// dropHints drops what stands in a block beside its content.
func (t *chatRequestBuilder) dropHints(b *messages.Block) {
	if !rawjson.IsNull(b.CacheControl) {
		t.drop("", "cache_control")
	}
	if !rawjson.IsNull(b.Citations) {
		t.drop("", "citations")
	}
	if b.Signature != nil && *b.Signature != "" && *b.Signature != syntheticSignature {
		t.drop("messages.content.", "signature")
	}
	t.dropUnknown("messages.content.", b.Extra)
	if b.Source != nil {
		t.dropUnknown("messages.content.source.", b.Source.Extra)
	}
}

// addMessage puts the message that was read into its group.
func (t *chatRequestBuilder) addMessage() {
	m := chat.Message{Role: t.group.role}
	switch {
	case m.Role == "assistant":
		m.ReasoningContent = t.turn.thoughts.String()
		text := joinedText(t.turn.parts, "")
		if m.ReasoningContent == "" && text == "" {
			return
		}
		m.Content = chat.Text(text)
	case len(t.turn.parts) == 0 && t.turn.results > 0:
		return
	default:
		m.Content = content(t.turn.parts)
	}
	t.group.rest = append(t.group.rest, m)
}

// flushGroup ends the group.
func (t *chatRequestBuilder) flushGroup() {
	if len(t.group.calls) > 0 {
		if len(t.group.rest) == 0 {
			t.group.rest = []chat.Message{{Role: t.group.role}}
		}
		last := &t.group.rest[len(t.group.rest)-1]
		last.ToolCalls = t.group.calls
		if last.ReasoningContent == "" && isDelta(t.r.Model) {
			last.Extra = []byte(`{"reasoning_content":""}`)
		}
	}
	t.c.Messages = append(t.c.Messages, t.group.results...)
	t.c.Messages = append(t.c.Messages, t.group.rest...)
	t.group = turnGroup{}
}

// isDelta reports whether the model is of the reasoning family, whose upstream
// refuses a tool call without reasoning_content, be it empty, and takes a
// function for strict unless it is told otherwise.
func isDelta(model string) bool {
	for _, f := range chatapi.Families() {
		if f.Name != "delta" {
			continue
		}
		for _, m := range f.Models {
			if m.ID == model {
				return true
			}
		}
	}
	return false
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

func (t *chatRequestBuilder) text(b *messages.Block) error {
	t.turn.parts = append(t.turn.parts, textPart(b.Text))
	return nil
}

func textPart(s string) chat.Part { return chat.Part{Type: "text", Text: s} }

func (t *chatRequestBuilder) thinking(b *messages.Block) error {
	t.turn.thoughts.WriteString(b.Thinking)
	return nil
}

func (t *chatRequestBuilder) toolUse(b *messages.Block) error {
	arguments := "{}"
	if !rawjson.IsNull(b.Input) {
		arguments = string(b.Input)
	}
	t.group.calls = append(t.group.calls, chat.ToolCall{
		ID: b.ID, Type: "function",
		Function: chat.CalledFunction{Name: b.Name, Arguments: arguments},
	})
	return nil
}

// toolResult makes a tool message of the result's text. Its media follow in the
// user message, since most vendors take only text in a tool message.
func (t *chatRequestBuilder) toolResult(b *messages.Block) error {
	blocks, err := b.Content.Blocks()
	if err != nil {
		return refusedField(t.at+".content", "a string or an array of content blocks")
	}
	t.turn.results++
	at, before := t.at, t.turn.parts
	var texts, media []chat.Part
	for i := range blocks {
		t.at, t.turn.parts = fmt.Sprintf("%s.content[%d]", at, i), nil
		f, known := findBlock(toChatResultBlocks, "user", blocks[i].Type)
		if !known {
			return refusedField(t.at+".type", "a block that this model's upstream can take in a tool result: "+rule.Words(resultBlocks))
		}
		if err := f.carry(t, &blocks[i]); err != nil {
			return err
		}
		t.dropHints(&blocks[i])
		for _, p := range t.turn.parts {
			if p.Type == "text" {
				texts = append(texts, p)
			} else {
				media = append(media, p)
			}
		}
	}
	t.at, t.turn.parts = at, before
	if len(media) > 0 {
		t.turn.parts = append(t.turn.parts, textPart("Attachments of the result of tool call "+b.ToolUseID+":"))
		t.turn.parts = append(t.turn.parts, media...)
	}
	t.group.results = append(t.group.results, chat.Message{
		Role: "tool", ToolCallID: b.ToolUseID, Content: chat.Text(resultText(b, texts, len(media) > 0)),
	})
	return nil
}

// resultText is what a tool message says.
func resultText(b *messages.Block, texts []chat.Part, media bool) string {
	text := joinedText(texts, "\n\n")
	if text == "" && media {
		text = "The result is attached to the next message."
	}
	switch {
	case b.IsError && text == "":
		return "Error"
	case b.IsError:
		return "Error: " + text
	}
	return text
}

// media carries an image or a document.
func (t *chatRequestBuilder) media(b *messages.Block) error {
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

func dataURI(b *messages.Block) string {
	return "data:" + b.Source.MediaType + ";base64," + b.Source.Data
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
func heading(b *messages.Block, title bool) (parts []chat.Part) {
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

// output carries what the answer is to be like.
func (t *chatRequestBuilder) output() error {
	if th := t.r.Thinking; th != nil {
		if th.BudgetTokens != 0 {
			t.drop("thinking.", "budget_tokens")
		}
		t.dropUnknown("thinking.", th.Extra)
	}
	o := t.r.OutputConfig
	if o == nil {
		return nil
	}
	t.dropUnknown("output_config.", o.Extra)
	t.effort(o.Effort)
	if o.Format == nil {
		return nil
	}
	t.dropUnknown("output_config.format.", o.Format.Extra)
	return t.format(o.Format)
}

// effort carries the word where the model's family has it. A family without
// rules gets it as it is: a channel says which fields its upstream refuses.
func (t *chatRequestBuilder) effort(word string) {
	if word == "" {
		return
	}
	if t.ruleBroken(&chat.Request{ReasoningEffort: word}, "reasoning_effort") != nil {
		t.drop("output_config.", "effort")
		return
	}
	t.c.ReasoningEffort = word
}

// format carries the schema of the answer. Messages promises that the answer
// follows it, which chat does only where it is strict.
func (t *chatRequestBuilder) format(f *messages.OutputFormat) error {
	if f.Type != "json_schema" {
		return refusedField("output_config.format.type", `"json_schema"`)
	}
	const schema, theirs = "output_config.format.schema", "response_format.json_schema.schema"
	if rawjson.IsNull(f.Schema) {
		return refusedField(schema, "a JSON Schema")
	}
	raw, err := chat.JSONSchema("answer", f.Schema, true)
	if err != nil {
		return refusedField(schema, "a JSON Schema")
	}
	if v := t.ruleBroken(&chat.Request{ResponseFormat: raw}, theirs); v != nil {
		return fault.Invalid(schema, strings.ReplaceAll(v.Message, theirs, schema))
	}
	t.c.ResponseFormat = raw
	return nil
}

// ruleBroken is what chat's rules say of one field for this model; nil if they
// allow it.
func (t *chatRequestBuilder) ruleBroken(probe *chat.Request, field string) *fault.Error {
	probe.Model, probe.Messages = t.r.Model, []chat.Message{{Role: "user", Content: chat.Text("")}}
	c, err := chatapi.Encode(probe)
	if err == nil {
		err = c.Validate()
	}
	var f *fault.Error
	if errors.As(err, &f) && f.Param == field {
		return f
	}
	return nil
}
