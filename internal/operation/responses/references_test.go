package responses

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/chat"
)

// nothing is what channels pass on that pass nothing on.
type nothing struct{}

func (nothing) Passes(string, string) bool { return false }

// TestAnExpandedRequestIsWhatItsBytesParseTo holds what a request has noted of itself, and of
// the items that it was given, against a parse of all of it.
func TestAnExpandedRequestIsWhatItsBytesParseTo(t *testing.T) {
	const (
		user    = `{"role":"user","content":[{"type":"input_text","text":"hé"},{"type":"input_image","image_url":"https://a/b.png"},{"type":"input_file","file_id":"file_1"}]}`
		said    = `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"four words of text"}]}`
		thought = `{"id":"rs_1","type":"reasoning","summary":[]}`
		call    = `{"type":"code_interpreter_call","container_id":"cntr_1","code":"x"}`
		tools   = `{"type":"additional_tools","tools":[{"type":"function","name":"f"},{"type":"web_search"}]}`
		image   = `{"type":"image_generation_call","id":"ig_1","result":""}`
	)
	for name, row := range map[string]struct {
		body    string
		before  []string
		own     []string // in the places of the request's; "" for one that is left out
		include []string
	}{
		"after a response":               {body: `"previous_response_id":"resp_1","input":[` + thought + `,` + user + `]`, before: []string{user, said, call, tools}},
		"after a response, in a word":    {body: `"input":"x","previous_response_id":"resp_1"`, before: []string{user, said, thought}},
		"with nothing of its own":        {body: `"previous_response_id":"resp_1"`, before: []string{user, said}},
		"after nothing":                  {body: `"previous_response_id":"resp_1"`},
		"items by reference":             {body: `"input":[` + thought + `,{"id":"msg_1"},{"id":"msg_2"},` + call + `,` + user + `]`, own: []string{thought, said, "", call, user}},
		"items by reference, only":       {body: `"input":[{"id":"msg_1"},{"id":"msg_2"}]`, own: []string{"", ""}},
		"both, with tools and a thought": {body: `"previous_response_id":"resp_1","input":[{"id":"msg_1"},` + thought + `,` + tools + `],"tools":[{"type":"file_search"}]`, before: []string{thought, call}, own: []string{said, thought, tools}},
		"what is stored only names":      {body: `"previous_response_id":"resp_1","input":"x"`, before: []string{image}},
		"what breaks a rule":             {body: `"previous_response_id":"resp_1","input":"x"`, before: []string{said, `{"type":"message","content":1}`}},
		"an include":                     {body: `"input":"x","reasoning":{"effort":"low"}`, include: []string{"reasoning.encrypted_content"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Parse([]byte(`{"model":"m",` + row.body + `}`))
			if err != nil {
				t.Fatal(err)
			}
			e := Expansion{Own: r.InputItems(), Include: row.include}
			for _, item := range row.before {
				e.Before = append(e.Before, []byte(item))
			}
			for i, item := range row.own {
				if e.Own[i] = []byte(item); item == "" {
					e.Own[i] = nil
				}
			}
			kept := slices.DeleteFunc(slices.Clone(e.Own), func(item []byte) bool { return item == nil })
			own, err := r.Expand(e)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(kept, own); diff != "" && len(kept)+len(own) > 0 {
				t.Errorf("its own items (-want +got):\n%s", diff)
			}
			want, err := Parse(r.Source())
			if err != nil {
				t.Fatal(err)
			}
			got, whole := noted(t, r), noted(t, want)
			if body := `"input":"x"`; strings.Contains(row.body, body) { // of the item that a word stands for only the word is counted
				got.Estimate = min(max(got.Estimate, whole.Estimate-12), whole.Estimate)
				whole.Estimate = got.Estimate
			}
			if diff := cmp.Diff(whole, got, cmp.AllowUnexported(Reference{})); diff != "" {
				t.Errorf("%s (-parsed +expanded):\n%s", r.Source(), diff)
			}
		})
	}
}

// facts is what the gateway asks a request for.
type facts struct {
	Refused                 string
	Bound, Linked, Estimate int64
	References, Named       []Reference
	Links                   []Reference
	Kinds, Omitted, Include []string
	Clients                 int
	Input, Previous         string
	Files                   bool // the place is that in the request of the caller
	Sent                    string
}

func noted(t *testing.T, r *Request) facts {
	t.Helper()
	var f facts
	if err := r.Validate(); err != nil {
		f.Refused, _, _ = strings.Cut(err.Error(), " must be ") // a field
		return f
	}
	var b chat.MediaBound
	_ = r.Unpriced(nil, refuses)
	f.Bound, f.Linked, f.Estimate = r.InputBound(b), r.LinkedBound(b), r.InputEstimate(b)
	f.References, f.Named, f.Links = slices.Clip(r.References), r.Named, r.Links
	f.Kinds, f.Clients, f.Files = r.hosted.kinds, r.hosted.clients, r.CheckFiles(nothing{}) != nil
	f.Omitted, f.Include, f.Input, f.Previous = r.Omitted(), r.Include, string(r.Input), r.PreviousResponseID
	if slices.Sort(f.Kinds); len(f.References) == 0 {
		f.References = nil
	}
	r.DropIDs = true
	sent, err := r.Limited(7).Body.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	f.Sent = string(sent)
	return f
}

// An expanded request has no more items than any other.
func TestAnExpandedRequestHasABoundedNumberOfItems(t *testing.T) {
	items := make([][]byte, 200_000)
	for i := range items {
		items[i] = []byte(`{"role":"user","content":"x"}`)
	}
	r, err := Parse([]byte(`{"model":"m","previous_response_id":"resp_1"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = r.Expand(Expansion{Before: items}); err == nil {
		err = r.Validate()
	}
	if err == nil || !strings.Contains(err.Error(), "more than") && !strings.Contains(err.Error(), "not acceptable") {
		t.Errorf("got %v", err)
	}
}
