package messages

import (
	"bytes"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
)

// likeness is what a piece of text has in common with the one before it: in most
// streams everything but the text. An event that differs from a checked one only
// inside a string, and there by plain characters, needs no check of its own.
type likeness struct {
	name, shown   string // the event's, and what the client gets to see of it
	before, after []byte // the event around the text
}

// learn keeps what surrounds the event's only text, if it has just one.
func (l *likeness) learn(name, shown string, data []byte, w *written) {
	const longest = 4 << 10 // bytes of an event
	l.before = l.before[:0]
	if w.texts != 1 || len(data) > longest || bytes.IndexByte(data, '\n') >= 0 {
		return
	}
	l.name, l.shown = name, shown
	l.before = append(l.before, data[:w.text.Start+1]...)
	l.after = append(l.after[:0], data[w.text.End-1:]...)
}

// text is what an event has in the place of the text; false if that is not all
// that is new.
func (l *likeness) text(name string, data []byte) ([]byte, bool) {
	if len(l.before) == 0 || name != l.name || len(data) < len(l.before)+len(l.after) ||
		!bytes.HasPrefix(data, l.before) || !bytes.HasSuffix(data, l.after) {
		return nil, false
	}
	text := data[len(l.before) : len(data)-len(l.after)]
	return text, rawjson.Plain(text)
}
