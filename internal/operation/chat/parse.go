package chat

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// roles are what messages[].role may be; developer is sent as it is.
var roles = []string{"system", "user", "assistant", "tool", "developer"}

// messageNames are the members that are read of a message; those below of a link, a
// tool call and the function in it.
var (
	messageNames = rawjson.Names{"role", "name", "tool_call_id", "reasoning_content", "content", "tool_calls", "tools", "function_call", "refusal"}
	linkNames    = rawjson.Names{"url"}
	callNames    = rawjson.Names{"id", "type", "function"}
	calledNames  = rawjson.Names{"name", "arguments"}
)

// readMessages reads the messages member in the parser's one pass.
func (r *Request) readMessages(rd *rawjson.Reader, src []byte) error {
	w := r.Walker(rd, src)
	list := conversation.Top("messages")
	return w.Array(list, "an array of message objects", func(i int) error {
		m := message{Walker: w, path: list.Element(i), decoded: r.typed == nil}
		if r.typed != nil {
			m.Message = r.typed.Messages[i]
		}
		err := m.read()
		r.Messages = append(r.Messages, m.Message)
		r.AddMessage(m.Message.Content)
		return err
	})
}

// message is a message while it is read.
type message struct {
	chat.Message
	conversation.Walker
	path       conversation.Path
	decoded    bool // the fields are not a typed request's
	loadsTools bool // a system message may load tools

	other string // where the first block stands of a type that is not in blockTypes; empty for none
}

// read reads the message, and checks what only the whole of it shows.
func (m *message) read() error {
	err := m.Object(messageNames, func(name string) (bool, error) {
		switch name {
		case "content":
			return true, m.readContent()
		case "tool_calls":
			return true, m.readToolCalls()
		}
		return false, nil
	}, m.readMember)
	switch {
	case err != nil:
		return err
	case conversation.Known(roles, m.Role) == "":
		m.Must(m.path, ".role", rule.Words(roles))
	case m.ToolCallID != "" && m.Role != "tool":
		m.Must(m.path, ".tool_call_id", `absent unless the role is "tool"`)
	case m.Role == "assistant": // an answer comes back as it was given: a refusal, reasoning alone, blocks of the vendor's
	case m.other != "":
		m.Problem.Note(m.other+".type", rule.Words(blockTypes[:]))
	case string(m.Message.Content) == "[]":
		m.Must(m.path, ".content", "a string or a non-empty array of content blocks")
	case !rawjson.IsNull(m.Message.Content):
	case m.Role == "system" && m.loadsTools:
	default:
		m.Must(m.path, ".content", "a string or an array of content blocks")
	}
	return nil
}

// readMember reads a member that is neither the content nor the tool calls.
func (m *message) readMember(f conversation.Member) {
	if f.IsCache {
		m.Request.Paid.CacheControl(f.Raw, m.path.String())
	}
	if f.Name != "role" {
		m.countText(f.Raw)
	}
	switch {
	case rawjson.IsNull(f.Raw) || !m.decoded:
		return
	case f.Name == "tools":
		m.loadsTools = f.Raw[0] == '['
		m.readLoadedTools(f.Raw)
		return
	case f.Name == "", f.Name == "function_call", f.Name == "refusal":
		return
	case f.Raw[0] != '"':
		m.Must(m.path, "."+f.Name, "a string")
		return
	}
	f.Text(&m.Role, &m.Name, &m.ToolCallID, &m.ReasoningContent)
	if f.Name == "role" {
		if m.Role = conversation.Known(roles, m.Role); m.Role == "" {
			m.Must(m.path, ".role", rule.Words(roles))
		}
	}
}

// countText counts a member of a message besides its content. A vendor may bill its text,
// whatever the member is called.
func (m *message) countText(raw []byte) {
	if raw[0] == '"' {
		m.Request.Quarters += tokencount.StringQuarters(raw)
	} else if !rawjson.IsNull(raw) {
		m.Request.Quarters += tokencount.Quarters(raw)
	}
}

// readLoadedTools looks for tools that the vendor runs among those that the message
// loads.
func (m *message) readLoadedTools(raw []byte) {
	if raw[0] != '[' {
		return
	}
	path := m.path.Member("tools")
	param := path.String()
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	rawjson.EachUntil(raw, func(i int, at rawjson.Span) bool {
		if m.Request.CountElement(param) && rawjson.IndexInto(o, at.Of(raw), nil, nil) == nil {
			m.Request.Paid.Tool(o, path.Element(i).String(), clientTool)
		}
		return !m.Problem.Found()
	})
}

// readContent reads a string or a list of blocks.
func (m *message) readContent() error {
	path := m.path.Member("content")
	raw, err := m.Walker.Content(path, func(i int) error { return m.readBlock(path.Element(i)) })
	if err != nil {
		return err
	}
	m.Message.Content = raw
	return nil
}

// readToolCalls reads the calls that an assistant's message makes.
func (m *message) readToolCalls() error {
	return m.Array(m.path.Member("tool_calls"), "an array of tool calls", func(int) error {
		var call chat.ToolCall
		err := m.Object(callNames, func(name string) (bool, error) {
			if name != "function" || m.Reader.Kind() != '{' {
				return false, nil
			}
			return true, m.Object(calledNames, nil, func(f conversation.Member) {
				m.countText(f.Raw)
				switch {
				case !m.decoded:
				case f.Name == "arguments" && f.Raw[0] == '{':
					call.Function.Arguments = string(f.Raw)
				default:
					f.Text(&call.Function.Name, &call.Function.Arguments)
				}
			})
		}, func(f conversation.Member) {
			if f.Name != "type" {
				m.countText(f.Raw)
			}
			if m.decoded {
				f.Text(&call.ID, &call.Type)
			}
		})
		if m.decoded {
			m.ToolCalls = append(m.ToolCalls, call)
		}
		return err
	})
}

// block is a content block while it is read.
type block struct {
	kind    string
	members [len(blockTypes)][]byte // the member named for each type
	url     []byte
	rest    [][]byte // the other members
}

// blockTypes are the content blocks that are accepted of every role. Each has a member of
// its own name.
var blockTypes = [...]string{"text", "image_url", "video_url", "audio_url", "input_audio", "file"}

// blockNames are the members that are read of a block: those of blockTypes, then
// its type.
var blockNames = rawjson.Names{"text", "image_url", "video_url", "audio_url", "input_audio", "file", "type"}

// readBlock reads one content block.
func (m *message) readBlock(path conversation.Path) error {
	var b block
	err := m.Object(blockNames, func(name string) (bool, error) {
		if !strings.HasSuffix(name, "_url") || m.Reader.Kind() != '{' {
			return false, nil
		}
		b.members[slices.Index(blockTypes[:], name)] = []byte("{}")
		return true, m.Object(linkNames, nil, func(f conversation.Member) {
			if f.Name == "url" {
				b.url = f.Raw
			}
		})
	}, func(f conversation.Member) {
		switch {
		case f.Name == "type":
			b.kind, _ = rawjson.String(f.Raw)
		case f.Name != "":
			b.members[f.Index] = f.Raw
		case f.IsCache:
			m.Request.Paid.CacheControl(f.Raw, path.String())
		default:
			b.rest = append(b.rest, f.Raw)
		}
	})
	if err == nil {
		m.checkBlock(&b, path)
	}
	return err
}

// readOther notes a block of a type that only an answer can have. It is text, but for a
// link, which a vendor might follow.
func (m *message) readOther(b *block, path conversation.Path) {
	if m.other == "" {
		m.other = path.String() // a path into m would put every message on the heap
	}
	for _, raw := range b.rest {
		if raw[0] == '{' {
			raw = rawjson.Lookup(raw, "url")
		}
		if isMediaURL(raw) {
			m.Media.AddFile(raw, !tokencount.IsDataURL(raw), "")
		}
	}
}

// checkBlock checks one content block and counts what is not text.
func (m *message) checkBlock(b *block, path conversation.Path) {
	at := slices.Index(blockTypes[:], b.kind)
	for i, other := range blockTypes { // or a vendor that reads it would count what was not counted here
		if i != at && i > 0 && !rawjson.IsNull(b.members[i]) {
			m.Must(path, "."+other, "left out of a block of type "+strconv.Quote(b.kind))
			return
		}
	}
	if at < 0 {
		m.readOther(b, path)
		return
	}
	member := b.members[at]
	var first byte
	if len(member) > 0 {
		first = member[0]
	}
	switch b.kind {
	case "text":
		if first != '"' {
			m.Must(path, ".text", "a string")
		}
	case "image_url", "video_url", "audio_url":
		if !isMediaURL(b.url) {
			m.Must(path, "."+b.kind+".url", "an absolute http, https or data URL")
		}
		linked := !tokencount.IsDataURL(b.url)
		if linked && isVendorFile(b.url) {
			m.Request.NoteFile(path, b.kind+".url")
		}
		if b.kind == "image_url" && (linked || tokencount.IsImageURL(b.url)) {
			m.Media.AddImage(b.url, linked)
		} else {
			m.Media.AddFile(b.url, linked, "")
		}
	default:
		if first != '{' {
			m.Must(path, "."+b.kind, "an object")
		}
		kind := tokencount.Document
		if b.kind == "input_audio" {
			kind = "audio/"
		}
		if named := namesFile(member); named != "" {
			m.Request.NoteFile(path, b.kind+"."+named)
		}
		content, held := mediumContent(member)
		m.Media.AddFile(content, !held, kind)
	}
}

// mediumContent returns the content of a sound or a file, as a JSON string; nil if the block
// only names it. Every other member is text. held says that the body has all of the content,
// not an id or a URL. Some vendors take a URL instead of the content.
func mediumContent(raw []byte) (content []byte, held bool) {
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if rawjson.IndexInto(o, raw, nil, nil) != nil {
		return nil, false // it was refused
	}
	for _, name := range [...]string{"data", "file_data"} {
		if data := o.Raw(name); len(data) > 0 && data[0] == '"' {
			content = data
		}
	}
	for i := range o.Members {
		switch m := &o.Members[i]; m.Name {
		case "file_data", "data":
			data := m.Value.Of(raw)
			held = !rawjson.IsNull(data) && !conversation.MayLink(data)
		case "filename", "format":
		default:
			return content, false
		}
	}
	return content, held
}

// namesFile returns the member that names a sound or a file in the vendor's account, as it is
// spelled. It is empty if no member does.
func namesFile(raw []byte) string {
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if rawjson.IndexInto(o, raw, nil, nil) != nil {
		return "" // it was refused
	}
	for i := range o.Members {
		if m := &o.Members[i]; strings.EqualFold(m.Name, "file_id") && !rawjson.IsNull(m.Value.Of(raw)) {
			return m.Name
		}
	}
	return ""
}

// isVendorFile reports whether a URL names a file in the vendor's account, such as Moonshot's
// ms://ID. It also reports one that the account may read, such as Google's gs://BUCKET/NAME.
func isVendorFile(raw []byte) bool {
	u := conversation.URL(raw)
	return u != nil && (u.Scheme == "ms" || u.Scheme == "gs")
}

// isMediaURL reports whether a JSON string is a URL that upstreams take. These are http and
// https with a host, data, and the vendors' own file schemes.
func isMediaURL(raw []byte) bool {
	const longest = 8192 // of what stands before the content
	if tokencount.IsDataURL(raw) {
		return bytes.IndexByte(raw[:min(len(raw), longest)], ',') >= 0
	}
	u := conversation.URL(raw)
	switch {
	case u == nil:
		return false
	case u.Scheme == "data":
		return strings.Contains(u.String(), ",")
	}
	return u.Host != "" && slices.Contains([]string{"http", "https", "ms", "gs"}, u.Scheme)
}

// checkTool checks the form of a tool: an object with a type, and a named function
// where the type is "function".
func (r *Request) checkTool(raw []byte, param string) {
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if !r.readTool(o, raw, param) {
		return
	}
	r.Paid.Tool(o, param, clientTool)
	kind, _ := rawjson.String(o.Raw("type"))
	if kind == "" {
		r.Problem.Note(param+".type", `a string such as "function"`)
	}
	if kind != "function" {
		return
	}
	function := o.Raw("function")
	f := rawjson.Borrow()
	defer rawjson.GiveBack(f)
	param += ".function"
	if rawjson.IsNull(function) || function[0] != '{' {
		r.Problem.Note(param, "an object")
		return
	}
	if !r.readTool(f, function, param) {
		return
	}
	if name, _ := rawjson.String(f.Raw("name")); name == "" {
		r.Problem.Note(param+".name", "a non-empty string")
	}
	r.Problem.Schema(param+".parameters", f.Raw("parameters"))
}

// toolRules are those of a tool and of the function in it: what names them and
// what they hold is said once, and spelled exactly.
var toolRules = &rawjson.Rules{Once: true, Billed: []string{"type", "function", "name", "description", "parameters", "strict"}}

// readTool indexes a tool, or the function in it; false if what it says is ambiguous.
func (r *Request) readTool(o *rawjson.Object, raw []byte, param string) bool {
	err := rawjson.IndexInto(o, raw, toolRules, nil)
	if err != nil {
		r.Problem.Refuse("tools", fmt.Sprintf("%s is not acceptable: %s.", param, rawjson.Inside(err)))
	}
	return err == nil
}

// clientTool reports a type of tools that the client runs. Vendors charge for
// each call of those that they run themselves.
func clientTool(kind string) bool { return kind == "function" || kind == "custom" }
