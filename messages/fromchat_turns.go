package messages

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// conversation carries the messages.
func (t *chatCall) conversation() error {
	var list []chat.Message
	raw := t.c.Field("messages")
	if err := json.Unmarshal(raw, &list, jsontext.AllowDuplicateNames(true)); err != nil {
		return refusedField("messages"+dotted(err), "of the form that the API describes")
	}
	b := &chatTurns{t: t, used: make(map[string]int)}
	for i := range list {
		if err := b.message(&list[i], i); err != nil {
			return err
		}
	}
	return b.end()
}

// dotted is the place of a decoder's error, as "[0].content".
func dotted(err error) string {
	var at *json.SemanticError
	if !errors.As(err, &at) {
		return ""
	}
	path := ""
	for token := range at.JSONPointer.Tokens() {
		if strings.Trim(token, "0123456789") == "" {
			path += "[" + token + "]"
		} else {
			path += "." + token
		}
	}
	return path
}

// chatTurns builds turns of alternating roles out of messages of any order.
type chatTurns struct {
	t      *chatCall
	system []Block
	turns  []chatTurn
	open   map[string]*chatOpen // the calls of the last assistant turn that has any, as the caller names them
	wait   []*chatOpen          // the same in order, without the first that are answered
	used   map[string]int       // ids of calls until now, and the suffix to try when one comes again
}

// chatTurn is one turn. Results come before what the user says.
type chatTurn struct {
	role            string
	first           int // index of the first message in it
	results, blocks []Block
}

// chatOpen is a call that waits for its result.
type chatOpen struct {
	sent     string // as the upstream gets it
	message  int    // that it stands in
	answered bool
}

// message adds one message.
func (b *chatTurns) message(m *chat.Message, i int) error {
	if m.Name != "" {
		b.t.drop("messages.name")
	}
	b.t.dropMembers(m.Extra, "messages.", reasoningSignature)
	switch m.Role {
	case "system", "developer":
		blocks, err := b.blocks(m, i, textOnly)
		b.system = append(b.system, blocks...)
		return err
	case "assistant":
		return b.assistant(m, i)
	case "tool":
		return b.result(m, i)
	}
	blocks, err := b.blocks(m, i, anyPart)
	if err == nil {
		b.add("user", i, nil, blocks)
	}
	return err
}

// add appends to the last turn, or begins one. Nothing begins none.
func (b *chatTurns) add(role string, i int, results, blocks []Block) {
	if len(results)+len(blocks) == 0 {
		return
	}
	if n := len(b.turns); n == 0 || b.turns[n-1].role != role {
		b.turns = append(b.turns, chatTurn{role: role, first: i})
	}
	last := &b.turns[len(b.turns)-1]
	last.results = append(last.results, results...)
	last.blocks = append(last.blocks, blocks...)
}

// assistant adds thoughts, text and calls, in this order.
func (b *chatTurns) assistant(m *chat.Message, i int) error {
	if err := b.closed(); err != nil {
		return err
	}
	blocks := b.thoughts(m)
	text, err := b.blocks(m, i, textOnly)
	if err != nil {
		return err
	}
	blocks = append(blocks, text...)
	if len(m.ToolCalls) > 0 {
		b.open, b.wait = make(map[string]*chatOpen, len(m.ToolCalls)), nil
	}
	for j := range m.ToolCalls {
		call, err := b.call(&m.ToolCalls[j], i, fmt.Sprintf("messages[%d].tool_calls[%d]", i, j))
		if err != nil {
			return err
		}
		blocks = append(blocks, call)
	}
	b.add("assistant", i, nil, blocks)
	return nil
}

// thoughts are the message's, if they are as the upstream signed them.
func (b *chatTurns) thoughts(m *chat.Message) []Block {
	signature := ""
	if o, err := rawjson.Index(m.Extra, nil, nil); err == nil {
		signature, _ = rawjson.String(o.Raw(reasoningSignature))
	}
	blocks, ok := signedThoughts(m.ReasoningContent, signature)
	if !ok {
		b.t.drop("messages.reasoning_content")
	}
	return blocks
}

// call is one call as the upstream made it.
func (b *chatTurns) call(call *chat.ToolCall, i int, param string) (Block, error) {
	b.t.dropMembers(call.Extra, "messages.tool_calls.")
	b.t.dropMembers(call.Function.Extra, "messages.tool_calls.function.")
	input := jsontext.Value(call.Function.Arguments)
	if blank(call.Function.Arguments) {
		input = jsontext.Value("{}")
	}
	switch {
	case call.ID == "":
		return Block{}, refusedField(param+".id", "a non-empty string")
	case b.open[call.ID] != nil:
		return Block{}, refusedField(param+".id", "another than those of the calls beside it")
	case call.Type != "" && call.Type != "function":
		return Block{}, refusedField(param+".type", `"function" for this model`)
	case call.Function.Name == "":
		return Block{}, refusedField(param+".function.name", "a non-empty string")
	case !isObject(input):
		return Block{}, refusedField(param+".function.arguments", "the text of one JSON object without repeated names")
	}
	id := b.fresh(call.ID)
	open := &chatOpen{sent: id, message: i}
	b.open[call.ID], b.wait = open, append(b.wait, open)
	return Block{Type: "tool_use", ID: id, Name: call.Function.Name, Input: input}, nil
}

// result adds what a tool gave.
func (b *chatTurns) result(m *chat.Message, i int) error {
	param := fmt.Sprintf("messages[%d].tool_call_id", i)
	call := b.open[m.ToolCallID]
	switch {
	case call == nil:
		return refusedField(param, "the id of a call that the assistant's last turn made")
	case call.answered:
		return refusedField(param, "the id of a call that has no result yet")
	}
	blocks, err := b.blocks(m, i, anyPart)
	if err != nil {
		return err
	}
	call.answered = true
	result := Block{Type: "tool_result", ToolUseID: call.sent}
	if len(blocks) > 0 {
		result.Content = Blocks(blocks...)
	}
	b.add("user", i, []Block{result}, nil)
	return nil
}

// closed fails if a call has no result.
func (b *chatTurns) closed() error {
	for len(b.wait) > 0 && b.wait[0].answered {
		b.wait = b.wait[1:]
	}
	if len(b.wait) == 0 {
		return nil
	}
	return refusedField(fmt.Sprintf("messages[%d].tool_calls", b.wait[0].message),
		`answered, each by a message of role "tool", before the assistant's next turn and the end`)
}

// end writes the turns into the request.
func (b *chatTurns) end() error {
	if err := b.closed(); err != nil {
		return err
	}
	switch {
	case len(b.turns) == 0:
		return refusedField("messages", "more than instructions: this model wants a message of role \"user\" that is not empty")
	case b.turns[0].role != "user":
		return refusedField(fmt.Sprintf("messages[%d].role", b.turns[0].first), `"user" in the first message that is no instruction: this model begins with the user's turn`)
	}
	if len(b.system) > 0 {
		b.t.r.System = Blocks(b.system...)
	}
	for _, turn := range b.turns {
		b.t.r.Messages = append(b.t.r.Messages, Message{Role: turn.role, Content: Blocks(append(turn.results, turn.blocks...)...)})
	}
	return nil
}
