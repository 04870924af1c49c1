package chat

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// roles are what messages[].role may be; developer is sent as it is
// (decisions.md, Chat).
var roles = []string{"system", "user", "assistant", "tool", "developer"}

// readMessages reads the messages member in the parser's one pass.
func (r *Request) readMessages(rd *rawjson.Reader, src []byte) error {
	if rd.Kind() != '[' {
		if rd.Kind() != 'n' {
			r.parsed.problem.Note("messages", "an array of message objects")
		}
		_, err := rd.Skip()
		return err
	}
	r.Messages = make([]Message, 0, 4)
	return rd.Array(func(i int) error {
		if !r.goOn("messages") {
			_, err := rd.Skip()
			return err
		}
		if rd.Kind() != '{' {
			r.parsed.problem.Note(fmt.Sprintf("messages[%d]", i), "an object")
			_, err := rd.Skip()
			return err
		}
		return r.readMessage(rd, src, i)
	})
}

// goOn counts one more message, content block, tool or tool call. It is false if
// there are too many, or one before broke a rule: then only the syntax of what
// follows is checked, and nothing is made of it.
func (r *Request) goOn(param string) bool {
	return !r.parsed.problem.Found() && r.parsed.elements.Add(&r.parsed.problem, param)
}

// The members that are read of a message, of a link, of a tool call and of the
// function in it.
var (
	messageNames = rawjson.Names{"role", "content", "tool_calls", "name", "tool_call_id", "tools", "reasoning_content", "function_call", "refusal"}
	linkNames    = rawjson.Names{"url"}
	callNames    = rawjson.Names{"id", "type", "function"}
	calledNames  = rawjson.Names{"name", "arguments"}
)

// turn is a message while it is read.
type turn struct {
	Message
	index    int
	hasTools bool // a system message that loads tools
}

func (r *Request) readMessage(rd *rawjson.Reader, src []byte, index int) error {
	t := turn{index: index}
	var given uint64
	err := rd.Object(func(name []byte, key rawjson.Span) error {
		at, err := messageNames.Find(name, key, &given)
		if err != nil {
			return err
		}
		known := ""
		if at >= 0 {
			known = messageNames[at]
		}
		switch known {
		case "content":
			return r.readContent(rd, src, &t)
		case "tool_calls":
			return r.readToolCalls(rd, src, &t)
		}
		cache := rule.IsCacheControl(name)
		span, err := rd.Skip()
		if err != nil {
			return err
		}
		r.readMessageField(&t, known, span.Of(src))
		if cache {
			r.parsed.paid.CacheControl(span.Of(src), fmt.Sprintf("messages[%d]", index))
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.checkMessage(&t)
	r.Messages = append(r.Messages, t.Message)
	return nil
}

// count counts a member of a message besides its content, whose text a vendor may
// bill whatever the member is called.
func (r *Request) count(raw []byte) {
	if raw[0] == '"' {
		r.parsed.quarters += tokencount.StringQuarters(raw)
	} else if !rawjson.IsNull(raw) {
		r.parsed.quarters += tokencount.Quarters(raw)
	}
}

func (r *Request) readMessageField(t *turn, name string, raw []byte) {
	if name != "role" {
		r.count(raw)
	}
	if rawjson.IsNull(raw) {
		return
	}
	switch name {
	case "tools":
		t.hasTools = raw[0] == '['
		r.readLoadedTools(raw, t.param(name))
		return
	case "", "function_call", "refusal":
		return
	}
	s, ok := rawjson.String(raw)
	if !ok {
		r.parsed.problem.Note(t.param(name), "a string")
		return
	}
	switch name {
	case "role":
		t.Role = role(s)
		if t.Role == "" {
			r.parsed.problem.Note(t.param(name), rule.Words(roles))
		}
	case "name":
		t.Name = s
	case "tool_call_id":
		t.ToolCallID = s
	case "reasoning_content":
		t.ReasoningContent = s
	}
}

// readLoadedTools looks for tools that the vendor runs among those that a message
// loads.
func (r *Request) readLoadedTools(raw []byte, param string) {
	if raw[0] != '[' {
		return
	}
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	rawjson.EachUntil(raw, func(i int, at rawjson.Span) bool {
		if r.goOn(param) && rawjson.IndexInto(o, at.Of(raw), nil, nil) == nil {
			r.parsed.paid.Tool(o, fmt.Sprintf("%s[%d]", param, i), clientTool)
		}
		return !r.parsed.problem.Found()
	})
}

// role returns the role's constant; "" if there is no such role.
func role(s string) string {
	for _, known := range roles {
		if s == known {
			return known
		}
	}
	return ""
}

func (t *turn) param(name string) string { return fmt.Sprintf("messages[%d].%s", t.index, name) }

// element is the name of an element of one of the message's lists.
func (t *turn) element(list string, index int) string {
	return t.param(fmt.Sprintf("%s[%d]", list, index))
}

// checkMessage checks what only the whole message shows.
func (r *Request) checkMessage(t *turn) {
	switch {
	case t.Role == "":
		r.parsed.problem.Note(t.param("role"), rule.Words(roles))
	case t.ToolCallID != "" && t.Role != "tool":
		r.parsed.problem.Note(t.param("tool_call_id"), `absent unless the role is "tool"`)
	case !t.Content.IsNull():
	case t.Role == "assistant" && len(t.ToolCalls) > 0:
	case t.Role == "system" && t.hasTools:
	default:
		r.parsed.problem.Note(t.param("content"), "a string or an array of content blocks")
	}
}

func (r *Request) readContent(rd *rawjson.Reader, src []byte, t *turn) error {
	start := rd.Kind()
	if start != '[' {
		span, err := rd.Skip()
		if err != nil {
			return err
		}
		t.Content = Content{span.Of(src)}
		if start != '"' && start != 'n' {
			r.parsed.problem.Note(t.param("content"), "a string or an array of content blocks")
		}
		return nil
	}
	from := 0
	err := rd.Array(func(i int) error {
		if i == 0 {
			from = int(rd.Offset())
		}
		if !r.goOn("messages") {
			_, err := rd.Skip()
			return err
		}
		if rd.Kind() != '{' {
			r.parsed.problem.Note(t.element("content", i), "an object")
			_, err := rd.Skip()
			return err
		}
		return r.readBlock(rd, src, t, i)
	})
	if err != nil {
		return err
	}
	if from == 0 {
		r.parsed.problem.Note(t.param("content"), "a string or a non-empty array of content blocks")
		t.Content = Content{[]byte("[]")}
		return nil
	}
	t.Content = Content{src[from-1 : rd.Offset()]}
	return nil
}

// block is a content block while it is read.
type block struct {
	kind    string
	members [len(blockTypes)][]byte // the member named for each type
	url     []byte
}

// blockTypes are the content blocks that are accepted (decisions.md, Chat).
// Each has a member of its own name.
var blockTypes = [...]string{"text", "image_url", "video_url", "audio_url", "input_audio", "file"}

// blockNames are the members that are read of a block: those of blockTypes, then
// its type.
var blockNames = rawjson.Names{"text", "image_url", "video_url", "audio_url", "input_audio", "file", "type"}

func (r *Request) readBlock(rd *rawjson.Reader, src []byte, t *turn, index int) error {
	var b block
	var given uint64
	err := rd.Object(func(name []byte, key rawjson.Span) error {
		at, err := blockNames.Find(name, key, &given)
		if err != nil {
			return err
		}
		if at >= 0 && strings.HasSuffix(blockNames[at], "_url") && rd.Kind() == '{' {
			b.members[at] = []byte("{}")
			return b.readLink(rd, src)
		}
		cache := rule.IsCacheControl(name)
		span, err := rd.Skip()
		switch {
		case err != nil:
			return err
		case at == len(blockTypes):
			b.kind, _ = rawjson.String(span.Of(src))
		case at >= 0:
			b.members[at] = span.Of(src)
		case cache:
			r.parsed.paid.CacheControl(span.Of(src), t.param(fmt.Sprintf("content[%d]", index)))
		}
		return nil
	})
	if err == nil {
		r.checkBlock(&b, t, index)
	}
	return err
}

func (b *block) readLink(rd *rawjson.Reader, src []byte) error {
	var given uint64
	return rd.Object(func(name []byte, key rawjson.Span) error {
		at, err := linkNames.Find(name, key, &given)
		if err != nil {
			return err
		}
		span, err := rd.Skip()
		if err == nil && at >= 0 {
			b.url = span.Of(src)
		}
		return err
	})
}

// checkBlock checks one content block and counts what is not text.
func (r *Request) checkBlock(b *block, t *turn, index int) {
	at := slices.Index(blockTypes[:], b.kind)
	if at < 0 {
		r.parsed.problem.Note(t.element("content", index)+".type", rule.Words(blockTypes[:]))
		return
	}
	for i, other := range blockTypes { // or a vendor that reads it would count what was not counted here
		if i != at && i > 0 && b.members[i] != nil && !rawjson.IsNull(b.members[i]) {
			r.parsed.problem.Note(t.element("content", index)+"."+other, "left out of a block of type "+strconv.Quote(b.kind))
			return
		}
	}
	member := b.members[at]
	switch b.kind {
	case "text":
		if member == nil || member[0] != '"' {
			r.parsed.problem.Note(t.element("content", index)+".text", "a string")
		}
	case "image_url", "video_url", "audio_url":
		if !goodLink(b.url) {
			r.parsed.problem.Note(t.element("content", index)+"."+b.kind+".url", "an absolute http, https or data URL")
		}
		linked := !tokencount.IsDataURL(b.url)
		if b.kind == "image_url" && (linked || tokencount.IsImageURL(b.url)) {
			r.parsed.media.AddImage(b.url, linked)
		} else {
			r.parsed.media.AddFile(b.url, linked, "")
		}
	default:
		if member == nil || member[0] != '{' {
			r.parsed.problem.Note(t.element("content", index)+"."+b.kind, "an object")
		}
		kind := "application/pdf"
		if b.kind == "input_audio" {
			kind = "audio/"
		}
		r.parsed.media.AddFile(content(member), !inBody(member), kind)
	}
}

// inBody reports whether the body holds the whole of a file or a sound, and not an
// id or a URL of it. Some vendors take a URL in the place of the content.
func inBody(medium []byte) bool {
	o, err := rawjson.Index(medium, nil, nil)
	if err != nil {
		return false
	}
	held := false
	for i := range o.Members {
		switch m := &o.Members[i]; m.Name {
		case "file_data", "data":
			raw := m.Value.Of(medium)
			scheme := raw[:min(len(raw), len(`"https://`)*len(`\u0000`))] // were it a URL, be it escaped
			held = tokencount.IsDataURL(raw) || !rawjson.IsNull(raw) && bytes.IndexByte(scheme, ':') < 0 && !bytes.Contains(scheme, []byte(`\u`))
		case "filename", "format":
		default:
			return false
		}
	}
	return held
}

// content is the content of a sound or a file, as a JSON string; nil if the block
// only names it. Whatever else stands beside it is text.
func content(raw []byte) []byte {
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if rawjson.IndexInto(o, raw, nil, nil) != nil {
		return nil // it was refused
	}
	for _, name := range [...]string{"file_data", "data"} {
		if data := o.Raw(name); len(data) > 0 && data[0] == '"' {
			return data
		}
	}
	return nil
}

// goodLink reports whether a JSON string is a URL of a form that upstreams
// take: http and https with a host, data, or a vendor's own file scheme.
func goodLink(raw []byte) bool {
	const longest = 8192 // of a URL that is not a data URL
	s := ""
	if len(raw) > len(`"data:"`) && string(raw[:6]) == `"data:` {
		return strings.ContainsRune(string(raw[:min(len(raw), longest)]), ',')
	}
	s, ok := rawjson.String(raw)
	if !ok || len(s) > longest {
		return false
	}
	u, err := url.Parse(s)
	if err != nil {
		return false
	}
	switch strings.ToLower(u.Scheme) {
	case "http", "https", "ms", "gs":
		return u.Host != ""
	case "data":
		return strings.Contains(s, ",")
	}
	return false
}

func (r *Request) readToolCalls(rd *rawjson.Reader, src []byte, t *turn) error {
	if rd.Kind() != '[' {
		if rd.Kind() != 'n' {
			r.parsed.problem.Note(t.param("tool_calls"), "an array of tool calls")
		}
		_, err := rd.Skip()
		return err
	}
	return rd.Array(func(i int) error {
		if !r.goOn("messages") {
			_, err := rd.Skip()
			return err
		}
		if rd.Kind() != '{' {
			r.parsed.problem.Note(t.element("tool_calls", i), "an object")
			_, err := rd.Skip()
			return err
		}
		var call ToolCall
		err := r.readToolCall(rd, src, &call)
		t.ToolCalls = append(t.ToolCalls, call)
		return err
	})
}

func (r *Request) readToolCall(rd *rawjson.Reader, src []byte, call *ToolCall) error {
	var given uint64
	return rd.Object(func(name []byte, key rawjson.Span) error {
		at, err := callNames.Find(name, key, &given)
		if err != nil {
			return err
		}
		known := ""
		if at >= 0 {
			known = callNames[at]
		}
		if known == "function" && rd.Kind() == '{' {
			return r.readCalled(rd, src, &call.Function)
		}
		span, err := rd.Skip()
		if err != nil {
			return err
		}
		switch raw := span.Of(src); known {
		case "id":
			call.ID, _ = rawjson.String(raw)
			r.count(raw)
		case "type":
			call.Type, _ = rawjson.String(raw)
		default:
			r.count(raw)
		}
		return nil
	})
}

func (r *Request) readCalled(rd *rawjson.Reader, src []byte, f *CalledFunction) error {
	var given uint64
	return rd.Object(func(name []byte, key rawjson.Span) error {
		at, err := calledNames.Find(name, key, &given)
		if err != nil {
			return err
		}
		known := ""
		if at >= 0 {
			known = calledNames[at]
		}
		span, err := rd.Skip()
		if err != nil {
			return err
		}
		raw := span.Of(src)
		r.count(raw)
		switch known {
		case "name":
			f.Name, _ = rawjson.String(raw)
		case "arguments":
			f.Arguments, _ = rawjson.String(raw)
		}
		return nil
	})
}
