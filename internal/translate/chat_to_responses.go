package translate

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/responses"
)

// chatToResponsesFields are the fields of a chat completion request at an upstream that speaks
// only Responses.
var chatToResponsesFields = []field[*chatToResponsesBuilder]{
	{name: "model", action: carried, note: "model"},
	{name: "messages", action: carried, note: "input, see below", carry: (*chatToResponsesBuilder).conversation},
	{name: "temperature", action: carried, note: "temperature"},
	{name: "top_p", action: carried, note: "top_p"},
	{name: "max_tokens", action: carried, note: "max_output_tokens, the smaller of both"},
	{name: "max_completion_tokens", action: carried, note: "max_output_tokens, see there"},
	{name: "n", action: refused, note: "above 1; 1 is what the upstream gives", carry: oneCandidate[*chatToResponsesBuilder]},
	{name: "stream", action: carried, note: "stream"},
	{name: "stream_options", action: handled, note: "the usage chunk is made of the upstream's counts"},
	{name: "stop", action: refused, note: "unless it is empty: the upstream stops at no text", carry: (*chatToResponsesBuilder).stop},
	{name: "presence_penalty", action: leftOut, noop: "0"},
	{name: "frequency_penalty", action: leftOut, noop: "0"},
	{name: "reasoning_effort", action: carried, note: "reasoning.effort; but for none, thoughts are asked for with it, see thinking", carry: (*chatToResponsesBuilder).effort},
	{name: "thinking", action: handled, note: "enabled and adaptive ask for a summary of the thoughts and for what it takes to send them back; budget_tokens is dropped", carry: (*chatToResponsesBuilder).thinking},
	{name: "tools", action: carried, note: "tools, see below", carry: (*chatToResponsesBuilder).tools},
	{name: "tool_choice", action: carried, note: "tool_choice: none, auto, required, a function or a custom tool; others are refused", carry: (*chatToResponsesBuilder).toolChoice},
	{name: "parallel_tool_calls", action: carried, note: "parallel_tool_calls where there are tools", carry: (*chatToResponsesBuilder).parallelCalls},
	{name: "response_format", action: carried, note: "text.format", carry: (*chatToResponsesBuilder).responseFormat},
	{name: "verbosity", action: carried, note: "text.verbosity", carry: sameText(func(b *chatToResponsesBuilder) *string { return &b.text().Verbosity })},
	{name: "user", action: carried, note: "user"},
	{name: "service_tier", action: carried, note: "service_tier if it is auto, default or flex; another, for which there may be no price, is dropped", carry: (*chatToResponsesBuilder).serviceTier},
	{name: "safety_identifier", action: carried, note: "safety_identifier", carry: sameField("safety_identifier")},
	{name: "prompt_cache_key", action: carried, note: "prompt_cache_key", carry: sameText(func(b *chatToResponsesBuilder) *string { return &b.r.PromptCacheKey })},
	{name: "prompt_cache_retention", action: carried, note: "prompt_cache_retention", carry: sameField("prompt_cache_retention")},
	{name: "store", action: handled, note: "the upstream is always asked to store nothing; true is dropped", carry: (*chatToResponsesBuilder).store},
	{name: "seed", action: leftOut},
	{name: "logprobs", action: leftOut, noop: "false"},
	{name: "top_logprobs", action: leftOut, noop: "0"},
	{name: "logit_bias", action: leftOut, noop: "{}"},
	{name: "metadata", action: leftOut, noop: "{}"},
	{name: "modalities", action: leftOut, noop: `["text"]`},

	{name: "messages.role", action: carried, note: "a message of the same role; an assistant's calls become function_call and custom_tool_call items after its text, and tool becomes the output of one"},
	{name: "messages.content", action: carried, note: "content; output of tools"},
	{name: "messages.refusal", action: carried, note: "a part of type refusal"},
	{name: "messages.reasoning_content", action: carried, note: "in reasoning_signature, where the upstream gave one; else dropped, for the upstream takes no other"},
	{name: "messages.reasoning_signature", action: carried, note: "encrypted_content of reasoning items; the answer gave it"},
	{name: "messages.name", action: leftOut},
	{name: "messages.tool_call_id", action: carried, note: "call_id"},
	{name: "messages.tool_calls", action: carried, note: "function_call and custom_tool_call items"},
	{name: "messages.tool_calls.index", action: handled, note: "the order of the list"},
	{name: "messages.tool_calls.id", action: carried, note: "call_id; one of more than 64 bytes is replaced, with its result's"},
	{name: "messages.tool_calls.type", action: carried, note: "function_call if it is function, custom_tool_call if it is custom; others are refused"},
	{name: "messages.tool_calls.function", action: carried, note: "function_call"},
	{name: "messages.tool_calls.function.name", action: carried, note: "name"},
	{name: "messages.tool_calls.function.arguments", action: carried, note: "arguments, byte for byte; empty is {}"},
	{name: "messages.tool_calls.custom", action: carried, note: "custom_tool_call"},
	{name: "messages.content.type", action: carried, note: "type"},
	{name: "messages.content.text", action: carried, note: "input_text; output_text of the assistant"},
	{name: "messages.content.refusal", action: carried, note: "refusal of the assistant"},
	{name: "messages.content.image_url", action: carried, note: "input_image of users and tools"},
	{name: "messages.content.image_url.url", action: carried, note: "image_url"},
	{name: "messages.content.image_url.detail", action: carried, note: "detail; auto where there is none"},
	{name: "messages.content.file", action: carried, note: "input_file of users and tools: file_data and filename; a file_id is refused"},
	{name: "messages.content.input_audio", action: carried, note: "input_audio of users"},
	{name: "messages.content.video_url", action: refused},
	{name: "messages.content.audio_url", action: refused},
	{name: "messages.content.cache_control", action: leftOut},
	{name: "tools.function", action: carried, note: "a tool; tools of other types than function and custom are dropped"},
	{name: "tools.function.name", action: carried, note: "name"},
	{name: "tools.function.description", action: carried, note: "description"},
	{name: "tools.function.parameters", action: carried, note: `parameters; {"type":"object","properties":{}} where there are none`},
	{name: "tools.function.strict", action: carried, note: "strict; false is said, since the upstream takes a function for strict by default"},
	{name: "tools.custom", action: carried, note: "a custom tool"},
	{name: "tools.custom.format", action: carried, note: "format; a grammar is not nested there"},
}

// chatToResponsesBuilder is a chat completion request on its way into Responses.
type chatToResponsesBuilder struct {
	fieldMapper[*chatToResponsesBuilder]
	c      *chat.Request
	r      *responses.Request
	items  []responses.Item
	own    []rawjson.Edit  // of fields that a request has no member for
	calls  map[string]bool // ids of the calls until now: true where the output is still to come
	custom map[string]bool // the same: true if the tool is custom
}

// chatToResponses translates a chat completion request for an upstream that speaks only
// Responses, as chatToResponsesFields says field by field. thinks says that the client wants
// to see reasoning. dropped names the fields that could not be carried, each once and without
// indexes. It fails with a 400 that names the field if leaving it out would change what the
// client asked for, unless drops has it.
func chatToResponses(c *chat.Request, thinks bool, drops ...string) (r *responsesop.Request, dropped []string, err error) {
	if c, err = withBody(c); err != nil {
		return nil, nil, err
	}
	b := &chatToResponsesBuilder{fieldMapper: fieldMapper[*chatToResponsesBuilder]{fields: chatToResponsesFields, drops: drops, ignoresEmpty: true}, c: c, calls: make(map[string]bool), custom: make(map[string]bool)}
	b.r = &responses.Request{
		Model: c.Model, MaxOutputTokens: c.OutputBound(), Temperature: c.Temperature, TopP: c.TopP, Stream: c.Stream,
		User: c.User, Store: new(bool),
	}
	if thinks {
		b.showThoughts()
	}
	if err := b.carry(b, c.Body); err != nil {
		return nil, nil, err
	}
	b.r.Input = responses.Items(b.items...)
	if b.own != nil {
		b.r.Extra = rawjson.Apply([]byte("{}"), b.own...)
	}
	b.dropUnmapped("", c.Body.Members())
	b.dropped.Sort() // whichever of the two passes found them
	r, err = checked(b.r, responsesop.Encode)
	return r, b.dropped.List(), err
}

func (b *chatToResponsesBuilder) stop([]byte) error {
	if len(b.c.Stop) > 0 {
		return refusal("stop", "absent: this model's upstream stops at no text")
	}
	return nil
}

// reasoning is what the request says of it, made where it says nothing yet.
func (b *chatToResponsesBuilder) reasoning() *responses.Reasoning {
	if b.r.Reasoning == nil {
		b.r.Reasoning = new(responses.Reasoning)
	}
	return b.r.Reasoning
}

// showThoughts asks for reasoning. It is called only if the client wants to see it, since
// models that do not reason refuse such a request.
func (b *chatToResponsesBuilder) showThoughts() {
	b.reasoning().Summary = "auto"
	b.r.Include = []string{"reasoning.encrypted_content"}
}

func (b *chatToResponsesBuilder) effort([]byte) error {
	if b.c.ReasoningEffort != "none" {
		b.showThoughts()
	}
	b.reasoning().Effort = b.c.ReasoningEffort
	return nil
}

func (b *chatToResponsesBuilder) thinking(raw []byte) error {
	switch rawjson.LookupString(raw, "type") {
	case "enabled", "adaptive":
		b.showThoughts()
		if !rawjson.IsNull(rawjson.Lookup(raw, "budget_tokens")) {
			b.drop("thinking.", "budget_tokens")
		}
	case "disabled":
	default:
		return errDropped
	}
	return nil
}

func (b *chatToResponsesBuilder) store(raw []byte) error {
	if string(raw) != "false" {
		return errDropped
	}
	return nil
}

// serviceTier carries the tiers that cost no more. Prepaid billing looks for the others
// only where a channel speaks the caller's wire (docs/reference/billing.md, Fields without a price).
func (b *chatToResponsesBuilder) serviceTier(raw []byte) error {
	tier, _ := rawjson.String(raw)
	if tier != "auto" && tier != "default" && tier != "flex" {
		return errDropped
	}
	b.r.ServiceTier = tier
	return nil
}

// text is what the request says of the answer's text, made where it says nothing yet.
func (b *chatToResponsesBuilder) text() *responses.TextConfig {
	if b.r.Text == nil {
		b.r.Text = new(responses.TextConfig)
	}
	return b.r.Text
}

// responseFormat carries a mode or a schema.
func (b *chatToResponsesBuilder) responseFormat(raw []byte) error {
	var format struct {
		Type       string               `json:"type"`
		JSONSchema responses.TextFormat `json:"json_schema"`
	}
	if err := readFormat(raw, &format); err != nil {
		return err
	}
	carried := &responses.TextFormat{Type: format.Type}
	switch s := &format.JSONSchema; {
	case format.Type == "text":
		return nil
	case format.Type == "json_object":
	case format.Type != "json_schema":
		return refusal("response_format.type", rule.Words([]string{"text", "json_object", "json_schema"})+" for this model")
	case !isObject(s.Schema):
		return notSchema("response_format.json_schema.schema")
	default:
		carried.Name, carried.Description, carried.Schema, carried.Strict = s.Name, s.Description, s.Schema, s.Strict
	}
	b.text().Format = carried
	return nil
}

// tools carries the functions and the custom tools.
func (b *chatToResponsesBuilder) tools(raw []byte) (err error) {
	b.r.Tools, err = carriedTools(&b.fieldMapper, raw, func(f *chatFunction, _ []byte) (responses.Tool, bool) {
		tool := responses.Tool{Type: "function", Name: f.Name, Description: f.Description, Parameters: f.Parameters, Strict: &f.Strict}
		if rawjson.IsNull(f.Parameters) {
			tool.Parameters = jsontext.Value(`{"type":"object","properties":{}}`)
		}
		return tool, isObject(tool.Parameters)
	}, func(c *chatCustom) responses.Tool {
		return responses.Tool{Type: "custom", Name: c.Name, Description: c.Description, Format: c.Format.flat()}
	})
	return err
}

// toolChoice carries tool_choice. Without tools the upstream takes none.
func (b *chatToResponsesBuilder) toolChoice(raw []byte) error {
	word, name, err := chatChoice(raw, b.r.Tools != nil)
	switch {
	case err != nil || b.r.Tools == nil:
		return err
	case name != "":
		raw = append(rawjson.Quote(append(rawjson.Quote([]byte(`{"type":`), word), `,"name":`...), name), '}')
	}
	b.r.ToolChoice = raw
	return nil
}

func (b *chatToResponsesBuilder) parallelCalls(raw []byte) error {
	if b.r.Tools != nil {
		parallel := string(raw) != "false"
		b.r.ParallelToolCalls = &parallel
	}
	return nil
}

// sameText carries a string that both wires have. Any other value is dropped.
func sameText(to func(b *chatToResponsesBuilder) *string) func(*chatToResponsesBuilder, []byte) error {
	return func(b *chatToResponsesBuilder, raw []byte) error {
		s, ok := rawjson.String(raw)
		if !ok {
			return errDropped
		}
		*to(b) = s
		return nil
	}
}

// sameField is the carry of a field that both wires have under one name, and a request no
// member for.
func sameField(name string) func(*chatToResponsesBuilder, []byte) error {
	return func(b *chatToResponsesBuilder, raw []byte) error {
		b.own = append(b.own, rawjson.Set(name, raw))
		return nil
	}
}

// conversation carries the messages.
func (b *chatToResponsesBuilder) conversation(raw []byte) error {
	var list []chat.Message
	if err := decodeList(raw, &list, "messages"); err != nil {
		return err
	}
	for i := range list {
		if err := b.message(&list[i], i); err != nil {
			return err
		}
	}
	for i := range list {
		for _, c := range list[i].ToolCalls {
			if b.calls[c.ID] {
				return refusal(fmt.Sprintf("messages[%d].tool_calls", i), `answered, each by a message of role "tool" after it`)
			}
		}
	}
	return nil
}

// sentCallID is a call's id as the upstream gets it, which refuses a long one.
func sentCallID(id string) string {
	const longest = 64
	if len(id) <= longest {
		return id
	}
	return hashedID(id)
}

// message adds the items of one message.
func (b *chatToResponsesBuilder) message(m *chat.Message, i int) error {
	if m.Name != "" {
		b.drop("messages.", "name")
	}
	b.dropUnknown("messages.", m.Extra)
	at := fmt.Sprintf("messages[%d]", i)
	content, err := b.content(m, at+".content")
	if err != nil {
		return err
	}
	switch m.Role {
	case "tool":
		if open, known := b.calls[m.ToolCallID]; !known || !open {
			return refusal(at+".tool_call_id", "the id of a call that an assistant's message before it made and that has no result yet")
		}
		b.calls[m.ToolCallID] = false
		if rawjson.IsNull(content) {
			content = responses.ContentText("")
		}
		it := responses.Item{Type: "function_call_output", CallID: sentCallID(m.ToolCallID), Output: content}
		if b.custom[m.ToolCallID] {
			it.Type = "custom_tool_call_output"
		}
		b.items = append(b.items, it)
		return nil
	case "assistant":
		b.thoughts(m)
	}
	if !rawjson.IsNull(content) && (m.Role != "assistant" || string(content) != `""`) { // a turn of calls alone
		b.items = append(b.items, responses.Item{Type: "message", Role: m.Role, Content: content})
	}
	return b.toolCalls(m, at)
}

// thoughts adds the message's reasoning, if it is still as the upstream encrypted it.
func (b *chatToResponsesBuilder) thoughts(m *chat.Message) {
	pieces := rawjson.LookupString(m.Extra, reasoningSignature)
	blobs, ok := encryptedThoughts(pieces)
	if !ok || m.ReasoningContent != "" && pieces == "" {
		b.drop("messages.", "reasoning_content")
		return
	}
	for _, blob := range blobs {
		b.items = append(b.items, responses.Item{Type: "reasoning", Summary: jsontext.Value("[]"), EncryptedContent: &blob})
	}
}

// toolCalls adds the message's calls.
func (b *chatToResponsesBuilder) toolCalls(m *chat.Message, at string) error {
	for j := range m.ToolCalls {
		c, taken := &m.ToolCalls[j], ""
		if b.calls[c.ID] {
			taken = "another than that of a call that has no result yet"
		}
		called, err := b.toolCall(c, fmt.Sprintf("%s.tool_calls[%d]", at, j), taken)
		if err != nil {
			return err
		}
		b.calls[c.ID], b.custom[c.ID] = true, called.custom
		it := responses.Item{Type: "function_call", CallID: sentCallID(c.ID), Name: called.name}
		if called.custom {
			it.Type, it.Input = "custom_tool_call", called.arguments
		} else {
			it.Arguments = rawjson.Quote(nil, called.arguments)
		}
		b.items = append(b.items, it)
	}
	return nil
}

// partTypes are the parts that a message of each role may have.
var partTypes = map[string][]string{
	"user":      {"text", "image_url", "file", "input_audio"},
	"tool":      {"text", "image_url", "file"},
	"assistant": {"text", "refusal"},
}

// content returns a message's content; null if it is empty.
func (b *chatToResponsesBuilder) content(m *chat.Message, param string) (responses.Content, error) {
	refused := rawjson.LookupString(m.Extra, "refusal")
	if _, isText := rawjson.String(m.Content); (isText || rawjson.IsNull(m.Content)) && refused == "" {
		return responses.Content(m.Content), nil
	}
	parts, err := m.Content.Parts()
	if err != nil {
		return nil, refusal(param, "a string or an array of parts")
	}
	allowed := partTypes[m.Role]
	if allowed == nil {
		allowed = []string{"text"}
	}
	out := make([]responses.Part, 0, len(parts))
	for j := range parts {
		at := fmt.Sprintf("%s[%d]", param, j)
		if b.leavesOut(m, &parts[j]) {
			continue
		}
		if err := allowedPart(m, &parts[j], allowed, at); err != nil {
			return nil, err
		}
		part, err := b.part(&parts[j], m.Role, at)
		if err != nil {
			return nil, err
		}
		out = append(out, part)
	}
	if refused != "" && m.Role == "assistant" {
		out = append(out, responses.Part{Type: "refusal", Refusal: refused})
	}
	if len(out) == 0 {
		return nil, nil
	}
	return responses.Parts(out...), nil
}

// part is one part of a message.
func (b *chatToResponsesBuilder) part(p *chat.Part, role, param string) (part responses.Part, err error) {
	b.dropUnknown("messages.content.", p.Extra)
	switch p.Type {
	case "image_url":
		if p.ImageURL == nil || p.ImageURL.URL == "" {
			return part, refusal(param+".image_url.url", "an absolute http, https or data URL")
		}
		b.dropUnknown("messages.content.image_url.", p.ImageURL.Extra)
		return responses.Part{Type: "input_image", ImageURL: p.ImageURL.URL, Detail: cmp.Or(rawjson.LookupString(p.ImageURL.Extra, "detail"), "auto")}, nil
	case "file":
		f, err := b.file(p, param+".file")
		if err == nil && !strings.HasPrefix(strings.ToLower(f.Data), "data:") {
			err = refusal(param+".file.file_data", "a base64 data URL")
		}
		return responses.Part{Type: "input_file", FileData: f.Data, Filename: f.Name}, err
	case "input_audio":
		return responses.Part{Type: "input_audio", InputAudio: p.InputAudio}, nil
	case "refusal":
		return responses.Part{Type: "refusal", Refusal: rawjson.LookupString(p.Extra, "refusal")}, nil
	}
	part = responses.Part{Type: "input_text", Text: p.Text}
	if role == "assistant" {
		part.Type = "output_text"
	}
	return part, nil
}
