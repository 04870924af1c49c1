package translate

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/messages"
)

// chatFields are the fields of a chat completion request at an upstream that speaks
// only Messages.
var chatFields = []field[*messagesBuilder]{
	{name: "model", action: carried, note: "model"},
	{name: "messages", action: carried, note: "messages and system, see below", carry: (*messagesBuilder).conversation},
	{name: "temperature", action: carried, note: "temperature; above 1 it is dropped, for the upstream's range ends at 1, its default", carry: (*messagesBuilder).temperature},
	{name: "top_p", action: carried, note: "top_p"},
	{name: "max_tokens", action: carried, note: "max_tokens, the smaller of both; the model's bound where neither is given"},
	{name: "max_completion_tokens", action: carried, note: "max_tokens, see there"},
	{name: "n", action: refused, note: "above 1; 1 is what the upstream gives", carry: oneCandidate[*messagesBuilder]},
	{name: "stream", action: carried, note: "stream"},
	{name: "stream_options", action: handled, note: "the usage chunk is made of the upstream's counts"},
	{name: "stop", action: carried, note: "stop_sequences; entries without a visible character are dropped, which the upstream refuses", carry: (*messagesBuilder).stop},
	{name: "presence_penalty", action: leftOut, noop: "0"},
	{name: "frequency_penalty", action: leftOut, noop: "0"},
	{name: "reasoning_effort", action: carried, note: "output_config.effort if it is low, medium, high, xhigh or max; else dropped", carry: (*messagesBuilder).effort},
	{name: "tools", action: carried, note: "tools, see below", carry: (*messagesBuilder).tools},
	{name: "tool_choice", action: carried, note: "tool_choice: none, auto, required as any, a function as tool; others are refused", carry: (*messagesBuilder).toolChoice},
	{name: "parallel_tool_calls", action: carried, note: "tool_choice.disable_parallel_tool_use if it is false and there are tools", carry: (*messagesBuilder).parallelCalls},
	{name: "response_format", action: carried, note: "output_config.format if it is json_schema (name, description and strict have no effect: the schema is always kept to); text is the default; json_object is refused, for the upstream has no such mode", carry: (*messagesBuilder).responseFormat},
	{name: "user", action: carried, note: "metadata.user_id"},
	{name: "service_tier", action: carried, note: "service_tier if it is auto or standard_only; else dropped", carry: (*messagesBuilder).serviceTier},
	{name: "thinking", action: carried, note: "thinking if it is of the upstream's form and its budget is below max_tokens; else dropped", carry: (*messagesBuilder).thinking},
	{name: "top_k", action: carried, note: "top_k if it is a whole number; else dropped", carry: (*messagesBuilder).topK},
	{name: "seed", action: leftOut},
	{name: "logprobs", action: leftOut, noop: "false"},
	{name: "top_logprobs", action: leftOut, noop: "0"},
	{name: "logit_bias", action: leftOut, noop: "{}"},
	{name: "metadata", action: leftOut, noop: "{}"},
	{name: "store", action: leftOut, noop: "false"},
	{name: "modalities", action: leftOut, noop: `["text"]`},

	{name: "messages.role", action: carried, note: "user, assistant; system and developer, wherever they stand, are moved to system in their order; tool becomes tool_result in a user turn; turns of one role that follow each other become one"},
	{name: "messages.content", action: carried, note: "blocks; text without a visible character is left out, for the upstream refuses it"},
	{name: "messages.reasoning_content", action: carried, note: "thinking blocks where reasoning_signature fits it; else dropped, for the upstream takes no unsigned thought"},
	{name: "messages.reasoning_signature", action: carried, note: "see reasoning_content; the answer gave it"},
	{name: "messages.name", action: leftOut},
	{name: "messages.tool_call_id", action: carried, note: "tool_result.tool_use_id; it must name an open call of the assistant's last turn"},
	{name: "messages.tool_calls", action: carried, note: "tool_use; each must be answered before the assistant's next turn"},
	{name: "messages.tool_calls.index", action: handled, note: "the order of the list"},
	{name: "messages.tool_calls.id", action: carried, note: "tool_use.id; one of other letters than the upstream's, or used before, is replaced with its result's"},
	{name: "messages.tool_calls.type", action: carried, note: "tool_use if it is function; others are refused"},
	{name: "messages.tool_calls.function", action: carried, note: "tool_use"},
	{name: "messages.tool_calls.function.name", action: carried, note: "tool_use.name"},
	{name: "messages.tool_calls.function.arguments", action: carried, note: "tool_use.input; empty is {}; what is no JSON object is refused"},
	{name: "messages.content.type", action: carried, note: "type"},
	{name: "messages.content.text", action: carried, note: "text"},
	{name: "messages.content.image_url", action: carried, note: "image of users and tools: a data URL as base64 (jpeg, png, gif, webp), http and https as url; others are refused"},
	{name: "messages.content.image_url.url", action: carried, note: "source"},
	{name: "messages.content.image_url.detail", action: leftOut, noop: `"auto"`},
	{name: "messages.content.file", action: carried, note: "document of users and tools: file_data of a PDF or plain text, filename as title; others are refused"},
	{name: "messages.content.video_url", action: refused},
	{name: "messages.content.audio_url", action: refused},
	{name: "messages.content.input_audio", action: refused},
	{name: "messages.content.cache_control", action: carried, note: "cache_control"},
	{name: "tools.function", action: carried, note: "a tool; tools of other types are dropped"},
	{name: "tools.function.name", action: carried, note: "name"},
	{name: "tools.function.description", action: carried, note: "description"},
	{name: "tools.function.parameters", action: carried, note: `input_schema; type "object" is added where it has none`},
	{name: "tools.function.strict", action: carried, note: "strict if it is true"},
	{name: "tools.cache_control", action: carried, note: "cache_control"},
}

// messagesBuilder is a chat completion request on its way into Messages.
type messagesBuilder struct {
	fieldMapper[*messagesBuilder]
	c *chat.Request
	r *messages.Request
}

// chatToMessages translates a chat completion request for an upstream that speaks only
// Messages, as chatFields says field by field. defaultMax is max_tokens where the
// caller sets none. dropped names the fields that could not be carried, each once and
// without indexes. It fails with a 400 that names the field where leaving it out would
// change what the caller asked for.
func chatToMessages(c *chat.Request, defaultMax int64) (r *messagesapi.Request, dropped []string, err error) {
	if c, err = withBody(c); err != nil {
		return nil, nil, err
	}
	b := &messagesBuilder{fieldMapper: fieldMapper[*messagesBuilder]{fields: chatFields, ignoresEmpty: true}, c: c}
	b.r = &messages.Request{Model: c.Model, MaxTokens: cmp.Or(c.OutputBound(), defaultMax), TopP: c.TopP, Stream: c.Stream}
	if c.User != "" {
		b.r.Metadata = &messages.Metadata{UserID: c.User}
	}
	if err := b.carry(b, c.Body); err != nil {
		return nil, nil, err
	}
	b.dropUnmapped("", c.Body.Members())
	b.dropped.Sort() // whichever of the two passes found them
	r, err = checked(b.r, messagesapi.Encode)
	return r, b.dropped.List(), err
}

func (b *messagesBuilder) temperature([]byte) error {
	if t := b.c.Temperature; t != nil && *t > 1 {
		return errDropped
	}
	b.r.Temperature = b.c.Temperature
	return nil
}

func (b *messagesBuilder) stop([]byte) error {
	for _, s := range b.c.Stop {
		if !blank(s) {
			b.r.StopSequences = append(b.r.StopSequences, s)
		}
	}
	if len(b.r.StopSequences) < len(b.c.Stop) {
		return errDropped
	}
	return nil
}

// blank reports whether a text has no visible character.
func blank(s string) bool { return strings.TrimSpace(s) == "" }

func (b *messagesBuilder) effort([]byte) error {
	if !slices.Contains([]string{"low", "medium", "high", "xhigh", "max"}, b.c.ReasoningEffort) {
		return errDropped
	}
	b.r.OutputConfig = &messages.OutputConfig{Effort: b.c.ReasoningEffort}
	return nil
}

// responseFormat carries a schema. A mode that the upstream does not have is refused:
// a caller who parses the answer must not get prose.
func (b *messagesBuilder) responseFormat(raw []byte) error {
	var format struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema jsontext.Value `json:"schema"`
		} `json:"json_schema"`
	}
	if err := json.Unmarshal(raw, &format, jsontext.AllowDuplicateNames(true)); err != nil {
		return refusal("response_format", `an object such as {"type":"json_schema","json_schema":{"name":…,"schema":…}}`)
	}
	schema := format.JSONSchema.Schema
	switch {
	case format.Type == "text":
		return nil
	case format.Type != "json_schema":
		return refusal("response_format.type", `"text" or "json_schema": this model has no other mode, and keeps to a schema where one is given`)
	case !isObject(schema):
		return refusal("response_format.json_schema.schema", "a JSON Schema object without repeated names")
	}
	if b.r.OutputConfig == nil {
		b.r.OutputConfig = &messages.OutputConfig{}
	}
	b.r.OutputConfig.Format = &messages.OutputFormat{Type: "json_schema", Schema: schema}
	return nil
}

// serviceTier, thinking and topK carry fields that the upstream has and chat does not
// name. Other vendors have some of the same name and another form, which the upstream
// would refuse.
func (b *messagesBuilder) serviceTier(raw []byte) error {
	tier, _ := rawjson.String(raw)
	if tier != "auto" && tier != "standard_only" {
		return errDropped
	}
	b.r.ServiceTier = tier
	return nil
}

func (b *messagesBuilder) thinking(raw []byte) error {
	const leastBudget = 1024
	var th messages.Thinking
	if json.Unmarshal(raw, &th) != nil {
		return errDropped
	}
	switch budget := th.BudgetTokens; {
	case th.Type == "enabled" && budget >= leastBudget && budget < b.r.MaxTokens:
	case (th.Type == "adaptive" || th.Type == "disabled") && budget == 0:
	default:
		return errDropped
	}
	b.r.Thinking = &th
	return nil
}

func (b *messagesBuilder) topK(raw []byte) error {
	n, ok := rawjson.Int(raw)
	if !ok || n <= 0 {
		return errDropped
	}
	b.r.TopK = &n
	return nil
}

// tools carries the functions.
func (b *messagesBuilder) tools(raw []byte) (err error) {
	b.r.Tools, err = carriedTools(&b.fieldMapper, raw, func(f *chatFunction, beside []byte) (messages.Tool, bool) {
		schema, ok := inputSchema(f.Parameters)
		var own []rawjson.Edit
		if f.Strict {
			own = append(own, rawjson.Set("strict", []byte("true")))
		}
		if cache := member(beside, "cache_control"); !rawjson.IsNull(cache) {
			own = append(own, rawjson.Set("cache_control", cache))
		}
		return messages.Tool{Name: f.Name, Description: f.Description, InputSchema: schema, Extra: edited([]byte("{}"), own...)}, ok
	})
	return err
}

// inputSchema is the schema of a function's arguments. The upstream wants one, and its
// type. It is false if parameters are no schema.
func inputSchema(parameters jsontext.Value) (jsontext.Value, bool) {
	if rawjson.IsNull(parameters) {
		return jsontext.Value(`{"type":"object"}`), true
	}
	if !isObject(parameters) {
		return nil, false
	}
	if member(parameters, "type") != nil {
		return parameters, true
	}
	return edited(parameters, rawjson.Set("type", []byte(`"object"`))), true
}

// toolChoice carries tool_choice. Where there are no tools the upstream takes none.
func (b *messagesBuilder) toolChoice(raw []byte) error {
	word, name, err := chatChoice(raw, b.r.Tools != nil)
	if err != nil || b.r.Tools == nil {
		return err
	}
	b.r.ToolChoice = &messages.ToolChoice{Type: toolChoices[word], Name: name}
	return nil
}

// parallelCalls carries parallel_tool_calls, which belongs to the choice.
func (b *messagesBuilder) parallelCalls(raw []byte) error {
	if b.r.Tools == nil || string(raw) != "false" {
		return nil
	}
	if b.r.ToolChoice == nil {
		b.r.ToolChoice = &messages.ToolChoice{Type: "auto"}
	}
	b.r.ToolChoice.DisableParallelToolUse = b.r.ToolChoice.Type != "none"
	return nil
}

// conversation carries the messages.
func (b *messagesBuilder) conversation(raw []byte) error {
	var list []chat.Message
	if err := decodeList(raw, &list, "messages"); err != nil {
		return err
	}
	t := &turnBuilder{b: b, used: make(map[string]int)}
	for i := range list {
		if err := t.message(&list[i], i); err != nil {
			return err
		}
	}
	return t.end()
}

// decodeList decodes a list; its error names the place, as "messages[0].content".
func decodeList(raw []byte, into any, param string) error {
	err := json.Unmarshal(raw, into, jsontext.AllowDuplicateNames(true))
	if err == nil {
		return nil
	}
	var at *json.SemanticError
	if errors.As(err, &at) {
		for token := range at.JSONPointer.Tokens() {
			if strings.Trim(token, "0123456789") == "" {
				param += "[" + token + "]"
			} else {
				param += "." + token
			}
		}
	}
	return refusal(param, "of the form that the API describes")
}

// turnBuilder builds turns of alternating roles out of messages of any order.
type turnBuilder struct {
	b       *messagesBuilder
	system  []messages.Block
	turns   []builtTurn
	open    map[string]*openCall // the calls of the last assistant turn that has any, as the caller names them
	asking  int                  // the message that they stand in
	waiting int                  // how many of them have no result yet
	used    map[string]int       // ids of calls until now, and the suffix to try when one comes again
}

// builtTurn is one turn. Results come before what the user says.
type builtTurn struct {
	role            string
	first           int // index of the first message in it
	results, blocks []messages.Block
}

// openCall is a call of which a result may come.
type openCall struct {
	sent     string // its id as the upstream gets it
	answered bool
}

// message adds one message.
func (t *turnBuilder) message(m *chat.Message, i int) error {
	if m.Name != "" {
		t.b.drop("messages.", "name")
	}
	t.b.dropUnknown("messages.", m.Extra)
	var asked *openCall
	var err error
	switch m.Role {
	case "assistant":
		err = t.requireResults()
	case "tool":
		asked, err = t.asked(m, i)
	}
	if err != nil {
		return err
	}
	allowed := []string{"text"}
	if m.Role == "user" || m.Role == "tool" {
		allowed = []string{"text", "image_url", "file"}
	}
	blocks, err := t.blocks(m, i, allowed)
	if err != nil {
		return err
	}
	switch m.Role {
	case "system", "developer":
		t.system = append(t.system, blocks...)
	case "assistant":
		blocks = append(t.thoughts(m), blocks...)
		calls, err := t.calls(m, i)
		if err != nil {
			return err
		}
		t.add(m.Role, i, nil, append(blocks, calls...))
	case "tool":
		asked.answered = true
		t.waiting--
		result := messages.Block{Type: "tool_result", ToolUseID: asked.sent}
		if len(blocks) > 0 {
			result.Content = messages.Blocks(blocks...)
		}
		t.add("user", i, []messages.Block{result}, nil)
	default:
		t.add("user", i, nil, blocks)
	}
	return nil
}

// add appends to the last turn, or begins one. Nothing begins none.
func (t *turnBuilder) add(role string, i int, results, blocks []messages.Block) {
	if len(results)+len(blocks) == 0 {
		return
	}
	if n := len(t.turns); n == 0 || t.turns[n-1].role != role {
		t.turns = append(t.turns, builtTurn{role: role, first: i})
	}
	last := &t.turns[len(t.turns)-1]
	last.results = append(last.results, results...)
	last.blocks = append(last.blocks, blocks...)
}

// thoughts are the message's, if they are as the upstream signed them.
func (t *turnBuilder) thoughts(m *chat.Message) []messages.Block {
	blocks, ok := thinkingBlocks(m.ReasoningContent, stringMember(m.Extra, reasoningSignature))
	if !ok {
		t.b.drop("messages.", "reasoning_content")
	}
	return blocks
}

// calls are the message's calls as the upstream made them. They take the place of
// those of the turn before, which all have a result.
func (t *turnBuilder) calls(m *chat.Message, i int) ([]messages.Block, error) {
	if len(m.ToolCalls) > 0 {
		t.open, t.asking, t.waiting = make(map[string]*openCall, len(m.ToolCalls)), i, len(m.ToolCalls)
	}
	blocks := make([]messages.Block, 0, len(m.ToolCalls))
	for j := range m.ToolCalls {
		c := &m.ToolCalls[j]
		t.b.dropUnknown("messages.tool_calls.", c.Extra)
		t.b.dropUnknown("messages.tool_calls.function.", c.Function.Extra)
		input := jsontext.Value(c.Function.Arguments)
		if blank(c.Function.Arguments) {
			input = jsontext.Value("{}")
		}
		param := fmt.Sprintf("messages[%d].tool_calls[%d]", i, j)
		switch {
		case c.ID == "":
			return nil, refusal(param+".id", "a non-empty string")
		case t.open[c.ID] != nil:
			return nil, refusal(param+".id", "another than those of the calls beside it")
		case c.Type != "" && c.Type != "function":
			return nil, refusal(param+".type", `"function" for this model`)
		case c.Function.Name == "":
			return nil, refusal(param+".function.name", "a non-empty string")
		case !isObject(input):
			return nil, refusal(param+".function.arguments", "the text of one JSON object without repeated names")
		}
		t.open[c.ID] = &openCall{sent: t.uniqueID(c.ID)}
		blocks = append(blocks, messages.Block{Type: "tool_use", ID: t.open[c.ID].sent, Name: c.Function.Name, Input: input})
	}
	return blocks, nil
}

// asked is the call that a tool's message answers.
func (t *turnBuilder) asked(m *chat.Message, i int) (*openCall, error) {
	param := fmt.Sprintf("messages[%d].tool_call_id", i)
	call := t.open[m.ToolCallID]
	switch {
	case call == nil:
		return nil, refusal(param, "the id of a call that the assistant's last turn made")
	case call.answered:
		return nil, refusal(param, "the id of a call that has no result yet")
	}
	return call, nil
}

// requireResults fails if a call has no result.
func (t *turnBuilder) requireResults() error {
	if t.waiting == 0 {
		return nil
	}
	return refusal(fmt.Sprintf("messages[%d].tool_calls", t.asking),
		`answered, each by a message of role "tool", before the assistant's next turn and the end`)
}

// end writes the turns into the request.
func (t *turnBuilder) end() error {
	if err := t.requireResults(); err != nil {
		return err
	}
	switch {
	case len(t.turns) == 0:
		return refusal("messages", "more than instructions: this model wants a message of role \"user\" that is not empty")
	case t.turns[0].role != "user":
		return refusal(fmt.Sprintf("messages[%d].role", t.turns[0].first), `"user" in the first message that is no instruction: this model begins with the user's turn`)
	}
	if len(t.system) > 0 {
		t.b.r.System = messages.Blocks(t.system...)
	}
	for _, turn := range t.turns {
		t.b.r.Messages = append(t.b.r.Messages, messages.Message{Role: turn.role, Content: messages.Blocks(append(turn.results, turn.blocks...)...)})
	}
	return nil
}

// blocks are a message's content.
func (t *turnBuilder) blocks(m *chat.Message, i int, allowed []string) ([]messages.Block, error) {
	if m.Content.IsNull() {
		return nil, nil
	}
	if s, ok := rawjson.String(m.Content); ok {
		if blank(s) {
			return nil, nil
		}
		return []messages.Block{{Type: "text", Text: s}}, nil
	}
	content := fmt.Sprintf("messages[%d].content", i)
	var parts []chat.Part
	if err := decodeList(m.Content, &parts, content); err != nil {
		return nil, err
	}
	blocks := make([]messages.Block, 0, len(parts))
	for j := range parts {
		p, param := &parts[j], fmt.Sprintf("%s[%d]", content, j)
		if !slices.Contains(allowed, p.Type) {
			return nil, refusal(param+".type", rule.Words(allowed)+" in a message of role "+m.Role+" for this model")
		}
		if p.Type == "text" && blank(p.Text) {
			continue
		}
		block, err := t.b.part(p, param)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}

// part is one part of a message as a block.
func (b *messagesBuilder) part(p *chat.Part, param string) (block messages.Block, err error) {
	switch p.Type {
	case "image_url":
		block, err = b.image(p, param+".image_url.url")
	case "file":
		block, err = b.document(p, param+".file")
	default:
		block = messages.Block{Type: "text", Text: p.Text}
	}
	b.dropUnknown("messages.content.", p.Extra)
	if raw := member(p.Extra, "cache_control"); !rawjson.IsNull(raw) {
		block.CacheControl = raw
	}
	return block, err
}

// imageTypes are the pictures that the upstream reads.
var imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

func (b *messagesBuilder) image(p *chat.Part, param string) (messages.Block, error) {
	if p.ImageURL == nil {
		return messages.Block{}, refusal(param, "an absolute http, https or data URL")
	}
	b.dropUnknown("messages.content.image_url.", p.ImageURL.Extra)
	source := &messages.MediaSource{Type: "url", URL: p.ImageURL.URL}
	scheme, _, _ := strings.Cut(p.ImageURL.URL, ":")
	switch strings.ToLower(scheme) {
	case "http", "https":
	case "data":
		kind, data, ok := dataURL(p.ImageURL.URL)
		if kind == "image/jpg" { // no registered name, but a common one
			kind = "image/jpeg"
		}
		if !ok || !slices.Contains(imageTypes, kind) {
			return messages.Block{}, refusal(param, "a base64 data URL of type "+strings.Join(imageTypes, ", ")+" for this model")
		}
		source = &messages.MediaSource{Type: "base64", MediaType: kind, Data: data}
	default:
		return messages.Block{}, refusal(param, "an http, https or data URL for this model")
	}
	return messages.Block{Type: "image", Source: source}, nil
}

// document is a file that the caller sends along. The upstream knows no other.
func (b *messagesBuilder) document(p *chat.Part, param string) (messages.Block, error) {
	var file struct {
		Data  string         `json:"file_data"`
		Name  string         `json:"filename"`
		ID    string         `json:"file_id"`
		Extra jsontext.Value `json:",embed"`
	}
	if err := json.Unmarshal(p.File, &file, jsontext.AllowDuplicateNames(true)); err != nil {
		return messages.Block{}, refusal(param, `an object such as {"filename":…,"file_data":"data:application/pdf;base64,…"}`)
	}
	if file.ID != "" {
		return messages.Block{}, refusal(param+".file_id", `absent for this model, which takes "file_data"`)
	}
	b.dropUnknown("messages.content.file.", file.Extra)
	source := &messages.MediaSource{Type: "base64"}
	kind, data, ok := dataURL(file.Data)
	if ok && kind == "text/plain" {
		text, err := base64.StdEncoding.DecodeString(data)
		ok = err == nil && utf8.Valid(text) && !blank(string(text))
		source.Type, data = "text", string(text)
	} else {
		ok = ok && kind == "application/pdf"
	}
	if !ok {
		return messages.Block{}, refusal(param+".file_data", "a base64 data URL of type application/pdf or text/plain (UTF-8) for this model")
	}
	source.MediaType, source.Data = kind, data
	return messages.Block{Type: "document", Title: file.Name, Source: source}, nil
}

// dataURL takes a base64 data URL apart; false if it is none.
func dataURL(s string) (kind, data string, ok bool) {
	const scheme = "data:"
	if len(s) < len(scheme) || !strings.EqualFold(s[:len(scheme)], scheme) {
		return "", "", false
	}
	head, data, ok := strings.Cut(s[len(scheme):], ",")
	head = strings.ToLower(head)
	kind, _, _ = strings.Cut(head, ";")
	return strings.TrimSpace(kind), data, ok && data != "" && strings.HasSuffix(head, ";base64")
}

// uniqueID is a call's id as the upstream gets it: the caller's own where it has the
// upstream's letters and no call before has it. It depends only on the conversation
// until here, so that a longer one begins alike and is found in the upstream's cache.
func (t *turnBuilder) uniqueID(id string) string {
	if !plainID(id) {
		sum := sha256.Sum256([]byte(id))
		id = "call_" + hex.EncodeToString(sum[:12])
	}
	n, before := t.used[id]
	if !before {
		t.used[id] = 2
		return id
	}
	for { // what was found used once is not tried again
		sent := id + "_" + strconv.Itoa(n)
		n++
		if _, used := t.used[sent]; !used {
			t.used[id], t.used[sent] = n, 2
			return sent
		}
	}
}

// plainID reports whether the upstream takes an id: letters, digits, - and _.
func plainID(id string) bool {
	for i := range len(id) {
		switch c := id[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_':
		default:
			return false
		}
	}
	return id != ""
}
