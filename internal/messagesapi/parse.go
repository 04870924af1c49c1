package messagesapi

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/completion"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/messages"
)

// Parse reads a request body in one pass. It fails with a 400 that names the
// byte offset if data is not one strict JSON object (docs/http-api.md).
// Fields that break a rule do not fail it: [Request.Validate] reports the
// first of them, so that an unknown model is noticed before a bad field.
//
// The Request refers to data, which must not change any more. Its fields are a
// read-only view: the request's own Extra is empty, use [Request.Field] for
// other members.
func Parse(data []byte) (*Request, error) { return parse(data, false) }

// ParseCount is [Parse] for a count of tokens: max_tokens may be missing, and
// stream is not looked at.
func ParseCount(data []byte) (*Request, error) { return parse(data, true) }

// Encode marshals a typed request and checks it as [Parse] checks a body. Its fields
// are the caller's own and not decoded again, unless it has an Extra, which may name
// what has a field of its own, or breaks a rule: then the bytes are parsed.
func Encode(typed *messages.Request) (*Request, error) { return encode(typed, false) }

// EncodeCount is [Encode] for a count of tokens.
func EncodeCount(typed *messages.Request) (*Request, error) { return encode(typed, true) }

func encode(typed *messages.Request, count bool) (*Request, error) {
	data, err := rule.Marshal(typed)
	if err != nil {
		return nil, err
	}
	if hasExtra(typed) {
		return parse(data, count)
	}
	view := *typed
	view.Stream = view.Stream && !count
	view.Messages, view.System, view.Tools = nil, nil, nil // are read as JSON
	r := &Request{Request: &view, typed: typed, countOnly: count}
	if err := r.read(data); err != nil || r.parsed.Problem.Found() {
		return parse(data, count)
	}
	return r, nil
}

// hasExtra reports whether the request or a part of it has members without a field
// of their own.
func hasExtra(r *messages.Request) bool {
	switch {
	case len(r.Extra) > 0,
		r.ToolChoice != nil && len(r.ToolChoice.Extra) > 0,
		r.Thinking != nil && len(r.Thinking.Extra) > 0,
		r.Metadata != nil && len(r.Metadata.Extra) > 0,
		r.OutputConfig != nil && (len(r.OutputConfig.Extra) > 0 || r.OutputConfig.Format != nil && len(r.OutputConfig.Format.Extra) > 0):
		return true
	}
	return slices.ContainsFunc(r.Messages, func(m messages.Message) bool { return len(m.Extra) > 0 })
}

func parse(data []byte, count bool) (*Request, error) {
	r := newRequest()
	r.countOnly = count
	if err := r.read(data); err != nil {
		return nil, err
	}
	return r, nil
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
	r.checkBudget()
	return nil
}

// readField checks one top-level member against its table and copies it into
// the view. A null counts as absent.
func (r *Request) readField(name string, raw []byte) {
	if rule.IsCacheControl([]byte(name)) {
		r.parsed.Paid.CacheControl(raw, "")
	}
	if name == "messages" || rawjson.IsNull(raw) || name == "stream" && r.countOnly || !r.parsed.Problem.Obeys(fields, name, raw) {
		return
	}
	switch name {
	case "system":
		r.System = raw
		r.checkSystem(raw)
	case "tools":
		r.Tools = raw
		r.checkTools(raw)
	case "tool_choice":
		part(r, name, raw, toolChoiceFields, &r.ToolChoice)
	case "thinking":
		part(r, name, raw, thinkingFields, &r.Thinking)
	case "output_config":
		if r.checkFormat(raw) {
			part(r, name, raw, outputFields, &r.OutputConfig)
		}
	case "metadata":
		part(r, name, raw, metadataFields, &r.Metadata)
	default:
		if r.typed == nil {
			r.decodeField(name, raw)
		}
	}
}

// decodeField copies a scalar member, or a list of them, into the view.
func (r *Request) decodeField(name string, raw []byte) {
	switch name {
	case "model":
		r.Model, _ = rawjson.String(raw)
	case "max_tokens":
		r.MaxTokens, _ = rawjson.Int(raw)
	case "temperature":
		r.Temperature = completion.Number(raw)
	case "top_p":
		r.TopP = completion.Number(raw)
	case "top_k":
		k, _ := rawjson.Int(raw)
		r.TopK = &k
	case "stop_sequences":
		r.view(name, raw, &r.StopSequences)
	case "stream":
		r.Stream = raw[0] == 't'
	case "service_tier":
		r.ServiceTier, _ = rawjson.String(raw)
	}
}

// part checks an object's members against their table and decodes it into a field
// of the view, unless one of them breaks its rule.
func part[T any](r *Request, name string, raw []byte, table rule.Table, into **T) {
	o, err := rawjson.Index(raw, nil, nil)
	if err != nil || !r.parsed.Problem.AllObey(table, &o, name+".") || r.typed != nil {
		return // what is no object the table of fields refused
	}
	if v := new(T); r.view(name, raw, v) {
		*into = v
	}
}

// view decodes raw into a part of the view.
func (r *Request) view(name string, raw []byte, into any) bool {
	err := json.Unmarshal(raw, into, jsontext.AllowDuplicateNames(true))
	if err != nil { // two members of one name, of which only the first was checked
		r.parsed.Problem.Refuse(name, fmt.Sprintf("%q is ambiguous: a member is given twice.", name))
	}
	return err == nil
}

// roles are what messages[].role may be. The vendor's newer form also has system
// messages within a conversation.
var roles = []string{"user", "assistant", "system"}

// path is where something stands in the request; it is spelled only where a
// rule is broken.
type path struct {
	of    *path  // what it stands in
	name  string // the member
	index int    // the element; -1 if it is none
}

func (p *path) String() string {
	s := p.name
	if p.of != nil {
		s = p.of.String() + "." + s
	}
	if p.index >= 0 {
		s += "[" + strconv.Itoa(p.index) + "]"
	}
	return s
}

// member spells a member of what stands there.
func (p *path) member(name string) string { return p.String() + "." + name }

// element spells an element of the list there, and the list itself where i is
// negative.
func (p *path) element(i int) string {
	e := *p
	e.index = i
	return e.String()
}

// messageNames are the members that are read of a message.
var messageNames = rawjson.Names{"role", "content"}

// readMessages reads the messages member in the parser's one pass.
func (r *Request) readMessages(rd *rawjson.Reader, src []byte) error {
	w := walker{r.parsed.Walker(rd, src)}
	list := path{name: "messages", index: -1}
	return w.Array("messages", list.element, "an array of message objects", func(i int) error {
		if r.Messages == nil {
			r.Messages = make([]messages.Message, 0, 4)
		}
		var m messages.Message
		if r.typed != nil {
			m.Role = r.typed.Messages[i].Role
		}
		err := w.message(&m, &path{name: "messages", index: i})
		r.Messages = append(r.Messages, m)
		if len(m.Extra) > 0 {
			r.parsed.Quarters += tokencount.Quarters(m.Extra)
		}
		return err
	})
}

// walker reads messages and the blocks within them.
type walker struct{ completion.Walker }

// message reads one message.
func (w walker) message(m *messages.Message, at *path) error {
	err := w.Object(messageNames, func(name string) (read bool, err error) {
		if read = name == "content"; read {
			m.Content, err = w.content(&path{at, "content", -1})
		}
		return read, err
	}, func(f completion.Member) {
		if f.Name == "role" {
			if m.Role == "" { // else it is the caller's own
				m.Role, _ = rawjson.String(f.Raw)
			}
			m.Role = completion.Known(roles, m.Role)
			return
		}
		m.Extra = append(append(m.Extra, ','), w.Src[f.Key.Start:f.Value.End]...)
	})
	if m.Extra != nil {
		m.Extra[0] = '{'
		m.Extra = append(m.Extra, '}')
	}
	switch {
	case err != nil:
	case m.Role == "":
		w.Problem.Note(at.member("role"), rule.Words(roles))
	case m.Content.IsNull():
		w.Problem.Note(at.member("content"), "a string or an array of content blocks")
	case m.Role == "user" && string(m.Content) == "[]":
		w.Problem.Note(at.member("content"), "a string or a non-empty array of content blocks")
	}
	return err
}

// content reads a string or an array of blocks.
func (w walker) content(at *path) (messages.Content, error) {
	raw, err := w.Content("messages", at.element, func(i int) error {
		return w.block(&path{at.of, at.name, i})
	})
	return raw, err
}

// blockMembers are the members of blocks that are checked. One that a block's type
// has no use for is checked all the same: no vendor takes it.
var blockMembers = rule.Table{
	{Name: "type", Check: rule.NonEmptyString()},
	{Name: "text", Check: rule.String()},
	{Name: "source", Check: rule.Object()},
	{Name: "title", Check: rule.String()},
	{Name: "thinking", Check: rule.String()},
	{Name: "signature", Check: rule.String()},
	{Name: "data", Check: rule.String()},
	{Name: "id", Check: rule.NonEmptyString()},
	{Name: "name", Check: rule.NonEmptyString()},
	{Name: "input", Check: rule.Object()},
	{Name: "tool_use_id", Check: rule.NonEmptyString()},
	{Name: "is_error", Check: rule.Bool()},
}

// blockTypes are the types of blocks that have rules, and the members that they
// need. A block of another type passes as it is.
var blockTypes = []struct {
	name  string
	needs []string
}{
	{"text", []string{"text"}},
	{"image", []string{"source"}},
	{"document", []string{"source"}},
	{"thinking", []string{"thinking"}},
	{"redacted_thinking", []string{"data"}},
	{"tool_use", []string{"id", "name", "input"}},
	{"tool_result", []string{"tool_use_id"}},
}

// requiredMembers are the members that a type of blocks needs; false if it has no rules.
func requiredMembers(kind string) ([]string, bool) {
	for i := range blockTypes {
		if blockTypes[i].name == kind {
			return blockTypes[i].needs, true
		}
	}
	return nil, false
}

// sourceTypes are the kinds of sources that the types of blocks take, and the
// media types of those that have one.
var sourceTypes = []struct {
	block, name string
	needs       string
	mediaTypes  []string
}{
	{"image", "base64", "data", []string{"image/jpeg", "image/png", "image/gif", "image/webp"}},
	{"image", "url", "url", nil},
	{"image", "file", "file_id", nil},
	{"document", "base64", "data", []string{"application/pdf"}},
	{"document", "text", "data", []string{"text/plain"}},
	{"document", "url", "url", nil},
	{"document", "file", "file_id", nil},
	{"document", "content", "content", nil},
}

// block is a content block while it is read.
type block struct {
	values [12][]byte // of the table members
	source source
	inner  rule.Problem     // of the blocks within it
	media  tokencount.Media // in the blocks within it
}

// source is the source of a picture or a document while it is read.
type source struct {
	kind, mediaType   string
	data, url, fileID []byte
	content           messages.Content
	badMember         string // what is not of its form
}

// blockNames are the members that are read of a block: those of blockMembers, then its
// content.
var blockNames = rawjson.Names{
	"type", "text", "source", "title", "thinking", "signature", "data", "id", "name", "input", "tool_use_id", "is_error", "content",
}

// sourceNames are the members that are read of a source.
var sourceNames = rawjson.Names{"type", "media_type", "data", "url", "file_id", "content"}

// block reads one block.
func (w walker) block(at *path) error {
	var b block
	within := w // of which a block that is not checked keeps the media alone
	within.Problem, within.Media = &b.inner, &b.media
	err := w.Object(blockNames, func(name string) (bool, error) {
		switch {
		case name == "content":
			_, err := within.content(&path{at, "content", -1})
			return true, err
		case name == "source" && w.Reader.Kind() == '{':
			b.values[slices.Index(blockNames, name)] = []byte("{}")
			return true, within.source(&b.source, &path{at, "source", -1})
		}
		return false, nil
	}, func(f completion.Member) {
		if f.Name != "" {
			b.values[slices.Index(blockNames, f.Name)] = f.Raw
		}
		if f.IsCache {
			w.Paid.CacheControl(f.Raw, at.String())
		}
	})
	if err == nil {
		w.check(&b, at)
	}
	return err
}

// value is the JSON of a member of the table; nil if it is absent.
func (b *block) value(name string) []byte {
	if i := slices.Index(blockNames, name); i >= 0 && !rawjson.IsNull(b.values[i]) {
		return b.values[i]
	}
	return nil
}

// check checks one block and counts what is not text.
func (w walker) check(b *block, at *path) {
	w.Media.Merge(b.media)
	kind, _ := rawjson.String(b.value("type"))
	if kind == "" {
		w.Problem.Note(at.member("type"), `a string such as "text"`)
		return
	}
	needed, known := requiredMembers(kind)
	if !known {
		return
	}
	for i := range blockMembers {
		if raw := b.values[i]; !rawjson.IsNull(raw) && !blockMembers[i].Check.OK(raw) {
			w.Problem.Note(at.member(blockMembers[i].Name), blockMembers[i].Check.Text)
		}
	}
	for _, name := range needed {
		if b.value(name) == nil {
			w.Problem.Note(at.member(name), blockMembers[slices.Index(blockNames, name)].Check.Text)
		}
	}
	if b.value("source") != nil {
		w.checkSource(&b.source, kind, at)
	}
	w.Problem.Adopt(b.inner)
}

// source reads the source of a picture or a document.
func (w walker) source(s *source, at *path) error {
	return w.Object(sourceNames, func(name string) (read bool, err error) {
		if read = name == "content"; read {
			s.content, err = w.content(&path{at, "content", -1})
		}
		return read, err
	}, func(f completion.Member) {
		if f.Name == "" || rawjson.IsNull(f.Raw) {
			return
		}
		if f.Raw[0] != '"' {
			s.badMember = f.Name
			return
		}
		switch f.Name {
		case "type":
			s.kind, _ = rawjson.String(f.Raw)
		case "media_type":
			s.mediaType, _ = rawjson.String(f.Raw)
		case "data":
			s.data = f.Raw
		case "url":
			s.url = f.Raw
		case "file_id":
			s.fileID = f.Raw
		}
	})
}

// needed is the member that holds what the source is.
func (s *source) needed(name string) []byte {
	switch name {
	case "data":
		return s.data
	case "url":
		return s.url
	case "file_id":
		return s.fileID
	}
	if s.content.IsNull() {
		return nil
	}
	return s.content
}

// checkSource checks the source of a block and counts what is not text.
func (w walker) checkSource(s *source, kind string, at *path) {
	if kind != "image" && kind != "document" {
		return
	}
	at = &path{at, "source", -1}
	if s.badMember != "" {
		w.Problem.Note(at.member(s.badMember), "a string")
		return
	}
	var kinds []string
	for i := range sourceTypes {
		t := &sourceTypes[i]
		if t.block != kind {
			continue
		}
		if kinds = append(kinds, t.name); t.name != s.kind {
			continue
		}
		raw := s.needed(t.needs)
		switch {
		case len(t.mediaTypes) > 0 && !slices.Contains(t.mediaTypes, s.mediaType):
			w.Problem.Note(at.member("media_type"), rule.Words(t.mediaTypes))
		case t.needs == "url" && !isWebURL(raw):
			w.Problem.Note(at.member("url"), "an absolute http or https URL")
		case len(raw) <= len(`""`):
			w.Problem.Note(at.member(t.needs), "given, and not empty")
		}
		if t.needs != "content" && t.name != "text" {
			w.count(kind, raw, t.needs != "data")
		}
		return
	}
	w.Problem.Note(at.member("type"), rule.Words(kinds))
}

// count counts a picture or a document whose content, or URL or id if it is
// linked, is the JSON string raw.
func (w walker) count(kind string, raw []byte, linked bool) {
	if kind == "image" {
		w.Media.AddImage(raw, linked)
	} else {
		w.Media.AddFile(raw, linked, "application/pdf")
	}
}

// isWebURL reports whether a JSON string is an absolute http or https URL.
func isWebURL(raw []byte) bool {
	const longest = 8192
	s, ok := rawjson.String(raw)
	if !ok || len(s) > longest {
		return false
	}
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
