package responsesapi

import (
	"bytes"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// pattern is what a delta has in common with the next one: in most streams everything but
// its text, its number, and the padding that hides how long the text is. An event that
// differs from a checked one only there, and there by plain characters and digits, needs
// no check of its own. (completion.Template is the same for events without numbers.)
type pattern struct {
	name  string // the event's
	head  []byte // of the client's event, before its data
	src   []byte // a checked event; empty for none
	spots [3]spot
	count int
	item  int64 // the place in the output that the events are about
}

// spot is where events may differ.
type spot struct {
	at   rawjson.Span // without quotes
	kind spotKind
}

type spotKind int

const (
	isText spotKind = iota
	isNumber
	isPadding
)

// learn keeps an event that has text, of so many quarter tokens, in its delta alone. out
// is what the client gets of it.
func (p *pattern) learn(name string, out []byte, o *rawjson.Object, quarters, item int64) {
	const longest = 4 << 10 // bytes of an event
	p.src, p.count = p.src[:0], 0
	if quarters == 0 || len(o.Src) > longest || bytes.ContainsAny(o.Src, "\r\n") {
		return
	}
	var has [3]bool // of each kind
	for i := range o.Members {
		m := &o.Members[i]
		raw := m.Value.Of(o.Src)
		inner := rawjson.Span{Start: m.Value.Start + 1, End: m.Value.End - 1}
		var s spot
		switch {
		case m.Name == "delta" && tokencount.StringQuarters(raw) == quarters:
			s = spot{inner, isText}
		case m.Name == "obfuscation" && raw[0] == '"':
			s = spot{inner, isPadding}
		case m.Name == "sequence_number" && isDigits(raw):
			s = spot{m.Value, isNumber}
		default:
			continue
		}
		if has[s.kind] {
			return // a name is given twice
		}
		p.spots[p.count], has[s.kind] = s, true
		p.count++
	}
	if !has[isText] || !has[isNumber] {
		return
	}
	const field = "data: "
	at := 0 // of the data's line, the last one of an event that has one line of data
	if !bytes.HasPrefix(out, []byte(field)) {
		at = bytes.IndexByte(out, '\n') + 1
	}
	p.name, p.item = name, item
	p.head = append(p.head[:0], out[:at+len(field)]...)
	p.src = append(p.src, o.Src...)
}

// match says where an event has its text and its number; false if that, and padding, is
// not all that is new.
func (p *pattern) match(name string, data []byte) (text, number rawjson.Span, ok bool) {
	if len(p.src) == 0 || name != p.name {
		return text, number, false
	}
	at, from := 0, 0 // in data, and in the event that was learned
	for i := range p.spots[:p.count] {
		s := &p.spots[i]
		fixed := p.src[from:s.at.Start]
		if !bytes.HasPrefix(data[at:], fixed) {
			return text, number, false
		}
		at, from = at+len(fixed), s.at.End
		span := rawjson.Span{Start: at}
		if s.kind == isNumber {
			for at < len(data) && '0' <= data[at] && data[at] <= '9' {
				at++
			}
			if span.End = at; !isDigits(span.Of(data)) {
				return text, number, false
			}
			number = span
			continue
		}
		length := bytes.IndexByte(data[at:], '"')
		if length < 0 || !rawjson.Plain(data[at:at+length]) {
			return text, number, false
		}
		at += length
		if span.End = at; s.kind == isText {
			text = span
		}
	}
	return text, number, bytes.Equal(data[at:], p.src[from:])
}

// isDigits reports whether a JSON value is a number of digits alone, of no more than every
// reader takes.
func isDigits(raw []byte) bool {
	const most = 18
	if len(raw) == 0 || len(raw) > most || raw[0] == '0' && len(raw) > 1 {
		return false
	}
	for _, c := range raw {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// quartersOf are the quarters of the tokens of a text within data.
func quartersOf(data []byte, at rawjson.Span) int64 { return tokencount.Quarters(at.Of(data)) }
