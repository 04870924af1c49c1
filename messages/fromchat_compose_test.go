package messages

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/chat"
)

// thereAndBack translates a chat request into Messages and again into chat.
func thereAndBack(t interface{ Fatal(...any) }, c *chat.Request) (*Request, *chat.Request) {
	r, dropped, err := fromChat(c, 4096)
	if err != nil || len(dropped) > 0 {
		t.Fatal(err, dropped)
	}
	if r, err = Encode(r); err != nil {
		t.Fatal(err)
	}
	typed, dropped, err := toChat(r)
	if err != nil || len(dropped) > 0 {
		t.Fatal(err, dropped)
	}
	back, err := chat.Encode(typed)
	if err == nil {
		err = back.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	return r, back
}

// bySpeaker is what each role says, whatever its messages' bounds.
func bySpeaker(messages []chat.Message) map[string]string {
	said := make(map[string]string)
	for _, m := range messages {
		role := m.Role
		if role == "developer" {
			role = "system"
		}
		parts, _ := m.Content.Parts()
		for _, p := range parts {
			if !blank(p.Text) {
				said[role] += p.Text
			}
		}
		if role == "tool" {
			said[role] += "|"
		}
		for _, c := range m.ToolCalls {
			said["calls"] += c.Function.Name + c.Function.Arguments + "|"
		}
	}
	return said
}

func TestAConversationSurvivesBothTranslations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := drawnChat(t)
		_, back := thereAndBack(t, &chat.Request{Model: "m", Messages: list})
		if diff := cmp.Diff(bySpeaker(list), bySpeaker(back.Messages)); diff != "" {
			t.Errorf("(-sent +back)\n%s", diff)
		}
		answered := make(map[string]bool)
		for _, m := range back.Messages {
			for _, c := range m.ToolCalls {
				answered[c.ID] = false
			}
			if m.Role == "tool" {
				answered[m.ToolCallID] = true
			}
		}
		for id, ok := range answered {
			if !ok {
				t.Errorf("call %s lost its result", id)
			}
		}
	})
}

func TestARequestSurvivesBothTranslations(t *testing.T) {
	const body = `{"model":"m","messages":[{"role":"system","content":"be brief"},` +
		`{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0="}},{"type":"image_url","image_url":{"url":"https://a.example/b.png"}},{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0="}}]},` +
		`{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1.0}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]},` +
		`{"role":"tool","tool_call_id":"c1","content":"one"},{"role":"tool","tool_call_id":"c2","content":"two"}],` +
		`"temperature":0.5,"top_p":0.9,"max_tokens":50,"stream":true,"stop":["END"],"reasoning_effort":"high",` +
		`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"number"}}}}}],` +
		`"tool_choice":"required","parallel_tool_calls":false,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}},"user":"u1"}`
	c, err := chat.Parse([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	_, back := thereAndBack(t, c)
	if diff := cmp.Diff(withoutSpelling(t, c), withoutSpelling(t, back)); diff != "" {
		t.Errorf("(-sent +back)\n%s", diff)
	}
}

// withoutSpelling is a request without what the two ways spell differently.
func withoutSpelling(t *testing.T, c *chat.Request) map[string]any {
	t.Helper()
	members := make(map[string]any)
	if err := json.Unmarshal(c.Source(), &members); err != nil {
		t.Fatal(err)
	}
	delete(members, "stream_options")
	if most, ok := members["max_completion_tokens"]; ok {
		members["max_tokens"] = most
		delete(members, "max_completion_tokens")
	}
	if format, ok := members["response_format"].(map[string]any); ok { // its name has no counterpart
		schema, _ := format["json_schema"].(map[string]any)
		members["response_format"] = schema["schema"]
	}
	list, _ := members["messages"].([]any)
	for _, m := range list {
		if m := m.(map[string]any); m["content"] == nil || m["content"] == "" {
			delete(m, "content")
		}
	}
	return members
}

// thinkingRequest is a request for a message that shows thoughts.
func thinkingRequest(t *testing.T) *Request {
	t.Helper()
	r, err := Parse([]byte(`{"model":"m","max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":1024},"messages":[` + hi + `],"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestACompletionSurvivesBothTranslations(t *testing.T) {
	const calls = `,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1.0}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]`
	for name, choice := range map[string]string{
		"text":    `"message":{"role":"assistant","content":"Héllo"},"finish_reason":"stop"`,
		"length":  `"message":{"role":"assistant","content":"Hé"},"finish_reason":"length"`,
		"refusal": `"message":{"role":"assistant","content":"no"},"finish_reason":"content_filter"`,
		"calls":   `"message":{"role":"assistant","content":null` + calls + `},"finish_reason":"tool_calls"`,
		"all":     `"message":{"role":"assistant","reasoning_content":"hm","content":"see"` + calls + `,"reasoning_signature":"t2.17.gateway-reasoning"},"finish_reason":"tool_calls"`,
	} {
		want := chatFrame + choice + `}],` + chatUsage + `}`
		message, err := fromChatAnswer(thinkingRequest(t), []byte(want))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := toChatAnswer(plainChat(t), message, 77)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s (-sent +back)\n%s", name, diff)
		}
	}
}

func TestAStreamSurvivesBothTranslations(t *testing.T) {
	for name, src := range map[string]io.Reader{
		"at once":      strings.NewReader(richChunks()),
		"byte by byte": iotest.OneByteReader(strings.NewReader(richChunks())),
	} {
		message := fromChatStream(thinkingRequest(t), io.NopCloser(src))
		got, err := io.ReadAll(toChatStream(plainChat(t), message, 77))
		if err != nil {
			t.Fatalf("%s: %v after %q", name, err, got)
		}
		sent, back := accumulatedChat(t, richChunks()), accumulatedChat(t, string(got))
		if back.ReasoningContent != sent.ReasoningContent || back.Content.String() != sent.Content.String() {
			t.Errorf("%s: %+v, want %+v", name, back, sent)
		}
		if diff := cmp.Diff(sent.ToolCalls, back.ToolCalls); diff != "" {
			t.Errorf("%s (-sent +back)\n%s", name, diff)
		}
		for _, end := range []string{`"finish_reason":"tool_calls"`, chatUsage, chat.Terminator} {
			if !strings.Contains(string(got), end) {
				t.Errorf("%s: %s is missing in %s", name, end, got)
			}
		}
	}
}

func TestACutStreamIsAnErrorThroughBothTranslations(t *testing.T) {
	whole := richChunks()
	for n := 0; n < strings.Index(whole, `"finish_reason":"tool_calls"`); n += 7 {
		message := fromChatStream(thinkingRequest(t), io.NopCloser(strings.NewReader(whole[:n])))
		if got, err := io.ReadAll(toChatStream(plainChat(t), message, 77)); err == nil {
			t.Fatalf("cut at %d: %q", n, got)
		}
	}
}
