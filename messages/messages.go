package messages

import (
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/rule"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// roles are what messages[].role may be. The vendor's newer form also has system
// messages within a conversation.
var roles = []string{"user", "assistant", "system"}

// place is where something stands in the request; it is spelled only where a
// rule is broken.
type place struct {
	of    *place // what it stands in
	name  string // the member
	index int    // the element; -1 if it is none
}

func (p *place) String() string {
	s := p.name
	if p.of != nil {
		s = p.of.String() + "." + s
	}
	if p.index >= 0 {
		s += "[" + strconv.Itoa(p.index) + "]"
	}
	return s
}

func (p *place) member(name string) string { return p.String() + "." + name }

// reading is the state of a walk over messages.
type reading struct {
	src      []byte
	problem  *rule.Problem
	media    *tokencount.Media
	elements *rule.Elements
	paid     *rule.Paid
}

// goOn counts one more message or content block. It is false if there are too
// many, or one before broke a rule: then only the syntax of what follows is
// checked, and nothing is made of it.
func (w reading) goOn() bool { return !w.problem.Found() && w.elements.Add(w.problem, "messages") }

// messageNames are the members that are read of a message.
var messageNames = rawjson.Names{"role", "content"}

// readMessages reads the messages member in the parser's one pass.
func (r *Request) readMessages(rd *rawjson.Reader, src []byte) error {
	w := reading{src, &r.parsed.problem, &r.parsed.media, &r.parsed.elements, &r.parsed.paid}
	if rd.Kind() != '[' {
		if rd.Kind() != 'n' {
			w.problem.Note("messages", "an array of message objects")
		}
		_, err := rd.Skip()
		return err
	}
	r.Messages = make([]Message, 0, 4)
	return rd.Array(func(i int) error {
		if !w.goOn() {
			_, err := rd.Skip()
			return err
		}
		at := place{name: "messages", index: i}
		if rd.Kind() != '{' {
			w.problem.Note(at.String(), "an object")
			_, err := rd.Skip()
			return err
		}
		m, err := w.message(rd, &at)
		r.Messages = append(r.Messages, m)
		if len(m.Extra) > 0 {
			r.parsed.quarters += tokencount.Quarters(m.Extra)
		}
		return err
	})
}

func (w reading) message(rd *rawjson.Reader, at *place) (m Message, err error) {
	var given uint64
	err = rd.Object(func(name []byte, key rawjson.Span) error {
		known, err := messageNames.Find(name, key, &given)
		if err != nil {
			return err
		}
		isRole := known == 0
		if known == 1 {
			at := place{at, "content", -1}
			c, err := w.content(rd, &at)
			m.Content = c
			return err
		}
		span, err := rd.Skip()
		switch {
		case err != nil:
		case isRole:
			m.Role = role(span.Of(w.src))
		default:
			m.Extra = append(append(m.Extra, ','), w.src[key.Start:span.End]...)
		}
		return err
	})
	if m.Extra != nil {
		m.Extra[0] = '{'
		m.Extra = append(m.Extra, '}')
	}
	switch {
	case err != nil:
	case m.Role == "":
		w.problem.Note(at.member("role"), rule.Words(roles))
	case m.Content.IsNull():
		w.problem.Note(at.member("content"), "a string or an array of content blocks")
	case m.Role == "user" && string(m.Content.raw) == "[]":
		w.problem.Note(at.member("content"), "a string or a non-empty array of content blocks")
	}
	return m, err
}

// role returns the role's constant; "" if there is no such role.
func role(raw []byte) string {
	s, _ := rawjson.String(raw)
	for _, known := range roles {
		if s == known {
			return known
		}
	}
	return ""
}

// content reads a string or an array of blocks.
func (w reading) content(rd *rawjson.Reader, at *place) (Content, error) {
	start := rd.Kind()
	if start != '[' {
		span, err := rd.Skip()
		if err != nil {
			return Content{}, err
		}
		if start != '"' && start != 'n' {
			w.problem.Note(at.String(), "a string or an array of content blocks")
		}
		return Content{span.Of(w.src)}, nil
	}
	from := 0
	err := rd.Array(func(i int) error {
		if i == 0 {
			from = int(rd.Offset())
		}
		if !w.goOn() {
			_, err := rd.Skip()
			return err
		}
		block := *at
		block.index = i
		if rd.Kind() != '{' {
			w.problem.Note(block.String(), "an object")
			_, err := rd.Skip()
			return err
		}
		return w.block(rd, &block)
	})
	if err != nil {
		return Content{}, err
	}
	if from == 0 {
		return Content{[]byte("[]")}, nil
	}
	return Content{w.src[from-1 : rd.Offset()]}, nil
}
