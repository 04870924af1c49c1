package translate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
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
