package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/answer"
	"github.com/tollhouse-ai/gateway/internal/chatapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/messages"
)

// fromChatAnswer translates a whole chat completion, which answers the request
// as [toChat] made it, into a message. A body that is no completion, or that is
// an error, is a fault.BadGateway.
//
// Usage that the upstream did not report is left out. The arguments of a tool call that
// are no JSON object, as those that max_tokens cut, become {"_raw": text}: the
// answer was paid for, and a tool that checks its input tells the model.
func fromChatAnswer(r *messages.Request, data []byte) ([]byte, error) {
	var c chatCompletion
	if err := c.decode(data); err != nil {
		return nil, answer.Bad("The upstream's answer is not a chat completion.", err)
	}
	if !rawjson.IsNull(c.Error) {
		return nil, answer.ErrorFrame(c.Error)
	}
	first := c.first()
	if first == nil {
		return nil, answer.Bad("The upstream's answer has no choices.", nil)
	}
	id := messageID(&c, data)
	blocks, err := first.Message.blocks(r, id)
	if err != nil {
		return nil, err
	}
	var report chatapi.Report
	c.report(&report)
	reason := stopReason(first.FinishReason, first.Message.hasCalls(), first.Message.text("refusal") != "")
	out, err := json.Marshal(&messageOut{
		ID: id, Type: "message", Role: "assistant", Model: r.Model,
		Content: blocks, StopReason: &reason, Usage: messageUsage(&report),
	})
	if err != nil {
		return nil, answer.Bad("The upstream's answer cannot be written as a message.", err)
	}
	return out, nil
}

// chatCompletion is what is read of a chat completion or of a chunk of one. Fields
// that vendors spell in many ways are raw.
type chatCompletion struct {
	ID      jsontext.Value `json:"id"`
	Choices []candidate    `json:"choices"`
	Usage   jsontext.Value `json:"usage"`
	Error   jsontext.Value `json:"error"`
}

// candidate is one of its choices; Message is absent in a chunk, Delta elsewhere.
type candidate struct {
	Index        int64            `json:"index"`
	Message      assistantMessage `json:"message"`
	Delta        assistantMessage `json:"delta"`
	FinishReason string           `json:"finish_reason"`
	Usage        jsontext.Value   `json:"usage"` // where some vendors put it
}

// assistantMessage is what the model said, whole or a piece of it.
type assistantMessage chat.Message

func (c *chatCompletion) decode(data []byte) error {
	return json.Unmarshal(data, c, jsontext.AllowDuplicateNames(true))
}

// first is the one candidate that was asked for; nil if there is none.
func (c *chatCompletion) first() *candidate {
	for i := range c.Choices {
		if c.Choices[i].Index == 0 {
			return &c.Choices[i]
		}
	}
	return nil
}

// report reads the usage, wherever it stands.
func (c *chatCompletion) report(to *chatapi.Report) {
	to.Read(c.Usage)
	for i := range c.Choices {
		to.Read(c.Choices[i].Usage)
	}
}

// text is a string member that is not chat's own; empty if there is none.
func (s *assistantMessage) text(name string) string {
	if s.Extra == nil {
		return ""
	}
	o, err := rawjson.Index(s.Extra, nil, nil)
	if err != nil {
		return ""
	}
	text, _ := rawjson.String(o.Raw(name))
	return text
}

// reasoning is the reasoning, which vendors call by two names.
func (s *assistantMessage) reasoning() string {
	if s.ReasoningContent != "" {
		return s.ReasoningContent
	}
	return s.text("reasoning")
}

// legacyIndex is the index of a call in the form that is older than tool_calls.
const legacyIndex = -1

// legacyCall is the call in the older form; nil if there is none.
func (s *assistantMessage) legacyCall() *chat.ToolCall {
	if s.Extra == nil {
		return nil
	}
	o, err := rawjson.Index(s.Extra, nil, nil)
	if err != nil || rawjson.IsNull(o.Raw("function_call")) {
		return nil
	}
	index := int64(legacyIndex)
	call := &chat.ToolCall{Index: &index}
	if json.Unmarshal(o.Raw("function_call"), &call.Function, jsontext.AllowDuplicateNames(true)) != nil {
		return nil
	}
	return call
}

// toolCalls are the calls in either form.
func (s *assistantMessage) toolCalls() []chat.ToolCall {
	if call := s.legacyCall(); call != nil {
		return append(s.ToolCalls, *call)
	}
	return s.ToolCalls
}

func (s *assistantMessage) hasCalls() bool { return len(s.toolCalls()) > 0 }

// blocks is what was said as content of a message.
func (s *assistantMessage) blocks(r *messages.Request, id string) ([]messages.Block, error) {
	var blocks []messages.Block
	if thought := s.reasoning(); thought != "" && showsThinking(r) {
		signature := syntheticSignature
		blocks = append(blocks, messages.Block{Type: "thinking", Thinking: thought, Signature: &signature})
	}
	for _, text := range [...]string{s.Content.String(), s.text("refusal")} {
		if text != "" {
			blocks = append(blocks, messages.Block{Type: "text", Text: text})
		}
	}
	for i, call := range s.toolCalls() {
		if call.Function.Name == "" {
			return nil, namelessCall()
		}
		if call.ID == "" {
			call.ID = callID(id, i)
		}
		blocks = append(blocks, messages.Block{Type: "tool_use", ID: call.ID, Name: call.Function.Name, Input: toolInput(call.Function.Arguments)})
	}
	return blocks, nil
}

// toolInput is a tool's input from the arguments as text.
func toolInput(arguments string) jsontext.Value {
	arguments = strings.TrimSpace(arguments)
	if arguments == "" || arguments == "null" {
		return jsontext.Value("{}")
	}
	if _, err := rawjson.Index([]byte(arguments), nil, nil); err == nil {
		return jsontext.Value(arguments)
	}
	return append(rawjson.Quote([]byte(`{"_raw":`), arguments), '}')
}

// namelessCall is the error of an upstream whose tool call has no name.
func namelessCall() error {
	return answer.Bad("The upstream's answer has a tool call without a name.", nil)
}

// showsThinking reports whether the caller wants to see what the model thought.
func showsThinking(r *messages.Request) bool {
	return r.Thinking != nil && (r.Thinking.Type == "enabled" || r.Thinking.Type == "adaptive")
}

// stopReasons are the words for chat's finish reasons. Any other means that the
// turn is over.
var stopReasons = map[string]string{"length": "max_tokens", "content_filter": "refusal"}

// stopReason says why the message ends. Whether tools are called is seen in the
// answer: vendors differ on the word.
func stopReason(finish string, calls, refused bool) string {
	word, known := stopReasons[finish]
	switch {
	case known:
		return word
	case calls:
		return "tool_use"
	case refused:
		return "refusal"
	}
	return "end_turn"
}

// messageID is the message's id, made of the completion's.
func messageID(c *chatCompletion, data []byte) string {
	id, _ := rawjson.String(c.ID)
	id = strings.TrimPrefix(id, "chatcmpl-")
	if !isWord(id) {
		sum := sha256.Sum256(data)
		id = hex.EncodeToString(sum[:12])
	}
	return "msg_" + id
}

// isWord reports whether s can be part of an id: letters, digits, "_" and "-".
func isWord(s string) bool {
	const longest = 64
	for i := range len(s) {
		if c := s[i] | 0x20; (c < 'a' || c > 'z') && (s[i] < '0' || s[i] > '9') && s[i] != '_' && s[i] != '-' {
			return false
		}
	}
	return s != "" && len(s) <= longest
}

// callID is the id of the n-th tool call of a message whose upstream gave none.
func callID(messageID string, n int) string {
	return "toolu_" + strings.TrimPrefix(messageID, "msg_") + "_" + strconv.Itoa(n)
}

// messageOut is a message as it is written here: [Response] with the usage in a form
// that can leave out what is not known.
type messageOut struct {
	ID           string           `json:"id"`
	Type         string           `json:"type"`
	Role         string           `json:"role"`
	Model        string           `json:"model"`
	Content      []messages.Block `json:"content"`
	StopReason   *string          `json:"stop_reason"`
	StopSequence *string          `json:"stop_sequence"`
	Usage        usageOut         `json:"usage"`
}

// usageOut is usage without the side that the upstream did not report: a 0
// would be taken for a count and charged as such.
type usageOut struct {
	Input      *int64                  `json:"input_tokens,omitzero"`
	CacheWrite *int64                  `json:"cache_creation_input_tokens,omitzero"`
	CacheRead  *int64                  `json:"cache_read_input_tokens,omitzero"`
	Output     *int64                  `json:"output_tokens,omitzero"`
	Details    *messages.OutputDetails `json:"output_tokens_details,omitzero"`
}

// messageUsage is what a chat upstream reported.
func messageUsage(report *chatapi.Report) (w usageOut) {
	u := report.Usage()
	input, output := report.Known()
	if input {
		w.Input, w.CacheWrite, w.CacheRead = &u.Input, &u.CacheWrite, &u.CachedInput
	}
	if output {
		w.Output = &u.Output
	}
	if output && u.Reasoning > 0 {
		w.Details = &messages.OutputDetails{ThinkingTokens: u.Reasoning}
	}
	return w
}
