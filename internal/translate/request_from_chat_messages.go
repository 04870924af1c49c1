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
func (t *messagesRequestBuilder) conversation() error {
	var list []chat.Message
	raw := t.c.Field("messages")
	if err := json.Unmarshal(raw, &list, jsontext.AllowDuplicateNames(true)); err != nil {
		return refusedField("messages"+dotted(err), "of the form that the API describes")
	}
	b := &turnBuilder{t: t, used: make(map[string]int)}
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

// turnBuilder builds turns of alternating roles out of messages of any order.
type turnBuilder struct {
	t          *messagesRequestBuilder
	system     []messages.Block
	turns      []builtTurn
	open       map[string]*pendingCall // the calls of the last assistant turn that has any, as the caller names them
	unanswered []*pendingCall          // the same in order, without the first that are answered
	used       map[string]int          // ids of calls until now, and the suffix to try when one comes again
}

// builtTurn is one turn. Results come before what the user says.
type builtTurn struct {
	role            string
	first           int // index of the first message in it
	results, blocks []messages.Block
}

// pendingCall is a call that waits for its result.
type pendingCall struct {
	sent     string // as the upstream gets it
	message  int    // that it stands in
	answered bool
}

// message adds one message.
func (b *turnBuilder) message(m *chat.Message, i int) error {
	if m.Name != "" {
		b.t.drop("messages.name")
	}
	b.t.dropUnknown("messages.", m.Extra)
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
func (b *turnBuilder) add(role string, i int, results, blocks []messages.Block) {
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

// assistant adds thoughts, text and calls, in this order.
func (b *turnBuilder) assistant(m *chat.Message, i int) error {
	if err := b.requireResults(); err != nil {
		return err
	}
	blocks := b.thinking(m)
	text, err := b.blocks(m, i, textOnly)
	if err != nil {
		return err
	}
	blocks = append(blocks, text...)
	if len(m.ToolCalls) > 0 {
		b.open, b.unanswered = make(map[string]*pendingCall, len(m.ToolCalls)), nil
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

// thinking is the message's, if they are as the upstream signed them.
func (b *turnBuilder) thinking(m *chat.Message) []messages.Block {
	signature := ""
	if o, err := rawjson.Index(m.Extra, nil, nil); err == nil {
		signature, _ = rawjson.String(o.Raw(reasoningSignature))
	}
	blocks, ok := thinkingBlocks(m.ReasoningContent, signature)
	if !ok {
		b.t.drop("messages.reasoning_content")
	}
	return blocks
}

// call is one call as the upstream made it.
func (b *turnBuilder) call(call *chat.ToolCall, i int, param string) (messages.Block, error) {
	b.t.dropUnknown("messages.tool_calls.", call.Extra)
	b.t.dropUnknown("messages.tool_calls.function.", call.Function.Extra)
	input := jsontext.Value(call.Function.Arguments)
	if blank(call.Function.Arguments) {
		input = jsontext.Value("{}")
	}
	switch {
	case call.ID == "":
		return messages.Block{}, refusedField(param+".id", "a non-empty string")
	case b.open[call.ID] != nil:
		return messages.Block{}, refusedField(param+".id", "another than those of the calls beside it")
	case call.Type != "" && call.Type != "function":
		return messages.Block{}, refusedField(param+".type", `"function" for this model`)
	case call.Function.Name == "":
		return messages.Block{}, refusedField(param+".function.name", "a non-empty string")
	case !isObject(input):
		return messages.Block{}, refusedField(param+".function.arguments", "the text of one JSON object without repeated names")
	}
	id := b.uniqueID(call.ID)
	open := &pendingCall{sent: id, message: i}
	b.open[call.ID], b.unanswered = open, append(b.unanswered, open)
	return messages.Block{Type: "tool_use", ID: id, Name: call.Function.Name, Input: input}, nil
}

// result adds what a tool gave.
func (b *turnBuilder) result(m *chat.Message, i int) error {
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
	result := messages.Block{Type: "tool_result", ToolUseID: call.sent}
	if len(blocks) > 0 {
		result.Content = messages.Blocks(blocks...)
	}
	b.add("user", i, []messages.Block{result}, nil)
	return nil
}

// requireResults fails if a call has no result.
func (b *turnBuilder) requireResults() error {
	for len(b.unanswered) > 0 && b.unanswered[0].answered {
		b.unanswered = b.unanswered[1:]
	}
	if len(b.unanswered) == 0 {
		return nil
	}
	return refusedField(fmt.Sprintf("messages[%d].tool_calls", b.unanswered[0].message),
		`answered, each by a message of role "tool", before the assistant's next turn and the end`)
}

// end writes the turns into the request.
func (b *turnBuilder) end() error {
	if err := b.requireResults(); err != nil {
		return err
	}
	switch {
	case len(b.turns) == 0:
		return refusedField("messages", "more than instructions: this model wants a message of role \"user\" that is not empty")
	case b.turns[0].role != "user":
		return refusedField(fmt.Sprintf("messages[%d].role", b.turns[0].first), `"user" in the first message that is no instruction: this model begins with the user's turn`)
	}
	if len(b.system) > 0 {
		b.t.r.System = messages.Blocks(b.system...)
	}
	for _, turn := range b.turns {
		b.t.r.Messages = append(b.t.r.Messages, messages.Message{Role: turn.role, Content: messages.Blocks(append(turn.results, turn.blocks...)...)})
	}
	return nil
}

// What a message may consist of, by its role.
var (
	anyPart  = []string{"text", "image_url", "file"}
	textOnly = []string{"text"}
)

// blocks are a message's content.
func (b *turnBuilder) blocks(m *chat.Message, i int, allowed []string) ([]messages.Block, error) {
	content := fmt.Sprintf("messages[%d].content", i)
	if m.Content.IsNull() {
		return nil, nil
	}
	if s, ok := rawjson.String(m.Content); ok {
		if blank(s) {
			return nil, nil
		}
		return []messages.Block{{Type: "text", Text: s}}, nil
	}
	var parts []chat.Part
	if err := json.Unmarshal(m.Content, &parts, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, refusedField(content+dotted(err), "of the form that the API describes")
	}
	blocks := make([]messages.Block, 0, len(parts))
	for j := range parts {
		p := chatPart{t: b.t, Part: &parts[j], param: fmt.Sprintf("%s[%d]", content, j)}
		if !slices.Contains(allowed, p.Type) {
			return nil, refusedField(p.param+".type", rule.Words(allowed)+" in a message of role "+m.Role+" for this model")
		}
		block, err := p.block()
		if err != nil {
			return nil, err
		}
		if block.Type != "" {
			blocks = append(blocks, block)
		}
	}
	return blocks, nil
}

// chatPart is one content block of a chat message.
type chatPart struct {
	t *messagesRequestBuilder
	*chat.Part
	param string
}

// block translates the part; one without a type if there is nothing to send.
func (p *chatPart) block() (block messages.Block, err error) {
	switch p.Type {
	case "text":
		if blank(p.Text) {
			return messages.Block{}, nil
		}
		block = messages.Block{Type: "text", Text: p.Text}
	case "image_url":
		block, err = p.image()
	case "file":
		block, err = p.document()
	}
	const cacheControl = "cache_control"
	p.t.dropUnknown("messages.content.", p.Extra)
	if o, e := rawjson.Index(p.Extra, nil, nil); e == nil && !rawjson.IsNull(o.Raw(cacheControl)) {
		block.CacheControl = o.Raw(cacheControl)
	}
	return block, err
}

// imageTypes are the pictures that the upstream reads.
var imageTypes = []string{"image/jpeg", "image/png", "image/gif", "image/webp"}

func (p *chatPart) image() (messages.Block, error) {
	param := p.param + ".image_url.url"
	if p.ImageURL == nil {
		return messages.Block{}, refusedField(param, "an absolute http, https or data URL")
	}
	p.t.dropUnknown("messages.content.image_url.", p.ImageURL.Extra)
	scheme, _, _ := strings.Cut(p.ImageURL.URL, ":")
	switch strings.ToLower(scheme) {
	case "http", "https":
		return messages.Block{Type: "image", Source: &messages.MediaSource{Type: "url", URL: p.ImageURL.URL}}, nil
	case "data":
	default:
		return messages.Block{}, refusedField(param, "an http, https or data URL for this model")
	}
	kind, data, ok := dataURL(p.ImageURL.URL)
	if kind == "image/jpg" { // no registered name, but a common one
		kind = "image/jpeg"
	}
	if !ok || !slices.Contains(imageTypes, kind) {
		return messages.Block{}, refusedField(param, "a base64 data URL of type "+strings.Join(imageTypes, ", ")+" for this model")
	}
	return messages.Block{Type: "image", Source: &messages.MediaSource{Type: "base64", MediaType: kind, Data: data}}, nil
}

// document is a file that the caller sends along. The upstream knows no other.
func (p *chatPart) document() (messages.Block, error) {
	var file struct {
		Data  string         `json:"file_data"`
		Name  string         `json:"filename"`
		ID    string         `json:"file_id"`
		Extra jsontext.Value `json:",embed"`
	}
	if err := json.Unmarshal(p.File, &file, jsontext.AllowDuplicateNames(true)); err != nil {
		return messages.Block{}, refusedField(p.param+".file", `an object such as {"filename":…,"file_data":"data:application/pdf;base64,…"}`)
	}
	if file.ID != "" {
		return messages.Block{}, refusedField(p.param+".file.file_id", `absent for this model, which takes "file_data"`)
	}
	p.t.dropUnknown("messages.content.file.", file.Extra)
	block := messages.Block{Type: "document", Title: file.Name}
	kind, data, ok := dataURL(file.Data)
	switch {
	case ok && kind == "application/pdf":
		block.Source = &messages.MediaSource{Type: "base64", MediaType: kind, Data: data}
		return block, nil
	case ok && kind == "text/plain":
		text, err := base64.StdEncoding.DecodeString(data)
		if err == nil && utf8.Valid(text) && !blank(string(text)) {
			block.Source = &messages.MediaSource{Type: "text", MediaType: kind, Data: string(text)}
			return block, nil
		}
	}
	return messages.Block{}, refusedField(p.param+".file.file_data", "a base64 data URL of type application/pdf or text/plain (UTF-8) for this model")
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

// uniqueID is a call's id as the upstream gets it: the caller's own where it has
// the upstream's letters and no call before has it. It depends only on the
// conversation until here, so that a longer one begins alike and is found in
// the upstream's cache.
func (b *turnBuilder) uniqueID(id string) string {
	if !plainID(id) {
		sum := sha256.Sum256([]byte(id))
		id = "call_" + hex.EncodeToString(sum[:12])
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
