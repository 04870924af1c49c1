package translate

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	responsesop "github.com/tollhouse-ai/gateway/internal/operation/responses"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/upstream"
)

// responsesToChatFields are the fields of a request for a response at an upstream that speaks
// only chat completions.
var responsesToChatFields = []field[*responsesToChatBuilder]{
	{name: "model", action: carried, note: "model"},
	{name: "instructions", action: carried, note: "the first system message", carry: (*responsesToChatBuilder).instruct},
	{name: "input", action: carried, note: "messages, see the items"},
	{name: "max_output_tokens", action: carried, note: "max_tokens"},
	{name: "stream", action: carried, note: "stream"},
	{name: "stream_options", action: handled, note: "the last event has the upstream's counts; nothing is padded"},
	{name: "temperature", action: carried, note: "temperature"},
	{name: "top_p", action: carried, note: "top_p"},
	{name: "top_logprobs", action: carried, note: "top_logprobs where include asks for them"},
	{name: "stop", action: carried, note: "stop", carry: same("stop")},
	{name: "seed", action: carried, note: "seed", carry: same("seed")},
	{name: "presence_penalty", action: carried, note: "presence_penalty", carry: same("presence_penalty")},
	{name: "frequency_penalty", action: carried, note: "frequency_penalty", carry: same("frequency_penalty")},
	{name: "logit_bias", action: carried, note: "logit_bias", carry: same("logit_bias")},
	{name: "tools", action: carried, note: "function tools, with those that the input loads; see the tools"},
	{name: "tool_choice", action: carried, note: "tool_choice: a word or the function; allowed_tools cuts the list of tools; a tool that was dropped is refused", carry: (*responsesToChatBuilder).toolChoice},
	{name: "parallel_tool_calls", action: carried, note: "parallel_tool_calls if it is false and there are tools", carry: (*responsesToChatBuilder).parallelCalls},
	{name: "reasoning", action: carried, note: "reasoning_effort", carry: (*responsesToChatBuilder).reasoning},
	{name: "text", action: carried, note: "response_format", chat: "response_format", carry: (*responsesToChatBuilder).text},
	{name: "user", action: carried, note: "user; dropped if longer than 64 bytes", carry: (*responsesToChatBuilder).user},
	{name: "include", action: carried, note: "logprobs if it has message.output_text.logprobs; of the others reasoning.encrypted_content decides what the answer has; an upstream of messages is asked to think for it", carry: (*responsesToChatBuilder).logprobs},
	{name: "store", action: handled, note: "the gateway keeps responses, not the upstream"},
	{name: "metadata", action: handled, note: "the answer repeats it"},
	{name: "previous_response_id", action: refused, note: "where no response is stored", carry: (*responsesToChatBuilder).earlierResponse},
	{name: "prompt_cache_key", action: handled, note: "chooses the channel; vendors of chat have no such field"},
	{name: "prompt_cache_retention", action: handled, note: "a hint to one vendor"},
	{name: "safety_identifier", action: handled, note: "a hint to one vendor"},
	{name: "client_metadata", action: handled, note: "the client's notes to its vendor"},
	{name: "max_tool_calls", action: handled, note: "bounds the tools that the vendor runs, of which there are none"},
	{name: "service_tier", action: handled, note: "auto and default ask for nothing; others are dropped and reported, for they are the vendor's own", carry: (*responsesToChatBuilder).tier},
	{name: "truncation", action: leftOut, noop: `"disabled"`, note: "what is too long for the upstream is refused by it"},
	{name: "background", action: refused, note: "by the endpoint itself, unless it is false"},
	{name: "conversation", action: refused, note: "by the endpoint itself, unless it is false"},
	{name: "prompt", action: refused, note: "by the endpoint itself, unless it is false"},
	{name: "context_management", action: refused, note: "by the endpoint itself, unless it is false"},
	{name: "moderation", action: refused, note: "by the endpoint itself, unless it is false"},

	{name: "reasoning.effort", action: carried, note: "reasoning_effort, the same word; none is left out; dropped where the model's family refuses it"},
	{name: "reasoning.summary", action: handled, note: "decides how thoughts are shown; an upstream of messages is asked to think for it, and it is dropped where that cannot be asked"},
	{name: "reasoning.generate_summary", action: handled, note: "the older name of summary"},
	{name: "reasoning.context", action: handled, note: "all thoughts that the input has are carried"},

	{name: "text.format", action: carried, note: "response_format; text is the default"},
	{name: "text.format.type", action: carried, note: "json_schema, json_object or text; others are refused"},
	{name: "text.format.name", action: carried, note: "json_schema.name"},
	{name: "text.format.description", action: carried, note: "json_schema.description"},
	{name: "text.format.schema", action: carried, note: "json_schema.schema"},
	{name: "text.format.strict", action: carried, note: "json_schema.strict"},
	{name: "text.verbosity", action: leftOut, noop: `"medium"`, note: "medium is the default"},

	{name: "input.type", action: carried, note: "see the items"},
	{name: "input.id", action: handled, note: "the client's name of the item"},
	{name: "input.status", action: handled, note: "all items of an input are over"},
	{name: "input.phase", action: handled, note: "chat has one kind of answer"},
	{name: "input.role", action: carried, note: "role; developer is system"},
	{name: "input.content", action: carried, note: "content, or reasoning_content; see the parts"},
	{name: "input.summary", action: handled, note: "the client's view of the thoughts"},
	{name: "input.encrypted_content", action: carried, note: "reasoning_content and reasoning_signature if the gateway sealed it, for this account and this model; dropped else"},
	{name: "input.call_id", action: carried, note: "tool_calls.id and tool_call_id, byte for byte"},
	{name: "input.name", action: carried, note: "tool_calls.function.name, see the tools"},
	{name: "input.namespace", action: carried, note: "a part of tool_calls.function.name"},
	{name: "input.arguments", action: carried, note: "tool_calls.function.arguments, byte for byte; empty is {}"},
	{name: "input.input", action: carried, note: `tool_calls.function.arguments, as {"input":…}`},
	{name: "input.output", action: carried, note: "the tool message's text; media go into the user message after it, with a line that names the call"},
	{name: "input.execution", action: carried, note: "a search that the vendor ran is dropped"},
	{name: "input.tools", action: carried, note: "tools, after those of the request"},
	{name: "input.action", action: carried, note: "tool_calls.function.arguments"},
	{name: "input.operation", action: carried, note: "tool_calls.function.arguments"},
	{name: "input.max_output_length", action: handled, note: "the output has been cut"},
	{name: "input.author", action: carried, note: "a line before the text"},
	{name: "input.recipient", action: carried, note: "a line before the text"},

	{name: "input.content.type", action: carried, note: "see the parts"},
	{name: "input.content.text", action: carried, note: "text; in an assistant's turn all texts are joined by a line break"},
	{name: "input.content.refusal", action: carried, note: "refusal"},
	{name: "input.content.annotations", action: handled, note: "what the answer said of its text"},
	{name: "input.content.logprobs", action: handled, note: "what the answer said of its text"},
	{name: "input.content.image_url", action: carried, note: "image_url.url"},
	{name: "input.content.detail", action: carried, note: "image_url.detail; original is high, auto is the default"},
	{name: "input.content.file_id", action: refused, note: "the file lies at another vendor"},
	{name: "input.content.file_data", action: carried, note: "file.file_data"},
	{name: "input.content.filename", action: carried, note: "file.filename"},
	{name: "input.content.file_url", action: refused, note: "chat's file part holds data only, and the gateway fetches nothing"},
	{name: "input.content.input_audio", action: carried, note: "input_audio"},
	{name: "input.content.audio_url", action: carried, note: "audio_url.url"},

	{name: "tools.type", action: carried, note: "see the tools"},
	{name: "tools.name", action: carried, note: "function.name, after that of the namespace"},
	{name: "tools.description", action: carried, note: "function.description; that of a namespace stands before the first of its tools"},
	{name: "tools.parameters", action: carried, note: `function.parameters; type "object" is added where it has none`},
	{name: "tools.strict", action: carried, note: "function.strict"},
	{name: "tools.format", action: carried, note: "a grammar is a part of the description, and is not enforced"},
	{name: "tools.execution", action: carried, note: "a search that the vendor runs is dropped and reported"},
	{name: "tools.tools", action: carried, note: "tools, each by itself"},
}

// responsesToChatBuilder is a request for a response on its way to chat.
type responsesToChatBuilder struct {
	fieldMapper[*responsesToChatBuilder]
	r     *responses.Request
	c     *chat.Request
	extra []rawjson.Edit // the members of c that have no field

	// open opens the encrypted_content of a reasoning item that the gateway sealed for
	// the account; nil opens none.
	open func(sealed string) (thoughts []byte, ok bool)

	tools []toolRow // the tools that can be read
	items []inputItem

	names   toolNames
	offers  []toolOffer         // the tools that the client runs, each once
	choices map[toolName]string // their names in chat; one in a namespace has it without that too, unless another tool is called so
	types   map[string]bool     // of all tools that are declared

	turn    assistantTurn // that is being read
	origins []string      // for each message of c: the item that it was made of
}

// responsesToChat translates a request for a response into one for a chat completion, as
// responsesToChatFields says field by field. names are those of its tools in chat. dropped are
// the fields that chat has no words for and that are only hints. A field whose absence would
// change the answer's meaning is refused with a 400, unless drops has it.
func responsesToChat(r *responses.Request, open func(sealed string) (thoughts []byte, ok bool), drops ...string) (c *chatop.Request, names *toolNames, dropped []string, err error) {
	body := r.Body
	if !body.IsObject() { // typed: members without a field are only in the JSON
		encoded, err := responsesop.Encode(r)
		if err != nil {
			return nil, nil, nil, err
		}
		body = encoded.Body
	}
	b := &responsesToChatBuilder{
		fieldMapper: fieldMapper[*responsesToChatBuilder]{fields: responsesToChatFields, drops: drops}, open: open,
		r: r, tools: responsesTools,
		c: &chat.Request{Model: r.Model, MaxTokens: r.MaxOutputTokens, Temperature: r.Temperature, TopP: r.TopP, Stream: r.Stream},
	}
	b.dropUnmapped("", body.Members())
	if err := b.build(body); err != nil {
		return nil, nil, nil, err
	}
	if len(b.extra) > 0 {
		b.c.Extra = rawjson.Apply([]byte("{}"), b.extra...)
	}
	if c, err = checked(b.c, chatop.Encode); err != nil {
		return nil, nil, nil, b.inWordsOfResponses(err)
	}
	return c, &b.names, b.dropped.List(), nil
}

// build builds the chat request. The tools come first, for calls in the input and the
// choice of a tool name them.
func (b *responsesToChatBuilder) build(body upstream.Body) error {
	if err := b.readItems(); err != nil {
		return err
	}
	if err := b.offerTools(); err != nil {
		return err
	}
	if err := b.carry(b, body); err != nil {
		return err
	}
	if err := b.converse(); err != nil {
		return err
	}
	if len(b.c.Messages) == 0 {
		return refusal("input", "a string, or an array of items of which one says something")
	}
	return b.encodeTools()
}

func (b *responsesToChatBuilder) instruct(raw []byte) error {
	if text, _ := rawjson.String(raw); text != "" {
		b.addMessage(chat.Message{Role: "system", Content: chat.Text(text)}, "instructions")
	}
	return nil
}

// same carries a field that chat has too.
func same(name string) func(*responsesToChatBuilder, []byte) error {
	return func(b *responsesToChatBuilder, raw []byte) error {
		b.extra = append(b.extra, rawjson.Set(name, raw))
		return nil
	}
}

// earlierResponse refuses to continue a response: what the gateway keeps was put into
// the input before.
func (b *responsesToChatBuilder) earlierResponse([]byte) error {
	return unstored(responsesop.Request{Request: b.r})
}

// unstored is the refusal of a request that refers to what is stored.
func unstored(r responsesop.Request) error {
	r.RefuseState()
	return r.Problem.Err()
}

// logprobs asks for the probabilities of tokens.
func (b *responsesToChatBuilder) logprobs([]byte) error {
	if !slices.Contains(b.r.Include, "message.output_text.logprobs") {
		return nil
	}
	b.extra = append(b.extra, rawjson.Set("logprobs", []byte("true")))
	if n := b.r.TopLogprobs; n > 0 {
		b.extra = append(b.extra, rawjson.Set("top_logprobs", strconv.AppendInt(nil, n, 10)))
	}
	return nil
}

func (b *responsesToChatBuilder) user([]byte) error {
	if len(b.r.User) > longestUser {
		return errDropped
	}
	b.c.User = b.r.User
	return nil
}

func (b *responsesToChatBuilder) tier([]byte) error {
	switch b.r.ServiceTier {
	case "", "auto", "default": // none, if the gateway has left it out
		return nil
	}
	return errDropped
}

// reasoning carries how much the model thinks.
func (b *responsesToChatBuilder) reasoning([]byte) error {
	o := b.r.Reasoning
	if o == nil {
		return nil
	}
	b.dropUnknown("reasoning.", o.Extra)
	if o.Effort == "" || o.Effort == "none" { // not every vendor of chat has a word for none
		return nil
	}
	if ruleBroken(b.r.Model, &chat.Request{ReasoningEffort: o.Effort}, "reasoning_effort") != nil {
		b.drop("reasoning.", "effort")
	} else {
		b.c.ReasoningEffort = o.Effort
	}
	return nil
}

// text carries what form the text has.
func (b *responsesToChatBuilder) text([]byte) error {
	o := b.r.Text
	if o == nil {
		return nil
	}
	b.dropUnknown("text.", o.Extra)
	if o.Verbosity != "" && o.Verbosity != "medium" {
		b.drop("text.", "verbosity")
	}
	if o.Format == nil {
		return nil
	}
	b.dropUnknown("text.format.", o.Format.Extra)
	return b.format(o.Format)
}

// format carries the form of the answer, whose members chat nests.
func (b *responsesToChatBuilder) format(f *responses.TextFormat) error {
	switch f.Type {
	case "json_object":
		b.c.ResponseFormat = chat.JSONObject()
		return nil
	case "text":
		return nil
	}
	type described struct {
		Name        string         `json:"name"`
		Description string         `json:"description,omitzero"`
		Strict      *bool          `json:"strict,omitzero"`
		Schema      jsontext.Value `json:"schema"`
	}
	raw, err := json.Marshal(struct {
		Type       string    `json:"type"`
		JSONSchema described `json:"json_schema"`
	}{f.Type, described{f.Name, f.Description, f.Strict, f.Schema}})
	if err != nil {
		return refusal("text.format.schema", "JSON without repeated names")
	}
	b.c.ResponseFormat = raw
	return nil
}

// inWordsOfResponses turns the refusal of the chat request into one of the request that it was
// made of.
func (b *responsesToChatBuilder) inWordsOfResponses(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) {
		return err
	}
	ours := "input"
	if rest, ok := strings.CutPrefix(f.Param, "response_format.json_schema"); ok {
		ours = "text.format" + rest
	} else if !strings.HasPrefix(f.Param, "messages") {
		return err
	} else if index, rest, ok := strings.Cut(strings.TrimPrefix(f.Param, "messages["), "]"); ok {
		if i, err := strconv.Atoi(index); err == nil && i < len(b.origins) {
			ours = b.origins[i] + strings.TrimSuffix(rest, ".url")
		}
	}
	return f.With(func(e *fault.Error) {
		e.Param, e.Message = ours, strings.ReplaceAll(f.Message, strconv.Quote(f.Param), strconv.Quote(ours))
	})
}
