package translate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	messagesop "github.com/tollhouse-ai/gateway/internal/operation/messages"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/upstream"
)

// answered is what the client of a typed request gets of an answer on the first wire
// that stands in for its own.
func answered(request any, stream bool, from io.Reader) io.ReadCloser {
	return answeredBy(wires[operationOf(request)].standIns[0], request, stream, from)
}

// operationOf is that of a typed request.
func operationOf(request any) upstream.Op {
	if _, ok := request.(*chat.Request); ok {
		return upstream.ChatCompletion
	}
	return upstream.Messages
}

// answeredBy is what the client of a typed request gets of an answer on another wire,
// through the bridge and at 77 s after the epoch.
func answeredBy(spoken upstream.Op, request any, stream bool, from io.Reader) io.ReadCloser {
	call := &upstream.Call{Op: operationOf(request), Model: "m", Stream: stream, MaxOutput: 4096, Request: request}
	reply, err := Bridge(Options{Now: func() time.Time { return time.Unix(77, 0) }})(&scripted{op: spoken, body: from}).Do(context.Background(), call)
	if err != nil {
		panic(err) // the requests of these tests are sound
	}
	return reply.Body
}

func whole(request any, from string) ([]byte, error) {
	return io.ReadAll(answered(request, false, strings.NewReader(from)))
}

// plain is a request for a message, and thinker one that wants to see the reasoning.
func plain() *messages.Request {
	return &messages.Request{Model: "public", MaxTokens: 100, Messages: []messages.Message{{Role: "user", Content: messages.Text("hi")}}}
}

func thinker() *messages.Request {
	r := plain()
	r.Thinking = &messages.Thinking{Type: "adaptive"}
	return r
}

// plainChat is a chat request for "m".
func plainChat() *chat.Request {
	return &chat.Request{Model: "m", Messages: []chat.Message{{Role: "user", Content: chat.Text("hi")}}, StreamOptions: &chat.StreamOptions{IncludeUsage: true}}
}

func quoted(s string) string { return string(rawjson.Quote(nil, s)) }

func TestACompletionBecomesAMessage(t *testing.T) {
	got, err := whole(thinker(), `{"id":"chatcmpl-7","object":"chat.completion","created":1.5,"model":"theirs","choices":[{"index":0,
		"message":{"role":"assistant","reasoning_content":"hm","content":"Hi","refusal":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1.0}"}}]},
		"logprobs":null,"finish_reason":"tool_calls"}],
		"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":10},"completion_tokens_details":{"reasoning_tokens":5}}}`)
	const want = `{"id":"msg_7","type":"message","role":"assistant","model":"public","content":[` +
		`{"type":"thinking","thinking":"hm","signature":"gateway-reasoning"},{"type":"text","text":"Hi"},` +
		`{"type":"tool_use","id":"c1","name":"f","input":{"a":1.0}}],"stop_reason":"tool_use","stop_sequence":null,` +
		`"usage":{"input_tokens":30,"cache_creation_input_tokens":10,"cache_read_input_tokens":60,"output_tokens":20,"output_tokens_details":{"thinking_tokens":5}}}`
	if err != nil || string(got) != want {
		t.Errorf("%v, got  %s\nwant %s", err, got, want)
	}
	a, err := (&messagesop.Request{Request: thinker()}).ReadAnswer(got, operation.AnswerOptions{})
	if u := (billing.Usage{Input: 30, CachedInput: 60, CacheWrite: 10, Output: 20, Reasoning: 5}); err != nil || a.Usage != u {
		t.Errorf("the gateway reads %+v, %v", a.Usage, err)
	}
}

// answerRows are messages of choices[0] with its finish reason, and what they become.
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
	{`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"h"},{"type":"text","text":"m"}]},{"type":"text","text":"a"},{"type":"refusal","refusal":"no"},{"type":"x","image_url":{"url":"u"}}]}`, `"stop"`, "thinking(hm)text(ano)", "refusal"},
	{`{"content":[{"type":"thinking","thinking":"hm"},{"type":"reasoning","text":"so"}]}`, `"stop"`, "thinking(hmso)", "end_turn"},
	{`{"tool_calls":[{"id":"1","function":{"name":"f","arguments":{"a":1.0}}},{"id":"2","function":{"name":"g","arguments":[1]}},{"id":"3","function":{"name":"h","arguments":null}}]}`, `"tool_calls"`, `1:f({"a":1.0})2:g({"_raw":"[1]"})3:h({})`, "tool_use"},
	{`{"content":"a","reasoning":"r"}`, `"stop"`, "thinking(r)text(a)", "end_turn"},
	{`{"content":"a","reasoning":"r","reasoning_content":"c"}`, `"stop"`, "thinking(c)text(a)", "end_turn"},
	{`{"tool_calls":[{"id":"1","function":{"name":"f","arguments":""}},{"id":"2","function":{"name":"g","arguments":" null "}}]}`, `"stop"`, "1:f({})2:g({})", "tool_use"},
	{`{"tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"a\":"}}]}`, `"length"`, `1:f({"_raw":"{\"a\":"})`, "max_tokens"},
	{`{"tool_calls":[{"id":"1","function":{"name":"f","arguments":"[1]"}}]}`, `"tool_calls"`, `1:f({"_raw":"[1]"})`, "tool_use"},
	{`{"tool_calls":[{"function":{"name":"f","arguments":"{}"}},{"function":{"name":"f","arguments":"{}"}}]}`, `"tool_calls"`, `toolu_7_0:f({})toolu_7_1:f({})`, "tool_use"},
	{`{"content":null,"function_call":{"name":"f","arguments":"{\"a\":1}"}}`, `"function_call"`, `toolu_7_0:f({"a":1})`, "tool_use"},
}

// messageOf is the message that a completion with these members beside its id becomes.
func messageOf(t testing.TB, r *messages.Request, members string) (m messages.Response, usage string) {
	t.Helper()
	data, err := whole(r, `{"id":"chatcmpl-7",`+members+`}`)
	if err != nil {
		t.Fatalf("%s: %v", members, err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	o, err := rawjson.Index(data, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m, string(o.Raw("usage"))
}

func TestWhatTheModelSaidAndWhyItStopped(t *testing.T) {
	for _, row := range answerRows {
		m, _ := messageOf(t, thinker(), `"choices":[{"index":0,"message":`+row.message+`,"finish_reason":`+row.finish+`}]`)
		if got := blocksText(m.Content); got != row.content || *m.StopReason != row.reason {
			t.Errorf("%s, %s: %s, %s; want %s, %s", row.message, row.finish, got, *m.StopReason, row.content, row.reason)
		}
	}
}

func TestThinkingIsShownOnlyToWhoAsksForIt(t *testing.T) {
	for kind, want := range map[string]string{"": "text(a)", "disabled": "text(a)", "enabled": "thinking(r)text(a)", "adaptive": "thinking(r)text(a)"} {
		r := plain()
		if kind != "" {
			r.Thinking = &messages.Thinking{Type: kind}
		}
		m, _ := messageOf(t, r, `"choices":[{"message":{"content":"a","reasoning_content":"r"}}]`)
		if got := blocksText(m.Content); got != want {
			t.Errorf("%q: %s, want %s", kind, got, want)
		}
		out, err := streamed(r, strings.NewReader(chunks(delta(`"reasoning_content":"r"`), delta(`"content":"a"`), finish("stop"), done)))
		c, wrong := follow([]byte(out))
		if got := blocksText(c.message.Content); err != nil || wrong != nil || got != want {
			t.Errorf("%q as a stream: %s, %v, %v; want %s", kind, got, err, wrong, want)
		}
	}
}

func TestUsageThatWasNotReportedIsLeftToTheGateway(t *testing.T) {
	for usage, want := range map[string]string{
		`null`: `{}`,
		`{"prompt_tokens":-1,"completion_tokens":"few"}`: `{}`,
		`{"completion_tokens":4}`:                        `{"output_tokens":4}`,
		`{"prompt_tokens":3}`:                            `{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0}`,
		`{"prompt_tokens":3,"completion_tokens":0}`:      `{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}`,
		`{"prompt_tokens":3,"completion_tokens":4,"completion_tokens_details":{"reasoning_tokens":9}}`: `{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":13,"output_tokens_details":{"thinking_tokens":9}}`,
		`{"prompt_tokens":3.0,"total_tokens":"7"}`:                                                     `{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":4}`,
		`{"prompt_tokens":3,"completion_tokens":4,"cached_tokens":2}`:                                  `{"input_tokens":1,"cache_creation_input_tokens":0,"cache_read_input_tokens":2,"output_tokens":4}`,
		`{"prompt_tokens":3,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":9}}`:        `{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":4}`,
	} {
		if _, got := messageOf(t, thinker(), `"choices":[{"message":{"content":"four words of text"}}],"usage":`+usage); got != want {
			t.Errorf("%s: %s, want %s", usage, got, want)
		}
	}
}

func TestTheMessagesIDComesFromTheCompletions(t *testing.T) {
	for id, want := range map[string]string{
		`"chatcmpl-a_B-1"`: "msg_a_B-1", `"gen-1"`: "msg_gen-1",
		`""`: "", `null`: "", `7`: "", `"a b"`: "", `"chatcmpl-"`: "", `"` + strings.Repeat("x", 65) + `"`: "",
	} {
		var ids [2]string
		for i := range ids {
			var m messages.Response
			data, err := whole(thinker(), `{"id":`+id+`,"choices":[{"message":{"content":"a"}}]}`)
			if err == nil {
				err = json.Unmarshal(data, &m)
			}
			if err != nil {
				t.Fatal(err)
			}
			ids[i] = m.ID
		}
		if want == "" && (len(ids[0]) != len("msg_")+24 || ids[0] != ids[1]) || want != "" && ids[0] != want {
			t.Errorf("%s: %q; want %q", id, ids, want)
		}
	}
}

const (
	vendorUsage = `"usage":{"input_tokens":10,"cache_creation_input_tokens":4,"cache_read_input_tokens":6,"output_tokens":5,"output_tokens_details":{"thinking_tokens":2}}`
	chatUsage   = `"usage":{"prompt_tokens":20,"completion_tokens":5,"total_tokens":25,"prompt_tokens_details":{"cached_tokens":6,"cache_write_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}`
	chatFrame   = `{"id":"chatcmpl-01","object":"chat.completion","created":77,"model":"m","choices":[{"index":0,`
)

// vendorAnswer is a message with these members besides its frame.
func vendorAnswer(members string) string {
	return `{"id":"msg_01","type":"message","role":"assistant","model":"vendor-large",` + members + `}`
}

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
		got, err := whole(plainChat(), vendorAnswer(tt.members))
		if diff := cmp.Diff(chatFrame+tt.want, string(got)); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
		a, err := (&chatop.Request{Request: plainChat()}).ReadAnswer(got, operation.AnswerOptions{})
		want := billing.Usage{Input: 10, CachedInput: 6, CacheWrite: 4, Output: 5, Reasoning: 2}
		if err != nil || strings.Contains(tt.members, vendorUsage) && a.Usage != want {
			t.Errorf("%s: the gateway reads %+v, %v", name, a.Usage, err)
		}
	}
}

func TestAnAnswerOfAnotherFormIsTheUpstreamsFault(t *testing.T) {
	of := map[any][]string{
		plainChat(): {
			``, `{"content":[`, `[]`, vendorAnswer(`"stop_reason":"end_turn"`), vendorAnswer(`"content":"a"`), vendorAnswer(`"content":["a"]`),
			`{"type":"error","error":{"type":"overloaded_error","message":"secret words"}}`,
			vendorAnswer(`"content":[{"type":"tool_use","name":"f","input":{}}]`), vendorAnswer(`"content":[{"type":"tool_use","id":"t1","input":{}}]`),
		},
		thinker(): {
			``, `null`, `[]`, `{"choices":`, `{}`, `{"choices":null}`, `{"choices":[]}`, `{"choices":[{"index":1,"message":{"content":"a"}}]}`, `{"choices":"x"}`,
			`{"error":{"message":"secret words","code":"x"}}`, `{"choices":[{"message":{"content":"a"}}],"error":{"message":"secret words"}}`, `{"error":"secret words"}`,
			`{"choices":[{"message":{"tool_calls":[{"id":"1","function":{"arguments":"{}"}}]}}]}`,
		},
	}
	for request, answers := range of {
		for _, data := range answers {
			out, err := whole(request, data)
			var f *fault.Error
			if !errors.As(err, &f) || f.HTTPStatus() < 500 || len(out) > 0 || strings.Contains(err.Error(), "secret words") {
				t.Errorf("%T, %s: %s, %v", request, data, out, err)
			}
		}
	}
	if _, err := whole(thinker(), `{"choices":[{"message":{"content":"a"}}],"error":null}`); err != nil {
		t.Error("a null is no error:", err)
	}
}

// sentBack checks that an assistant's message with two calls, t1 and t2, becomes the
// content again that it was made of.
func sentBack(t *testing.T, m chat.Message, content string) {
	t.Helper()
	r, dropped, err := chatToMessages(&chat.Request{Model: "m", Messages: []chat.Message{
		{Role: "user", Content: chat.Text("hi")}, m,
		{Role: "tool", ToolCallID: "t1", Content: chat.Text("one")}, {Role: "tool", ToolCallID: "t2", Content: chat.Text("two")},
	}}, 100, "")
	if err != nil || len(dropped) > 0 {
		t.Fatalf("%v, dropped %q", err, dropped)
	}
	if diff := cmp.Diff(content, string(r.Messages[1].Content)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if err := strictTurns(r.Request); err != nil {
		t.Error(err)
	}
}

func TestAnAnswerCanBeSentBackAsItCame(t *testing.T) {
	body, err := whole(plainChat(), vendorAnswer(`"content":`+richContent()+`,"stop_reason":"tool_use",`+vendorUsage))
	var response chat.Response
	if err == nil {
		err = json.Unmarshal(body, &response)
	}
	if err != nil {
		t.Fatal(err)
	}
	sentBack(t, response.Choices[0].Message, richContent())
	text, err := chunksOf(strings.NewReader(richStream()))
	if err != nil {
		t.Fatal(err)
	}
	m, _ := accumulatedChat(t, text)
	sentBack(t, m, richContent())
}

// cut draws the pieces of a text.
func cut(t *rapid.T, text string) (pieces []string) {
	for runes := []rune(text); len(runes) > 0; {
		n := rapid.IntRange(1, len(runes)).Draw(t, "runes")
		pieces, runes = append(pieces, string(runes[:n])), runes[n:]
	}
	return pieces
}

var drawnArguments = rapid.Custom(func(t *rapid.T) string {
	return `{"k":` + quoted(rapid.String().Draw(t, "value")) + `}`
})

// TestACompletionIsTheSameMessageWholeAndStreamed cuts thoughts, text and calls into
// pieces and mixes those of the calls.
func TestACompletionIsTheSameMessageWholeAndStreamed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		thought, text := rapid.String().Draw(t, "thought"), rapid.String().Draw(t, "text")
		reason := rapid.SampledFrom([]string{"stop", "length", "tool_calls", "content_filter"}).Draw(t, "reason")
		stream := []string{delta(`"role":"assistant"`)}
		for _, piece := range cut(t, thought) {
			stream = append(stream, delta(`"reasoning_content":`+quoted(piece)))
		}
		for _, piece := range cut(t, text) {
			stream = append(stream, delta(`"content":`+quoted(piece)))
		}
		var calls []string
		var lanes [][]string
		for i, arguments := range rapid.SliceOfN(drawnArguments, 0, 4).Draw(t, "calls") {
			calls = append(calls, fmt.Sprintf(`{"id":"c%d","function":{"name":"f","arguments":%s}}`, i, quoted(arguments)))
			stream = append(stream, callPiece(i, fmt.Sprint("c", i), "f", ""))
			var lane []string
			for _, piece := range cut(t, arguments) {
				lane = append(lane, delta(fmt.Sprintf(`"tool_calls":[{"index":%d,"function":{"arguments":%s}}]`, i, quoted(piece))))
			}
			lanes = append(lanes, lane)
		}
		for len(lanes) > 0 {
			i := rapid.IntRange(0, len(lanes)-1).Draw(t, "lane")
			if stream, lanes[i] = append(stream, lanes[i][0]), lanes[i][1:]; len(lanes[i]) == 0 {
				lanes = slices.Delete(lanes, i, i+1)
			}
		}
		out, err := streamed(thinker(), strings.NewReader(chunks(append(stream, finish(reason), counts, done)...)))
		c, wrong := follow([]byte(out))
		if err != nil || wrong != nil || !c.over {
			t.Fatalf("%v, %v\n%s", err, wrong, out)
		}
		body, err := whole(thinker(), `{"id":"chatcmpl-7","choices":[{"message":{"content":`+quoted(text)+`,"reasoning_content":`+quoted(thought)+
			`,"tool_calls":[`+strings.Join(calls, ",")+`]},"finish_reason":"`+reason+`"}],`+counts[strings.Index(counts, `"usage"`):])
		var want messages.Response
		if err == nil {
			err = json.Unmarshal(body, &want)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(c.usage, &c.message.Usage); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, c.message); diff != "" {
			t.Errorf("-whole +streamed:\n%s", diff)
		}
	})
}

func TestAMessageIsTheSameCompletionWholeAndStreamed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stream := []string{vendorStart}
		var content []string
		for i := range rapid.IntRange(0, 5).Draw(t, "blocks") {
			index, text := fmt.Sprint(i), rapid.String().Draw(t, "text")
			var block, start, member string
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				start, member = `{"type":"text","text":""}`, `"text_delta","text":`
				block = `{"type":"text","text":` + quoted(text) + `}`
			case 1:
				start, member = `{"type":"thinking","thinking":"","signature":"s"}`, `"thinking_delta","thinking":`
				block = `{"type":"thinking","thinking":` + quoted(text) + `,"signature":"s"}`
			case 2:
				start = `{"type":"redacted_thinking","data":` + quoted(text) + `}`
				text, block = "", start
			default:
				text = drawnArguments.Draw(t, "arguments")
				start, member = `{"type":"tool_use","id":"t`+index+`","name":"f","input":{}}`, `"input_json_delta","partial_json":`
				block = strings.Replace(start, "{}", text, 1)
			}
			content, stream = append(content, block), append(stream, blockStart(index, start))
			for _, piece := range cut(t, text) {
				stream = append(stream, blockDelta(index, `{"type":`+member+quoted(piece)+`}`))
			}
			stream = append(stream, blockEnd(index))
		}
		text, err := chunksOf(strings.NewReader(vendorEvents(append(stream, vendorEnd, vendorStop)...)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := whole(plainChat(), vendorAnswer(`"content":[`+strings.Join(content, ",")+`],"stop_reason":"tool_use",`+vendorUsage))
		var want chat.Response
		if err == nil {
			err = json.Unmarshal(body, &want)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, reason := accumulatedChat(t, text)
		if rawjson.IsNull(want.Choices[0].Message.Content) {
			want.Choices[0].Message.Content = chat.Text("")
		}
		if diff := cmp.Diff(want.Choices[0].Message, got); diff != "" || reason != want.Choices[0].FinishReason || !strings.Contains(text, chatUsage) {
			t.Errorf("%s (-whole +streamed):\n%s", reason, diff)
		}
	})
}

// accumulatedChat adds the deltas of a stream up, as clients do: text to text, by its
// member's name. reason is the finish reason.
func accumulatedChat(t interface{ Fatalf(string, ...any) }, stream string) (m chat.Message, reason string) {
	m.Role = "assistant"
	content, signature, refusal := "", "", ""
	for _, e := range strings.Split(strings.TrimSuffix(stream, sse.Done), "\n\n") {
		if e == "" {
			continue
		}
		var c chat.Chunk
		if err := json.Unmarshal([]byte(strings.TrimPrefix(e, "data: ")), &c); err != nil {
			t.Fatalf("%q: %v", e, err)
		}
		for _, choice := range c.Choices {
			content += choice.Delta.Content.String()
			m.ReasoningContent += choice.Delta.ReasoningContent
			reason += choice.FinishReason
			if o, err := rawjson.Index(choice.Delta.Extra, nil, nil); err == nil {
				piece, _ := rawjson.String(o.Raw(reasoningSignature))
				signature += piece
				piece, _ = rawjson.String(o.Raw("refusal"))
				refusal += piece
			}
			for _, piece := range choice.Delta.ToolCalls {
				if int(*piece.Index) == len(m.ToolCalls) {
					m.ToolCalls = append(m.ToolCalls, chat.ToolCall{ID: piece.ID, Type: piece.Type, Function: chat.CalledFunction{Name: piece.Function.Name}})
				}
				m.ToolCalls[*piece.Index].Function.Arguments += piece.Function.Arguments
			}
		}
	}
	m.Content = chat.Text(content)
	if signature != "" {
		m.Extra = []byte(`{"` + reasoningSignature + `":` + quoted(signature) + `}`)
	}
	if refusal != "" {
		m.Extra = []byte(`{"refusal":` + quoted(refusal) + `}`)
	}
	return m, reason
}
