package chatapi

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// Parse reads a request body in one pass. It fails with a 400 that names the
// byte offset if data is not one strict JSON object (docs/http-api.md).
// Fields that break a rule do not fail it: [Request.Validate] reports the
// first of them, so that an unknown model is noticed before a bad field.
//
// The Request refers to data, which must not change any more. Its fields are a
// read-only view: Extra is empty, use [Request.Field] for other members.
func Parse(data []byte) (*Request, error) {
	r := newRequest()
	if err := r.read(data); err != nil {
		return nil, err
	}
	return r, nil
}

// Encode marshals a typed request and checks it as [Parse] checks a body. Its fields
// are the caller's own and not decoded again, unless it has an Extra, which may name
// what has a field of its own, or breaks a rule: then the bytes are parsed.
func Encode(typed *chat.Request) (*Request, error) {
	data, err := rule.Marshal(typed)
	if err != nil {
		return nil, err
	}
	if hasExtra(typed) {
		return Parse(data)
	}
	view := *typed
	view.Messages, view.Tools, view.ToolChoice, view.ResponseFormat = nil, nil, nil, nil // are read as JSON
	r := &Request{Request: &view, typed: typed}
	if err := r.read(data); err != nil || r.parsed.Problem.Found() {
		return Parse(data)
	}
	return r, nil
}

// hasExtra reports whether the request or a part of it has members without a field
// of their own.
func hasExtra(r *chat.Request) bool {
	if len(r.Extra) > 0 || r.StreamOptions != nil && len(r.StreamOptions.Extra) > 0 {
		return true
	}
	return slices.ContainsFunc(r.Messages, func(m chat.Message) bool {
		return len(m.Extra) > 0 || slices.ContainsFunc(m.ToolCalls, func(c chat.ToolCall) bool {
			return len(c.Extra) > 0 || len(c.Function.Extra) > 0
		})
	})
}

// read indexes and checks a body, and fills the view.
func (r *Request) read(data []byte) error {
	o, err := rule.Read(rule.Body, data, "messages", func(rd *rawjson.Reader) error { return r.readMessages(rd, data) })
	if err != nil {
		return err
	}
	r.setBody(o)
	for i := range o.Members {
		m := &o.Members[i]
		r.readField(m.Name, m.Value.Of(data))
	}
	return nil
}

// readField checks one top-level member against the common table and copies
// it into the view. A null counts as absent.
func (r *Request) readField(name string, raw []byte) {
	if rule.IsCacheControl([]byte(name)) {
		r.parsed.Paid.CacheControl(raw, "")
	}
	if name == "messages" || rawjson.IsNull(raw) || !r.parsed.Problem.Obeys(fields, name, raw) {
		return
	}
	switch name {
	case "tools":
		r.Tools = raw
		r.checkTools(raw)
	case "tool_choice":
		r.ToolChoice = raw
	case "response_format":
		r.ResponseFormat = raw
		r.checkFormat(raw)
	default:
		if r.typed == nil {
			r.decodeField(name, raw)
		}
	}
}

// decodeField copies a scalar member, or one of scalars, into the view.
func (r *Request) decodeField(name string, raw []byte) {
	switch name {
	case "model":
		r.Model, _ = rawjson.String(raw)
	case "temperature":
		r.Temperature = completion.Number(raw)
	case "top_p":
		r.TopP = completion.Number(raw)
	case "presence_penalty":
		r.PresencePenalty = completion.Number(raw)
	case "frequency_penalty":
		r.FrequencyPenalty = completion.Number(raw)
	case "max_tokens":
		r.MaxTokens, _ = rawjson.Int(raw)
	case "max_completion_tokens":
		r.MaxCompletionTokens, _ = rawjson.Int(raw)
	case "n":
		r.N, _ = rawjson.Int(raw)
	case "stream":
		r.Stream = raw[0] == 't'
	case "stream_options":
		r.readStreamOptions(raw)
	case "stop":
		r.readStop(raw)
	case "reasoning_effort":
		r.ReasoningEffort, _ = rawjson.String(raw)
	case "user":
		r.User, _ = rawjson.String(raw)
	}
}

func (r *Request) readStreamOptions(raw []byte) {
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil {
		return // the whole body was read before: raw is valid
	}
	include := o.Raw("include_usage")
	if !rawjson.IsNull(include) && !rule.Bool().OK(include) {
		r.parsed.Problem.Note("stream_options.include_usage", rule.Bool().Text)
	}
	r.StreamOptions = &chat.StreamOptions{IncludeUsage: string(include) == "true"}
}

func (r *Request) readStop(raw []byte) {
	if s, ok := rawjson.String(raw); ok {
		r.Stop = []string{s}
		return
	}
	if err := json.Unmarshal(raw, &r.Stop); err != nil {
		r.parsed.Problem.Note("stop", "a list of strings")
	}
}

// roles are what messages[].role may be; developer is sent as it is.
var roles = []string{"system", "user", "assistant", "tool", "developer"}

// messageNames are the members that are read of a message; those below of a link, a
// tool call and the function in it.
var (
	messageNames = rawjson.Names{"role", "content", "tool_calls", "name", "tool_call_id", "tools", "reasoning_content", "function_call", "refusal"}
	linkNames    = rawjson.Names{"url"}
	callNames    = rawjson.Names{"id", "type", "function"}
	calledNames  = rawjson.Names{"name", "arguments"}
)

// readMessages reads the messages member in the parser's one pass.
func (r *Request) readMessages(rd *rawjson.Reader, src []byte) error {
	w := r.parsed.Walker(rd, src)
	return w.Array("messages", element("messages"), "an array of message objects", func(i int) error {
		if r.Messages == nil {
			r.Messages = make([]chat.Message, 0, 4)
		}
		m := messageReader{request: r, w: w, index: i}
		if r.typed != nil {
			m.Message = r.typed.Messages[i]
		}
		err := m.read()
		r.Messages = append(r.Messages, m.Message)
		return err
	})
}

// messageReader is a message while it is read.
type messageReader struct {
	chat.Message
	request  *Request
	w        completion.Walker
	index    int
	hasTools bool // a system message that loads tools
}

// element spells the elements of a list, and the list itself where i is negative.
func element(list string) func(i int) string {
	return func(i int) string {
		if i < 0 {
			return list
		}
		return fmt.Sprintf("%s[%d]", list, i)
	}
}

// param is the name of a member of the message.
func (m *messageReader) param(name string) string {
	return fmt.Sprintf("messages[%d].%s", m.index, name)
}

// block is the name of a block of the message's content.
func (m *messageReader) block(index int) string { return element(m.param("content"))(index) }

// read reads the message, and checks what only the whole of it shows.
func (m *messageReader) read() error {
	err := m.w.Object(messageNames, func(name string) (bool, error) {
		switch name {
		case "content":
			return true, m.readContent()
		case "tool_calls":
			return true, m.readToolCalls()
		}
		return false, nil
	}, m.readMember)
	if err != nil {
		return err
	}
	problem := m.w.Problem
	switch {
	case completion.Known(roles, m.Role) == "":
		problem.Note(m.param("role"), rule.Words(roles))
	case m.ToolCallID != "" && m.Role != "tool":
		problem.Note(m.param("tool_call_id"), `absent unless the role is "tool"`)
	case !m.Content.IsNull():
	case m.Role == "assistant" && len(m.ToolCalls) > 0:
	case m.Role == "system" && m.hasTools:
	default:
		problem.Note(m.param("content"), "a string or an array of content blocks")
	}
	return nil
}

// readMember reads a member that is neither the content nor the tool calls.
func (m *messageReader) readMember(f completion.Member) {
	if f.IsCache {
		m.w.Paid.CacheControl(f.Raw, fmt.Sprintf("messages[%d]", m.index))
	}
	if f.Name != "role" {
		m.countText(f.Raw)
	}
	if rawjson.IsNull(f.Raw) || m.request.typed != nil {
		return
	}
	switch f.Name {
	case "tools":
		m.hasTools = f.Raw[0] == '['
		m.readLoadedTools(f.Raw)
		return
	case "", "function_call", "refusal":
		return
	}
	s, ok := rawjson.String(f.Raw)
	if !ok {
		m.w.Problem.Note(m.param(f.Name), "a string")
		return
	}
	switch f.Name {
	case "role":
		m.Role = completion.Known(roles, s)
		if m.Role == "" {
			m.w.Problem.Note(m.param(f.Name), rule.Words(roles))
		}
	case "name":
		m.Name = s
	case "tool_call_id":
		m.ToolCallID = s
	case "reasoning_content":
		m.ReasoningContent = s
	}
}

// countText counts a member of a message besides its content, whose text a vendor
// may bill whatever the member is called.
func (m *messageReader) countText(raw []byte) {
	if raw[0] == '"' {
		m.request.parsed.Quarters += tokencount.StringQuarters(raw)
	} else if !rawjson.IsNull(raw) {
		m.request.parsed.Quarters += tokencount.Quarters(raw)
	}
}

// readLoadedTools looks for tools that the vendor runs among those that the message
// loads.
func (m *messageReader) readLoadedTools(raw []byte) {
	if raw[0] != '[' {
		return
	}
	param := m.param("tools")
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	rawjson.EachUntil(raw, func(i int, at rawjson.Span) bool {
		if m.request.parsed.CountElement(param) && rawjson.IndexInto(o, at.Of(raw), nil, nil) == nil {
			m.w.Paid.Tool(o, element(param)(i), clientTool)
		}
		return !m.w.Problem.Found()
	})
}

// readContent reads a string or a list of blocks.
func (m *messageReader) readContent() error {
	raw, err := m.w.Content("messages", m.block, m.readBlock)
	if err != nil {
		return err
	}
	m.Content = raw
	if string(raw) == "[]" {
		m.w.Problem.Note(m.param("content"), "a string or a non-empty array of content blocks")
	}
	return nil
}

// readToolCalls reads the calls that an assistant's message makes.
func (m *messageReader) readToolCalls() error {
	at := func(i int) string { return element(m.param("tool_calls"))(i) } // spelled for a refusal only
	decodes := m.request.typed == nil
	return m.w.Array("messages", at, "an array of tool calls", func(int) error {
		var call chat.ToolCall
		err := m.w.Object(callNames, func(name string) (bool, error) {
			if name != "function" || m.w.Reader.Kind() != '{' {
				return false, nil
			}
			return true, m.w.Object(calledNames, nil, func(f completion.Member) {
				m.countText(f.Raw)
				switch {
				case !decodes:
				case f.Name == "name":
					call.Function.Name, _ = rawjson.String(f.Raw)
				case f.Name == "arguments":
					call.Function.Arguments, _ = rawjson.String(f.Raw)
				}
			})
		}, func(f completion.Member) {
			if f.Name != "type" {
				m.countText(f.Raw)
			}
			switch {
			case !decodes:
			case f.Name == "type":
				call.Type, _ = rawjson.String(f.Raw)
			case f.Name == "id":
				call.ID, _ = rawjson.String(f.Raw)
			}
		})
		if decodes {
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
}

// blockTypes are the content blocks that are accepted. Each has a member of its own
// name.
var blockTypes = [...]string{"text", "image_url", "video_url", "audio_url", "input_audio", "file"}

// blockNames are the members that are read of a block: those of blockTypes, then
// its type.
var blockNames = rawjson.Names{"text", "image_url", "video_url", "audio_url", "input_audio", "file", "type"}

// readBlock reads one content block.
func (m *messageReader) readBlock(index int) error {
	var b block
	err := m.w.Object(blockNames, func(name string) (bool, error) {
		if !strings.HasSuffix(name, "_url") || m.w.Reader.Kind() != '{' {
			return false, nil
		}
		b.members[slices.Index(blockTypes[:], name)] = []byte("{}")
		return true, m.w.Object(linkNames, nil, func(f completion.Member) {
			if f.Name == "url" {
				b.url = f.Raw
			}
		})
	}, func(f completion.Member) {
		switch {
		case f.Name == "type":
			b.kind, _ = rawjson.String(f.Raw)
		case f.Name != "":
			b.members[slices.Index(blockTypes[:], f.Name)] = f.Raw
		case f.IsCache:
			m.w.Paid.CacheControl(f.Raw, m.block(index))
		}
	})
	if err == nil {
		m.checkBlock(&b, index)
	}
	return err
}

// checkBlock checks one content block and counts what is not text.
func (m *messageReader) checkBlock(b *block, index int) {
	at := slices.Index(blockTypes[:], b.kind)
	if at < 0 {
		m.w.Problem.Note(m.block(index)+".type", rule.Words(blockTypes[:]))
		return
	}
	for i, other := range blockTypes { // or a vendor that reads it would count what was not counted here
		if i != at && i > 0 && b.members[i] != nil && !rawjson.IsNull(b.members[i]) {
			m.w.Problem.Note(m.block(index)+"."+other, "left out of a block of type "+strconv.Quote(b.kind))
			return
		}
	}
	member := b.members[at]
	switch b.kind {
	case "text":
		if member == nil || member[0] != '"' {
			m.w.Problem.Note(m.block(index)+".text", "a string")
		}
	case "image_url", "video_url", "audio_url":
		if !isMediaURL(b.url) {
			m.w.Problem.Note(m.block(index)+"."+b.kind+".url", "an absolute http, https or data URL")
		}
		linked := !tokencount.IsDataURL(b.url)
		if b.kind == "image_url" && (linked || tokencount.IsImageURL(b.url)) {
			m.w.Media.AddImage(b.url, linked)
		} else {
			m.w.Media.AddFile(b.url, linked, "")
		}
	default:
		if member == nil || member[0] != '{' {
			m.w.Problem.Note(m.block(index)+"."+b.kind, "an object")
		}
		kind := "application/pdf"
		if b.kind == "input_audio" {
			kind = "audio/"
		}
		m.w.Media.AddFile(mediaContent(member), !inBody(member), kind)
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

// mediaContent is the content of a sound or a file, as a JSON string; nil if the block
// only names it. Whatever else stands beside it is text.
func mediaContent(raw []byte) []byte {
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

// isMediaURL reports whether a JSON string is a URL of a form that upstreams
// take: http and https with a host, data, or a vendor's own file scheme.
func isMediaURL(raw []byte) bool {
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
