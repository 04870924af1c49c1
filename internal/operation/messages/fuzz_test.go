package messages

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/messages"
)

// FuzzParse feeds anything to the parser: it never panics, and what it accepts
// goes on as it came and can be decoded.
func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	for _, row := range topRules {
		f.Add([]byte(asks(row.members)))
	}
	for _, row := range blockRules {
		f.Add([]byte(`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":` + row.members + `}]}`))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := string(data)
		r, err := Parse(data)
		if err != nil {
			capabilitytest.Malformed(t, data, err)
			return
		}
		sent, err := r.Outgoing(0).Body.Bytes()
		if err != nil || string(sent) != before || string(data) != before {
			t.Fatalf("%q became %q, %v", before, sent, err)
		}
		if !capabilitytest.Valid(t, &r.Parsed, r.Validate()) {
			return
		}
		if r.Model == "" || len(r.Messages) == 0 || r.MaxTokens < 1 {
			t.Errorf("%+v is valid", r)
		}
		for _, m := range r.Messages {
			if _, err := m.Content.Blocks(); err != nil {
				t.Errorf("%s is valid: %v", m.Content, err)
			}
		}
	})
}

// FuzzEncode: a typed request is read as its bytes are.
func FuzzEncode(f *testing.F) {
	f.Add([]byte(full))
	for _, members := range []string{
		`"messages":[{"role":"bot","content":"a"}]`, `"messages":[{"role":"user"}]`, `"messages":[{"role":"user","content":[ ]}]`, `"messages":[{"role":"user","content":7}]`,
		`"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://a/b"}},{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"a"}]}]}]`,
		`"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]`, `"system":[{"type":"x"}]`, `"stream":true`, `"top_k":-1`, `"tools":null`, `"tools":[{"name":"f"}]`,
		`"tool_choice":{"type":"no"}`, `"tool_choice":{"type":"any","disable_parallel_tool_use":true}`, `"thinking":{"type":"enabled","budget_tokens":1}`, `"thinking":{"type":"enabled","budget_tokens":2000}`,
		`"output_config":{"effort":"high","format":{"type":"json_schema","schema": {"a" : 1}}}`, `"metadata":{"user_id":"u"}`, `"service_tier":"auto","stop_sequences":["a"],"temperature":3`,
	} {
		f.Add([]byte(`{"model":"m","max_tokens":9,` + members + `}`))
		f.Add([]byte(`{"model":"m","max_tokens":4096,"messages":[{"role":"user","content":"Hi"}],` + members + `}`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		typed := &messages.Request{}
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
	unpriced := r.Unpriced(nil, func(string, string) bool { return false })
	return append(capabilitytest.Known(t, r.Request, r.Outgoing(5).Body, &r.Parsed, &r.Summary().Parsed), fmt.Sprint(r.Validate()), fmt.Sprint(unpriced))
}

// FuzzTap feeds anything to a tap: it never panics, every event is one event of
// valid JSON or an error, usage is never negative, and what is cut short ends.
func FuzzTap(f *testing.F) {
	for _, e := range append(wholeStream(), unknowing) {
		f.Add(e.name, []byte(e.data), []byte(writes("a").data))
		f.Add("", []byte(e.data), []byte(stops.data))
	}
	f.Add("error", []byte(`{"type":"error","error":{"type":"overloaded_error","message":"a"}}`), []byte("[DONE]"))
	f.Fuzz(func(t *testing.T, name string, first, second []byte) {
		tap := tapped(t)
		var out []byte
		events := 0
		for i, data := range [][]byte{[]byte(starts.data), first, second} {
			if i != 1 {
				name = ""
			}
			before := len(out)
			next, done, err := tap.Event(out, name, data)
			if err != nil {
				if len(next) != before || fault.From(err).Code == fault.InternalError {
					t.Fatalf("%q: %q, %v", data, next[before:], err)
				}
				continue
			}
			if out = next; !done {
				events++
			}
		}
		capabilitytest.NotNegative(t, tap.Usage())
		if n := countEvents(t, out); n > events {
			t.Errorf("%d events became %d: %q", events, n, out)
		}
		if cut := tap.CutShort(nil); countEvents(t, cut) > 3 || len(tap.open) > 0 || !tap.stopped {
			t.Errorf("%q", cut)
		}
	})
}

// FuzzRepeat compares a tap that remembers the last event with one that forgets it.
func FuzzRepeat(f *testing.F) {
	capabilitytest.AddForms(f, "content_block_delta",
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%"}}%`,
		`{"type":"content_block_delta","index":%,"delta":{"type":"input_json_delta","partial_json":"%"}}`,
		`{"delta":{"text":"%","thinking":"%"},"type":"content_block_delta"}`, `{"delta":{"text":"%"},"obfuscation":"%","type":"content_block_delta"}`,
	)
	f.Fuzz(func(t *testing.T, name, head, middle, tail, a, b, c, d string) {
		remembers, forgetful := tapped(t), tapped(t)
		first, second := head+a+middle+b+tail, head+c+middle+d+tail
		capabilitytest.RepeatsAsParsed(t, remembers, forgetful, func() { forgetful.Template.Forget() },
			[2]string{"", starts.data}, [2]string{name, first}, [2]string{name, first}, [2]string{name, second}, [2]string{name, first})
	})
}

// countEvents counts events and checks that each is JSON.
func countEvents(t *testing.T, out []byte) (n int) {
	events := sse.NewReader(bytes.NewReader(out), 0)
	defer events.Release()
	for ; ; n++ {
		e, err := events.Next()
		if err != nil {
			return n
		}
		if !jsontext.Value(e.Data).IsValid(jsontext.AllowDuplicateNames(true)) {
			t.Errorf("not JSON: %q", e.Data)
		}
	}
}
