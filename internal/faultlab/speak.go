package faultlab

import (
	"fmt"
	"strings"

	"github.com/tollhouse-ai/gateway/upstream"
)

// play is what a vendor says to one part of a request by a try; job is its id of
// a video.
func play(c *Case, t *Try, part int, job string) *script {
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
		return completion(c, t, a)
	case c.Kind.Talks():
		return message(c, t, a)
	case c.Kind == Embeddings:
		return vectors(c, t, part)
	case c.Kind == Speech:
		return sound(c, t)
	case c.Kind.Film():
		return taken(c, t, job)
	}
	return pictures(c, t, a)
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

// completion is a chat completion.
func completion(c *Case, t *Try, a *Answer) *script {
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
	s := newScroll(a)
	s.event(mark{}, "", head+`{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`)
	for i, word := range a.Words {
		m, member, rest := mark{quarters: quarters(word)}, "content", ""
		if i < a.Thoughts {
			member, m.unseen = "reasoning_content", c.Kind.translated()
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
func (s *scroll) ending(head, usage string, r *report, translated bool) {
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

// message is a message.
func message(c *Case, t *Try, a *Answer) *script {
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
	s := newScroll(a)
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
func (s *scroll) block(index int, kind, delta string, words []string) {
	if len(words) == 0 {
		return
	}
	s.event(mark{}, "content_block_start", fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":{"type":%q,%q:""}}`, index, kind, kind))
	for _, w := range words {
		s.event(mark{quarters: quarters(w)}, "content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":%q,%q:%q}}`, index, delta, kind, w))
	}
	s.event(mark{}, "content_block_stop", fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, index))
}
