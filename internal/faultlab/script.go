package faultlab

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// script is an answer as its bytes, with what each of its events means.
type script struct {
	data  []byte
	marks []mark
	cuts  []int  // where the pieces end in which it comes
	kind  string // its content type
	end   int    // how many bytes come before the trouble
}

// mark is one event of a stream, or all of an answer that is none.
type mark struct {
	end   int // where it ends
	ready int // from this offset on a reader has it
	whole int // from this offset on it counts if the transfer ends

	quarters int64 // of text, in quarter tokens
	unseen   bool  // the text is not for the client
	report   *report
	partial  bool // a picture in the making
	what     meaning
}

// meaning is what an event does to its stream.
type meaning uint8

const (
	goesOn meaning = iota
	ruins
	completes
)

// count is a number of a report: none, one, or one that cannot be.
type count struct {
	known bool
	n     int64
	odd   bool
}

// report is what an upstream says of usage at one time.
type report struct {
	input, cached, output count
	floor                 int64 // output so far, which speaks for no text
	pictures              count
}

// absurdCount is what no request uses, in tokens.
const absurdCount = 5_000_000_000

// number spells a count in the answer's way of reporting, and says what it means.
func (a *Answer) number(n int64) (string, count) {
	if n == 0 {
		return "0", count{known: true}
	}
	switch a.Report {
	case Zero:
		return "0", count{known: true}
	case Negative:
		return fmt.Sprintf("-%d", n+1), count{odd: true}
	case Fractional:
		return fmt.Sprintf("%d.5", n), count{odd: true}
	case Absurd:
		return fmt.Sprint(absurdCount), count{known: true, n: absurdCount, odd: true}
	}
	return fmt.Sprint(n), count{known: true, n: n}
}

// quarters are the quarter tokens that texts are taken for where nobody counts
// them: four ASCII characters, or one of any other script, make a token.
func quarters(texts ...string) (n int64) {
	for _, t := range texts {
		for _, r := range t {
			if r < utf8.RuneSelf {
				n++
			} else {
				n += 4
			}
		}
	}
	return n
}

// tokens rounds quarter tokens up.
func tokens(quarters int64) int64 { return (quarters + 3) / 4 }

// scroll writes a stream.
type scroll struct {
	script
	a   *Answer
	eol string
}

func newScroll(a *Answer) *scroll {
	s := &scroll{a: a, eol: "\n"}
	s.kind = "text/event-stream"
	switch a.Line {
	case "crlf":
		s.eol = "\r\n"
	case "cr":
		s.eol = "\r"
	}
	if a.Mark {
		s.data = append(s.data, "\xef\xbb\xbf"...)
	}
	return s
}

// event appends an event; name may be empty.
func (s *scroll) event(m mark, name, data string) {
	if s.a.Notes && len(s.marks)%3 == 1 {
		s.data = append(s.data, ": a note"+s.eol+s.eol...)
	}
	if name != "" {
		s.data = append(s.data, "event: "+name+s.eol...)
	}
	s.data = append(s.data, "data: "+data...)
	m.whole = len(s.data)
	s.data = append(s.data, s.eol+s.eol...)
	m.end, m.ready = len(s.data), len(s.data)
	if s.eol == "\r\n" { // the line ends where the first of the two is read
		m.ready--
	}
	s.marks = append(s.marks, m)
	s.cuts = append(s.cuts, len(s.data))
}

// troubled cuts or changes the stream as the try says.
func (s *scroll) troubled(t *Try) *script {
	at := t.Place * len(s.marks) / 1000
	switch t.Trouble {
	case ErrorBody:
		s.frame(0, mark{what: ruins})
	case Errs:
		s.frame(at, mark{what: ruins})
	case Babbles:
		s.insert(at, func() { s.event(mark{what: ruins}, "", "{never ending") })
	case Huge:
		const above = 8<<20 + 1024
		s.insert(at, func() { s.event(mark{what: ruins}, "", `{"x":"`+strings.Repeat("x", above)+`"}`) })
	}
	s.end = len(s.data)
	s.place(t)
	s.grind(t.Answer.Grain)
	return &s.script
}

// frame ends the stream with an error event behind the first n events.
func (s *scroll) frame(n int, m mark) {
	s.insert(n, func() {
		s.event(m, "error", `{"type":"error","error":{"type":"overloaded_error","code":"overloaded","message":"There is a trouble."}}`)
	})
}

// insert ends the stream with another event behind the first n events.
func (s *scroll) insert(n int, event func()) {
	s.marks = s.marks[:n]
	end := 0
	switch {
	case n > 0:
		end = s.marks[n-1].end
	case s.a.Mark:
		end = len("\xef\xbb\xbf")
	}
	s.data = s.data[:end]
	s.cuts = slices.DeleteFunc(s.cuts, func(cut int) bool { return cut > end })
	event()
}

// place is where the trouble is of an answer that comes to no end.
func (s *script) place(t *Try) {
	switch t.Trouble {
	case Ends, Breaks, Bursts, Stalls:
		s.end = t.Place * len(s.data) / 1000
		if t.Byte > 0 {
			s.end = min(t.Byte, len(s.data))
		}
	}
}

// grind cuts the answer into pieces of a size, whatever its events are.
func (s *script) grind(grain int) {
	if len(s.cuts) == 0 || s.cuts[len(s.cuts)-1] != len(s.data) {
		s.cuts = append(s.cuts, len(s.data))
	}
	const most = 300 // pieces
	if grain == 0 || len(s.data)/grain > most {
		return
	}
	s.cuts = s.cuts[:0]
	for at := grain; at < len(s.data); at += grain {
		s.cuts = append(s.cuts, at)
	}
	s.cuts = append(s.cuts, len(s.data))
}

// document is an answer that is no stream.
func document(t *Try, kind, data string, m mark) *script {
	m.ready, m.whole, m.what = len(data), len(data), completes
	s := &script{data: []byte(data), marks: []mark{m}, kind: kind, end: len(data)}
	s.place(t)
	if t.Trouble == ErrorBody {
		s.data = []byte(`{"error":{"type":"overloaded_error","code":"overloaded","message":"There is a trouble."}}`)
		s.end, s.marks[0].what = len(s.data), ruins
		s.marks[0].ready, s.marks[0].whole = s.end, s.end
	}
	s.cuts = []int{len(s.data)}
	s.grind(t.Answer.Grain * 8)
	return s
}
