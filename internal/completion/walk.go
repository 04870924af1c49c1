package completion

import (
	"bytes"
	"slices"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// Walker reads the messages of a request in the parser's one pass, and notes the
// first rule that they break and what they hold besides text.
type Walker struct {
	Reader   *rawjson.Reader
	Src      []byte
	Problem  *rule.Problem
	Media    *tokencount.Media
	Elements *rule.Elements
	Paid     *rule.Paid
}

// Walker returns a Walker over the request's body.
func (r *Request) Walker(rd *rawjson.Reader, src []byte) Walker {
	return Walker{rd, src, &r.Problem, &r.Media, &r.Elements, &r.Paid}
}

// Skip reads over the next value.
func (w Walker) Skip() error {
	_, err := w.Reader.Skip()
	return err
}

// Array reads the objects of a list, each by read. After a rule was broken, or one
// element more than a request may have, only the syntax is checked, and nothing is
// made of what follows. Null counts as absent; must says what the value must be.
//
// at spells the place of an element, or of the list where i is -1, for a refusal;
// list is the field that a refusal of too many elements names.
func (w Walker) Array(list string, at func(i int) string, must string, read func(i int) error) error {
	if kind := w.Reader.Kind(); kind != '[' {
		if kind != 'n' {
			w.Problem.Note(at(-1), must)
		}
		return w.Skip()
	}
	return w.objects(list, at, read)
}

func (w Walker) objects(list string, at func(i int) string, read func(i int) error) error {
	return w.Reader.Array(func(i int) error {
		switch {
		case w.Problem.Found() || !w.Elements.Add(w.Problem, list):
			return w.Skip()
		case w.Reader.Kind() != '{':
			w.Problem.Note(at(i), "an object")
			return w.Skip()
		}
		return read(i)
	})
}

// Content reads the content of a message: a string, or blocks, each by read. It
// returns its JSON, which is [] if there are no blocks.
func (w Walker) Content(list string, at func(i int) string, read func(i int) error) ([]byte, error) {
	kind := w.Reader.Kind()
	if kind != '[' {
		span, err := w.Reader.Skip()
		if err == nil && kind != '"' && kind != 'n' {
			w.Problem.Note(at(-1), "a string or an array of content blocks")
		}
		return span.Of(w.Src), err
	}
	from := int(w.Reader.Offset())
	from += bytes.IndexByte(w.Src[from:], '[') // white space may be before it
	if err := w.objects(list, at, read); err != nil {
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
	Raw        []byte
	Key, Value rawjson.Span
	IsCache    bool // a cache_control, in any spelling
}

// Object reads an object. nested reads the value of one of the names by itself, and
// says whether it did; each gets every other member.
func (w Walker) Object(names rawjson.Names, nested func(name string) (read bool, err error), each func(m Member)) error {
	var given uint64
	return w.Reader.Object(func(name []byte, key rawjson.Span) error {
		m := Member{Key: key, IsCache: rule.IsCacheControl(name)}
		at, err := names.Find(name, key, &given)
		if err != nil {
			return err
		}
		if at >= 0 {
			m.Name = names[at]
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

// Number is a JSON number.
func Number(raw []byte) *float64 {
	f, _ := rawjson.Float(raw)
	return &f
}
