package translate

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/internal/chatapi"
	"github.com/tollhouse-ai/gateway/internal/messagesapi"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/messages"
)

// strictly checks a chat request as the strictest of upstreams does, and returns
// its messages.
func strictly(c *chat.Request) ([]chat.Message, error) {
	encoded, err := chatapi.Encode(c)
	if err == nil {
		err = encoded.Validate()
	}
	if err != nil {
		return nil, err
	}
	var open []string // calls without a result
	for i := range encoded.Messages {
		m := &encoded.Messages[i]
		at := slices.Index(open, m.ToolCallID)
		switch {
		case m.Role == "tool" && at < 0:
			return nil, fmt.Errorf("messages[%d] answers %q, which nobody asks", i, m.ToolCallID)
		case m.Role == "tool":
			open = slices.Delete(open, at, at+1)
		case len(open) > 0:
			return nil, fmt.Errorf("messages[%d] stands between calls and their results", i)
		}
		for _, call := range m.ToolCalls {
			if _, err := rawjson.Index([]byte(call.Function.Arguments), nil, nil); err != nil || call.ID == "" || call.Function.Name == "" {
				return nil, fmt.Errorf("messages[%d] has the call %+v", i, call)
			}
			open = append(open, call.ID)
		}
	}
	if len(open) > 0 {
		return nil, fmt.Errorf("the calls %v are not answered", open)
	}
	return encoded.Messages, nil
}

// replayed is content as a client writes it that keeps inputs as they came.
func replayed(blocks []messages.Block) string {
	var parts []string
	for i := range blocks {
		switch b := &blocks[i]; b.Type {
		case "text":
			parts = append(parts, `{"type":"text","text":`+quoted(b.Text)+`}`)
		case "thinking":
			parts = append(parts, `{"type":"thinking","thinking":`+quoted(b.Thinking)+`,"signature":`+quoted(*b.Signature)+`}`)
		case "tool_use":
			parts = append(parts, `{"type":"tool_use","id":`+quoted(b.ID)+`,"name":`+quoted(b.Name)+`,"input":`+string(b.Input)+`}`)
		}
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func quoted(s string) string { return string(rawjson.Quote(nil, s)) }

// nextTurn is the request that follows an answer: what was asked, the answer,
// and a result for each of its calls.
func nextTurn(model string, answer []messages.Block) string {
	results := []string{}
	for i := range answer {
		if b := &answer[i]; b.Type == "tool_use" {
			results = append(results, `{"type":"tool_result","tool_use_id":`+quoted(b.ID)+`,"content":`+quoted("result of "+b.ID)+`}`)
		}
	}
	results = append(results, `{"type":"text","text":"go on"}`)
	return `{"model":` + quoted(model) + `,"max_tokens":9,"messages":[{"role":"user","content":"go"},{"role":"assistant","content":` +
		replayed(answer) + `},{"role":"user","content":[` + strings.Join(results, ",") + `]}]}`
}

// repeated is what an assistant said, as a chat upstream streams it and gets it back.
type repeated struct {
	reasoning, text string
	calls           []chat.ToolCall
}

// roundTrip streams, accumulates, replays as the next turn, and returns what a
// strict upstream then gets as the assistant's message.
func roundTrip(payloads []string) (repeated, error) {
	r := thinker()
	out, err := streamed(r, strings.NewReader(chunks(payloads...)))
	if err != nil {
		return repeated{}, err
	}
	c, err := follow([]byte(out))
	if err != nil || !c.over {
		return repeated{}, fmt.Errorf("over: %t, %w", c.over, err)
	}
	body := nextTurn("delta-k3", c.message.Content)
	next, err := messagesapi.Parse([]byte(body))
	if err == nil {
		err = next.Validate()
	}
	if err != nil {
		return repeated{}, fmt.Errorf("%w: %s", err, body)
	}
	typed, dropped, err := messagesToChat(next.Request)
	if err != nil || len(dropped) > 0 {
		return repeated{}, fmt.Errorf("dropped %v: %w", dropped, err)
	}
	messages, err := strictly(typed)
	if err != nil {
		return repeated{}, err
	}
	m := messages[1]
	if m.Role != "assistant" {
		return repeated{}, nil // nothing was said
	}
	for i, call := range m.ToolCalls {
		if got := messages[2+i]; got.ToolCallID != call.ID || got.Content.String() != "result of "+call.ID {
			return repeated{}, fmt.Errorf("the result of %q is %+v", call.ID, got)
		}
	}
	if last := messages[len(messages)-1]; last.Role != "user" || last.Content.String() != "go on" {
		return repeated{}, fmt.Errorf("the last message is %+v", last)
	}
	return repeated{m.ReasoningContent, m.Content.String(), m.ToolCalls}, nil
}

func toolCallOf(id, name, arguments string) chat.ToolCall {
	return chat.ToolCall{ID: id, Type: "function", Function: chat.CalledFunction{Name: name, Arguments: arguments}}
}

func TestAStreamedTurnIsReplayedToAStrictUpstreamAsItWas(t *testing.T) {
	got, err := roundTrip([]string{
		delta(`"role":"assistant","reasoning_content":""`), delta(`"reasoning_content":"First \"think\",\n"`), delta(`"reasoning_content":"then tālk. "`),
		delta(`"content":"Two "`), delta(`"content":"lookups:\n\n"`),
		callPiece(0, "functions.lookup:0", "lookup", ``), callPiece(0, "", "", `{"q": "c`), callPiece(0, "", "", `af\u00e9", "n": 1.0}`),
		callPiece(1, "functions.lookup:1", "lookup", `{"q":`), callPiece(1, "", "", `"}{" }`),
		finish("tool_calls"), counts, done,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := repeated{"First \"think\",\nthen tālk. ", "Two lookups:\n\n", []chat.ToolCall{
		toolCallOf("functions.lookup:0", "lookup", `{"q": "caf\u00e9", "n": 1.0}`), toolCallOf("functions.lookup:1", "lookup", `{"q":"}{" }`),
	}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(repeated{})); diff != "" {
		t.Errorf("-said +replayed:\n%s", diff)
	}
}

// lane is what is left to stream of a text, a thought or a call.
type lane struct {
	first func(text string) string
	rest  string
	begun bool
}

// TestAnyStreamedTurnIsReplayedToAStrictUpstreamAsItWas cuts texts, thoughts and
// calls into pieces and mixes them.
func TestAnyStreamedTurnIsReplayedToAStrictUpstreamAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := repeated{
			reasoning: rapid.String().Draw(t, "reasoning"),
			text:      rapid.String().Draw(t, "text"),
		}
		lanes := []*lane{
			{first: func(s string) string { return delta(`"reasoning_content":` + quoted(s)) }, rest: want.reasoning, begun: want.reasoning == ""},
			{first: func(s string) string { return delta(`"content":` + quoted(s)) }, rest: want.text, begun: want.text == ""},
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "calls") {
			arguments := `{` + rapid.SampledFrom([]string{"", " ", "\n"}).Draw(t, "space") + `"k":` + quoted(rapid.String().Draw(t, "value")) + `}`
			call := toolCallOf(fmt.Sprintf("call:%d", i), "f", arguments)
			want.calls = append(want.calls, call)
			lanes = append(lanes, &lane{rest: arguments, first: func(s string) string {
				return delta(fmt.Sprintf(`"tool_calls":[{"index":%d,"id":%q,"function":{"name":"f","arguments":%s}}]`, i, call.ID, quoted(s)))
			}})
		}
		var payloads []string
		for {
			var left []*lane
			for _, l := range lanes {
				if l.rest != "" || !l.begun {
					left = append(left, l)
				}
			}
			if len(left) == 0 {
				break
			}
			l := rapid.SampledFrom(left).Draw(t, "lane")
			runes := []rune(l.rest)
			n := rapid.IntRange(0, len(runes)).Draw(t, "runes")
			payloads, l.rest, l.begun = append(payloads, l.first(string(runes[:n]))), string(runes[n:]), true
		}
		got, err := roundTrip(append(payloads, finish("stop"), done))
		if err != nil {
			t.Fatalf("%v\n%s", err, strings.Join(payloads, "\n"))
		}
		slices.SortFunc(got.calls, func(a, b chat.ToolCall) int { return strings.Compare(a.ID, b.ID) })
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(repeated{})); diff != "" {
			t.Fatalf("-said +replayed:\n%s\n%s", diff, strings.Join(payloads, "\n"))
		}
	})
}

// talk draws a conversation and notes what must not be lost, by what it is.
type talk struct {
	*rapid.T
	texts, calls, results, links []string
	open                         []string
	count                        int
}

func (t *talk) text() messages.Block {
	s := rapid.StringN(1, -1, -1).Draw(t.T, "text")
	t.texts = append(t.texts, s)
	return messages.Block{Type: "text", Text: s}
}

func (t *talk) picture() messages.Block {
	t.count++
	link := fmt.Sprintf("https://a.example/%d.png", t.count)
	t.links = append(t.links, link)
	return messages.Block{Type: "image", Source: &messages.MediaSource{Type: "url", URL: link}}
}

func (t *talk) call() messages.Block {
	t.count++
	id, arguments := fmt.Sprintf("call-%d", t.count), fmt.Sprintf(`{"n":%d}`, t.count)
	t.open, t.calls = append(t.open, id), append(t.calls, id+" "+arguments)
	return messages.Block{Type: "tool_use", ID: id, Name: "f", Input: []byte(arguments)}
}

func (t *talk) result(id string) messages.Block {
	t.count++
	text := fmt.Sprintf("result %d", t.count)
	t.results = append(t.results, id+" "+text)
	blocks := []messages.Block{{Type: "text", Text: text}}
	if rapid.Bool().Draw(t.T, "with a picture") {
		blocks = append(blocks, t.picture())
	}
	return messages.Block{Type: "tool_result", ToolUseID: id, Content: messages.Blocks(blocks...)}
}

// message draws the next message: results of open calls come first of all, in
// any order and perhaps in several messages.
func (t *talk) message(role string) messages.Message {
	var blocks []messages.Block
	if role == "user" {
		for len(t.open) > 0 && (len(blocks) == 0 || rapid.Bool().Draw(t.T, "more")) {
			i := rapid.IntRange(0, len(t.open)-1).Draw(t.T, "which")
			blocks = append(blocks, t.result(t.open[i]))
			t.open = slices.Delete(t.open, i, i+1)
		}
	}
	for range rapid.IntRange(0, 3).Draw(t.T, "blocks") {
		switch other := rapid.Bool().Draw(t.T, "other"); {
		case other && role == "user":
			blocks = append(blocks, t.picture())
		case other:
			blocks = append(blocks, t.call())
		default:
			blocks = append(blocks, t.text())
		}
	}
	if len(blocks) == 0 {
		blocks = append(blocks, t.text())
	}
	return messages.Message{Role: role, Content: messages.Blocks(blocks...)}
}

func TestNoConversationLosesAnythingOnItsWayToChat(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k := &talk{T: rt}
		r := &messages.Request{Model: "m", MaxTokens: 9, Messages: []messages.Message{k.message("user")}}
		for range rapid.IntRange(0, 6).Draw(rt, "messages") {
			role := "user"
			if len(k.open) == 0 || r.Messages[len(r.Messages)-1].Role == "assistant" && rapid.Bool().Draw(rt, "goes on") {
				role = rapid.SampledFrom([]string{"user", "assistant"}).Draw(rt, "role")
			}
			r.Messages = append(r.Messages, k.message(role))
		}
		for len(k.open) > 0 {
			r.Messages = append(r.Messages, k.message("user"))
		}
		parsed, err := messagesapi.Encode(r)
		if err == nil {
			err = parsed.Validate()
		}
		if err != nil {
			rt.Fatal(err)
		}
		c, dropped, err := messagesToChat(parsed.Request)
		if err != nil || len(dropped) > 0 {
			rt.Fatalf("dropped %v: %v", dropped, err)
		}
		messages, err := strictly(c)
		if err != nil {
			rt.Fatalf("%v: %s", err, parsed.Source())
		}
		k.found(messages)
	})
}

// found checks that everything is where it belongs.
func (t *talk) found(messages []chat.Message) {
	var text strings.Builder
	var calls, results, links []string
	for i := range messages {
		m := &messages[i]
		for _, call := range m.ToolCalls {
			calls = append(calls, call.ID+" "+call.Function.Arguments)
		}
		if m.Role == "tool" {
			results = append(results, m.ToolCallID+" "+m.Content.String())
			continue
		}
		parts, err := m.Content.Parts()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			if p.ImageURL != nil {
				links = append(links, p.ImageURL.URL)
			}
			if !strings.HasPrefix(p.Text, "Attachments of the result of tool call ") {
				text.WriteString(p.Text)
			}
		}
	}
	if want := strings.Join(t.texts, ""); text.String() != want {
		t.Fatalf("text %q, want %q", text.String(), want)
	}
	for name, pair := range map[string][2][]string{"calls": {t.calls, calls}, "results": {t.results, results}, "links": {t.links, links}} {
		if !slices.Equal(pair[0], pair[1]) {
			t.Fatalf("%s: %q, want %q", name, pair[1], pair[0])
		}
	}
}

// thereAndBack translates a chat request into Messages and again into chat.
func thereAndBack(t interface{ Fatal(...any) }, c *chat.Request) *chatapi.Request {
	r, dropped, err := chatToMessages(c, 4096)
	if err != nil || len(dropped) > 0 {
		t.Fatal(err, dropped)
	}
	encoded, err := messagesapi.Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	typed, dropped, err := messagesToChat(encoded.Request)
	if err != nil || len(dropped) > 0 {
		t.Fatal(err, dropped)
	}
	back, err := chatapi.Encode(typed)
	if err == nil {
		err = back.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	return back
}

func TestARequestSurvivesBothTranslations(t *testing.T) {
	const body = `{"model":"m","messages":[{"role":"system","content":"be brief"},` +
		`{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0="}},{"type":"image_url","image_url":{"url":"https://a.example/b.png"}},{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0="}}]},` +
		`{"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1.0}"}},{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]},` +
		`{"role":"tool","tool_call_id":"c1","content":"one"},{"role":"tool","tool_call_id":"c2","content":"two"}],` +
		`"temperature":0.5,"top_p":0.9,"max_tokens":50,"stream":true,"stop":["END"],"reasoning_effort":"high",` +
		`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":"number"}}}}}],` +
		`"tool_choice":"required","parallel_tool_calls":false,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"}}},"user":"u1"}`
	c, err := chatapi.Parse([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	back := thereAndBack(t, c.Request)
	if diff := cmp.Diff(withoutSpelling(t, c), withoutSpelling(t, back)); diff != "" {
		t.Errorf("(-sent +back)\n%s", diff)
	}
}

// withoutSpelling is a request without what the two ways spell differently.
func withoutSpelling(t *testing.T, c *chatapi.Request) map[string]any {
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
func thinkingRequest(t *testing.T) *messages.Request {
	t.Helper()
	r, err := messagesapi.Parse([]byte(`{"model":"m","max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":1024},"messages":[` + hi + `],"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	return r.Request
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
		for _, end := range []string{`"finish_reason":"tool_calls"`, chatUsage, sse.Done} {
			if !strings.Contains(string(got), end) {
				t.Errorf("%s: %s is missing in %s", name, end, got)
			}
		}
	}
}
