package translate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/safetext"
	"github.com/tollhouse-ai/gateway/responses"
)

// itemRow says what becomes of an item of one type. A row that is carried has one of the three
// functions, or stands for its tools only.
type itemRow struct {
	item   string
	action string
	note   string

	carry    func(b *responsesToChatBuilder, it *inputItem) error
	call     func(it *inputItem) (tool toolName, arguments []byte)               // of a call that the client answers
	output   func(b *responsesToChatBuilder, it *inputItem) ([]chat.Part, error) // of such an answer
	declared string                                                              // the tool that the request must declare
}

// inputItems are the items that are known. Any other is refused.
var inputItems = []itemRow{
	{item: "message", action: carried, note: "a message; the assistant's that stand together, with calls and reasoning, are one", carry: (*responsesToChatBuilder).message},
	{item: "reasoning", action: carried, note: "reasoning_content of what the encrypted_content holds, or else of the content; dropped if it has neither", carry: (*responsesToChatBuilder).thoughts},
	{item: "function_call", action: carried, note: "tool_calls", call: functionCall},
	{item: "function_call_output", action: carried, note: "a tool message after its call, wherever it stands", output: (*responsesToChatBuilder).output},
	{item: "custom_tool_call", action: carried, note: "tool_calls", call: customCall},
	{item: "custom_tool_call_output", action: carried, note: "as function_call_output", output: (*responsesToChatBuilder).output},
	{item: "tool_search_call", action: carried, note: "tool_calls; dropped if the vendor ran it", call: searchCall},
	{item: "tool_search_output", action: carried, note: "a tool message with the names of the tools; dropped if the vendor made it, but for its tools", output: (*responsesToChatBuilder).found},
	{item: "local_shell_call", action: carried, note: "tool_calls, if the request declares local_shell; refused else", call: memberCall("local_shell", "action"), declared: "local_shell"},
	{item: "local_shell_call_output", action: carried, note: "as function_call_output", output: (*responsesToChatBuilder).rawOutput},
	{item: "shell_call", action: carried, note: "tool_calls, if the request declares shell; refused else", call: memberCall("shell", "action"), declared: "shell"},
	{item: "shell_call_output", action: carried, note: "a tool message with the JSON of the output", output: (*responsesToChatBuilder).rawOutput},
	{item: "apply_patch_call", action: carried, note: "tool_calls, if the request declares apply_patch; refused else", call: memberCall("apply_patch", "operation"), declared: "apply_patch"},
	{item: "apply_patch_call_output", action: carried, note: "as function_call_output", output: (*responsesToChatBuilder).rawOutput},
	{item: "additional_tools", action: carried, note: "tools"},
	{item: "agent_message", action: carried, note: "a user message with a line that names author and recipient", carry: (*responsesToChatBuilder).agentMessage},

	{item: "web_search_call", action: leftOut, note: vendorRan},
	{item: "file_search_call", action: leftOut, note: vendorRan},
	{item: "code_interpreter_call", action: leftOut, note: vendorRan},
	{item: "image_generation_call", action: leftOut, note: vendorRan},
	{item: "computer_call", action: leftOut, note: vendorRan},
	{item: "computer_call_output", action: leftOut, note: vendorRan},
	{item: "mcp_call", action: leftOut, note: vendorRan},
	{item: "mcp_list_tools", action: leftOut, note: vendorRan},
	{item: "mcp_approval_request", action: leftOut, note: vendorRan},
	{item: "mcp_approval_response", action: leftOut, note: vendorRan},

	{item: "item_reference", action: refused, note: "where the gateway keeps no responses"},
	{item: "compaction", action: refused, note: unreadable},
	{item: "context_compaction", action: refused, note: unreadable},
	{item: "compaction_trigger", action: refused, note: unreadable},
	{item: "program", action: refused, note: unreadable},
	{item: "program_output", action: refused, note: unreadable},
}

const unreadable = "only the vendor that made it can read it, and the conversation would be lost without it"

// inputItem is an item that is carried or dropped.
type inputItem struct {
	*responses.Item
	at     string // "input[1]"
	row    *itemRow
	output *inputItem // of a call
}

// readItems reads the input, and finds the output of each call.
func (b *responsesToChatBuilder) readItems() error {
	list, err := b.r.Input.Items()
	if err != nil {
		return decodeList(b.r.Input, &list, "input") // names the place
	}
	b.items = make([]inputItem, len(list))
	for i := range list {
		it := &b.items[i]
		it.Item, it.at = &list[i], fmt.Sprintf("input[%d]", i)
		if it.row, err = itemRowOf(it, i); err != nil {
			return err
		}
	}
	return b.pairOutputs()
}

// pairOutputs finds the output of each call: the first one after it with its id. Later calls
// may reuse the id.
func (b *responsesToChatBuilder) pairOutputs() error {
	open := make(map[string]*inputItem) // the calls that have no output yet
	for i := range b.items {
		it := &b.items[i]
		switch asked := open[it.CallID]; {
		case it.row.call == nil && it.row.output == nil:
		case it.CallID == "":
			return refusal(it.at+".call_id", "a non-empty string")
		case it.row.call != nil && asked != nil:
			return refusal(it.at+".call_id", "another than those of the calls that have no output yet")
		case it.row.call != nil:
			open[it.CallID] = it
		case asked == nil:
			return fault.Invalid("input", fmt.Sprintf("No tool call found for %s with call_id %s.", words(it.Type), safetext.Truncate(it.CallID, mostID)))
		default:
			asked.output = it
			delete(open, it.CallID)
		}
	}
	for i := range b.items {
		if it := &b.items[i]; it.row.call != nil && it.output == nil {
			return fault.Invalid("input", fmt.Sprintf("No tool output found for %s %s.", words(it.Type), safetext.Truncate(it.CallID, mostID)))
		}
	}
	return nil
}

const mostID = 80 // bytes of a call's id, or of a type, in a message

// words are an item's type in words.
func words(kind string) string { return strings.ReplaceAll(kind, "_", " ") }

// dropsItem is the row of an item that is dropped for what it holds.
var dropsItem = itemRow{action: leftOut}

// itemRowOf is the row of an item, which is that of an index in the input.
func itemRowOf(it *inputItem, index int) (*itemRow, error) {
	switch {
	case it.Type == "" && it.Role != "":
		it.Type = "message"
	case it.Type == "":
		it.Type = "item_reference"
	case it.Type == "local_shell_call_output" && it.CallID == "":
		it.CallID = it.ID // which its API takes for the call's
	case strings.HasPrefix(it.Type, "tool_search_") && (it.CallID == "" || it.Execution == "server"):
		return &dropsItem, nil
	}
	i := slices.IndexFunc(inputItems, func(r itemRow) bool { return r.item == it.Type })
	why := "is none that this gateway can carry to this model's upstream"
	switch {
	case i >= 0 && inputItems[i].action != refused:
		return &inputItems[i], nil
	case it.Type == "item_reference":
		return nil, unstored(responsesop.Request{Request: &responses.Request{}, References: []responsesop.Reference{{Index: index, ID: it.ID}}})
	case i >= 0:
		why = "can be read only by the vendor that made it, and this model is another's"
	}
	return nil, &fault.Error{
		Code: fault.UnsupportedItem, Param: it.at + ".type",
		Message: fmt.Sprintf("The item %q at %q %s. Leave it out.", safetext.Truncate(it.Type, mostID), it.at, why),
	}
}

// assistantTurn is what the assistant says, thinks and calls at one go.
type assistantTurn struct {
	at       string // the first item of it
	texts    []string
	refusals []string
	thoughts strings.Builder
	// signature is what the upstream gave to take its reasoning back.
	signature strings.Builder
	calls     []chat.ToolCall
	outputs   []*inputItem // of calls
}

// sealedThoughts is what the encrypted_content of a reasoning item of the gateway's holds.
type sealedThoughts struct {
	Model     string `json:"model"`
	Thoughts  string `json:"reasoning_content,omitzero"`
	Signature string `json:"reasoning_signature,omitzero"`
}

// sealedPrefix begins such an encrypted_content.
const sealedPrefix = "th1."

// converse carries the items.
func (b *responsesToChatBuilder) converse() error {
	for i := range b.items {
		it := &b.items[i]
		var err error
		switch {
		case it.row.action == leftOut:
			b.drop("input.", it.Type)
			continue
		case it.row.call != nil:
			err = b.addCall(it)
		case it.row.output != nil: // was added with its call
			err = b.endTurn()
		case it.row.carry != nil:
			err = it.row.carry(b, it)
		}
		if err != nil {
			return err
		}
		b.dropUnknown("input.", it.Extra)
	}
	return b.endTurn()
}

// addMessage adds a message that is made of the item at a place.
func (b *responsesToChatBuilder) addMessage(m chat.Message, at string) {
	b.c.Messages = append(b.c.Messages, m)
	b.origins = append(b.origins, at)
}

// assistant is the turn to which an item adds.
func (b *responsesToChatBuilder) assistant(it *inputItem) *assistantTurn {
	if b.turn.at == "" {
		b.turn.at = it.at
	}
	return &b.turn
}

// endTurn adds the assistant's turn, and the outputs of its calls. Vendors want them next
// to it, so they do not wait for their place in the input.
func (b *responsesToChatBuilder) endTurn() error {
	t := &b.turn
	m := chat.Message{Role: "assistant", ReasoningContent: t.thoughts.String(), ToolCalls: t.calls}
	text := strings.Join(t.texts, "\n")
	if text != "" || len(t.calls) == 0 {
		m.Content = chat.Text(text)
	}
	var extra []rawjson.Edit
	if m.ReasoningContent == "" && len(t.calls) > 0 && isDelta(b.r.Model) {
		extra = append(extra, rawjson.Set("reasoning_content", []byte(`""`)))
	}
	if t.signature.Len() > 0 {
		extra = append(extra, rawjson.Set(reasoningSignature, rawjson.Quote(nil, t.signature.String())))
	}
	if len(t.refusals) > 0 {
		extra = append(extra, rawjson.Set("refusal", rawjson.Quote(nil, strings.Join(t.refusals, "\n"))))
	}
	if len(extra) > 0 {
		m.Extra = rawjson.Apply([]byte("{}"), extra...)
	}
	if text != "" || m.ReasoningContent != "" || len(t.calls) > 0 || len(extra) > 0 {
		b.addMessage(m, t.at)
	}
	var attached []chat.Part
	for _, it := range t.outputs {
		parts, err := it.row.output(b, it)
		if err != nil {
			return err
		}
		text, media := resultParts(it.CallID, parts, "\n")
		b.addMessage(chat.Message{Role: "tool", ToolCallID: it.CallID, Content: chat.Text(text)}, it.at)
		attached = append(attached, media...)
	}
	if len(attached) > 0 {
		b.addMessage(chat.Message{Role: "user", Content: chat.Parts(attached...)}, t.outputs[len(t.outputs)-1].at)
	}
	b.turn = assistantTurn{}
	return nil
}

// message carries a message.
func (b *responsesToChatBuilder) message(it *inputItem) error {
	role, place := it.Role, inUser
	switch role {
	case "system", "developer":
		role, place = "system", inSystem
	case "assistant":
		place = inAssistant
	}
	parts, err := b.parts(place, it.Content, it.at+".content")
	if err != nil {
		return err
	}
	if place != inAssistant {
		if err := b.endTurn(); err != nil {
			return err
		}
		b.addMessage(chat.Message{Role: role, Content: content(parts)}, it.at)
		return nil
	}
	t := b.assistant(it)
	for i := range parts {
		switch p := &parts[i]; {
		case p.Text == "":
		case p.Type == "refusal":
			t.refusals = append(t.refusals, p.Text)
		default:
			t.texts = append(t.texts, p.Text)
		}
	}
	return nil
}

// agentMessage carries a message between two agents of the client. It becomes a user message
// that begins with who says it to whom.
func (b *responsesToChatBuilder) agentMessage(it *inputItem) error {
	parts, err := b.parts(inUser, it.Content, it.at+".content")
	if err != nil {
		return err
	}
	if err := b.endTurn(); err != nil {
		return err
	}
	from := fmt.Sprintf("From %s to %s:", rawjson.LookupString(it.Extra, "author"), rawjson.LookupString(it.Extra, "recipient"))
	b.addMessage(chat.Message{Role: "user", Content: chat.Parts(append([]chat.Part{textPart(from)}, parts...)...)}, it.at)
	return nil
}

// thoughts carries reasoning if this gateway sealed it for this account and this model, or if
// it is plain text. A vendor refuses the signed reasoning of another model.
func (b *responsesToChatBuilder) thoughts(it *inputItem) error {
	var sealed string
	if it.EncryptedContent != nil {
		sealed = *it.EncryptedContent
	}
	if b.open != nil && strings.HasPrefix(sealed, sealedPrefix) {
		if data, ok := b.open(sealed); ok {
			var opened sealedThoughts
			if json.Unmarshal(data, &opened) != nil || opened.Model != b.r.Model {
				b.drop("input.", it.Type)
				return nil
			}
			t := b.assistant(it)
			t.thoughts.WriteString(opened.Thoughts)
			t.signature.WriteString(opened.Signature)
			return nil
		}
	}
	var parts []responses.Part
	if !rawjson.IsNull(it.Content) {
		if err := decodeList(it.Content, &parts, it.at+".content"); err != nil {
			return err
		}
	}
	said := false
	for i := range parts {
		if p := &parts[i]; p.Type == "reasoning_text" || p.Type == "text" {
			said = said || p.Text != ""
			b.assistant(it).thoughts.WriteString(p.Text)
		}
	}
	switch {
	case !said:
		b.drop("input.", it.Type)
	case sealed != "":
		b.drop("input.", "encrypted_content")
	}
	return nil
}

// addCall adds a call to the assistant's turn.
func (b *responsesToChatBuilder) addCall(it *inputItem) error {
	tool, arguments := it.row.call(it)
	_, isFunction := b.choices[tool]
	if it.row.declared != "" && !b.types[it.row.declared] && !isFunction {
		return refusal(it.at+".type", "of a tool that the request declares: "+it.row.declared+" is not among its tools")
	}
	if text, ok := rawjson.String(arguments); ok {
		arguments = []byte(text)
	}
	if len(arguments) == 0 || rawjson.IsNull(arguments) {
		arguments = []byte("{}")
	}
	t := b.assistant(it)
	t.calls = append(t.calls, chat.ToolCall{
		ID: it.CallID, Type: "function",
		Function: chat.CalledFunction{Name: b.names.called(tool), Arguments: string(arguments)},
	})
	t.outputs = append(t.outputs, it.output)
	return nil
}

// functionCall is a call of a function. Its arguments are a JSON string, whose text is JSON.
func functionCall(it *inputItem) (toolName, []byte) {
	return toolName{it.Namespace, it.Name, functionTool}, it.Arguments
}

// customCall is a call of a custom tool, whose one argument in chat is its input.
func customCall(it *inputItem) (toolName, []byte) {
	return toolName{it.Namespace, it.Name, customTool}, customArguments(it.Input)
}

// searchCall is a search for tools that the client runs. Its arguments are an object.
func searchCall(it *inputItem) (toolName, []byte) {
	return toolName{"", searchName, searchTool}, it.Arguments
}

// memberCall is a call of a tool of the vendor's that the client runs. Its arguments are
// in a member of the item.
func memberCall(name, in string) func(it *inputItem) (toolName, []byte) {
	return func(it *inputItem) (toolName, []byte) {
		return toolName{"", name, functionTool}, rawjson.Lookup(it.Extra, in)
	}
}

// output is the output of a call that is a text or parts.
func (b *responsesToChatBuilder) output(it *inputItem) ([]chat.Part, error) {
	return b.parts(inResult, it.Output, it.at+".output")
}

// rawOutput returns an output that may have another form than text and media.
func (b *responsesToChatBuilder) rawOutput(it *inputItem) ([]chat.Part, error) {
	text, ok := rawjson.String(it.Output)
	switch {
	case ok:
	case rawjson.IsNull(it.Output):
		text = it.Status
	default:
		text = string(it.Output)
	}
	return []chat.Part{textPart(text)}, nil
}

// found is what a search for tools found. The tools themselves are in the request's list:
// here they would be charged for once more.
func (b *responsesToChatBuilder) found(it *inputItem) ([]chat.Part, error) {
	names := b.offered(nil, it.Tools, "")
	if len(names) == 0 {
		return []chat.Part{textPart("No tool was found.")}, nil
	}
	return []chat.Part{textPart("These tools can be called now: " + strings.Join(names, ", "))}, nil
}

// partRow says what becomes of a part of one type in one place.
type partRow struct {
	place, part string
	action      string
	note        string
	carry       func(p *responses.Part, at string) (chat.Part, error)
}

// itemParts are the parts that are known. Any other is refused.
var itemParts = []partRow{
	{inSystem, "input_text", carried, "text", textOf},
	{inSystem, "text", carried, "text", textOf},
	{inSystem, "output_text", carried, "text", textOf},
	{inUser, "input_text", carried, "text", textOf},
	{inUser, "text", carried, "text", textOf},
	{inUser, "output_text", carried, "text", textOf},
	{inUser, "input_image", carried, "image_url", pictureOf},
	{inUser, "input_file", carried, "file", fileOf},
	{inUser, "input_audio", carried, "input_audio or audio_url", audioOf},
	{inAssistant, "output_text", carried, "text", textOf},
	{inAssistant, "input_text", carried, "text", textOf},
	{inAssistant, "text", carried, "text", textOf},
	{inAssistant, "refusal", carried, "refusal", refusalOf},
	{inResult, "input_text", carried, "text; several are joined by a line break", textOf},
	{inResult, "text", carried, "text", textOf},
	{inResult, "output_text", carried, "text", textOf},
	{inResult, "input_image", carried, "image_url of the user message that follows", pictureOf},
	{inResult, "input_file", carried, "file of the user message that follows", fileOf},
	{inResult, "input_audio", carried, "input_audio or audio_url of the user message that follows", audioOf},
}

// parts are a content's parts, as chat has them.
func (b *responsesToChatBuilder) parts(place string, c responses.Content, at string) ([]chat.Part, error) {
	if text, ok := rawjson.String(c); ok {
		return []chat.Part{textPart(text)}, nil
	}
	var list []responses.Part
	if err := decodeList(c, &list, at); err != nil {
		return nil, err
	}
	parts := make([]chat.Part, 0, len(list))
	for i := range list {
		at := fmt.Sprintf("%s[%d]", at, i)
		row := slices.IndexFunc(itemParts, func(r partRow) bool { return r.place == place && r.part == list[i].Type })
		if row < 0 {
			var takes []string
			for _, r := range itemParts {
				if r.place == place {
					takes = append(takes, r.part)
				}
			}
			return nil, refusal(at+".type", "a part that this model's upstream can take in a "+place+": "+rule.Words(takes))
		}
		part, err := itemParts[row].carry(&list[i], at)
		if err != nil {
			return nil, err
		}
		b.dropUnknown("input.content.", list[i].Extra)
		if part.Type != "text" || part.Text != "" { // vendors refuse a part that says nothing
			parts = append(parts, part)
		}
	}
	return parts, nil
}

func textOf(p *responses.Part, _ string) (chat.Part, error) { return textPart(p.Text), nil }

func refusalOf(p *responses.Part, _ string) (chat.Part, error) {
	return chat.Part{Type: p.Type, Text: p.Refusal}, nil
}

// elsewhere refuses a file that lies at another vendor.
func elsewhere(p *responses.Part, at string) error {
	if p.FileID == "" {
		return nil
	}
	return refusal(at+".file_id", "absent for this model: the file lies at another vendor. Send its content instead")
}

// pictureOf is an image, which chat knows by its address or as a data URI alone.
func pictureOf(p *responses.Part, at string) (chat.Part, error) {
	if err := elsewhere(p, at); err != nil {
		return chat.Part{}, err
	}
	link := &chat.Link{URL: p.ImageURL}
	detail := p.Detail
	if detail == "original" { // which chat does not have
		detail = "high"
	}
	if detail != "" && detail != "auto" {
		link.Extra = rawjson.Apply([]byte("{}"), rawjson.Set("detail", rawjson.Quote(nil, detail)))
	}
	return chat.Part{Type: "image_url", ImageURL: link}, nil
}

// fileOf is a file, which chat knows by its content alone.
func fileOf(p *responses.Part, at string) (chat.Part, error) {
	if err := elsewhere(p, at); err != nil {
		return chat.Part{}, err
	}
	if p.FileURL != "" {
		return chat.Part{}, refusal(at+".file_url", `absent for this model: the gateway fetches nothing. Send "file_data" instead`)
	}
	return filePart(p.Filename, p.FileData), nil
}

// audioOf is a sound: its address, or its content and the format of that.
func audioOf(p *responses.Part, _ string) (chat.Part, error) {
	if p.AudioURL != "" {
		return chat.Part{Type: "audio_url", AudioURL: &chat.Link{URL: p.AudioURL}}, nil
	}
	var sound []rawjson.Edit
	for _, name := range []string{"data", "format"} { // its other members were not checked
		if raw := rawjson.Lookup(p.InputAudio, name); raw != nil {
			sound = append(sound, rawjson.Set(name, raw))
		}
	}
	return chat.Part{Type: "input_audio", InputAudio: rawjson.Apply([]byte("{}"), sound...)}, nil
}
