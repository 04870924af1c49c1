package translate

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/upstream"
)

// customToolUse is a stream of messages with a call whose arguments come in pieces, and why
// it stops.
func customToolUse(name, reason string, pieces ...string) string {
	b := `data: {"type":"message_start","message":{"id":"msg_1","content":[],"usage":{"input_tokens":1}}}` + "\n\n" +
		`data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c1","name":"` + name + `","input":{}}}` + "\n\n"
	for _, p := range pieces {
		b += `data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":` + quoted(p) + `}}` + "\n\n"
	}
	return b + `data: {"type":"content_block_stop","index":0}` + "\n\n" +
		`data: {"type":"message_delta","delta":{"stop_reason":"` + reason + `"},"usage":{"output_tokens":2}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n"
}

// customResponse is a stream of a response with such a call, of a custom tool.
func customResponse(pieces ...string) string {
	item := `{"type":"custom_tool_call","call_id":"c1","name":"run","input":` + quoted(strings.Join(pieces, "")) + `}`
	b := `data: {"type":"response.created","response":{"id":"resp_1"}}` + "\n\n" +
		`data: {"type":"response.output_item.added","output_index":0,"item":{"type":"custom_tool_call","call_id":"c1","name":"run","input":""}}` + "\n\n"
	for _, p := range pieces {
		b += `data: {"type":"response.custom_tool_call_input.delta","output_index":0,"delta":` + quoted(p) + `}` + "\n\n"
	}
	return b + `data: {"type":"response.output_item.done","output_index":0,"item":` + item + `}` + "\n\n" +
		`data: {"type":"response.completed","response":{"id":"resp_1","status":"completed","output":[` + item + `],"usage":{"input_tokens":1,"output_tokens":2}}}` + "\n\n"
}

const customAsk = `{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"custom","custom":{"name":"run"}},{"type":"function","function":{"name":"f"}}]}`

// deltasOf are the tool calls of a stream of chat, each chunk's after that of the one before,
// and the reason of its end.
func deltasOf(t *testing.T, stream string) (deltas, reason string) {
	t.Helper()
	for e := range strings.SplitSeq(strings.TrimSuffix(stream, sse.Done), "\n\n") {
		choice := rawjson.Elements(rawjson.Lookup([]byte(strings.TrimPrefix(e, "data: ")), "choices"))
		if len(choice) == 0 {
			continue
		}
		if calls := rawjson.Lookup(choice[0], "delta", "tool_calls"); calls != nil {
			deltas += string(calls[1:len(calls)-1]) + " "
		}
		reason += rawjson.LookupString(choice[0], "finish_reason")
	}
	return strings.TrimSpace(deltas), reason
}

func TestACallOfACustomToolOfChat(t *testing.T) {
	head := func(input string) string {
		return `{"index":0,"id":"c1","type":"custom","custom":{"name":"run","input":"` + input + `"}}`
	}
	more := func(input string) string { return ` {"index":0,"custom":{"input":"` + input + `"}}` }
	for _, tt := range []struct {
		name    string
		spoken  upstream.Op
		stream  string
		deltas  string
		reason  string
		whole   string // an answer that says the same; empty for none
		asWhole string // its call
	}{
		{
			"a function that stands for it", upstream.Messages, customToolUse("run", "tool_use", `{"in`, `put": "say \"h`, `i\"`, `\n"}`),
			head("") + more(`say \"h`) + more(`i\"`) + more(`\n`), "tool_calls",
			`{"id":"msg_1","content":[{"type":"tool_use","id":"c1","name":"run","input":{"input": "say \"hi\"\n"}}],"stop_reason":"tool_use"}`,
			`{"id":"c1","type":"custom","custom":{"name":"run","input":"say \"hi\"\n"}}`,
		},
		{
			"arguments of another form", upstream.Messages, customToolUse("run", "tool_use", `{"code":`, `"x"}`),
			head("") + more(`{\"code\":\"x\"}`), "tool_calls",
			`{"id":"msg_1","content":[{"type":"tool_use","id":"c1","name":"run","input":{"code":"x"}}],"stop_reason":"tool_use"}`,
			`{"id":"c1","type":"custom","custom":{"name":"run","input":"{\"code\":\"x\"}"}}`,
		},
		{
			"an input that is cut", upstream.Messages, customToolUse("run", "max_tokens", `{"input":"rm -r /tm`), head("") + more(`rm -r /tm`), "length", "", "",
		},
		{
			"a function", upstream.Messages, customToolUse("f", "tool_use", `{"input":"x"}`),
			`{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}} {"index":0,"function":{"arguments":"{\"input\":\"x\"}"}}`, "tool_calls",
			`{"id":"msg_1","content":[{"type":"tool_use","id":"c1","name":"f","input":{"input":"x"}}],"stop_reason":"tool_use"}`,
			`{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"input\":\"x\"}"}}`,
		},
		{
			"a custom tool of a response", upstream.Responses, customResponse(`say "h`, `i"`, "\n"), head("") + more(`say \"h`) + more(`i\"`) + more(`\n`), "tool_calls",
			`{"id":"resp_1","status":"completed","output":[{"type":"custom_tool_call","call_id":"c1","name":"run","input":"say \"hi\"\n"}]}`,
			`{"id":"c1","type":"custom","custom":{"name":"run","input":"say \"hi\"\n"}}`,
		},
		{"one that comes whole", upstream.Responses, customResponse(), head(""), "tool_calls", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := &scripted{op: tt.spoken, stream: tt.stream, whole: tt.whole}
			reply, err := bridged(t, up, upstream.Call{Op: upstream.ChatCompletion, Stream: true}, customAsk)
			if err != nil {
				t.Fatal(err)
			}
			out, err := io.ReadAll(reply.Body)
			if deltas, reason := deltasOf(t, string(out)); err != nil || deltas != tt.deltas || reason != tt.reason {
				t.Errorf("%s, %s, error %v\nwant %s, %s", deltas, reason, err, tt.deltas, tt.reason)
			}
			if tt.whole == "" {
				return
			}
			if reply, err = bridged(t, up, upstream.Call{Op: upstream.ChatCompletion}, customAsk); err != nil {
				t.Fatal(err)
			}
			var c chat.Response
			if err := json.UnmarshalRead(reply.Body, &c); err != nil || len(c.Choices) != 1 || len(c.Choices[0].Message.ToolCalls) != 1 {
				t.Fatalf("%+v, %v", c, err)
			}
			if got, err := json.Marshal(c.Choices[0].Message.ToolCalls[0]); err != nil || string(got) != tt.asWhole {
				t.Errorf("whole: %s, %v", got, err)
			}
			if len(reply.Dropped) > 0 {
				t.Errorf("dropped %q", reply.Dropped)
			}
		})
	}
}

// TestCallsOfBothTypesInTurn has two calls whose pieces are interleaved, and a conversation
// that goes on after them.
func TestCallsOfBothTypesInTurn(t *testing.T) {
	w := &chunkWriter{names: customNames(&chat.Request{Tools: []byte(`[{"type":"custom","custom":{"name":"a"}},{"type":"custom","custom":{"name":"b"}}]`)}), head: []byte("data: {\"choices\":[")}
	for _, p := range []piece{
		{kind: call, index: 0, id: "c1", name: "a", text: []byte(`""`)}, {kind: call, index: 1, id: "c2", name: "b", text: []byte(`"{\"input\":\"x"`)},
		{kind: call, index: 0, text: []byte(`"{\"input\":\"y\"}"`)}, {kind: call, index: 1, text: []byte(`"z\"}"`)}, {kind: finished, reason: "tool_calls"},
	} {
		w.write(p)
	}
	deltas, reason := deltasOf(t, string(w.out))
	want := `{"index":0,"id":"c1","type":"custom","custom":{"name":"a","input":""}} {"index":1,"id":"c2","type":"custom","custom":{"name":"b","input":"x"}} {"index":0,"custom":{"input":"y"}} {"index":1,"custom":{"input":"z"}}`
	if fmt.Sprint(deltas, reason) != want+"tool_calls" {
		t.Errorf("%s %s", deltas, reason)
	}
}
