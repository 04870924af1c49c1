package translate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/responses"
)

// conversation carries the messages.
func (b *responseBuilder) conversation(raw []byte) error {
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
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:12])
}

// message adds the items of one message.
func (b *responseBuilder) message(m *chat.Message, i int) error {
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
		if content.IsNull() {
			content = responses.ContentText("")
		}
		b.items = append(b.items, responses.Item{Type: "function_call_output", CallID: sentCallID(m.ToolCallID), Output: content})
		return nil
	case "assistant":
		b.thoughts(m)
	}
	if !content.IsNull() && (m.Role != "assistant" || string(content) != `""`) { // a turn of calls alone
		b.items = append(b.items, responses.Item{Type: "message", Role: m.Role, Content: content})
	}
	return b.toolCalls(m, at)
}

// thoughts adds the message's thoughts, if they are as the upstream encrypted them.
func (b *responseBuilder) thoughts(m *chat.Message) {
	pieces := stringMember(m.Extra, reasoningSignature)
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
func (b *responseBuilder) toolCalls(m *chat.Message, at string) error {
	for j := range m.ToolCalls {
		c := &m.ToolCalls[j]
		b.dropUnknown("messages.tool_calls.", c.Extra)
		b.dropUnknown("messages.tool_calls.function.", c.Function.Extra)
		param := fmt.Sprintf("%s.tool_calls[%d]", at, j)
		switch {
		case c.ID == "":
			return refusal(param+".id", "a non-empty string")
		case b.calls[c.ID]:
			return refusal(param+".id", "another than that of a call that has no result yet")
		case c.Type != "" && c.Type != "function":
			return refusal(param+".type", `"function" for this model`)
		case c.Function.Name == "":
			return refusal(param+".function.name", "a non-empty string")
		}
		arguments := c.Function.Arguments
		if blank(arguments) {
			arguments = "{}"
		}
		b.calls[c.ID] = true
		b.items = append(b.items, responses.Item{Type: "function_call", CallID: sentCallID(c.ID), Name: c.Function.Name, Arguments: rawjson.Quote(nil, arguments)})
	}
	return nil
}

// partTypes are the parts that a message of each role may have.
var partTypes = map[string][]string{
	"user":      {"text", "image_url", "file", "input_audio"},
	"tool":      {"text", "image_url", "file"},
	"assistant": {"text", "refusal"},
}

// content is a message's content; null if it has none.
func (b *responseBuilder) content(m *chat.Message, param string) (responses.Content, error) {
	refused := stringMember(m.Extra, "refusal")
	if _, isText := rawjson.String(m.Content); (isText || m.Content.IsNull()) && refused == "" {
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
		if !slices.Contains(allowed, parts[j].Type) {
			return nil, refusal(at+".type", rule.Words(allowed)+" in a message of role "+m.Role+" for this model")
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
	return responses.Parts(out...), nil
}

// part is one part of a message.
func (b *responseBuilder) part(p *chat.Part, role, param string) (part responses.Part, err error) {
	b.dropUnknown("messages.content.", p.Extra)
	switch p.Type {
	case "image_url":
		if p.ImageURL == nil || p.ImageURL.URL == "" {
			return part, refusal(param+".image_url.url", "an absolute http, https or data URL")
		}
		b.dropUnknown("messages.content.image_url.", p.ImageURL.Extra)
		return responses.Part{Type: "input_image", ImageURL: p.ImageURL.URL, Detail: cmp.Or(stringMember(p.ImageURL.Extra, "detail"), "auto")}, nil
	case "file":
		return b.file(p, param+".file")
	case "input_audio":
		return responses.Part{Type: "input_audio", InputAudio: p.InputAudio}, nil
	case "refusal":
		return responses.Part{Type: "refusal", Refusal: stringMember(p.Extra, "refusal")}, nil
	}
	part = responses.Part{Type: "input_text", Text: p.Text}
	if role == "assistant" {
		part.Type = "output_text"
	}
	return part, nil
}

// file is a file that the caller sends along. One that lies at a vendor is another's.
func (b *responseBuilder) file(p *chat.Part, param string) (part responses.Part, err error) {
	var file struct {
		Data  string         `json:"file_data"`
		Name  string         `json:"filename"`
		ID    string         `json:"file_id"`
		Extra jsontext.Value `json:",embed"`
	}
	if err := json.Unmarshal(p.File, &file, jsontext.AllowDuplicateNames(true)); err != nil {
		return part, refusal(param, `an object such as {"filename":…,"file_data":"data:application/pdf;base64,…"}`)
	}
	switch {
	case file.ID != "":
		return part, refusal(param+".file_id", `absent for this model, which takes "file_data"`)
	case !strings.HasPrefix(strings.ToLower(file.Data), "data:"):
		return part, refusal(param+".file_data", "a base64 data URL")
	}
	b.dropUnknown("messages.content.file.", file.Extra)
	return responses.Part{Type: "input_file", FileData: file.Data, Filename: file.Name}, nil
}
