package messages

import (
	"net/url"
	"slices"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// members are the members of blocks that are checked. One that a block's type
// has no use for is checked all the same: no vendor takes it.
var members = rule.Table{
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

// needs are the members that a type of blocks needs; false if it has no rules.
func needs(kind string) ([]string, bool) {
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
	content           Content
	badMember         string // what is not of its form
}

// blockNames are the members that are read of a block: those of members, then its
// content.
var blockNames = rawjson.Names{
	"type", "text", "source", "title", "thinking", "signature", "data", "id", "name", "input", "tool_use_id", "is_error", "content",
}

// sourceNames are the members that are read of a source.
var sourceNames = rawjson.Names{"type", "media_type", "data", "url", "file_id", "content"}

// block reads one block.
func (w reading) block(rd *rawjson.Reader, at *place) error {
	var b block
	var given uint64
	within := reading{w.src, &b.inner, &b.media, w.elements, w.paid}
	err := rd.Object(func(name []byte, key rawjson.Span) error {
		cache := rule.IsCacheControl(name)
		i, err := blockNames.Find(name, key, &given)
		switch {
		case err != nil:
			return err
		case i == len(members):
			_, err := within.content(rd, &place{at, "content", -1})
			return err
		case i >= 0 && members[i].Name == "source" && rd.Kind() == '{':
			b.values[i] = []byte("{}")
			return within.source(rd, &b.source, &place{at, "source", -1})
		}
		span, err := rd.Skip()
		if err == nil && i >= 0 {
			b.values[i] = span.Of(w.src)
		}
		if err == nil && cache {
			w.paid.CacheControl(span.Of(w.src), at.String())
		}
		return err
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
func (w reading) check(b *block, at *place) {
	w.media.Merge(b.media)
	kind, _ := rawjson.String(b.value("type"))
	if kind == "" {
		w.problem.Note(at.member("type"), `a string such as "text"`)
		return
	}
	needed, known := needs(kind)
	if !known {
		return
	}
	for i := range members {
		if raw := b.values[i]; !rawjson.IsNull(raw) && !members[i].Check.OK(raw) {
			w.problem.Note(at.member(members[i].Name), members[i].Check.Text)
		}
	}
	for _, name := range needed {
		if b.value(name) == nil {
			w.problem.Note(at.member(name), members[slices.Index(blockNames, name)].Check.Text)
		}
	}
	if b.value("source") != nil {
		w.checkSource(&b.source, kind, at)
	}
	w.problem.Adopt(b.inner)
}

// source reads the source of a picture or a document.
func (w reading) source(rd *rawjson.Reader, s *source, at *place) error {
	var given uint64
	return rd.Object(func(name []byte, key rawjson.Span) error {
		i, err := sourceNames.Find(name, key, &given)
		if err != nil {
			return err
		}
		known := ""
		if i >= 0 {
			known = sourceNames[i]
		}
		if known == "content" {
			c, err := w.content(rd, &place{at, "content", -1})
			s.content = c
			return err
		}
		span, err := rd.Skip()
		if err == nil && known != "" {
			s.take(known, span.Of(w.src))
		}
		return err
	})
}

func (s *source) take(name string, raw []byte) {
	if rawjson.IsNull(raw) {
		return
	}
	if raw[0] != '"' {
		s.badMember = name
		return
	}
	switch name {
	case "type":
		s.kind, _ = rawjson.String(raw)
	case "media_type":
		s.mediaType, _ = rawjson.String(raw)
	case "data":
		s.data = raw
	case "url":
		s.url = raw
	case "file_id":
		s.fileID = raw
	}
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
	return s.content.raw
}

// checkSource checks the source of a block and counts what is not text.
func (w reading) checkSource(s *source, kind string, at *place) {
	if kind != "image" && kind != "document" {
		return
	}
	at = &place{at, "source", -1}
	if s.badMember != "" {
		w.problem.Note(at.member(s.badMember), "a string")
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
			w.problem.Note(at.member("media_type"), rule.Words(t.mediaTypes))
		case t.needs == "url" && !goodURL(raw):
			w.problem.Note(at.member("url"), "an absolute http or https URL")
		case len(raw) <= len(`""`):
			w.problem.Note(at.member(t.needs), "given, and not empty")
		}
		if t.needs != "content" && t.name != "text" {
			w.count(kind, raw, t.needs != "data")
		}
		return
	}
	w.problem.Note(at.member("type"), rule.Words(kinds))
}

// count counts a picture or a document whose content, or URL or id if it is
// linked, is the JSON string raw.
func (w reading) count(kind string, raw []byte, linked bool) {
	if kind == "image" {
		w.media.AddImage(raw, linked)
	} else {
		w.media.AddFile(raw, linked, "application/pdf")
	}
}

// goodURL reports whether a JSON string is an absolute http or https URL.
func goodURL(raw []byte) bool {
	const longest = 8192
	s, ok := rawjson.String(raw)
	if !ok || len(s) > longest {
		return false
	}
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
