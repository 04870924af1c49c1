package messages

import (
	"testing"

	"github.com/tollhouse-ai/gateway/chat"
)

// outlined are requests of every kind of content.
var outlined = []string{
	`{"model":"public","max_tokens":50,"stream":true,"system":"Be brief.","messages":[{"role":"user","content":"Wie spät ist es in 東京?"}]}`,
	`{"model":"public","max_tokens":50,"stream":true,"tools":[{"name":"f","description":"does it","input_schema":{"type":"object"}}],` +
		`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://a.test/p.png"}},{"type":"text","text":"What is it?"}]}]}`,
}

func outlinedAt(t *testing.T, i int) *Request {
	t.Helper()
	r, err := Parse([]byte(outlined[i]))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestAnOutlineCountsAsTheRequestDoes(t *testing.T) {
	for i, text := range outlined {
		for _, b := range []chat.MediaBound{{}, {Image: 7, Video: 9}} {
			r := outlinedAt(t, i)
			o := r.Summary()
			if r.InputBound(b) <= 0 || r.InputEstimate(b) <= 0 || o.InputBound(b) != r.InputBound(b) || o.InputEstimate(b) != r.InputEstimate(b) || o.LinkedBound(b) != r.LinkedBound(b) {
				t.Errorf("%s: %d and %d tokens, of the outline %d and %d", text, r.InputBound(b), r.InputEstimate(b), o.InputBound(b), o.InputEstimate(b))
			}
			if o.Model != r.Model || o.OutputBound() != r.OutputBound() || o.Stream != r.Stream {
				t.Errorf("%s: the outline is %+v", text, o)
			}
			if o.Source() != nil || o.Body().IsObject() || o.Messages != nil || o.Tools != nil {
				t.Errorf("%s: the outline keeps the request", text)
			}
			if again := o.Summary(); again.InputBound(b) != r.InputBound(b) || again.InputEstimate(b) != r.InputEstimate(b) {
				t.Errorf("%s: an outline of the outline counts otherwise", text)
			}
		}
	}
}

func TestATapGoesOnByAnOutlineAsByTheRequest(t *testing.T) {
	for i, text := range outlined {
		whole, light := outlinedAt(t, i).NewTap(TapOptions{}), outlinedAt(t, i).NewTap(TapOptions{})
		light.Outline(light.request.Summary())
		for _, e := range []wire{unknowing, opensText} {
			want, _, err1 := whole.Event(nil, e.name, []byte(e.data))
			got, _, err2 := light.Event(nil, e.name, []byte(e.data))
			if err1 != nil || err2 != nil || string(got) != string(want) {
				t.Errorf("%s: %s, %v instead of %s, %v", text, got, err2, want, err1)
			}
		}
		if light.Usage() != whole.Usage() {
			t.Errorf("%s: %+v instead of %+v", text, light.Usage(), whole.Usage())
		}
	}
}
