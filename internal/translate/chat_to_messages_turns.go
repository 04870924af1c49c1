package translate

import (
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
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/messages"
)

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
