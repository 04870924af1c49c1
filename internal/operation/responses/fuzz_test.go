package responses

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/responses"
)

// bodies are requests that a fuzzer starts with.
var bodies = []string{
	with(`"instructions":"y","tools":[{"type":"namespace","name":"n","tools":[{"type":"web_search"},{"type":"custom","name":"c"}]}],"tool_choice":{"type":"allowed_tools","tools":[{"type":"custom","name":"c"}]}`),
	with(`"text":{"format":{"type":"json_schema","name":"n","schema":{"type":"object"}}},"metadata":{"a":"b"},"service_tier":"flex","store":true`),
	with(`"reasoning":{"effort":"low"},"include":["a"],"max_output_tokens":9,"stream":true,"background":true,"temperature":3`),
	of(`{"type":"additional_tools","tools":[{"type":"web_search"}]},{"role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]}`),
	of(`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":[{"type":"input_file","file_id":"f"}]},{"id":"x"}`),
	of(` {"type":"odd","output" : {"image_url":"https://a/b"} } `), `{"model":"m","input": [ ] }`, `{"model":"m","previous_response_id":"r"}`,
}

// FuzzParse feeds anything to the parser: it never panics, and what it accepts goes on
// as it came but for what is left out, and can be decoded.
func FuzzParse(f *testing.F) {
	for _, body := range bodies {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := string(data)
		r, err := Parse(data)
		if err != nil {
			capabilitytest.Malformed(t, data, err)
			return
		}
		r.VendorState = true
		sent, err := r.Outgoing(0).Body.Bytes()
		if err != nil || string(sent) != before || string(data) != before {
			t.Fatalf("%q became %q, %v", before, sent, err)
		}
		if !capabilitytest.Valid(t, &r.Parsed, r.Validate()) {
			return
		}
		if items, err := r.Input.Items(); err != nil || len(items) == 0 && r.PreviousResponseID == "" {
			t.Errorf("%s is valid: %v", r.Input, err)
		}
		if r.Unpriced(nil, refuses) != nil {
			return
		}
		if sent, err = r.Outgoing(0).Body.Bytes(); err != nil {
			t.Fatal(err)
		}
		again, err := Parse(sent)
		if err != nil || len(again.hosted.kinds) > 0 || again.hosted.clients != r.hosted.clients || again.Unpriced(nil, nil) != nil {
			t.Errorf("%s became %s: %v", before, sent, err)
		}
	})
}

// FuzzEncode: a typed request is read as its bytes are.
func FuzzEncode(f *testing.F) {
	for _, body := range bodies {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		typed := &responses.Request{}
		if json.Unmarshal(body, typed) != nil {
			return
		}
		capabilitytest.EncodesAsParsed(t, typed, Parse, Encode, known)
		capabilitytest.EncodesAsParsed(t, typed, ParseCount, EncodeCount, known)
	})
}

// known is all that is known of a request.
func known(t *testing.T, r *Request) []any {
	t.Helper()
	unpriced := r.Unpriced(nil, refuses)
	return append(capabilitytest.Known(t, r.Limited(5), r.Outgoing(5).Body, &r.Parsed, &r.Summary().Parsed), fmt.Sprint(r.Validate()), fmt.Sprint(unpriced), r.Omitted())
}

// FuzzTap feeds anything to a tap. It never panics, and usage is never negative. Every event
// that it gives is an error, or one event of valid JSON with the next number. The stream can
// be ended after it.
func FuzzTap(f *testing.F) {
	for _, e := range wholeStream(f) {
		f.Add(e.name, []byte(e.data), []byte(writes(0, "a").data), uint8(0))
	}
	f.Add("error", []byte(`{"type":"error","error":{"type":"x","message":"a"}}`), []byte("[DONE]"), uint8(1))
	f.Add("", []byte(writes(0, "a").data), []byte(strings.Replace(writes(0, "b").data, ":2", ":3", 1)), uint8(3))
	f.Fuzz(func(t *testing.T, name string, first, second []byte, beats uint8) {
		tap := tapped(t)
		var out []byte
		var done bool
		for i, data := range [][]byte{[]byte(begins), first, second, second} {
			if done {
				break
			}
			if beats>>i&1 != 0 {
				out = tap.Heartbeat(tap.Heartbeat(out))
			}
			if i != 1 {
				name = ""
			}
			before := len(out)
			var next []byte
			var err error
			next, done, err = tap.Event(out, name, data)
			switch {
			case err != nil && (len(next) != before || fault.From(err).Code == fault.InternalError):
				t.Fatalf("%q: %q, %v", data, next[before:], err)
			case err != nil:
				continue
			}
			if out = next; done {
				checkNumbers(t, string(out)+tap.Terminator())
			}
		}
		capabilitytest.NotNegative(t, tap.Usage())
		checkNumbers(t, string(out)+string(tap.AppendError(nil, fault.New(fault.BadGateway, name))))
	})
}

// FuzzRepeat compares a tap that remembers the last event with one that forgets it.
func FuzzRepeat(f *testing.F) {
	capabilitytest.AddForms(f, "response.output_text.delta",
		`{"type":"response.output_text.delta","item_id":"m","output_index":0,"content_index":0,"delta":"%","logprobs":[],"sequence_number":7,"obfuscation":"%"}`,
		`{"type":"response.output_text.delta","sequence_number":%,"item_id":"m","output_index":0,"delta":"%"}`,
		`{"delta":"%","obfuscation":"%","sequence_number":1,"type":"response.reasoning_text.delta"}`,
		`{"type":"response.x","sequence_number":1,"output_index":1,"item":{"content":[{"text":"%"}],"encrypted_content":"%"}}`,
		`{"type":"response.x","sequence_number":1,"response":{"output":[{"content":[{"text":"%"}],"encrypted_content":"%"}]}}`,
		`{"type":"response.x","sequence_number":%,"delta":"%","delta":"two"}`, `{"type":"response.x","sequence_number":3,"sequence_number":%,"delta":"%"}`,
	)
	f.Fuzz(func(t *testing.T, name, head, middle, tail, a, b, c, d string) {
		remembers, forgetful := tapped(t), tapped(t)
		first, second := head+a+middle+b+tail, head+c+middle+d+tail
		capabilitytest.RepeatsAsParsed(t, remembers, forgetful, func() { forgetful.Template.Forget() },
			[2]string{"", begins}, [2]string{name, first}, [2]string{name, first}, [2]string{name, second}, [2]string{name, first}, [2]string{"", itemWhole})
	})
}

// checkNumbers checks that the events of a stream are JSON objects and count from 0.
func checkNumbers(t *testing.T, out string) {
	t.Helper()
	n := int64(0)
	for _, e := range eventsOf(t, []byte(out)) {
		if e.data == "[DONE]" {
			continue
		}
		var numbered struct {
			Number int64          `json:"sequence_number"`
			Rest   jsontext.Value `json:",embed"`
		}
		if err := json.Unmarshal([]byte(e.data), &numbered, jsontext.AllowDuplicateNames(true)); err != nil || numbered.Number != n {
			t.Fatalf("event %d is %q: %v", n, e.data, err)
		}
		n++
	}
}
