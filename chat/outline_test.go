package chat

import (
	"strings"
	"testing"
)

// outlinedAs is a request with nothing but these members and the model "public".
func outlinedAs(t *testing.T, members string) *Request {
	t.Helper()
	r, err := Parse([]byte(`{"model":"public",` + members + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// outlined are requests of every kind of content.
var outlined = []string{
	`"messages":[{"role":"user","content":"Wie spät ist es in 東京?"}],` + asks,
	`"max_tokens":70,"max_completion_tokens":60,"n":3,"messages":[{"role":"user","content":[` +
		`{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"https://a.test/p.png"}}]}],` + never,
	`"tools":[{"type":"function","function":{"name":"f","description":"does it"}}],"messages":[{"role":"user","content":"Do it."}],` + never,
}

func TestAnOutlineCountsAsTheRequestDoes(t *testing.T) {
	for _, members := range outlined {
		r := outlinedAs(t, members)
		for _, b := range []MediaBound{{}, {Image: 7, Video: 9}} {
			o := r.Summary()
			if r.InputBound(b) <= 0 || r.InputEstimate(b) <= 0 || o.InputBound(b) != r.InputBound(b) || o.InputEstimate(b) != r.InputEstimate(b) || o.LinkedBound(b) != r.LinkedBound(b) {
				t.Errorf("%s: %d and %d tokens, of the outline %d and %d", members, r.InputBound(b), r.InputEstimate(b), o.InputBound(b), o.InputEstimate(b))
			}
			if o.Model != r.Model || o.OutputBound() != r.OutputBound() || o.Candidates() != r.Candidates() || o.WantsUsage() != r.WantsUsage() || o.Stream != r.Stream {
				t.Errorf("%s: the outline is %+v", members, o)
			}
			if o.Source() != nil || o.Body().IsObject() || o.Messages != nil || o.Tools != nil {
				t.Errorf("%s: the outline keeps the request", members)
			}
			if again := o.Summary(); again.InputBound(b) != r.InputBound(b) || again.InputEstimate(b) != r.InputEstimate(b) {
				t.Errorf("%s: an outline of the outline counts otherwise", members)
			}
		}
	}
}

func tapLike(t *testing.T, members string) *Tap {
	t.Helper()
	return outlinedAs(t, members).NewTap(TapOptions{NewID: func() string { return "chatcmpl-minted" }, Created: 7})
}

func TestATapGoesOnByAnOutlineAsByTheRequest(t *testing.T) {
	for _, members := range outlined {
		for _, events := range [][]string{{opens, says("a"), says("b"), ends, "[DONE]"}, {opens, reports, "[DONE]"}, {opens, says("a")}} {
			for at := range events {
				whole, light := tapLike(t, members), tapLike(t, members)
				want := feed(t, whole, events...)
				got := feed(t, light, events[:at]...)
				light.Outline(light.request.Summary())
				got += feed(t, light, events[at:]...)
				want, got = want+string(whole.CutShort(nil)), got+string(light.CutShort(nil))
				if got != want || light.Usage() != whole.Usage() || !strings.Contains(got, `"public"`) {
					t.Errorf("%s: outlined before event %d\n%s\n%+v\ninstead of\n%s\n%+v", members, at, got, light.Usage(), want, whole.Usage())
				}
			}
		}
	}
}
