package conversation

import (
	"bytes"
	"net/url"
	"slices"
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// Path is where something stands in a request; it is spelled only where a rule is
// broken.
type Path struct {
	of    *Path  // what it stands in
	name  string // the member
	index int    // the element; -1 if it is none
}

// Top is the path of a member of the request.
func Top(name string) Path { return Path{nil, name, -1} }

// Member is the path of a member of what stands there.
func (p *Path) Member(name string) Path { return Path{p, name, -1} }

// Element is the path of an element of the list there.
func (p Path) Element(i int) Path { return Path{p.of, p.name, i} }

// String spells the path.
func (p Path) String() string { return string(p.append(nil)) }

func (p *Path) append(dst []byte) []byte {
	if p.of != nil {
		dst = append(p.of.append(dst), '.')
	}
	dst = append(dst, p.name...)
	if p.index >= 0 {
		dst = append(strconv.AppendInt(append(dst, '['), int64(p.index), 10), ']')
	}
	return dst
}

// Walker reads the messages of a request in the parser's one pass. It notes the first rule
// that they break and what they hold besides text.
type Walker struct {
	Reader  *rawjson.Reader
	Src     []byte
	Request *Parsed
	Problem *rule.Problem
	Media   *tokencount.Media
}

// Walker returns a Walker over the request's body.
func (p *Parsed) Walker(rd *rawjson.Reader, src []byte) Walker {
	return Walker{rd, src, p, &p.Problem, &p.Media}
}

// Must notes that a member of the object at the path breaks its rule; must says what it has to
// be.
func (w Walker) Must(at Path, member, must string) {
	if !w.Problem.Found() {
		w.Problem.Note(at.String()+member, must)
	}
}

// skip reads over the next value.
func (w Walker) skip() error {
	_, err := w.Reader.Skip()
	return err
}

// Array calls read for each object of the list at the path. After a broken rule, or an element
// too many for a request, only the syntax is checked. Null counts as absent. must says what
// the value must be.
func (w Walker) Array(at Path, must string, read func(i int) error) error {
	if kind := w.Reader.Kind(); kind != '[' {
		if kind != 'n' {
			w.Must(at, "", must)
		}
		return w.skip()
	}
	return w.objects(at, read)
}

// objects is Array of what is known to be a list.
func (w Walker) objects(at Path, read func(i int) error) error {
	return w.Reader.Array(func(i int) error {
		switch {
		case !w.Request.countElement(w.Problem, w.Request.list):
			return w.skip()
		case w.Reader.Kind() != '{':
			w.Must(at.Element(i), "", "an object")
			return w.skip()
		}
		return read(i)
	})
}

// Content reads the content of a message, at the path: a string, or blocks, each by
// read. It returns its JSON, which is [] if there are no blocks.
func (w Walker) Content(at Path, read func(i int) error) ([]byte, error) {
	kind := w.Reader.Kind()
	if kind != '[' {
		span, err := w.Reader.Skip()
		if err == nil && kind != '"' && kind != 'n' {
			w.Must(at, "", "a string or an array of content blocks")
		}
		return span.Of(w.Src), err
	}
	from := int(w.Reader.Offset())
	from += bytes.IndexByte(w.Src[from:], '[') // white space may be before it
	if err := w.objects(at, read); err != nil {
		return nil, err
	}
	raw := w.Src[from:w.Reader.Offset()]
	if len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0 {
		return []byte("[]"), nil
	}
	return raw, nil
}

// Member is a member of an object that was read over.
type Member struct {
	Name       string // as in the list of names; empty for any other
	Index      int    // of it in the list; -1 for any other
	Raw        []byte
	Key, Value rawjson.Span
	IsCache    bool // a cache_control, in any spelling
}

// Text copies a string into the place that stands where its name does in the list of
// names, if there is one. What is no string leaves the place empty.
func (m *Member) Text(places ...*string) {
	if m.Index >= 0 && m.Index < len(places) {
		*places[m.Index], _ = rawjson.String(m.Raw)
	}
}

// Object reads an object. nested reads the value of one of the names by itself, and
// says whether it did; each gets every other member.
func (w Walker) Object(names rawjson.Names, nested func(name string) (read bool, err error), each func(m Member)) error {
	var given uint64
	return w.Reader.Object(func(name []byte, key rawjson.Span) error {
		m := Member{Key: key, IsCache: rule.IsCacheControl(name)}
		var err error
		if m.Index, err = names.Find(name, key, &given); err != nil {
			return err
		}
		if m.Index >= 0 {
			m.Name = names[m.Index]
			if nested != nil {
				if read, err := nested(m.Name); read || err != nil {
					return err
				}
			}
		}
		if m.Value, err = w.Reader.Skip(); err == nil {
			m.Raw = m.Value.Of(w.Src)
			each(m)
		}
		return err
	})
}

// Known is the constant of a word; empty if it is none of the words.
func Known(words []string, word string) string {
	if i := slices.Index(words, word); i >= 0 {
		return words[i]
	}
	return ""
}

// MayLink reports whether the content of a sound or a file may be a URL. Some vendors take a
// URL, even an escaped one, instead of the content.
func MayLink(raw []byte) bool {
	scheme := raw[:min(len(raw), len(`"https://`)*len(`\u0000`))]
	return !tokencount.IsDataURL(raw) && (bytes.IndexByte(scheme, ':') >= 0 || bytes.Contains(scheme, []byte(`\u`)))
}

// URL is the URL that a JSON string is; nil if it is none or longer than any that an
// upstream takes.
func URL(raw []byte) *url.URL {
	const longest = 8192
	s, ok := rawjson.String(raw)
	if !ok || len(s) > longest {
		return nil
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil
	}
	return u
}

// IsWebURL reports whether a JSON string is an absolute http or https URL.
func IsWebURL(raw []byte) bool {
	u := URL(raw)
	return u != nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
