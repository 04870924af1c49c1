package chat

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// accumulated is the first candidate's message, as far as its chunks have come.
type accumulated struct {
	role, name         string
	reasoning, content strings.Builder
	hasContent         bool
	calls              []*accumulatedCall
	others             members
}

// accumulatedCall is a tool call, as far as its pieces have come.
type accumulatedCall struct {
	ToolCall
	index     int64
	arguments strings.Builder
	others    members
}

// add adds a chunk's piece of the first candidate.
func (a *accumulated) add(c *Chunk) {
	for i := range c.Choices {
		if c.Choices[i].Index == 0 {
			a.addDelta(&c.Choices[i].Delta)
		}
	}
}

func (a *accumulated) addDelta(d *Message) {
	if d.Role != "" {
		a.role = d.Role
	}
	if d.Name != "" {
		a.name = d.Name
	}
	a.reasoning.WriteString(d.ReasoningContent)
	if !d.Content.IsZero() && !rawjson.IsNull(d.Content) {
		a.hasContent = true
		a.content.WriteString(d.Content.String())
	}
	for i := range d.ToolCalls {
		a.addCall(&d.ToolCalls[i], int64(i))
	}
	a.others.add(d.Extra)
}

// addCall adds a piece of a tool call. One without an index is of the call at its place.
func (a *accumulated) addCall(piece *ToolCall, place int64) {
	index := place
	if piece.Index != nil {
		index = *piece.Index
	}
	at := slices.IndexFunc(a.calls, func(c *accumulatedCall) bool { return c.index == index })
	if at < 0 {
		at = len(a.calls)
		a.calls = append(a.calls, &accumulatedCall{index: index})
	}
	c := a.calls[at]
	for _, text := range []struct {
		to   *string
		from string
	}{{&c.ID, piece.ID}, {&c.Type, piece.Type}, {&c.Function.Name, piece.Function.Name}} {
		if text.from != "" {
			*text.to = text.from
		}
	}
	c.arguments.WriteString(piece.Function.Arguments)
	c.others.add(piece.Extra)
	if len(piece.Function.Extra) > 0 {
		c.Function.Extra = slices.Clone(piece.Function.Extra)
	}
}

// message is what has come, in the form of a whole answer's message.
func (a *accumulated) message() *Message {
	m := &Message{Role: a.role, Name: a.name, ReasoningContent: a.reasoning.String(), Extra: a.others.object()}
	if m.Role == "" {
		m.Role = "assistant"
	}
	for _, c := range a.calls {
		call := c.ToolCall
		call.Function.Arguments, call.Extra = c.arguments.String(), c.others.object()
		m.ToolCalls = append(m.ToolCalls, call)
	}
	m.Content = Text(a.content.String())
	if len(a.calls) > 0 && a.content.Len() == 0 || !a.hasContent {
		m.Content = Content("null")
	}
	return m
}

// members are the members of pieces without a field of their own: texts are joined, and of
// other values the last one counts.
type members []*joinedMember

type joinedMember struct {
	name string
	text strings.Builder // of a member whose pieces are texts
	raw  jsontext.Value  // of any other
}

// add adds the members of an object.
func (m *members) add(object jsontext.Value) {
	if len(object) == 0 {
		return
	}
	o := rawjson.Borrow()
	defer rawjson.GiveBack(o)
	if rawjson.IndexInto(o, object, nil, nil) != nil {
		return
	}
	for name, raw := range o.All() {
		at := slices.IndexFunc(*m, func(j *joinedMember) bool { return j.name == name })
		if at < 0 {
			at = len(*m)
			*m = append(*m, &joinedMember{name: strings.Clone(name)})
		}
		j := (*m)[at]
		if text, ok := rawjson.String(raw); ok {
			j.raw = nil
			j.text.WriteString(text)
		} else if j.text.Len() == 0 || !rawjson.IsNull(raw) {
			j.raw = slices.Clone(raw)
		}
	}
}

// object is the members as an object; nil for none.
func (m members) object() jsontext.Value {
	if len(m) == 0 {
		return nil
	}
	object := []byte("{")
	for i, j := range m {
		if i > 0 {
			object = append(object, ',')
		}
		object = append(rawjson.Quote(object, j.name), ':')
		if j.raw != nil {
			object = append(object, j.raw...)
		} else {
			object = rawjson.Quote(object, j.text.String())
		}
	}
	return append(object, '}')
}
