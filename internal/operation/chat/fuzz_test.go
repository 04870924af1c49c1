package chat

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/internal/sse"
)

// FuzzParse feeds anything to the parser: it never panics, and what it accepts
// goes on as it came, but for the edits that the gateway owns.
func FuzzParse(f *testing.F) {
	for _, rows := range [][]row{common, deltaOnly} {
		for _, row := range rows {
			f.Add([]byte(ask("delta-k3", row.members)))
		}
	}
	f.Add([]byte(`{"stream": true, "stream_options": {"include_usage": false, "x": 1.0},"a":[1.0,-0,1e400],"étrange\n":12345678901234567890,"max_completion_tokens":9}`))
	for _, row := range turns {
		f.Add([]byte(`{"model":"m","messages":[` + row.members + `]}`))
	}
	for _, row := range blocks {
		f.Add([]byte(`{"model":"m","messages":[{"role":"user","content":[` + row.members + `]}]}`))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := string(data)
		r, err := Parse(data)
		if err != nil {
			capabilitytest.Malformed(t, data, err)
			return
		}
		for _, most := range []int64{0, 7} {
			owned := map[string]bool{"stream_options": r.Stream, "max_tokens": most > 0, "max_completion_tokens": most > 0}
			sent, err := r.Outgoing(most).Body.Bytes()
			if err != nil || !jsontext.Value(sent).IsValid(jsontext.AllowDuplicateNames(true)) {
				t.Fatalf("%q became %q, %v", data, sent, err)
			}
			if diff := cmp.Diff(members(t, data, owned), members(t, sent, owned)); diff != "" {
				t.Errorf("%s became %s:\n%s", data, sent, diff)
			}
			if most == 0 && !r.Stream && string(sent) != before || string(data) != before {
				t.Fatalf("%q became %q, and its source %q", before, sent, data)
			}
		}
		check(t, r)
	})
}

// check holds for every request that was parsed.
func check(t *testing.T, r *Request) {
	if !capabilitytest.Valid(t, &r.Parsed, r.Validate()) {
		return
	}
	if r.Model == "" || len(r.Messages) == 0 || r.OutputBound() < 0 || r.Candidates() < 1 {
		t.Errorf("%+v is valid", r)
	}
	for _, m := range r.Messages {
		if _, err := m.Content.Parts(); err != nil {
			t.Errorf("%s is valid: %v", m.Content, err)
		}
	}
}

// FuzzEncode: a typed request is read as its bytes are.
func FuzzEncode(f *testing.F) {
	f.Add([]byte(everythingJSON))
	for _, members := range []string{
		`"messages":[{"role":"bot","content":"a"}]`, `"messages":[{"role":"user"}]`, `"messages":[{"role":"user","content":[ ]}]`, `"messages":[{"role":"user","content":7}]`,
		`"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://a/b"}},{"type":"file","file":{"file_id":"f"}}]}]`,
		`"messages":[{"role":"user","content":"a","tool_call_id":"c"}]`, `"messages":[{"role":"system","tools":[{"type":"x"}]}]`,
		`"messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"\u00e9"}]`,
		`"n":500`, `"stop":["a","b","c","d","e"]`, `"temperature":-0.0`, `"tools":null`, `"tools":[{"type":"web"}]`, `"tool_choice": {"a" : 1}`, `"stream":true,"stream_options":{"include_usage":true}`,
		`"response_format":{"type":"json_schema","json_schema":{"schema":{"type":"no"}}}`, `"max_tokens":1,"max_completion_tokens":2`, `"reasoning_effort":"max","user":"u"`,
	} {
		f.Add([]byte(`{"model":"m",` + members + `}`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		typed := &chat.Request{}
		if json.Unmarshal(body, typed) != nil {
			return
		}
		for _, m := range typed.Messages {
			for i := range m.ToolCalls {
				m.ToolCalls[i].Index = nil // is for chunks and not read
			}
		}
		capabilitytest.EncodesAsParsed(t, typed, Parse, Encode, known)
	})
}

// known is all that is known of a request.
func known(t *testing.T, r *Request) []any {
	t.Helper()
	unpriced := r.Unpriced(nil, func(string, string) bool { return false })
	return append(capabilitytest.Known(t, r.Request, r.Outgoing(5).Body, &r.Parsed, &r.Summary().Parsed), fmt.Sprint(r.Validate()), fmt.Sprint(unpriced))
}

// FuzzTap feeds anything to a tap: it never panics, what it lets out is one
// event of valid JSON, and usage is never negative.
func FuzzTap(f *testing.F) {
	for _, e := range []string{opens, says("a"), ends, reports, "[DONE]", `{"error":null,"id":null,"choices":[7]}`} {
		f.Add("", []byte(e), true)
		f.Add("error", []byte(e), false)
	}
	f.Fuzz(func(t *testing.T, name string, data []byte, wanted bool) {
		options := never
		if wanted {
			options = asks
		}
		tap := tapOf(t, options)
		out, done, err := tap.Event(nil, name, data)
		if err != nil {
			if fault.From(err).HTTPStatus() < 400 || len(out) > 0 {
				t.Fatalf("%q: %q, %v", data, out, err)
			}
			return
		}
		capabilitytest.NotNegative(t, tap.Usage())
		out = tap.CutShort(tap.Heartbeat(out))
		events := sse.NewReader(bytes.NewReader(out), 0)
		defer events.Release()
		for n := 0; ; n++ {
			e, err := events.Next()
			if err != nil {
				if n < 2 {
					t.Errorf("%q: done %t, %d events in %q", data, done, n, out)
				}
				return
			}
			if !jsontext.Value(e.Data).IsValid(jsontext.AllowDuplicateNames(true)) {
				t.Errorf("%q became %q", data, e.Data)
			}
		}
	})
}

// FuzzRepeat compares a tap that remembers the last event with one that forgets it: with the
// usage asked for and not, and with a heartbeat before the first event and between two.
func FuzzRepeat(f *testing.F) {
	capabilitytest.AddForms(f, "",
		`{"id":"c1","model":"theirs","choices":[{"index":0,"delta":{"content":"%"},"finish_reason":null}],"obfuscation":"%"}`,
		`{"choices":[{"index":0,"delta":{"content":"%","refusal":"%"}}],"usage":null,"model":"theirs","id":"c1"}`,
		`{"choices":[{"index":0,"delta":{"content":"%"}}],"error":null,"model":"%"}`, `{"obfuscation":"%","choices":[{"index":0,"delta":{"content":"%"}}],"model":"theirs"}`,
		`{"model":"a","choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":"%"}}]}}],"sequence_number":%}`,
		`{"id":"c1","choices":[{"index":0,"delta":{"reasoning_content":"%","content":"both"}}],"model":"%"}`,
		`{"id":"c1","choices":[{"index":0,"delta":{"content":"%"},"finish_reason":"stop"}],"obfuscation":"%","x_groq":{"usage":{"prompt_tokens":5,"completion_tokens":1}}}`,
		`{"id":"c1","choices":[{"index":0,"delta":{"content":"%"},"usage":{"prompt_tokens":3,"completion_tokens":2}}],"obfuscation":"%"}`,
		`{"id":"c1","choices":[{"index":0,"delta":{"content":"%"}}],"obfuscation":"%","usage":{"prompt_tokens":5,"completion_tokens":1}}`,
		`{"id":"%","choices":[{"index":0,"delta":{"content":"%"}}]}`, `{"id":null,"choices":[{"index":0,"delta":{"content":"%"}}],"obfuscation":"%"}`,
		`{"note":"%","id":"c1","choices":[{"index":0,"delta":{"content":"mm"}}],"obfuscation":"%"}`,
	)
	f.Fuzz(func(t *testing.T, name, head, middle, tail, a, b, c, d string) {
		first, second := head+a+middle+b+tail, head+c+middle+d+tail
		for _, members := range []string{never, asks} {
			for _, beat := range []int{0, 2, 9} { // before which event there is a heartbeat
				remembers, forgetful, event := tapOf(t, members), tapOf(t, members), 0
				before := func() {
					if event == beat {
						remembers.Heartbeat(nil)
						forgetful.Heartbeat(nil)
					}
					event++
					forgetful.Template.Forget()
				}
				capabilitytest.RepeatsAsParsed(t, remembers, forgetful, before,
					[2]string{name, first}, [2]string{name, first}, [2]string{name, second}, [2]string{name, first}, [2]string{"error", first})
			}
		}
	})
}

// BenchmarkParse reads a small request, and a long conversation with tools.
func BenchmarkParse(b *testing.B) {
	var long strings.Builder
	long.WriteString(`{"model":"gpt-5","stream":true,"stream_options":{"include_usage":true},"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}],"messages":[{"role":"system","content":"You are helpful."}`)
	for i := range 40 {
		fmt.Fprintf(&long, `,{"role":"user","content":[{"type":"text","text":"%s"}]}`, strings.Repeat("The quick brown fox. ", 50))
		fmt.Fprintf(&long, `,{"role":"assistant","content":null,"tool_calls":[{"id":"c%d","type":"function","function":{"name":"f","arguments":"{\"a\":\"b\"}"}}]}`, i)
	}
	long.WriteString(`]}`)
	for _, c := range []struct{ name, body string }{
		{"small", `{"model":"gpt-5","temperature":0.7,"stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"system","content":"You are helpful."},{"role":"user","content":"Say hi."}],"max_tokens":1024,"user":"customer-17"}`},
		{"conversation", long.String()},
	} {
		b.Run(c.name, func(b *testing.B) {
			data := []byte(c.body)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Parse(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
