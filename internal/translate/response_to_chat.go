package translate

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// finishReasons are chat's words for stop reasons. A word that is not known is
// "stop".
var finishReasons = map[string]string{
	"end_turn":                      "stop",
	"stop_sequence":                 "stop",
	"pause_turn":                    "stop",
	"max_tokens":                    "length",
	"model_context_window_exceeded": "length",
	"tool_use":                      "tool_calls",
	"refusal":                       "content_filter",
}

// finishReason is chat's word for a stop reason, which is JSON.
func finishReason(raw []byte) string {
	word, _ := rawjson.String(raw)
	if reason := finishReasons[word]; reason != "" {
		return reason
	}
	return "stop"
}

// completionID is the id of a completion made of a message's, which is JSON.
func completionID(raw []byte) string {
	id, _ := rawjson.String(raw)
	return "chatcmpl-" + strings.TrimPrefix(id, "msg_")
}

// toChatAnswer translates a whole message, the answer to the chat request c.
// created is in Unix seconds. Blocks that are neither text, thought nor call
// are left out. It fails with a fault.BadGateway if data is no message.
func toChatAnswer(c *chat.Request, data []byte, created int64) ([]byte, error) {
	o, err := rawjson.Index(data, nil, nil)
	if err := answer.Whole(&o, err); err != nil {
		return nil, err
	}
	var a chatAnswer
	if err := a.blocks(o.Raw("content")); err != nil {
		return nil, err
	}
	response := chat.Response{
		ID: completionID(o.Raw("id")), Object: "chat.completion", Created: created, Model: c.Model,
		Choices: []chat.Choice{{Message: a.message(), FinishReason: finishReason(o.Raw("stop_reason"))}},
	}
	body, err := json.Marshal(response)
	if err != nil {
		return nil, answer.Bad("The upstream's answer cannot be written as a chat completion.", err)
	}
	var reported report
	reported.read(o.Raw("usage"))
	if usage := appendChatUsage(nil, &reported); usage != nil {
		body = applied(body, rawjson.Set("usage", usage))
	}
	return body, nil
}

// chatAnswer gathers the blocks of a message.
type chatAnswer struct {
	text, reasoning strings.Builder
	signature       []byte
	calls           []chat.ToolCall
}

// blocks reads the content.
func (a *chatAnswer) blocks(raw []byte) error {
	if len(raw) == 0 || raw[0] != '[' {
		return answer.Bad("The upstream's answer has no content.", nil)
	}
	rd := rawjson.NewReader(raw)
	defer rd.Close()
	return rd.Array(func(int) error {
		span, err := rd.Skip()
		if err != nil {
			return answer.Bad("The upstream's answer is not one JSON object.", err)
		}
		o, err := rawjson.Index(span.Of(raw), nil, nil)
		if err != nil {
			return answer.Bad("The upstream's answer has a content block that is no object.", err)
		}
		return a.block(&o)
	})
}

func (a *chatAnswer) block(o *rawjson.Object) error {
	text := func(name string) string {
		s, _ := rawjson.String(o.Raw(name))
		return s
	}
	switch text("type") {
	case "text":
		a.text.WriteString(text("text"))
	case "thinking":
		thinking := text("thinking")
		a.reasoning.WriteString(thinking)
		a.signature = appendThinking(a.signature, len(thinking), text("signature"))
	case "redacted_thinking":
		a.signature = appendRedacted(a.signature, text("data"))
	case "tool_use":
		call := chat.ToolCall{ID: text("id"), Type: "function", Function: chat.CalledFunction{Name: text("name"), Arguments: "{}"}}
		if call.ID == "" || call.Function.Name == "" {
			return answer.Bad("The upstream's answer has a tool call without an id or a name.", nil)
		}
		if input := o.Raw("input"); !rawjson.IsNull(input) {
			call.Function.Arguments = string(input)
		}
		a.calls = append(a.calls, call)
	}
	return nil
}

// message is the assistant's. Its content is null where there are only calls.
func (a *chatAnswer) message() chat.Message {
	m := chat.Message{Role: "assistant", ReasoningContent: a.reasoning.String(), ToolCalls: a.calls, Content: chat.Text(a.text.String())}
	if a.text.Len() == 0 && len(a.calls) > 0 {
		_ = m.Content.UnmarshalJSON([]byte("null")) // it only copies
	}
	if a.signature != nil {
		m.Extra = jsontext.Value(`{"` + reasoningSignature + `":` + string(rawjson.Quote(nil, string(a.signature))) + `}`)
	}
	return m
}

// appendChatUsage appends chat's usage object of the sides that were reported;
// nothing if neither was, so that the gateway estimates. The prompt there
// includes what the cache read and wrote.
func appendChatUsage(dst []byte, p *report) []byte {
	if !p.Has[input] && !p.Has[output] {
		return dst
	}
	dst = append(dst, '{')
	prompt := p.N[input] + p.N[cacheWrite] + p.N[cached]
	if p.Has[input] {
		dst = appendCount(dst, `"prompt_tokens":`, prompt)
	}
	if p.Has[output] {
		if p.Has[input] {
			dst = append(dst, ',')
		}
		dst = appendCount(dst, `"completion_tokens":`, p.N[output])
	}
	if p.Has[input] && p.Has[output] {
		dst = appendCount(dst, `,"total_tokens":`, prompt+p.N[output])
	}
	if p.Has[input] {
		dst = appendCount(dst, `,"prompt_tokens_details":{"cached_tokens":`, p.N[cached])
		if n := p.N[cacheWrite]; n > 0 {
			dst = appendCount(dst, `,"cache_write_tokens":`, n)
		}
		dst = append(dst, '}')
	}
	if p.Has[output] && p.Has[reasoning] {
		dst = appendCount(dst, `,"completion_tokens_details":{"reasoning_tokens":`, p.N[reasoning])
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

func appendCount(dst []byte, head string, n int64) []byte {
	return strconv.AppendInt(append(dst, head...), n, 10)
}
