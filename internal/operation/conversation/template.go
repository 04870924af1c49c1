package conversation

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
)

// Template is what an event of a stream has in common with the next one. In most streams that
// is everything except the text, the event's number, and the padding that hides the text's
// length. An event that differs from a checked one only there, by a whole JSON string or
// number, needs no check and gets the same edits.
//
// It saves most of a stream's own cost: see BenchmarkServe of package server. The fuzz targets
// called FuzzRepeat compare it with the full treatment.
type Template struct {
	name  string // of the event
	src   []byte // the upstream's event
	out   []byte // the client's, framing included
	spots [3]spot
	count int             // of the spots; 0 for nothing learned
	found [3]rawjson.Span // the spots in the event that matched last
}

// spot is where events may differ: in a string, without its quotes, or in a number.
type spot struct {
	kind     spotKind
	src, out rawjson.Span
}

type spotKind int

const (
	isText spotKind = iota
	isPadding
	isNumber
)

// padding is the member that has it: https://platform.openai.com/docs/api-reference/chat/create,
// stream_options.include_obfuscation.
const padding = "obfuscation"

// Learn keeps a checked event, and what the client gets for it, if all of its text is in one
// string. It keeps nothing otherwise, or if the place of something in out is not certain.
// number is the member that counts the events. The client gets its own count. number is empty
// if events are not counted.
func (t *Template) Learn(name string, o *rawjson.Object, out []byte, text *Text, number string) {
	const longest = 4 << 10 // bytes of an event
	t.Forget()
	if text.Quarters == 0 || len(o.Src) > longest || bytes.ContainsAny(o.Src, "\r\n") {
		return
	}
	if tokencount.StringQuarters(text.last.Of(o.Src)) != text.Quarters {
		return
	}
	spots := append(t.spots[:0], spot{kind: isText, src: inner(text.last)})
	for i := range o.Members {
		m := &o.Members[i]
		s, raw := spot{src: m.Value}, m.Value.Of(o.Src)
		switch {
		case m.Name == number && number != "" && digits(raw, 0) == len(raw):
			s.kind = isNumber
		case m.Name == padding && raw[0] == '"':
			s = spot{kind: isPadding, src: inner(m.Value)}
		default:
			continue
		}
		if slices.ContainsFunc(spots, func(other spot) bool { return other.kind == s.kind }) {
			return // a name is given twice
		}
		spots = append(spots, s)
	}
	slices.SortFunc(spots, func(a, b spot) int { return a.src.Start - b.src.Start })
	if number != "" && !slices.ContainsFunc(spots, func(s spot) bool { return s.kind == isNumber }) || !locate(spots, o.Src, out) {
		return
	}
	t.count = len(spots)
	t.name = name
	t.src = append(t.src[:0], o.Src...)
	t.out = append(t.out[:0], out...)
}

// inner is the span of a JSON string without its quotes.
func inner(quoted rawjson.Span) rawjson.Span {
	return rawjson.Span{Start: quoted.Start + 1, End: quoted.End - 1}
}

// locate finds the spots in out, where each stands behind the same name as in src. A name
// that out has more than once is not certain: the edits may have brought one of them.
func locate(spots []spot, src, out []byte) bool {
	end := 0
	for i := range spots {
		s := &spots[i]
		name := src[bytes.LastIndexAny(src[:s.src.Start], ",{[")+1 : s.src.Start]
		at := bytes.Index(out, name)
		if len(name) == 0 || at < end || at != bytes.LastIndex(out, name) {
			return false
		}
		begin := at + len(name)
		if s.kind == isNumber {
			end = begin + digits(out, begin)
		} else if end = begin + s.src.End - s.src.Start; !bytes.HasPrefix(out[begin:], src[s.src.Start:s.src.End+1]) { // with the quote
			return false
		}
		s.out = rawjson.Span{Start: begin, End: end}
	}
	return true
}

// Forget drops what was learned, and keeps its memory.
func (t *Template) Forget() { t.count = 0 }

// Match says where an event has its text, without quotes; false if that, its number and its
// padding are not all that is new.
func (t *Template) Match(name string, src []byte) (text rawjson.Span, ok bool) {
	if t.count == 0 || name != t.name {
		return text, false
	}
	at, from := 0, 0 // in src, and in the event that was learned
	for i := range t.spots[:t.count] {
		s := &t.spots[i]
		fixed := t.src[from:s.src.Start]
		if len(src)-at < len(fixed) || string(src[at:at+len(fixed)]) != string(fixed) {
			return text, false
		}
		at += len(fixed)
		begin := at
		if s.kind == isNumber {
			at += digits(src, at)
			if at == begin {
				return text, false
			}
		} else if at = rawjson.StringEnd(src, at-1) - 1; at < begin { // fixed ends with the quote
			return text, false
		}
		t.found[i] = rawjson.Span{Start: begin, End: at}
		if from = s.src.End; s.kind == isText {
			text = t.found[i]
		}
	}
	return text, string(src[at:]) == string(t.src[from:])
}

// Append appends what the client gets of the event that matched last, with its number.
func (t *Template) Append(dst, src []byte, number int64) []byte {
	from := 0
	for i := range t.spots[:t.count] {
		s := &t.spots[i]
		dst = append(dst, t.out[from:s.out.Start]...)
		if s.kind == isNumber {
			dst = strconv.AppendInt(dst, number, 10)
		} else {
			dst = append(dst, t.found[i].Of(src)...)
		}
		from = s.out.End
	}
	return append(dst, t.out[from:]...)
}

// digits is how many digits stand at an offset that are a JSON number, of no more than every
// reader takes; 0 for another one.
func digits(src []byte, at int) int {
	const most = 18
	n := 0
	for at+n < len(src) && '0' <= src[at+n] && src[at+n] <= '9' {
		n++
	}
	if n > most || n > 1 && src[at] == '0' {
		return 0
	}
	return n
}
