package moderations_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	moderationsop "github.com/tollhouse-ai/gateway/internal/operation/moderations"
	"github.com/tollhouse-ai/gateway/moderations"
)

const (
	textPart  = `{"type":"text","text":"a"}`
	imagePart = `{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}`
)

// parsed reads a request that must be readable.
func parsed(t testing.TB, body string) *moderationsop.Request {
	t.Helper()
	r, err := moderationsop.Parse([]byte(body))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return r
}

// listOf is n texts.
func listOf(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(`"a",`, n), ",") + "]" }

func TestEveryFieldOfTheTableObeysItsRule(t *testing.T) {
	for _, row := range []struct {
		field     string // that the error names
		good, bad []string
	}{
		{
			"model",
			[]string{`"input":"a"`, `"input":"a","model":null`, `"input":"a","model":"m"`},
			[]string{`"input":"a","model":""`, `"input":"a","model":4`, `"input":"a","model":"` + strings.Repeat("m", 257) + `"`},
		},
		{
			"input",
			[]string{
				`"input":""`, `"input":[""]`, `"input":["a","b"]`, `"inp\u0075t":[ "a" ]`, `"input":` + listOf(1024), `"input":[` + textPart + `]`,
				`"input":[` + imagePart + `,` + textPart + `]`, `"input":[{"type":"text","text":"a","x":1}]`, `"input":[{"type":"image_url","image_url":{"url":"data:,","detail":"low"}}]`,
			},
			[]string{
				`"x":1`, `"input":null`, `"input":[]`, `"input":5`, `"input":{}`, `"input":["a",1]`, `"input":[null]`, `"input":[["a"]]`, `"input":` + listOf(1025),
				`"input":["a",` + textPart + `]`, `"input":[` + textPart + `,"a"]`, `"input":[{}]`, `"input":[{"type":"text"}]`, `"input":[{"type":"text","text":null}]`, `"input":[{"type":"text","text":1}]`,
				`"input":[{"type":"audio","audio":"a"}]`, `"input":[{"type":7}]`, `"input":[{"type":"text","type":"text","text":"a"}]`,
				`"input":[{"type":"image_url"}]`, `"input":[{"type":"image_url","image_url":"https://example.com"}]`, `"input":[{"type":"image_url","image_url":{}}]`, `"input":[{"type":"image_url","image_url":{"url":""}}]`,
			},
		},
	} {
		for _, members := range row.good {
			if err := parsed(t, `{`+members+`}`).Check(&operation.Facts{}, nil, nil); err != nil {
				t.Errorf("%s: %v", members, err)
			}
		}
		for _, members := range row.bad {
			err := parsed(t, `{`+members+`}`).Check(&operation.Facts{}, nil, nil)
			if f := fault.From(err); f == nil || f.HTTPStatus() != 400 || f.Code != fault.InvalidRequest || f.Param != row.field || f.Message == "" {
				t.Errorf("%s: got %v, want a 400 that names %s", members, err, row.field)
			}
		}
	}
}

func TestAnErrorNamesThePartThatBreaksARule(t *testing.T) {
	err := parsed(t, `{"input":[`+textPart+`,{"type":"image_url","image_url":{}},{"type":"video"}]}`).Check(&operation.Facts{}, nil, nil)
	if want := `"input[1].image_url" must be an object with a "url".`; err == nil || fault.From(err).Message != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestABodyIsOneStrictObject(t *testing.T) {
	for body, want := range map[string]string{
		`{"input":"a","input":"b"}`: "byte 13", `{"input":["a",]}`: "byte 13", ``: "byte 0", `{"Input":"a"}`: `"Input"`,
	} {
		_, err := moderationsop.Parse([]byte(body))
		if f := fault.From(err); f == nil || f.HTTPStatus() != 400 || !strings.Contains(f.Message, want) {
			t.Errorf("%s: got %v, want a 400 that names %s", body, err, want)
		}
	}
}

func TestAnUpstreamGetsTheBodyAndAModelInAnyCase(t *testing.T) {
	for body, want := range map[string]string{
		`{ "model":"m", "input":"a", "x":1.0 }`: `{ "model":"m", "input":"a", "x":1.0 }`,
		`{"input":"a"}`:                         `{"input":"a","model":"omni-moderation-latest"}`,
		`{"model":null,"input":"a"}`:            `{"model":"omni-moderation-latest","input":"a"}`,
	} {
		sent, err := parsed(t, body).Outgoing(0).Body.Bytes()
		if err != nil || string(sent) != want {
			t.Errorf("%s: got %s, %v, want %s", body, sent, err, want)
		}
	}
}

func TestATypedRequestIsTheOneOverTheWire(t *testing.T) {
	parts, err := moderations.Parts(moderations.Part{Type: "text", Text: "a"}, moderations.Part{Type: "image_url", ImageURL: &moderations.ImageURL{URL: "https://example.com/a.png"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		typed moderations.Request
		want  string
		items int
	}{
		{moderations.Request{Input: moderations.Text("a\"")}, `{"input":"a\"","model":"omni-moderation-latest"}`, 1},
		{moderations.Request{Model: "m", Input: moderations.Texts("a", "b"), Extra: []byte(`{"x":1}`)}, `{"model":"m","input":["a","b"],"x":1}`, 2},
		{moderations.Request{Model: "m", Input: parts}, `{"model":"m","input":[` + textPart + `,` + imagePart + `]}`, 2},
	} {
		r, err := moderationsop.Encode(&row.typed)
		if err == nil {
			err = r.Check(&operation.Facts{}, nil, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		view, ok := r.Outgoing(0).View.(*moderations.Request)
		sent, err := r.Outgoing(0).Body.Bytes()
		if err != nil || string(sent) != row.want || !ok || len(view.Items()) != row.items || view.Model == "" {
			t.Errorf("got %s, %+v, %v, want %s and %d items", sent, view, err, row.want, row.items)
		}
	}
}

// read reads an answer to a request.
func read(t testing.TB, body, answer string) (operation.Answer, error) {
	t.Helper()
	return parsed(t, body).ReadAnswer([]byte(answer), operation.AnswerOptions{NewID: func(prefix string) string { return prefix + "1" }})
}

func TestAnAnswerJudgesTheInput(t *testing.T) {
	const ask, two, parts = `{"model":"m","input":"a"}`, `{"model":"m","input":["a","b"]}`, `{"model":"m","input":[` + textPart + `,` + imagePart + `]}`
	for _, row := range []struct{ name, request, answer, want string }{
		{"as it came", ask, `{"id":"modr-1", "model":"vendor-m", "results":[{"flagged":true,"category_scores":{"hate":0.50}}],"x":1}`,
			`{"id":"modr-1", "model":"m", "results":[{"flagged":true,"category_scores":{"hate":0.50}}],"x":1}`},
		{"without an id", ask, `{"results":[{"flagged":false}]}`, `{"results":[{"flagged":false}],"model":"m","id":"modr_1"}`},
		{"by categories", ask, `{"id":"i","results":[{"categories":{"hate":false,"pii":true}}]}`, `{"id":"i","results":[{"categories":{"hate":false,"pii":true},"flagged":true}],"model":"m"}`},
		{"by none of them", ask, `{"id":"i","results":[{"categories":{"hate":false,"illicit":null}}]}`, `{"id":"i","results":[{"categories":{"hate":false,"illicit":null},"flagged":false}],"model":"m"}`},
		{"two texts", two, `{"id":"i","results":[{"flagged":false},{"flagged":true}]}`, `{"id":"i","results":[{"flagged":false},{"flagged":true}],"model":"m"}`},
		{"parts together", parts, `{"id":"i","results":[{"flagged":false}]}`, `{"id":"i","results":[{"flagged":false}],"model":"m"}`},
		{"parts one by one", parts, `{"id":"i","results":[{"flagged":false},{"flagged":true}]}`, `{"id":"i","results":[{"flagged":false},{"flagged":true}],"model":"m"}`},
		{"an error that is null", ask, `{"id":"i","error":null,"results":[{"flagged":false}]}`, `{"id":"i","results":[{"flagged":false}],"model":"m"}`},
	} {
		a, err := read(t, row.request, row.answer)
		if err != nil || string(a.Body) != row.want || a.Usage != (billing.Usage{Requests: 1}) {
			t.Errorf("%s: got %s, %+v, %v, want %s", row.name, a.Body, a.Usage, err, row.want)
		}
	}
	for name, answer := range map[string]string{
		"nothing": ``, "half": `{"results":[{"flagged":fal`, "no object": `[]`, "no results": `{"id":"i"}`, "results that are null": `{"results":null}`, "an empty list": `{"results":[]}`,
		"too many results": `{"results":[{"flagged":false},{"flagged":false}]}`, "a result that is no object": `{"results":[true]}`, "a text for flagged": `{"results":[{"flagged":"no"}]}`,
		"neither flagged nor categories": `{"results":[{"category_scores":{}}]}`, "a number for a category": `{"results":[{"categories":{"hate":1}}]}`,
		"an error": `{"error":{"message":"overloaded"}}`,
	} {
		if a, err := read(t, ask, answer); err == nil || fault.From(err).HTTPStatus() < 500 {
			t.Errorf("%s: got %s, %v, want a failure of the vendor", name, a.Body, err)
		}
	}
	if _, err := read(t, two, `{"results":[{"flagged":false}]}`); !fault.Is(err, fault.BadGateway) {
		t.Errorf("one result for two texts: got %v", err)
	}
}

// FuzzParse feeds anything to the parser: it never panics, what it refuses is a 400, and what it
// accepts goes on as it came but for a model that is missing.
func FuzzParse(f *testing.F) {
	for _, body := range []string{`{"input":"a"}`, `{"model":"m","input":["a"]}`, `{"input":[` + textPart + `,` + imagePart + `]}`, `{"input":[{}]}`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		r, err := moderationsop.Parse(data)
		if err == nil {
			err = r.Check(&operation.Facts{}, nil, nil)
		}
		if err != nil {
			if e := fault.From(err); e.HTTPStatus() != 400 || e.Message == "" {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		sent, err := r.Outgoing(0).Body.Bytes()
		if err != nil || !json.Valid(sent) || !bytes.Equal(data, before) {
			t.Fatalf("%q became %q, %v", before, sent, err)
		}
		again, err := moderationsop.Parse(sent)
		if err == nil {
			err = again.Check(&operation.Facts{}, nil, nil)
		}
		if err != nil || again.Model != r.Model || !bytes.Equal(again.Input, r.Input) {
			t.Fatalf("%q was sent, which is %v", sent, err)
		}
	})
}

// FuzzReadAnswer feeds anything to the reader of answers: what it accepts can be read by a
// client, and has a result for the text.
func FuzzReadAnswer(f *testing.F) {
	for _, answer := range []string{`{"id":"i","results":[{"flagged":true}]}`, `{"results":[{"categories":{"hate":true}}]}`, `{"error":{}}`} {
		f.Add([]byte(answer))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := read(t, `{"model":"m","input":"a"}`, string(data))
		if err != nil {
			return
		}
		var got struct {
			Model   string
			Results []struct{ Flagged *bool }
		}
		if err := json.Unmarshal(a.Body, &got); err != nil || got.Model != "m" || len(got.Results) != 1 || got.Results[0].Flagged == nil {
			t.Fatalf("%q became %q, %v", data, a.Body, err)
		}
	})
}
