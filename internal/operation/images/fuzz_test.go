package images

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
)

// FuzzParse feeds anything to the parser: it never panics, what it refuses is a
// 400, and what it accepts goes on as it came but for the owned edits.
func FuzzParse(f *testing.F) {
	for _, rows := range [][]row{alphaRows, openAIRows} {
		for _, c := range rows {
			f.Add([]byte(c.body))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		r, err := Parse(data)
		if err == nil {
			err = r.Check(&operation.Facts{}, nil, nil)
		}
		if err != nil {
			var e *fault.Error
			if !errors.As(err, &e) || e.HTTPStatus() != 400 || e.Message == "" {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		sent, err := r.Outgoing(0).Body.Bytes()
		if err != nil || !json.Valid(sent) {
			t.Fatalf("%q became %q, %v", data, sent, err)
		}
		if !r.known && !bytes.Equal(sent, before) || !bytes.Equal(data, before) {
			t.Fatalf("%q became %q", before, sent)
		}
		if r.Count() < 1 || r.Count() > maxUnknownImages || r.InputBound() < 0 || r.OutputBound(0) < 0 {
			t.Fatalf("%q: %d pictures of %d tokens", data, r.Count(), r.OutputBound(0))
		}
		// What was sent obeys the rules too, and says the same.
		again, err := Parse(sent)
		if err == nil {
			err = again.Check(&operation.Facts{}, nil, nil)
		}
		if err != nil || again.Count() != r.Count() || again.Model != r.Model {
			t.Fatalf("%q was sent, which is %v", sent, err)
		}
	})
}

// FuzzReadAnswer feeds anything to the reader of answers.
func FuzzReadAnswer(f *testing.F) {
	for _, e := range ownedEdits {
		f.Add([]byte(e.answer), true)
	}
	f.Add([]byte(`{`+two+`,"usage":{"input_tokens":3,"output_tokens":7,"input_tokens_details":{"image_tokens":9}}}`), true)
	requests := []*Request{parse(f, alpha(t2i, "", "")), parse(f, drawn("imagegen-1", `,"n":2`)), parse(f, `{"model":"pixels-9"}`)}
	f.Fuzz(func(t *testing.T, data []byte, tokens bool) {
		for _, r := range requests {
			a, err := r.ReadAnswer(data, options(t, tokens))
			if err != nil {
				if !fault.Is(err, fault.BadGateway) {
					t.Fatalf("%q: %v", data, err)
				}
				continue
			}
			u := a.Usage
			if !json.Valid(a.Body) || min(u.Input, u.CachedInput, u.ImageInput, u.Output, u.ImageOutput, u.Images) < 0 {
				t.Fatalf("%q became %q, usage %+v", data, a.Body, u)
			}
		}
	})
}
