package translate

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/chatapi"
)

// plainChat is a chat request for "m".
func plainChat(t testing.TB) *chat.Request {
	t.Helper()
	c, err := chatapi.Parse([]byte(`{"model":"m","messages":[` + hi + `],"stream_options":{"include_usage":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	return c.Request
}

// vendorAnswer is a message with these members besides its frame.
func vendorAnswer(members string) string {
	return `{"id":"msg_01","type":"message","role":"assistant","model":"vendor-large",` + members + `}`
}

const (
	vendorUsage = `"usage":{"input_tokens":10,"cache_creation_input_tokens":4,"cache_read_input_tokens":6,"output_tokens":5,"output_tokens_details":{"thinking_tokens":2}}`
	chatUsage   = `"usage":{"prompt_tokens":20,"completion_tokens":5,"total_tokens":25,"prompt_tokens_details":{"cached_tokens":6,"cache_write_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}`
	chatFrame   = `{"id":"chatcmpl-01","object":"chat.completion","created":77,"model":"m","choices":[{"index":0,`
)

func TestAMessageBecomesACompletion(t *testing.T) {
	for name, tt := range map[string]struct{ members, want string }{
		"text": {
			`"content":[{"type":"text","text":"Hé","citations":null},{"type":"text","text":"llo"}],"stop_reason":"end_turn",` + vendorUsage,
			`"message":{"role":"assistant","content":"Héllo"},"finish_reason":"stop"}],` + chatUsage + `}`,
		},
		"calls alone": {
			`"content":[{"type":"tool_use","id":"t1","name":"f","input":{ "b":1.0, "a":"\u00e9" }},{"type":"tool_use","id":"t2","name":"g"}],"stop_reason":"tool_use",` + vendorUsage,
			`"message":{"role":"assistant","content":null,"tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{ \"b\":1.0, \"a\":\"\\u00e9\" }"}},{"id":"t2","type":"function","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"tool_calls"}],` + chatUsage + `}`,
		},
		"thoughts": {
			`"content":[{"type":"thinking","thinking":"hé","signature":"sig"},{"type":"redacted_thinking","data":"data"},{"type":"text","text":"a"}],"stop_reason":"max_tokens",` + vendorUsage,
			`"message":{"role":"assistant","reasoning_content":"hé","content":"a","reasoning_signature":"t3.3.sigr4.data"},"finish_reason":"length"}],` + chatUsage + `}`,
		},
		"nothing, and no usage": {
			`"content":[],"stop_reason":null`,
			`"message":{"role":"assistant","content":""},"finish_reason":"stop"}]}`,
		},
		"blocks of other types": {
			`"content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}},{"type":"web_search_tool_result","content":[]},{"type":"text","text":"a"}],"stop_reason":"refusal","usage":{"output_tokens":1,"input_tokens":-3}`,
			`"message":{"role":"assistant","content":"a"},"finish_reason":"content_filter"}],"usage":{"completion_tokens":1}}`,
		},
	} {
		got, err := toChatAnswer(plainChat(t), []byte(vendorAnswer(tt.members)), 77)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if diff := cmp.Diff(chatFrame+tt.want, string(got)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func TestTheGatewayReadsTheWholeUsageOfATranslatedAnswer(t *testing.T) {
	body, err := toChatAnswer(plainChat(t), []byte(vendorAnswer(`"content":[],"stop_reason":"end_turn",`+vendorUsage)), 77)
	if err != nil {
		t.Fatal(err)
	}
	a, err := (&chatapi.Request{Request: plainChat(t)}).ReadAnswer(body, chat.MediaBound{})
	want := billing.Usage{Input: 10, CachedInput: 6, CacheWrite: 4, Output: 5, Reasoning: 2}
	if err != nil || a.Usage != want {
		t.Errorf("%+v, %v, want %+v", a.Usage, err, want)
	}
}

func TestAnAnswerThatIsNoMessageIsABadGateway(t *testing.T) {
	for name, body := range map[string]string{
		"empty":         ``,
		"cut":           `{"content":[`,
		"no object":     `[]`,
		"no content":    vendorAnswer(`"stop_reason":"end_turn"`),
		"no list":       vendorAnswer(`"content":"a"`),
		"a bare block":  vendorAnswer(`"content":["a"]`),
		"an error":      `{"type":"error","error":{"type":"overloaded_error","message":"sk-secret"}}`,
		"no call id":    vendorAnswer(`"content":[{"type":"tool_use","name":"f","input":{}}]`),
		"no call name":  vendorAnswer(`"content":[{"type":"tool_use","id":"t1","input":{}}]`),
		"bad surrogate": vendorAnswer(`"content":[{"type":"text","text":"\ud800"}]`),
	} {
		got, err := toChatAnswer(plainChat(t), []byte(body), 77)
		if !fault.Is(err, fault.BadGateway) || strings.Contains(err.Error(), "sk-secret") {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func TestAnAnswerCanBeSentBackAsItCame(t *testing.T) {
	const content = `[{"type":"thinking","thinking":"first ","signature":"s1"},{"type":"redacted_thinking","data":"xx"},{"type":"thinking","signature":"s2","thinking":""},{"type":"text","text":"let me see"},{"type":"tool_use","id":"t1","name":"f","input":{"a":[1,2]}},{"type":"tool_use","id":"t2","name":"g","input":{}}]`
	body, err := toChatAnswer(plainChat(t), []byte(vendorAnswer(`"content":`+content+`,"stop_reason":"tool_use",`+vendorUsage)), 77)
	if err != nil {
		t.Fatal(err)
	}
	var response chat.Response
	if err := json.Unmarshal(body, &response); err != nil {
		t.Fatal(err)
	}
	sentBack(t, response.Choices[0].Message, content)
}

// sentBack checks that an assistant's message with two calls, t1 and t2, becomes
// the content again that it was made of.
func sentBack(t *testing.T, m chat.Message, content string) {
	t.Helper()
	r, dropped, err := chatToMessages(&chat.Request{Model: "m", Messages: []chat.Message{
		{Role: "user", Content: chat.Text("hi")}, m,
		{Role: "tool", ToolCallID: "t1", Content: chat.Text("one")}, {Role: "tool", ToolCallID: "t2", Content: chat.Text("two")},
	}}, 100)
	if err != nil || len(dropped) > 0 {
		t.Fatalf("%v, dropped %q", err, dropped)
	}
	if diff := cmp.Diff(content, string(r.Messages[1].Content)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := strictTurns(r); err != nil {
		t.Error(err)
	}
}
