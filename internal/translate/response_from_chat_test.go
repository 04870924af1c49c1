package translate

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/messages"
)

// thinker wants to see the reasoning.
func thinker() *messages.Request {
	return &messages.Request{Model: "public", Thinking: &messages.Thinking{Type: "adaptive"}}
}

func TestACompletionBecomesAMessage(t *testing.T) {
	got, err := fromChatAnswer(thinker(), []byte(`{"id":"chatcmpl-7","object":"chat.completion","created":1.5,"model":"theirs","choices":[{"index":0,
		"message":{"role":"assistant","reasoning_content":"hm","content":"Hi","refusal":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},
		"logprobs":null,"finish_reason":"tool_calls"}],
		"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":10},"completion_tokens_details":{"reasoning_tokens":5}}}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"id":"msg_7","type":"message","role":"assistant","model":"public","content":[` +
		`{"type":"thinking","thinking":"hm","signature":"gateway-reasoning"},{"type":"text","text":"Hi"},` +
		`{"type":"tool_use","id":"c1","name":"f","input":{"a": 1}}],"stop_reason":"tool_use","stop_sequence":null,` +
		`"usage":{"input_tokens":30,"cache_creation_input_tokens":10,"cache_read_input_tokens":60,"output_tokens":20,"output_tokens_details":{"thinking_tokens":5}}}`
	if compacted(string(got)) != compacted(want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	a, err := (&messagesapi.Request{Request: thinker()}).ReadAnswer(got, chat.MediaBound{})
	if err != nil || a.Usage.Input != 30 || a.Usage.CachedInput != 60 || a.Usage.CacheWrite != 10 || a.Usage.Output != 20 || a.Usage.Estimated {
		t.Errorf("the gateway reads %+v, %v", a.Usage, err)
	}
}

func compacted(s string) string { return strings.ReplaceAll(s, `": `, `":`) }

// answerRows are messages of choices[0] with its finish reason, and what they
// become.
var answerRows = []struct{ message, finish, content, reason string }{
	{`{"content":"a"}`, `"stop"`, "text(a)", "end_turn"},
	{`{"content":"a"}`, `null`, "text(a)", "end_turn"},
	{`{"content":"a"}`, `"length"`, "text(a)", "max_tokens"},
	{`{"content":"a"}`, `"content_filter"`, "text(a)", "refusal"},
	{`{"content":"a"}`, `"a word of their own"`, "text(a)", "end_turn"},
	{`{"content":"a"}`, `"tool_calls"`, "text(a)", "end_turn"},
	{`{"content":null,"refusal":"no"}`, `"stop"`, "text(no)", "refusal"},
	{`{"content":""}`, `"stop"`, "", "end_turn"},
	{`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, `"stop"`, "text(ab)", "end_turn"},
	{`{"content":"a","reasoning":"r"}`, `"stop"`, "thinking(r)text(a)", "end_turn"},
	{`{"content":"a","reasoning":"r","reasoning_content":"c"}`, `"stop"`, "thinking(c)text(a)", "end_turn"},
	{`{"tool_calls":[{"id":"1","function":{"name":"f","arguments":""}},{"id":"2","function":{"name":"g","arguments":" null "}}]}`, `"stop"`, "1:f({})2:g({})", "tool_use"},
	{`{"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"a\":"}}]}`, `"length"`, `1:f({"_raw":"{\"a\":"})`, "max_tokens"},
	{`{"tool_calls":[{"id":"1","function":{"name":"f","arguments":"[1]"}}]}`, `"tool_calls"`, `1:f({"_raw":"[1]"})`, "tool_use"},
	{`{"tool_calls":[{"function":{"name":"f","arguments":"{}"}},{"function":{"name":"f","arguments":"{}"}}]}`, `"tool_calls"`, `toolu_7_0:f({})toolu_7_1:f({})`, "tool_use"},
	{`{"content":null,"function_call":{"name":"f","arguments":"{\"a\":1}"}}`, `"function_call"`, `toolu_7_0:f({"a":1})`, "tool_use"},
}

func answered(t *testing.T, r *messages.Request, message, finish string) messages.Response {
	t.Helper()
	data, err := fromChatAnswer(r, []byte(`{"id":"chatcmpl-7","choices":[{"index":0,"message":`+message+`,"finish_reason":`+finish+`}]}`))
	if err != nil {
		t.Fatalf("%s: %v", message, err)
	}
	var m messages.Response
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestWhatTheModelSaidAndWhyItStopped(t *testing.T) {
	for _, row := range answerRows {
		m := answered(t, thinker(), row.message, row.finish)
		if got := blocksText(m.Content); got != row.content || *m.StopReason != row.reason {
			t.Errorf("%s, %s: %s, %s; want %s, %s", row.message, row.finish, got, *m.StopReason, row.content, row.reason)
		}
	}
}

func TestThinkingIsShownOnlyToWhoAsksForIt(t *testing.T) {
	for kind, want := range map[string]string{"": "text(a)", "disabled": "text(a)", "enabled": "thinking(r)text(a)", "adaptive": "thinking(r)text(a)"} {
		r := &messages.Request{Model: "public"}
		if kind != "" {
			r.Thinking = &messages.Thinking{Type: kind}
		}
		if got := blocksText(answered(t, r, `{"content":"a","reasoning_content":"r"}`, `"stop"`).Content); got != want {
			t.Errorf("%q: %s, want %s", kind, got, want)
		}
	}
}

func TestUsageThatWasNotReportedIsEstimatedByTheGateway(t *testing.T) {
	for usage, want := range map[string]string{
		``:              `"usage":{}`,
		`,"usage":null`: `"usage":{}`,
		`,"usage":{"prompt_tokens":-1,"completion_tokens":2.5}`:                                          `"usage":{}`,
		`,"usage":{"completion_tokens":4}`:                                                               `"usage":{"output_tokens":4}`,
		`,"usage":{"prompt_tokens":3}`:                                                                   `"usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0}`,
		`,"usage":{"prompt_tokens":3,"completion_tokens":0}`:                                             `"usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}`,
		`,"usage":{"prompt_tokens":3,"completion_tokens":4,"cached_tokens":2}`:                           `"usage":{"input_tokens":1,"cache_creation_input_tokens":0,"cache_read_input_tokens":2,"output_tokens":4}`,
		`,"usage":{"prompt_tokens":3,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":9}}`: `"usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":4}`,
	} {
		data, err := fromChatAnswer(thinker(), []byte(`{"id":"chatcmpl-7","choices":[{"message":{"content":"four words of text"}}]`+usage+`}`))
		if err != nil || !strings.HasSuffix(string(data), want+"}") {
			t.Errorf("%s: %s, %v; want %s", usage, data, err, want)
			continue
		}
		a, err := (&messagesapi.Request{Request: thinker()}).ReadAnswer(data, chat.MediaBound{})
		if known := strings.Contains(want, "input_tokens") && strings.Contains(want, "output_tokens"); err != nil || a.Usage.Estimated == known {
			t.Errorf("%s: the gateway reads %+v, %v", usage, a.Usage, err)
		}
	}
}

func TestTheMessagesIDComesFromTheCompletions(t *testing.T) {
	long := strings.Repeat("x", 65)
	for id, want := range map[string]string{
		`"chatcmpl-a_B-1"`: "msg_a_B-1", `"gen-1"`: "msg_gen-1",
		`""`: "", `null`: "", `7`: "", `"a b"`: "", `"chatcmpl-"`: "", `"` + long + `"`: "",
	} {
		data := []byte(`{"id":` + id + `,"choices":[{"message":{"content":"a"}}]}`)
		var m, again messages.Response
		for _, to := range []*messages.Response{&m, &again} {
			out, err := fromChatAnswer(thinker(), data)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(out, to); err != nil {
				t.Fatal(err)
			}
		}
		if want == "" && (len(m.ID) != len("msg_")+24 || m.ID != again.ID) || want != "" && m.ID != want {
			t.Errorf("%s: %s, then %s; want %q", id, m.ID, again.ID, want)
		}
	}
}

func TestAnAnswerThatIsNoCompletionIsTheUpstreamsFault(t *testing.T) {
	for _, data := range []string{
		``, `null`, `[]`, `{"choices":`, `{}`, `{"choices":null}`, `{"choices":[]}`, `{"choices":[{"index":1,"message":{"content":"a"}}]}`, `{"choices":"x"}`,
		`{"error":{"message":"secret words","code":"x"}}`, `{"choices":[{"message":{"content":"a"}}],"error":{"message":"secret words"}}`, `{"error":"secret words"}`,
		`{"choices":[{"message":{"tool_calls":[{"id":"1","function":{"arguments":"{}"}}]}}]}`,
		`{"choices":[{"message":{"content":"` + "\xff" + `"}}]}`,
	} {
		out, err := fromChatAnswer(thinker(), []byte(data))
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.BadGateway || len(out) > 0 || strings.Contains(err.Error(), "secret words") {
			t.Errorf("%s: %s, %v", data, out, err)
		}
	}
	if _, err := fromChatAnswer(thinker(), []byte(`{"choices":[{"message":{"content":"a"}}],"error":null}`)); err != nil {
		t.Error("a null is no error:", err)
	}
}
