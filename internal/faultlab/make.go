package faultlab

import (
	"bytes"
	"fmt"
	"strings"
)

// textsAtOnce is how many texts one upstream call of embeddings takes in the lab.
const textsAtOnce = 3

// textsOf is the number of texts in a part of a request for embeddings.
func (c *Case) textsOf(part int) int { return min(textsAtOnce, c.Texts-part*textsAtOnce) }

// vectors is an answer of embeddings.
func vectors(c *Case, t *Try, part int) *script {
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

// sound is an answer of speech. Audio that ends early looks as if it were whole.
func sound(c *Case, t *Try) *script {
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

// pictures is an answer with pictures, made new or changed.
func pictures(c *Case, t *Try, a *Answer) *script {
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
	s := newScroll(a)
	for i := range c.Partials {
		s.event(mark{partial: true}, prefix+".partial_image", fmt.Sprintf(`{"type":"%s.partial_image","partial_image_index":%d,"b64_json":"aGk="}`, prefix, i))
	}
	s.event(mark{report: r, what: completes}, prefix+".completed", fmt.Sprintf(`{"type":"%s.completed","b64_json":"aGk="%s}`, prefix, usage))
	return s.troubled(t)
}

// taken is the answer to the submission of a video.
func taken(c *Case, t *Try, job string) *script {
	if c.Kind == Gamma {
		return document(t, "application/json", fmt.Sprintf(`{"id":%q}`, job), mark{})
	}
	return document(t, "application/json", fmt.Sprintf(`{"request_id":"r","output":{"task_id":%q,"task_status":"PENDING"}}`, job), mark{})
}
