package chat

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
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
		if rd.Kind() != '{' {
			r.parsed.problem.Note(fmt.Sprintf("messages[%d]", i), "an object")
			_, err := rd.Skip()
			return err
		}
		return r.readMessage(rd, src, i)
	})
}

// turn is a message while it is read.
type turn struct {
	Message
	index    int
	hasTools bool // a system message that loads tools
}

func (r *Request) readMessage(rd *rawjson.Reader, src []byte, index int) error {
	t := turn{index: index}
	err := rd.Object(func(name []byte, _ rawjson.Span) error {
		switch string(name) {
		case "content":
			return r.readContent(rd, src, &t)
		case "tool_calls":
			return r.readToolCalls(rd, src, &t)
		}
		known := field(name)
		span, err := rd.Skip()
		if err == nil && known != "" {
			r.readMessageField(&t, known, span.Of(src))
		}
		return err
	})
	if err != nil {
		return err
	}
	r.checkMessage(&t)
	r.Messages = append(r.Messages, t.Message)
	return nil
}

// field gives the member's name a lasting string if readMessageField knows it.
func field(name []byte) string {
	for _, known := range [...]string{"role", "name", "tool_call_id", "tools", "reasoning_content"} {
		if string(name) == known {
			return known
		}
	}
	return ""
}

func (r *Request) readMessageField(t *turn, name string, raw []byte) {
	if rawjson.IsNull(raw) {
		return
	}
	if name == "tools" {
		t.hasTools = raw[0] == '['
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
		if rd.Kind() != '{' {
			r.parsed.problem.Note(t.param(fmt.Sprintf("content[%d]", i)), "an object")
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

func (r *Request) readBlock(rd *rawjson.Reader, src []byte, t *turn, index int) error {
	var b block
	err := rd.Object(func(name []byte, _ rawjson.Span) error {
		at := blockMember(name)
		isType := string(name) == "type"
		if at >= 0 && strings.HasSuffix(blockTypes[at], "_url") && rd.Kind() == '{' {
			b.members[at] = []byte("{}")
			return b.readLink(rd, src)
		}
		span, err := rd.Skip()
		switch {
		case err != nil:
			return err
		case at >= 0:
			b.members[at] = span.Of(src)
		case isType:
			b.kind, _ = rawjson.String(span.Of(src))
		}
		return nil
	})
	if err == nil {
		r.checkBlock(&b, t.param(fmt.Sprintf("content[%d]", index)))
	}
	return err
}

func blockMember(name []byte) int {
	for i := range blockTypes {
		if string(name) == blockTypes[i] {
			return i
		}
	}
	return -1
}

func (b *block) readLink(rd *rawjson.Reader, src []byte) error {
	return rd.Object(func(name []byte, _ rawjson.Span) error {
		isURL := string(name) == "url"
		span, err := rd.Skip()
		if err == nil && isURL {
			b.url = span.Of(src)
		}
		return err
	})
}

// checkBlock checks one content block and counts what is not text.
func (r *Request) checkBlock(b *block, param string) {
	at := blockMember([]byte(b.kind))
	if at < 0 {
		r.parsed.problem.Note(param+".type", rule.Words(blockTypes[:]))
		return
	}
	member := b.members[at]
	switch b.kind {
	case "text":
		if member == nil || member[0] != '"' {
			r.parsed.problem.Note(param+".text", "a string")
		}
	case "image_url", "video_url", "audio_url":
		if !goodLink(b.url) {
			r.parsed.problem.Note(param+"."+b.kind+".url", "an absolute http, https or data URL")
		}
		r.countMedia(b.kind, len(b.url))
	default:
		if member == nil || member[0] != '{' {
			r.parsed.problem.Note(param+"."+b.kind, "an object")
		}
		r.countMedia(b.kind, len(member))
	}
}

func (r *Request) countMedia(kind string, size int) {
	r.parsed.media.bytes += int64(size)
	if kind == "image_url" {
		r.parsed.media.images++
	} else {
		r.parsed.media.videos++
	}
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
		if rd.Kind() != '{' {
			r.parsed.problem.Note(t.param(fmt.Sprintf("tool_calls[%d]", i)), "an object")
			_, err := rd.Skip()
			return err
		}
		var call ToolCall
		err := readToolCall(rd, src, &call)
		t.ToolCalls = append(t.ToolCalls, call)
		return err
	})
}

func readToolCall(rd *rawjson.Reader, src []byte, call *ToolCall) error {
	return rd.Object(func(name []byte, _ rawjson.Span) error {
		isID, isType := string(name) == "id", string(name) == "type"
		if string(name) == "function" && rd.Kind() == '{' {
			return readCalled(rd, src, &call.Function)
		}
		span, err := rd.Skip()
		switch {
		case err != nil:
		case isID:
			call.ID, _ = rawjson.String(span.Of(src))
		case isType:
			call.Type, _ = rawjson.String(span.Of(src))
		}
		return err
	})
}

func readCalled(rd *rawjson.Reader, src []byte, f *CalledFunction) error {
	return rd.Object(func(name []byte, _ rawjson.Span) error {
		isName, isArguments := string(name) == "name", string(name) == "arguments"
		span, err := rd.Skip()
		switch {
		case err != nil:
		case isName:
			f.Name, _ = rawjson.String(span.Of(src))
		case isArguments:
			f.Arguments, _ = rawjson.String(span.Of(src))
		}
		return err
	})
}
