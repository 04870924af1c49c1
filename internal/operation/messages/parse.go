package messages

import (
	"slices"
	"strings"

	"github.com/tollhouse-ai/gateway/internal/operation/conversation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/messages"
)

// roles are what messages[].role may be. The vendor's newer form also has system
// messages within a conversation.
var roles = []string{"user", "assistant", "system"}

// messageNames are the members that are read of a message.
var messageNames = rawjson.Names{"role", "content"}

// readMessages reads the messages member in the parser's one pass.
func (r *Request) readMessages(rd *rawjson.Reader, src []byte) error {
	w := walker{r.Walker(rd, src)}
	list := conversation.Top("messages")
	return w.Array(list, "an array of message objects", func(i int) error {
		if r.Messages == nil {
			r.Messages = make([]messages.Message, 0, 4)
		}
		var m messages.Message
		if r.typed != nil {
			m.Role = r.typed.Messages[i].Role
		}
		err := w.message(&m, list.Element(i))
		r.Messages = append(r.Messages, m)
		r.AddMessage(m.Content)
		if len(m.Extra) > 0 {
			r.Quarters += tokencount.Quarters(m.Extra)
		}
		return err
	})
}

// walker reads messages and the blocks within them.
type walker struct{ conversation.Walker }

// message reads one message.
func (w walker) message(m *messages.Message, at conversation.Path) error {
	err := w.Object(messageNames, func(name string) (read bool, err error) {
		if read = name == "content"; read {
			m.Content, err = w.content(at.Member("content"))
		}
		return read, err
	}, func(f conversation.Member) {
		if f.Name == "role" {
			if m.Role == "" { // else it is the caller's own
				f.Text(&m.Role)
			}
			m.Role = conversation.Known(roles, m.Role)
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
		w.Must(at, ".role", rule.Words(roles))
	case rawjson.IsNull(m.Content):
		w.Must(at, ".content", "a string or an array of content blocks")
	case m.Role == "user" && string(m.Content) == "[]":
		w.Must(at, ".content", "a string or a non-empty array of content blocks")
	}
	return err
}

// content reads a string or an array of blocks.
func (w walker) content(at conversation.Path) (messages.Content, error) {
	return w.Content(at, func(i int) error { return w.block(at.Element(i)) })
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

// blockNames are the members that are read of a block: those of blockMembers, then its
// content, and the file that it names.
var blockNames = rawjson.Names{
	"type", "text", "source", "title", "thinking", "signature", "data", "id", "name", "input", "tool_use_id", "is_error", "content", "file_id",
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

// block is a content block while it is read.
type block struct {
	values [12][]byte // of the table members
	file   []byte     // the id of a file
	source source
	inner  rule.Problem     // of the blocks within it
	media  tokencount.Media // in the blocks within it
}

// block reads one block.
func (w walker) block(at conversation.Path) error {
	var b block
	within := w // keeps only the media of a block that is not checked
	within.Problem, within.Media = &b.inner, &b.media
	err := w.Object(blockNames, func(name string) (bool, error) {
		switch {
		case name == "content":
			_, err := within.content(at.Member("content"))
			return true, err
		case name == "source" && w.Reader.Kind() == '{':
			b.values[slices.Index(blockNames, name)] = []byte("{}")
			return true, within.source(&b.source, at.Member("source"))
		}
		return false, nil
	}, func(f conversation.Member) {
		switch {
		case f.Name == "file_id":
			b.file = f.Raw
		case f.Index >= 0:
			b.values[f.Index] = f.Raw
		}
		if f.IsCache {
			w.Request.Paid.CacheControl(f.Raw, at.String())
		}
	})
	if err == nil {
		w.check(&b, at)
	}
	return err
}

// check checks one block and counts what is not text.
func (w walker) check(b *block, at conversation.Path) {
	w.Media.Merge(b.media)
	kind, _ := rawjson.String(b.values[0])
	if kind == "" {
		w.Must(at, ".type", `a string such as "text"`)
		return
	}
	if !rawjson.IsNull(b.file) && !strings.HasSuffix(kind, "_output") { // which a tool of the vendor's has made
		w.Request.NoteFile(at, "file_id")
	}
	if !rawjson.IsNull(b.source.values[slices.Index(sourceNames, "file_id")]) {
		w.Request.NoteFile(at.Member("source"), "file_id")
	}
	for _, known := range blockTypes {
		if known.name != kind {
			continue
		}
		for i, f := range blockMembers {
			if raw := b.values[i]; !rawjson.IsNull(raw) && !f.Check.OK(raw) {
				w.Must(at, "."+f.Name, f.Check.Text)
			}
		}
		for _, name := range known.needs {
			if i := slices.Index(blockNames, name); rawjson.IsNull(b.values[i]) {
				w.Must(at, "."+name, blockMembers[i].Check.Text)
			}
		}
		if !rawjson.IsNull(b.values[slices.Index(blockNames, "source")]) {
			w.checkSource(&b.source, kind, at.Member("source"))
		}
		w.Problem.Adopt(b.inner)
	}
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

// sourceNames are the members that are read of a source.
var sourceNames = rawjson.Names{"type", "media_type", "data", "url", "file_id", "content"}

// source is the source of an image or a document while it is read.
type source struct {
	kind, mediaType string
	values          [6][]byte // of sourceNames
	badMember       string    // what is not of its form
}

// source reads the source of an image or a document.
func (w walker) source(s *source, at conversation.Path) error {
	return w.Object(sourceNames, func(name string) (read bool, err error) {
		if read = name == "content"; read {
			s.values[slices.Index(sourceNames, name)], err = w.content(at.Member("content"))
		}
		return read, err
	}, func(f conversation.Member) {
		switch {
		case f.Index < 0 || rawjson.IsNull(f.Raw):
		case f.Raw[0] != '"':
			s.badMember = f.Name
		default:
			s.values[f.Index] = f.Raw
			f.Text(&s.kind, &s.mediaType)
		}
	})
}

// checkSource checks the source of a block and counts what is not text.
func (w walker) checkSource(s *source, kind string, at conversation.Path) {
	switch {
	case kind != "image" && kind != "document":
		return
	case s.badMember != "":
		w.Must(at, "."+s.badMember, "a string")
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
		raw := s.values[slices.Index(sourceNames, t.needs)]
		switch {
		case len(t.mediaTypes) > 0 && !slices.Contains(t.mediaTypes, s.mediaType):
			w.Must(at, ".media_type", rule.Words(t.mediaTypes))
		case t.needs == "url" && !conversation.IsWebURL(raw):
			w.Must(at, ".url", "an absolute http or https URL")
		case len(raw) <= len(`""`) || rawjson.IsNull(raw):
			w.Must(at, "."+t.needs, "given, and not empty")
		}
		switch linked := t.needs != "data"; {
		case t.needs == "content" || t.name == "text": // are text
		case kind == "image":
			w.Media.AddImage(raw, linked)
		default:
			w.Media.AddFile(raw, linked, tokencount.Document)
		}
		return
	}
	w.Must(at, ".type", rule.Words(kinds))
}
