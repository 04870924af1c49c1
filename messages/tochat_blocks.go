package messages

import (
	"fmt"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
)

// ownSignature is the signature of the thinking blocks that are made from a
// chat upstream's reasoning. It proves nothing: it tells them from a vendor's.
const ownSignature = "gateway-reasoning"

func (t *outbound) text(b *Block) error {
	t.turn.parts = append(t.turn.parts, textPart(b.Text))
	return nil
}

func textPart(s string) chat.Part { return chat.Part{Type: "text", Text: s} }

func (t *outbound) thinking(b *Block) error {
	t.turn.thoughts.WriteString(b.Thinking)
	return nil
}

func (t *outbound) toolUse(b *Block) error {
	arguments := "{}"
	if !rawjson.IsNull(b.Input) {
		arguments = string(b.Input)
	}
	t.run.calls = append(t.run.calls, chat.ToolCall{
		ID: b.ID, Type: "function",
		Function: chat.CalledFunction{Name: b.Name, Arguments: arguments},
	})
	return nil
}

// toolResult makes a tool message of the result's text. Its media follow in the
// user message, since most vendors take only text in a tool message.
func (t *outbound) toolResult(b *Block) error {
	blocks, err := b.Content.Blocks()
	if err != nil {
		return refusedField(t.at+".content", "a string or an array of content blocks")
	}
	t.turn.results++
	at, before := t.at, t.turn.parts
	var texts, media []chat.Part
	for i := range blocks {
		t.at, t.turn.parts = fmt.Sprintf("%s.content[%d]", at, i), nil
		f, known := blockFateOf(resultFates, "user", blocks[i].Type)
		if !known {
			return refusedField(t.at+".type", "a block that this model's upstream can take in a tool result: "+rule.Words(resultBlocks))
		}
		if err := f.carry(t, &blocks[i]); err != nil {
			return err
		}
		t.hints(&blocks[i])
		for _, p := range t.turn.parts {
			if p.Type == "text" {
				texts = append(texts, p)
			} else {
				media = append(media, p)
			}
		}
	}
	t.at, t.turn.parts = at, before
	if len(media) > 0 {
		t.turn.parts = append(t.turn.parts, textPart("Attachments of the result of tool call "+b.ToolUseID+":"))
		t.turn.parts = append(t.turn.parts, media...)
	}
	t.run.results = append(t.run.results, chat.Message{
		Role: "tool", ToolCallID: b.ToolUseID, Content: chat.Text(resultText(b, texts, len(media) > 0)),
	})
	return nil
}

// resultFates are the blocks of a tool result. Any other is refused.
var resultFates = []blockFate{
	{"user", "text", fateCarried, "text; several are joined by a blank line", (*outbound).text},
	{"user", "image", fateCarried, "image_url of the user message that follows", (*outbound).media},
	{"user", "document", fateCarried, "file of the user message that follows, or text", (*outbound).media},
}

var resultBlocks = []string{"text", "image", "document"}

// resultText is what a tool message says.
func resultText(b *Block, texts []chat.Part, media bool) string {
	text := joinedText(texts, "\n\n")
	if text == "" && media {
		text = "The result is attached to the next message."
	}
	switch {
	case b.IsError && text == "":
		return "Error"
	case b.IsError:
		return "Error: " + text
	}
	return text
}
