package faultlab

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tollhouse-ai/gateway/upstream"
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

// count is a number of a report: none, one, or one that cannot be. A fraction is rounded up.
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
		return fmt.Sprintf("%d.5", n), count{known: true, n: n + 1}
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

// eventStream writes a stream.
type eventStream struct {
	script
	a   *Answer
	eol string
}

func newEventStream(a *Answer) *eventStream {
	s := &eventStream{a: a, eol: "\n"}
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
func (s *eventStream) event(m mark, name, data string) {
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

// troubled cuts or changes the stream as the attempt says.
func (s *eventStream) troubled(t *attemptScript) *script {
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
func (s *eventStream) frame(n int, m mark) {
	s.insert(n, func() {
		s.event(m, "error", `{"type":"error","error":{"type":"overloaded_error","code":"overloaded","message":"There is a trouble."}}`)
	})
}

// insert ends the stream with another event behind the first n events.
func (s *eventStream) insert(n int, event func()) {
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
func (s *script) place(t *attemptScript) {
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
func document(t *attemptScript, kind, data string, m mark) *script {
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

// answerOf is what a vendor says to one part of a request by an attempt; job is its id of
// a video.
func answerOf(c *Case, t *attemptScript, part int, job string) *script {
	switch t.Trouble {
	case Empty:
		return &script{kind: "application/json"}
	case Garbage:
		s := &script{data: []byte("\x1f\x8b\x08\x00garbage\x00\xff\xfe{"), kind: "application/json", cuts: []int{8}}
		s.end = len(s.data)
		s.grind(0)
		return s
	case WrongType:
		s := document(t, "text/html", "<html>A page.</html>", mark{})
		s.marks[0].what = ruins
		return s
	}
	a := &t.Answer
	switch {
	case c.Kind.Talks() && traits[c.Kind].dialect == upstream.ChatCompletion:
		return chatAnswer(c, t, a)
	case c.Kind == Responses:
		return responseAnswer(c, t, a)
	case c.Kind.Talks():
		return messageAnswer(c, t, a)
	case c.Kind == Embeddings:
		return embeddingsAnswer(c, t, part)
	case c.Kind == Rank:
		return rankAnswer(c, t, part)
	case c.Kind == Judge:
		return document(t, "application/json", `{"id":"modr-1","results":[`+strings.TrimSuffix(strings.Repeat(`{"flagged":false},`, c.Texts), ",")+`]}`, mark{})
	case c.Kind == Speech:
		return audioAnswer(c, t)
	case c.Kind.IsVideo():
		return taskAccepted(c, t, job)
	}
	return imageAnswer(c, t, a)
}

// chatUsage is a usage object of a completion.
func (a *Answer) chatUsage(output int64) (string, *report) {
	input, in := a.number(a.Input)
	cached, c := a.number(a.Cached)
	out, o := a.number(output)
	text := fmt.Sprintf(`{"prompt_tokens":%s,"completion_tokens":%s,"total_tokens":%d`, input, out, in.n+o.n)
	if a.Cached == 0 {
		return text + "}", &report{input: in, output: o}
	}
	return text + fmt.Sprintf(`,"prompt_tokens_details":{"cached_tokens":%s}}`, cached), &report{input: in, cached: c, output: o}
}

// chatAnswer is a completion, whole or as a stream.
func chatAnswer(c *Case, t *attemptScript, a *Answer) *script {
	usage, r := a.chatUsage(a.Output)
	if !c.Stream {
		m, choice, member := mark{quarters: quarters(a.Words...), report: r}, "", `,"usage":`+usage
		switch a.Report {
		case Never:
			m.report, member = nil, ""
		case Nested:
			choice, member = member, ""
		}
		return document(t, "application/json", fmt.Sprintf(
			`{"id":"up-1","object":"chat.completion","created":7,"model":"vendor-m","choices":[{"index":0,"message":{"role":"assistant","reasoning_content":%q,"content":%q},"finish_reason":"stop"%s}]%s}`,
			strings.Join(a.Words[:a.Thoughts], ""), strings.Join(a.Words[a.Thoughts:], ""), choice, member), m)
	}
	const head = `{"id":"up-1","object":"chat.completion.chunk","created":7,"model":"vendor-m","choices":[`
	s := newEventStream(a)
	s.event(mark{}, "", head+`{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`)
	for i, word := range a.Words {
		m, member, rest := mark{quarters: quarters(word)}, "content", ""
		if i < a.Thoughts {
			member, m.unseen = "reasoning_content", c.Kind == MessagesByChat
		}
		if a.Report == Rising || a.Report == First && i == 0 {
			rest, m.report = a.chatUsage(a.Output * int64(i+1) / int64(len(a.Words)))
			rest = `,"usage":` + rest
		}
		s.event(m, "", fmt.Sprintf(`%s{"index":0,"delta":{%q:%q},"finish_reason":null}]%s}`, head, member, word, rest))
	}
	s.ending(head, usage, r, c.Kind.translated())
	return s.troubled(t)
}

// ending ends the stream of a completion with the reports that come last.
func (s *eventStream) ending(head, usage string, r *report, translated bool) {
	finish := `{"index":0,"delta":{},"finish_reason":"stop"`
	if s.a.Report == Nested {
		s.event(mark{report: r}, "", head+finish+`,"usage":`+usage+`}]}`)
	} else {
		s.event(mark{}, "", head+finish+`}]}`)
	}
	reports := 1
	switch s.a.Report {
	case Never, Rising, First, Nested:
		reports = 0
	case Twice:
		reports = 2
	}
	for range reports {
		m := mark{report: r}
		if translated { // it is all that a message needs to be complete
			m.what = completes
		}
		s.event(m, "", head+`],"usage":`+usage+`}`)
	}
	s.event(mark{what: completes}, "", "[DONE]")
}

// responseAnswer is a response of a vendor that speaks them. It reports at its end only.
func responseAnswer(c *Case, t *attemptScript, a *Answer) *script {
	input, in := a.number(a.Input)
	cached, ca := a.number(a.Cached)
	output, out := a.number(a.Output)
	usage, r := fmt.Sprintf(`{"input_tokens":%s,"input_tokens_details":{"cached_tokens":%s},"output_tokens":%s,"total_tokens":%d}`, input, cached, output, in.n+out.n),
		&report{input: in, cached: ca, output: out}
	if a.Report == Never {
		usage, r = "null", nil
	}
	const part = `{"type":%q,"text":%q}`
	reasoning := fmt.Sprintf(`{"type":"reasoning","id":"rs_1","summary":[`+part+`]}`, "summary_text", strings.Join(a.Words[:a.Thoughts], ""))
	message := fmt.Sprintf(`{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[`+part+`]}`, "output_text", strings.Join(a.Words[a.Thoughts:], ""))
	response := func(status, items, usage string) string {
		return fmt.Sprintf(`{"id":"resp_1","object":"response","created_at":7,"status":%q,"error":null,"incomplete_details":null,"model":"vendor-m","output":[%s],"usage":%s}`, status, items, usage)
	}
	if !c.Stream {
		return document(t, "application/json", response("completed", reasoning+","+message, usage), mark{quarters: quarters(a.Words...), report: r})
	}
	s := newEventStream(a)
	number := 0
	event := func(m mark, kind, rest string) {
		s.event(m, "response."+kind, fmt.Sprintf(`{"type":"response.%s","sequence_number":%d,%s}`, kind, number, rest))
		number++
	}
	for _, kind := range []string{"created", "in_progress"} {
		event(mark{}, kind, `"response":`+response("in_progress", "", "null"))
	}
	for i, text := range []struct {
		kind, delta, whole, begun string
		words                     []string
	}{
		{"reasoning", "reasoning_summary_text.delta", reasoning, `{"type":"reasoning","id":"rs_1","summary":[]}`, a.Words[:a.Thoughts]},
		{"message", "output_text.delta", message, `{"type":"message","id":"msg_1","role":"assistant","status":"in_progress","content":[]}`, a.Words[a.Thoughts:]},
	} {
		event(mark{}, "output_item.added", fmt.Sprintf(`"output_index":%d,"item":%s`, i, text.begun))
		for _, w := range text.words {
			event(mark{quarters: quarters(w)}, text.delta, fmt.Sprintf(`"item_id":"i","output_index":%d,"content_index":0,"summary_index":0,"delta":%q`, i, w))
		}
		event(mark{}, "output_item.done", fmt.Sprintf(`"output_index":%d,"item":%s`, i, text.whole))
	}
	event(mark{report: r, what: completes}, "completed", `"response":`+response("completed", reasoning+","+message, usage))
	return s.troubled(t)
}

// messageUsage are the usage objects at the start and at the end of a message.
func (a *Answer) messageUsage(native bool) (start, end, whole string, first, last, all *report) {
	input, in := a.number(a.Input - a.Cached)
	cached, c := a.number(a.Cached)
	out, o := a.number(a.Output)
	first = &report{input: in, cached: c}
	if in.n+c.n == 0 { // nothing at all: it is not known yet
		first.input.known = false
	}
	if native && a.Report != Zero {
		first.floor = 1
	}
	last, all = &report{output: o}, &report{input: in, cached: c, output: o}
	start = fmt.Sprintf(`{"input_tokens":%s,"cache_read_input_tokens":%s,"output_tokens":%d}`, input, cached, first.floor)
	end = fmt.Sprintf(`{"output_tokens":%s}`, out)
	if a.Report == Zero {
		end, last = `{"input_tokens":0,"output_tokens":0}`, all
	}
	whole = fmt.Sprintf(`{"input_tokens":%s,"cache_read_input_tokens":%s,"output_tokens":%s}`, input, cached, out)
	return start, end, whole, first, last, all
}

// messageAnswer is a message, whole or as a stream.
func messageAnswer(c *Case, t *attemptScript, a *Answer) *script {
	start, end, whole, first, last, all := a.messageUsage(!c.Kind.translated())
	if a.Report == Never {
		first, last, all = nil, nil, nil
	}
	member := func(usage string) string {
		if a.Report == Never {
			return ""
		}
		return `,"usage":` + usage
	}
	if !c.Stream {
		thought := ""
		if a.Thoughts > 0 {
			thought = fmt.Sprintf(`{"type":"thinking","thinking":%q,"signature":"s"},`, strings.Join(a.Words[:a.Thoughts], ""))
		}
		return document(t, "application/json", fmt.Sprintf(
			`{"id":"msg_1","type":"message","role":"assistant","model":"vendor-m","content":[%s{"type":"text","text":%q}],"stop_reason":"end_turn","stop_sequence":null%s}`,
			thought, strings.Join(a.Words[a.Thoughts:], ""), member(whole)), mark{quarters: quarters(a.Words...), report: all})
	}
	s := newEventStream(a)
	s.event(mark{report: first}, "message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"vendor-m","content":[],"stop_reason":null,"stop_sequence":null`+member(start)+`}}`)
	s.block(0, "thinking", "thinking_delta", a.Words[:a.Thoughts])
	s.block(1, "text", "text_delta", a.Words[a.Thoughts:])
	delta := `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null}` + member(end) + `}`
	s.event(mark{report: last}, "message_delta", delta)
	if a.Report == Twice {
		s.event(mark{report: last}, "message_delta", delta)
	}
	s.event(mark{what: completes}, "message_stop", `{"type":"message_stop"}`)
	if c.Kind.translated() { // what is reported is told at the end only
		at := len(s.cuts) - 2
		s.cuts = append(s.cuts[:at], s.cuts[at+1:]...)
	}
	return s.troubled(t)
}

// block is a content block of a message.
func (s *eventStream) block(index int, kind, delta string, words []string) {
	if len(words) == 0 {
		return
	}
	s.event(mark{}, "content_block_start", fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":%q,%q:""}}`, index, kind, kind))
	for _, w := range words {
		s.event(mark{quarters: quarters(w)}, "content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":%q,%q:%q}}`, index, delta, kind, w))
	}
	s.event(mark{}, "content_block_stop", fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, index))
}

// textsAtOnce is how many texts one upstream call of embeddings or a ranking takes in the lab.
const textsAtOnce = 3

// textsOf is the number of texts in a part of a list.
func (c *Case) textsOf(part int) int { return min(textsAtOnce, c.Texts-part*textsAtOnce) }

// embeddingsAnswer is an answer of embeddings.
func embeddingsAnswer(c *Case, t *attemptScript, part int) *script {
	a := &t.Answer
	items := make([]string, c.textsOf(part))
	for i := range items {
		items[i] = fmt.Sprintf(`{"object":"embedding","index":%d,"embedding":[0.25,-0.5]}`, i)
	}
	m, usage := mark{}, ""
	if a.Report != Never {
		input, in := a.number(a.Input)
		m.report = &report{input: in}
		usage = fmt.Sprintf(`,"usage":{"prompt_tokens":%s,"total_tokens":%s}`, input, input)
	}
	return document(t, "application/json", `{"object":"list","model":"vendor-m","data":[`+strings.Join(items, ",")+`]`+usage+`}`, m)
}

// rankAnswer is an answer of a ranking, whose report is of search units.
func rankAnswer(c *Case, t *attemptScript, part int) *script {
	a := &t.Answer
	rows := make([]string, c.textsOf(part))
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"index":%d,"relevance_score":0.%d}`, i, i)
	}
	m, meta := mark{}, ""
	if a.Report != Never {
		units, n := a.number(a.Input)
		m.report = &report{input: n}
		meta = fmt.Sprintf(`,"meta":{"billed_units":{"search_units":%s}}`, units)
	}
	return document(t, "application/json", `{"results":[`+strings.Join(rows, ",")+`]`+meta+`}`, m)
}

// audioAnswer is an answer of speech. Audio that ends early looks as if it were whole.
func audioAnswer(c *Case, t *attemptScript) *script {
	if t.Trouble == ErrorBody {
		return document(t, "application/json", "", mark{})
	}
	s := &script{kind: "audio/mpeg"}
	for _, n := range t.Answer.Sizes {
		s.data = append(s.data, bytes.Repeat([]byte{0xA5}, n)...)
		s.cuts = append(s.cuts, len(s.data))
	}
	s.end = len(s.data)
	s.place(t)
	if t.Trouble == Ends { // nobody can tell
		s.data = s.data[:s.end]
	}
	s.marks = []mark{{ready: s.end, whole: s.end, what: completes}}
	if s.end == 0 {
		s.marks[0].what = ruins
	}
	return s
}

// imageAnswer is an answer with pictures, made new or changed, whole or as a stream.
func imageAnswer(c *Case, t *attemptScript, a *Answer) *script {
	input, in := a.number(a.Input)
	shown, sh := a.number(a.Cached)
	output, out := a.number(a.Output)
	r := &report{input: in, cached: sh, output: out}
	usage := fmt.Sprintf(`,"usage":{"input_tokens":%s,"input_tokens_details":{"image_tokens":%s},"output_tokens":%s}`, input, shown, output)
	if a.Report == Never || c.Kind == Print {
		r, usage = nil, ""
	}
	if !c.Stream {
		n := c.Pictures
		if t.Trouble == Surplus {
			n += 2
		}
		data := strings.TrimSuffix(strings.Repeat(`{"b64_json":"aGk="},`, int(n)), ",")
		m := mark{report: r}
		if m.report == nil {
			m.report = &report{}
		}
		m.report.pictures = count{known: true, n: n}
		return document(t, "application/json", `{"created":1,"data":[`+data+`]`+usage+`}`, m)
	}
	prefix := "image_generation"
	if c.Kind == Edit {
		prefix = "image_edit"
	}
	s := newEventStream(a)
	for i := range c.Partials {
		s.event(mark{partial: true}, prefix+".partial_image", fmt.Sprintf(`{"type":"%s.partial_image","partial_image_index":%d,"b64_json":"aGk="}`, prefix, i))
	}
	s.event(mark{report: r, what: completes}, prefix+".completed", fmt.Sprintf(`{"type":"%s.completed","b64_json":"aGk="%s}`, prefix, usage))
	return s.troubled(t)
}

// taskAccepted is the answer to the submission of a video.
func taskAccepted(c *Case, t *attemptScript, job string) *script {
	if c.Kind == Gamma {
		return document(t, "application/json", fmt.Sprintf(`{"id":%q}`, job), mark{})
	}
	return document(t, "application/json", fmt.Sprintf(`{"request_id":"r","output":{"task_id":%q,"task_status":"PENDING"}}`, job), mark{})
}
