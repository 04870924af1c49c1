package translate

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	messagesop "github.com/tollhouse-ai/gateway/internal/operation/messages"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/messages"
)

// chatToMessagesFields are the fields of a chat completion request at an upstream that speaks
// only Messages.
var chatToMessagesFields = []field[*chatToMessagesBuilder]{
	{name: "model", action: carried, note: "model"},
	{name: "messages", action: carried, note: "messages and system, see below", carry: (*chatToMessagesBuilder).conversation},
	{name: "temperature", action: carried, note: "temperature; above 1 it is dropped, for the upstream's range ends at 1, its default", carry: (*chatToMessagesBuilder).temperature},
	{name: "top_p", action: carried, note: "top_p"},
	{name: "max_tokens", action: carried, note: "max_tokens, the smaller of both; the model's bound where neither is given"},
	{name: "max_completion_tokens", action: carried, note: "max_tokens, see there"},
	{name: "n", action: refused, note: "above 1; 1 is what the upstream gives", carry: oneCandidate[*chatToMessagesBuilder]},
	{name: "stream", action: carried, note: "stream"},
	{name: "stream_options", action: handled, note: "the usage chunk is made of the upstream's counts"},
	{name: "stop", action: carried, note: "stop_sequences; entries without a visible character are dropped, which the upstream refuses", carry: (*chatToMessagesBuilder).stop},
	{name: "presence_penalty", action: leftOut, noop: "0"},
	{name: "frequency_penalty", action: leftOut, noop: "0"},
	{name: "reasoning_effort", action: carried, note: "output_config.effort if it is low, medium, high, xhigh or max, and thinking where the channel says how (for a response also where the caller asks to see it); none asks for neither; else dropped", carry: (*chatToMessagesBuilder).effort},
	{name: "tools", action: carried, note: "tools, see below", carry: (*chatToMessagesBuilder).tools},
	{name: "tool_choice", action: carried, note: "tool_choice: none, auto, required as any, a function or custom tool as tool; others are refused", carry: (*chatToMessagesBuilder).toolChoice},
	{name: "parallel_tool_calls", action: carried, note: "tool_choice.disable_parallel_tool_use if it is false and there are tools", carry: (*chatToMessagesBuilder).parallelCalls},
	{name: "response_format", action: carried, note: "output_config.format if it is json_schema (name, description and strict have no effect: the schema is always kept to); text is the default; json_object is refused, for the upstream has no such mode", carry: (*chatToMessagesBuilder).responseFormat},
	{name: "user", action: carried, note: "metadata.user_id"},
	{name: "service_tier", action: carried, note: "service_tier if it is auto or standard_only; else dropped", carry: (*chatToMessagesBuilder).serviceTier},
	{name: "thinking", action: carried, note: "thinking if it is of the upstream's form and its budget is below max_tokens; else dropped", carry: (*chatToMessagesBuilder).thinking},
	{name: "top_k", action: carried, note: "top_k if it is a whole number; else dropped", carry: (*chatToMessagesBuilder).topK},
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
	{name: "messages.tool_calls.type", action: carried, note: "tool_use if it is function or custom; others are refused"},
	{name: "messages.tool_calls.function", action: carried, note: "tool_use"},
	{name: "messages.tool_calls.function.name", action: carried, note: "tool_use.name"},
	{name: "messages.tool_calls.function.arguments", action: carried, note: `tool_use.input; empty is {}; of a name given twice the last counts; what is no JSON object becomes {"arguments": its text}`},
	{name: "messages.tool_calls.custom", action: carried, note: `tool_use of the function that stands for the tool, its input as {"input":…}`},
	{name: "messages.refusal", action: carried, note: "text of an assistant"},
	{name: "messages.content.type", action: carried, note: "type; in an assistant's turn, a type that only an answer has is dropped"},
	{name: "messages.content.refusal", action: carried, note: "text of an assistant"},
	{name: "messages.content.text", action: carried, note: "text"},
	{name: "messages.content.image_url", action: carried, note: "image of users and tools: a data URL as base64 (jpeg, png, gif, webp), http and https as url; others are refused"},
	{name: "messages.content.image_url.url", action: carried, note: "source"},
	{name: "messages.content.image_url.detail", action: leftOut, noop: `"auto"`},
	{name: "messages.content.file", action: carried, note: "document of users and tools: file_data of a PDF or plain text, filename as title; others are refused"},
	{name: "messages.content.video_url", action: refused},
	{name: "messages.content.audio_url", action: refused},
	{name: "messages.content.input_audio", action: refused},
	{name: "messages.content.cache_control", action: carried, note: "cache_control"},
	{name: "tools.function", action: carried, note: "a tool; tools of other types than function and custom are dropped"},
	{name: "tools.function.name", action: carried, note: "name"},
	{name: "tools.function.description", action: carried, note: "description"},
	{name: "tools.function.parameters", action: carried, note: `input_schema; type "object" is added where it has none`},
	{name: "tools.function.strict", action: carried, note: "strict if it is true"},
	{name: "tools.custom", action: carried, note: "a tool whose one argument is input, of the same name if no function has it and the upstream takes it; its calls come back as calls of a custom tool"},
	{name: "tools.custom.format", action: carried, note: "a grammar is a part of the description, and is not enforced"},
	{name: "tools.cache_control", action: carried, note: "cache_control"},
}

// chatToMessagesBuilder is a chat completion request on its way into Messages.
type chatToMessagesBuilder struct {
	fieldMapper[*chatToMessagesBuilder]
	c *chat.Request
	r *messages.Request

	names *toolNames // of the functions that stand for custom tools

	// The turns, of alternating roles, out of messages of any order.
	system  []messages.Block
	turns   []builtTurn
	open    map[string]*openCall // the calls of the last assistant turn that has any, as the caller names them
	asking  int                  // the message that they stand in
	waiting int                  // how many of them have no result yet
	used    map[string]int       // ids of calls until now, and the suffix to try when one comes again
}

// chatToMessages translates a chat completion request for an upstream that speaks only
// Messages, as chatToMessagesFields says field by field. defaultMax is max_tokens if the
// client sets none. think is the type of thinking to ask for; it may be empty. dropped names
// the fields that could not be carried, each once and without indexes. It fails with a 400
// that names the field if leaving it out would change what the client asked for, unless drops
// has it.
func chatToMessages(c *chat.Request, defaultMax int64, think string, drops ...string) (r *messagesop.Request, dropped []string, err error) {
	if c, err = withBody(c); err != nil {
		return nil, nil, err
	}
	b := &chatToMessagesBuilder{fieldMapper: fieldMapper[*chatToMessagesBuilder]{fields: chatToMessagesFields, drops: drops, ignoresEmpty: true}, c: c, names: customNames(c)}
	b.r = &messages.Request{Model: c.Model, MaxTokens: cmp.Or(c.OutputBound(), defaultMax), TopP: c.TopP, Stream: c.Stream}
	if c.User != "" {
		b.r.Metadata = &messages.Metadata{UserID: c.User}
	}
	if err := b.carry(b, c.Body); err != nil {
		return nil, nil, err
	}
	if think != "" && b.r.Thinking == nil {
		b.think(think)
	}
	b.dropUnmapped("", c.Body.Members())
	b.dropped.Sort() // whichever of the two passes found them
	r, err = checked(b.r, messagesop.Encode)
	return r, b.dropped.List(), err
}

// temperature carries the field where the upstream takes it: chat's ends at 2.
func (b *chatToMessagesBuilder) temperature([]byte) error {
	if t := b.c.Temperature; t != nil && *t > 1 {
		return errDropped
	}
	b.r.Temperature = b.c.Temperature
	return nil
}

func (b *chatToMessagesBuilder) stop([]byte) error {
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

func (b *chatToMessagesBuilder) effort([]byte) error {
	if b.c.ReasoningEffort == "none" { // as the upstream does when it is not asked to think
		return nil
	}
	if !slices.Contains([]string{"low", "medium", "high", "xhigh", "max"}, b.c.ReasoningEffort) {
		return errDropped
	}
	b.r.OutputConfig = &messages.OutputConfig{Effort: b.c.ReasoningEffort}
	return nil
}

// responseFormat carries a schema. A mode that the upstream does not have is refused:
// a caller who parses the answer must not get prose.
func (b *chatToMessagesBuilder) responseFormat(raw []byte) error {
	var format struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Schema jsontext.Value `json:"schema"`
		} `json:"json_schema"`
	}
	if err := readFormat(raw, &format); err != nil {
		return err
	}
	switch {
	case format.Type == "text":
		return nil
	case format.Type != "json_schema":
		return refusal("response_format.type", `"text" or "json_schema": this model has no other mode, and keeps to a schema where one is given`)
	case !isObject(format.JSONSchema.Schema):
		return notSchema("response_format.json_schema.schema")
	}
	if b.r.OutputConfig == nil {
		b.r.OutputConfig = &messages.OutputConfig{}
	}
	b.r.OutputConfig.Format = &messages.OutputFormat{Type: "json_schema", Schema: format.JSONSchema.Schema}
	return nil
}

// serviceTier, thinking and topK carry fields that the upstream has and chat does not
// name. Other vendors have some of the same name and another form, which the upstream
// would refuse.
func (b *chatToMessagesBuilder) serviceTier(raw []byte) error {
	tier, _ := rawjson.String(raw)
	if tier != "auto" && tier != "standard_only" {
		return errDropped
	}
	b.r.ServiceTier = tier
	return nil
}

// leastBudget is the smallest budget of thinking that the upstream takes.
const leastBudget = 1024

func (b *chatToMessagesBuilder) thinking(raw []byte) error {
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

// budgetShares are the parts of max_tokens in percent that an effort lets the model think.
var budgetShares = map[string]int64{"low": 20, "medium": 50, "high": 80, "xhigh": 90, "max": 95}

// think asks for thinking, unless the upstream would refuse it together with the client's
// other fields (https://docs.anthropic.com/en/docs/build-with-claude/extended-thinking).
func (b *chatToMessagesBuilder) think(kind string) {
	const leastTopP = 0.95
	r, effort := b.r, b.c.ReasoningEffort
	choice := r.ToolChoice
	switch {
	case effort != "" && budgetShares[effort] == 0,
		r.Temperature != nil && *r.Temperature != 1, r.TopP != nil && *r.TopP < leastTopP, r.TopK != nil,
		choice != nil && (choice.Type == "any" || choice.Type == "tool"):
		return
	case kind == "adaptive":
		r.Thinking = &messages.Thinking{Type: kind}
		return
	}
	budget := r.MaxTokens / 100 * cmp.Or(budgetShares[effort], budgetShares["medium"])
	if budget = max(budget, leastBudget); budget < r.MaxTokens && b.thoughtBefore() {
		r.Thinking = &messages.Thinking{Type: kind, BudgetTokens: budget}
	}
}

// thoughtBefore reports whether the turn of the results at the end begins with reasoning. If
// it does not, the upstream refuses to think with a budget.
func (b *chatToMessagesBuilder) thoughtBefore() bool {
	n := len(b.turns)
	if n < 2 || len(b.turns[n-1].results) == 0 {
		return true
	}
	before := b.turns[n-2].blocks
	return len(before) > 0 && strings.HasSuffix(before[0].Type, "thinking")
}

func (b *chatToMessagesBuilder) topK(raw []byte) error {
	n, ok := rawjson.Int(raw)
	if !ok || n <= 0 {
		return errDropped
	}
	b.r.TopK = &n
	return nil
}

// customName is the name of the function that stands for a custom tool, which may be no
// longer declared.
func (b *chatToMessagesBuilder) customName(name string) string {
	if b.names == nil {
		b.names, _ = namesOfTools(b.c)
	}
	return b.names.called(toolName{name: name, kind: customTool})
}

// tools carries the functions, and functions that stand for custom tools.
func (b *chatToMessagesBuilder) tools(raw []byte) (err error) {
	b.r.Tools, err = carriedTools(&b.fieldMapper, raw, func(f *chatFunction, beside []byte) (messages.Tool, bool) {
		schema, ok := inputSchema(f.Parameters)
		var own []rawjson.Edit
		if f.Strict {
			own = append(own, rawjson.Set("strict", []byte("true")))
		}
		if cache := rawjson.Lookup(beside, "cache_control"); !rawjson.IsNull(cache) {
			own = append(own, rawjson.Set("cache_control", cache))
		}
		return messages.Tool{Name: f.Name, Description: f.Description, InputSchema: schema, Extra: rawjson.Apply([]byte("{}"), own...)}, ok
	}, func(c *chatCustom) messages.Tool {
		f, known := customFunction(c.Description, c.Format.Type, c.Format.Grammar.Syntax, c.Format.Grammar.Definition)
		if !known {
			b.drop("tools.custom.", "format")
		}
		return messages.Tool{Name: b.customName(c.Name), Description: f.Description, InputSchema: f.Parameters}
	})
	return err
}

// toolChoice carries tool_choice. Without tools the upstream takes none.
func (b *chatToMessagesBuilder) toolChoice(raw []byte) error {
	word, name, err := chatChoice(raw, b.r.Tools != nil)
	if err != nil || b.r.Tools == nil {
		return err
	}
	if word == "custom" {
		name = b.customName(name)
	}
	b.r.ToolChoice = &messages.ToolChoice{Type: toolChoices[word], Name: name}
	return nil
}

// parallelCalls carries parallel_tool_calls, which belongs to the choice.
func (b *chatToMessagesBuilder) parallelCalls(raw []byte) error {
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
func (b *chatToMessagesBuilder) conversation(raw []byte) error {
	var list []chat.Message
	if err := decodeList(raw, &list, "messages"); err != nil {
		return err
	}
	b.used = make(map[string]int)
	for i := range list {
		if err := b.message(&list[i], i); err != nil {
			return err
		}
	}
	return b.endTurns()
}

// builtTurn is one turn. Results come before what the user says.
type builtTurn struct {
	role            string
	first           int // index of the first message in it
	results, blocks []messages.Block
}

// openCall is a call whose result may follow.
type openCall struct {
	sent     string // its id as the upstream gets it
	answered bool
}

// message adds one message.
func (b *chatToMessagesBuilder) message(m *chat.Message, i int) error {
	if m.Name != "" {
		b.drop("messages.", "name")
	}
	b.dropUnknown("messages.", m.Extra)
	var asked *openCall
	var err error
	switch m.Role {
	case "assistant":
		err = b.requireResults()
	case "tool":
		asked, err = b.asked(m, i)
	}
	if err != nil {
		return err
	}
	allowed := []string{"text"}
	if m.Role == "assistant" {
		allowed = []string{"text", "refusal"}
	}
	if m.Role == "user" || m.Role == "tool" {
		allowed = []string{"text", "image_url", "file"}
	}
	blocks, err := b.blocks(m, i, allowed)
	if err != nil {
		return err
	}
	switch m.Role {
	case "system", "developer":
		b.system = append(b.system, blocks...)
	case "assistant":
		if refused := rawjson.LookupString(m.Extra, "refusal"); !blank(refused) {
			blocks = append(blocks, messages.Block{Type: "text", Text: refused})
		}
		blocks = append(b.thoughts(m), blocks...)
		calls, err := b.calls(m, i)
		if err != nil {
			return err
		}
		b.add(m.Role, i, nil, append(blocks, calls...))
	case "tool":
		asked.answered = true
		b.waiting--
		result := messages.Block{Type: "tool_result", ToolUseID: asked.sent}
		if len(blocks) > 0 {
			result.Content = messages.Blocks(blocks...)
		}
		b.add("user", i, []messages.Block{result}, nil)
	default:
		b.add("user", i, nil, blocks)
	}
	return nil
}

// add appends to the last turn, or begins one. Nothing begins none.
func (b *chatToMessagesBuilder) add(role string, i int, results, blocks []messages.Block) {
	if len(results)+len(blocks) == 0 {
		return
	}
	if n := len(b.turns); n == 0 || b.turns[n-1].role != role {
		b.turns = append(b.turns, builtTurn{role: role, first: i})
	}
	last := &b.turns[len(b.turns)-1]
	last.results = append(last.results, results...)
	last.blocks = append(last.blocks, blocks...)
}

// thoughts returns the message's reasoning, if it is still as the upstream signed it.
func (b *chatToMessagesBuilder) thoughts(m *chat.Message) []messages.Block {
	blocks, ok := thinkingBlocks(m.ReasoningContent, rawjson.LookupString(m.Extra, reasoningSignature))
	if !ok {
		b.drop("messages.", "reasoning_content")
	}
	return blocks
}

// calls are the message's calls as the upstream made them. They take the place of
// those of the turn before, which all have a result.
func (b *chatToMessagesBuilder) calls(m *chat.Message, i int) ([]messages.Block, error) {
	if len(m.ToolCalls) > 0 {
		b.open, b.asking, b.waiting = make(map[string]*openCall, len(m.ToolCalls)), i, len(m.ToolCalls)
	}
	blocks := make([]messages.Block, 0, len(m.ToolCalls))
	for j := range m.ToolCalls {
		c, param, taken := &m.ToolCalls[j], fmt.Sprintf("messages[%d].tool_calls[%d]", i, j), ""
		if b.open[c.ID] != nil {
			taken = "another than those of the calls beside it"
		}
		called, err := b.toolCall(c, param, taken)
		if err != nil {
			return nil, err
		}
		input := toolInput(called.arguments, "arguments")
		if called.custom {
			called.name, input = b.customName(called.name), customArguments(called.arguments)
		}
		b.open[c.ID] = &openCall{sent: b.uniqueID(c.ID)}
		blocks = append(blocks, messages.Block{Type: "tool_use", ID: b.open[c.ID].sent, Name: called.name, Input: input})
	}
	return blocks, nil
}

// asked is the call that a tool's message answers.
func (b *chatToMessagesBuilder) asked(m *chat.Message, i int) (*openCall, error) {
	param := fmt.Sprintf("messages[%d].tool_call_id", i)
	call := b.open[m.ToolCallID]
	switch {
	case call == nil:
		return nil, refusal(param, "the id of a call that the assistant's last turn made")
	case call.answered:
		return nil, refusal(param, "the id of a call that has no result yet")
	}
	return call, nil
}

// requireResults fails if a call has no result.
func (b *chatToMessagesBuilder) requireResults() error {
	if b.waiting == 0 {
		return nil
	}
	return refusal(fmt.Sprintf("messages[%d].tool_calls", b.asking),
		`answered, each by a message of role "tool", before the assistant's next turn and the end`)
}

// endTurns writes the turns into the request.
func (b *chatToMessagesBuilder) endTurns() error {
	if err := b.requireResults(); err != nil {
		return err
	}
	switch {
	case len(b.turns) == 0:
		return refusal("messages", "more than instructions: this model wants a message of role \"user\" that is not empty")
	case b.turns[0].role != "user":
		return refusal(fmt.Sprintf("messages[%d].role", b.turns[0].first), `"user" in the first message that is no instruction: this model begins with the user's turn`)
	}
	if len(b.system) > 0 {
		b.r.System = messages.Blocks(b.system...)
	}
	for _, turn := range b.turns {
		b.r.Messages = append(b.r.Messages, messages.Message{Role: turn.role, Content: messages.Blocks(append(turn.results, turn.blocks...)...)})
	}
	return nil
}

// blocks are a message's content.
func (b *chatToMessagesBuilder) blocks(m *chat.Message, i int, allowed []string) ([]messages.Block, error) {
	if rawjson.IsNull(m.Content) {
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
		if b.leavesOut(m, p) {
			continue
		}
		if err := allowedPart(m, p, allowed, param); err != nil {
			return nil, err
		}
		if p.Type == "refusal" {
			p.Type, p.Text = "text", rawjson.LookupString(p.Extra, "refusal")
		}
		if p.Type == "text" && blank(p.Text) {
			continue
		}
		block, err := b.part(p, param)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}

// part is one part of a message as a block.
func (b *chatToMessagesBuilder) part(p *chat.Part, param string) (block messages.Block, err error) {
	switch p.Type {
	case "image_url":
		block, err = b.image(p, param+".image_url.url")
	case "file":
		block, err = b.document(p, param+".file")
	default:
		block = messages.Block{Type: "text", Text: p.Text}
	}
	b.dropUnknown("messages.content.", p.Extra)
	if raw := rawjson.Lookup(p.Extra, "cache_control"); !rawjson.IsNull(raw) {
		block.CacheControl = raw
	}
	return block, err
}

// imageTypes are the images that the upstream reads.
var imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

// image makes a block of an image: its content, or its address.
func (b *chatToMessagesBuilder) image(p *chat.Part, param string) (messages.Block, error) {
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
func (b *chatToMessagesBuilder) document(p *chat.Part, param string) (messages.Block, error) {
	file, err := b.file(p, param)
	if err != nil {
		return messages.Block{}, err
	}
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

// dataURL takes a base64 data URL apart; false if it is not one.
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

// uniqueID is a call's id as the upstream gets it. It is the caller's own if the upstream takes
// its letters and no earlier call has it. It depends only on the conversation until here: so a
// longer conversation begins with the same bytes, and the upstream finds it in its cache.
func (b *chatToMessagesBuilder) uniqueID(id string) string {
	if !plainID(id) {
		id = hashedID(id)
	}
	n, before := b.used[id]
	if !before {
		b.used[id] = 2
		return id
	}
	for { // what was found used once is not tried again
		sent := id + "_" + strconv.Itoa(n)
		n++
		if _, used := b.used[sent]; !used {
			b.used[id], b.used[sent] = n, 2
			return sent
		}
	}
}
