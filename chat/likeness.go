package chat

import (
	"bytes"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// likeness is what a chunk has in common with the one before it: in most
// streams everything but the text. A chunk that differs from a checked one only
// inside a string, and there by plain characters, needs no check of its own,
// and its edits are the same.
type likeness struct {
	before, after       []byte // the upstream's event around the text
	outBefore, outAfter []byte // the client's, framing included
}

// longest is the size of a chunk beyond which no likeness is kept.
const longest = 4 << 10

// learn keeps what surrounds the chunk's only text, if it has just one and
// nothing else in the chunk is of note. out is what the client gets of it.
func (l *likeness) learn(src, out []byte, s *seen) {
	l.before = l.before[:0]
	if s.texts != 1 || s.finished || s.nested != nil || len(src) > longest || bytes.IndexByte(src, '\n') >= 0 {
		return
	}
	quoted := s.text.Of(src)
	if bytes.Count(out, quoted) != 1 {
		return // where it stands is not certain
	}
	at := bytes.Index(out, quoted)
	l.outBefore = append(l.outBefore[:0], out[:at+1]...)
	l.outAfter = append(l.outAfter[:0], out[at+len(quoted)-1:]...)
	l.before = append(l.before, src[:s.text.Start+1]...)
	l.after = append(l.after[:0], src[s.text.End-1:]...)
}

// text is what a chunk has in the place of the text; false if that is not all
// that is new.
func (l *likeness) text(src []byte) ([]byte, bool) {
	if len(l.before) == 0 || len(src) < len(l.before)+len(l.after) ||
		!bytes.HasPrefix(src, l.before) || !bytes.HasSuffix(src, l.after) {
		return nil, false
	}
	text := src[len(l.before) : len(src)-len(l.after)]
	return text, rawjson.Plain(text)
}

// append appends the client's chunk with that text.
func (l *likeness) append(dst, text []byte) []byte {
	dst = append(dst, l.outBefore...)
	dst = append(dst, text...)
	return append(dst, l.outAfter...)
}

// wrote notes a string that the model wrote.
func (s *seen) wrote(raw []byte, at rawjson.Span) {
	if quarters := tokencount.StringQuarters(raw); quarters > 0 {
		s.quarters += quarters
		s.texts++
		s.text = at
	}
}
