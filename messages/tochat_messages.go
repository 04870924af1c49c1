package messages

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// turn is one message while it is read.
type turn struct {
	parts    []chat.Part
	thoughts strings.Builder
	results  int // tool results in it
}

// run is the messages of one role that stand together. Messages takes them for
// one turn; chat wants a turn's tool calls last and its tool results first.
type run struct {
	role    string
	calls   []chat.ToolCall
	results []chat.Message
	rest    []chat.Message
}

// system carries the system text.
func (t *outbound) system() error {
	if err := t.read("system", "system", t.r.System); err != nil {
		return err
	}
	if len(t.turn.parts) > 0 {
		t.c.Messages = append(t.c.Messages, chat.Message{Role: "system", Content: content(t.turn.parts)})
	}
	return nil
}

// messages carries the conversation.
func (t *outbound) messages() error {
	for i := range t.r.Messages {
		m := &t.r.Messages[i]
		at := fmt.Sprintf("messages[%d]", i)
		if !slices.Contains(roles, m.Role) {
			return refusedField(at+".role", rule.Words(roles))
		}
		if m.Role != t.run.role {
			t.flush()
			t.run.role = m.Role
		}
		if err := t.read(m.Role, at+".content", m.Content); err != nil {
			return err
		}
		t.rest("messages.", m.Extra)
		t.keep()
	}
	t.flush()
	return nil
}

// read takes one message's content apart, block by block.
func (t *outbound) read(role, at string, c Content) error {
	t.turn = turn{}
	blocks, err := c.Blocks()
	if err != nil {
		return refusedField(at, "a string or an array of content blocks")
	}
	for i := range blocks {
		b := &blocks[i]
		t.at = fmt.Sprintf("%s[%d]", at, i)
		f, known := blockFateOf(blockFates, role, b.Type)
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
		t.hints(b)
	}
	return nil
}

// blocksOf are the blocks of a role that are carried.
func blocksOf(role string) (types []string) {
	for _, f := range blockFates {
		if f.role == role && f.kind == fateCarried {
			types = append(types, f.block)
		}
	}
	return types
}

// hints drops what stands in a block beside its content.
func (t *outbound) hints(b *Block) {
	if !rawjson.IsNull(b.CacheControl) {
		t.drop("", "cache_control")
	}
	if !rawjson.IsNull(b.Citations) {
		t.drop("", "citations")
	}
	if b.Signature != nil && *b.Signature != "" && *b.Signature != ownSignature {
		t.drop("messages.content.", "signature")
	}
	t.rest("messages.content.", b.Extra)
	if b.Source != nil {
		t.rest("messages.content.source.", b.Source.Extra)
	}
}

// keep puts the message that was read into its run.
func (t *outbound) keep() {
	m := chat.Message{Role: t.run.role}
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
	t.run.rest = append(t.run.rest, m)
}

// flush ends the run.
func (t *outbound) flush() {
	if len(t.run.calls) > 0 {
		if len(t.run.rest) == 0 {
			t.run.rest = []chat.Message{{Role: t.run.role}}
		}
		last := &t.run.rest[len(t.run.rest)-1]
		last.ToolCalls = t.run.calls
		if last.ReasoningContent == "" && isDelta(t.r.Model) {
			last.Extra = []byte(`{"reasoning_content":""}`)
		}
	}
	t.c.Messages = append(t.c.Messages, t.run.results...)
	t.c.Messages = append(t.c.Messages, t.run.rest...)
	t.run = run{}
}

// isDelta reports whether the model is of the reasoning family, whose upstream
// refuses a tool call without reasoning_content, be it empty, and takes a
// function for strict unless it is told otherwise.
func isDelta(model string) bool {
	for _, f := range chat.Families() {
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
