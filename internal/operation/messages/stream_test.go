package messages

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/upstream"
)

// stub is a source of text, and how often it was closed.
type stub struct {
	io.Reader
	closed int
}

func (s *stub) Close() error { s.closed++; return nil }
func (s *stub) Receipt() (billing.Receipt, bool) {
	return billing.Receipt{Charge: 7}, s.closed > 0
}

// accumulated is the message that a stream makes up.
func accumulated(text string) (*messages.Response, error) {
	return messages.NewStream("req_1", &stub{Reader: strings.NewReader(text)}).Message()
}

func decoded(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func TestAStreamGivesItsEventsAsTheyCame(t *testing.T) {
	events := append(wholeStream(),
		ev(`{"type":"content_block_delta","index":0,"delta":{"type":"novel_delta","text":1.0}}`),
		ev(`{"type":"novel_event","delta":"text","usage":7,"index":"a"}`))
	var got []wire
	source := &stub{Reader: strings.NewReader(joined(events))}
	for e, err := range messages.NewStream("req_1", source).Events() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, wire{e.Type, string(e.Raw)})
		again, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if before, after := decoded(t, string(e.Raw)), decoded(t, string(again)); e.Type != "message_start" && !strings.Contains(string(e.Raw), `"output_tokens":30`) {
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("%s was read and written (-read +written):\n%s", e.Raw, diff)
			}
		}
	}
	if diff := cmp.Diff(joined(events), joined(got)); diff != "" || source.closed == 0 {
		t.Errorf("closed %d times (-sent +got):\n%s", source.closed, diff)
	}
}

func TestAStreamEndsWithTheErrorThatEndedIt(t *testing.T) {
	for _, row := range []struct {
		name string
		r    io.Reader
		code fault.Code
		text string
	}{
		{"the gateway's error event", strings.NewReader(string(ErrorEvent(nil, "req_1", fault.New(fault.ServiceUnavailable, "Sold out.")))), fault.ServiceUnavailable, "Sold out."},
		{"a vendor's error event", strings.NewReader("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Busy.\"}}\n\n"), fault.BadGateway, "Busy."},
		{"an error without an event line", strings.NewReader("data: {\"type\":\"error\",\"error\":{\"type\":\"novel\",\"message\":\"Busy.\"}}\n\n"), fault.BadGateway, "Busy."},
		{"an error without words", strings.NewReader("event: error\ndata: {\"type\":\"error\",\"error\":7}\n\n"), fault.BadGateway, "reported an error"},
		{"no event", strings.NewReader("data: [1]\n\n"), fault.BadGateway, "not of the Messages form"},
	} {
		source := &stub{Reader: io.MultiReader(strings.NewReader(joined([]wire{starts, opensText, writes("Hi")})), row.r)}
		s := messages.NewStream("req_1", source)
		s.Dropped = []string{"top_k"}
		m, err := s.Message()
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != row.code || !strings.Contains(f.Message, row.text) || source.closed == 0 {
			t.Errorf("%s: %v, closed %d times", row.name, err, source.closed)
		}
		if m == nil || m.Content[0].Text != "Hi" || m.RequestID != "req_1" || m.Charge != 7 || m.Dropped[0] != "top_k" {
			t.Errorf("%s: %+v", row.name, m)
		}
	}
	source := &stub{Reader: strings.NewReader(joined(wholeStream()))}
	for range messages.NewStream("", source).Events() {
		break
	}
	if source.closed != 1 {
		t.Errorf("breaking out closed it %d times", source.closed)
	}
}

// everyBlock is a message with blocks of every kind.
func everyBlock() *messages.Response {
	signature, reason := "sig", "tool_use"
	return &messages.Response{
		ID: "msg_1", Type: "message", Role: "assistant", Model: "m", StopReason: &reason,
		Content: []messages.Block{
			{Type: "thinking", Thinking: "Hm, so.", Signature: &signature},
			{Type: "redacted_thinking", Data: "xyz"},
			{Type: "text", Text: "Hello 道.", Citations: jsontext.Value(`[{"type":"char_location","start":1},{"x":2.0}]`)},
			{Type: "text", Text: "", Citations: jsontext.Value("null")},
			{Type: "server_tool_use", Extra: jsontext.Value(`{"id":"s","name":"web_search","input":{}}`)},
			{Type: "web_search_tool_result", Extra: jsontext.Value(`{"tool_use_id":"s","content":[{"type":"web_search_result","url":"https://a"}]}`)},
			{Type: "tool_use", ID: "t", Name: "f", Input: jsontext.Value(`{"q":1.0}`)},
			{Type: "tool_use", ID: "u", Name: "g", Input: jsontext.Value(`{}`)},
		},
		Usage: messages.Usage{InputTokens: 10, CacheReadInputTokens: 2, OutputTokens: 30, OutputTokensDetails: &messages.OutputDetails{ThinkingTokens: 4}},
	}
}

// callOf is the call that the gateway makes of a typed request.
func callOf(t *testing.T, typed *messages.Request) *upstream.Call {
	t.Helper()
	r, err := Encode(typed)
	if err != nil {
		t.Fatal(err)
	}
	return &upstream.Call{Op: upstream.Messages, Model: r.Model, Stream: r.Stream, Body: r.Outgoing(0).Body, Request: r.Request}
}

func hello(stream bool) *messages.Request {
	return &messages.Request{Model: "m", MaxTokens: 9, Messages: []messages.Message{{Role: "user", Content: messages.Text("hi")}}, Stream: stream}
}

func TestAStreamedMessageIsTheNextTurnOfItsConversation(t *testing.T) {
	want := everyBlock()
	up := messages.Serve(func(context.Context, *messages.Request) (*messages.Response, error) { return everyBlock(), nil })
	reply, err := up.Do(t.Context(), callOf(t, hello(true)))
	if err != nil || reply.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%v, %v", reply, err)
	}
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	tap := tapped(t)
	for e, err := range messages.NewStream("", &stub{Reader: bytes.NewReader(text)}).Events() {
		if err == nil {
			_, _, err = tap.Event(nil, e.Type, e.Raw)
		}
		if err != nil {
			t.Fatal(err)
		}
		if m := e.Message; m != nil && (m.Usage.OutputTokens != 0 || m.Usage.InputTokens != 10 || m.StopReason != nil || len(m.Content) > 0) {
			t.Errorf("the message begins as %+v", m)
		}
	}
	if want := (billing.Usage{Input: 10, CachedInput: 2, Output: 30, Reasoning: 4}); tap.Usage() != want {
		t.Errorf("%+v", tap.Usage())
	}
	got, err := accumulated(string(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	wanted, _ := json.Marshal(want, jsontext.Multiline(true))
	came, err := json.Marshal(got, jsontext.Multiline(true))
	if diff := cmp.Diff(string(wanted), string(came)); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}

	next := hello(false)
	next.Messages = append(next.Messages, got.Turn(), messages.Message{Role: "user", Content: messages.Blocks(messages.Block{Type: "tool_result", ToolUseID: "t", Content: messages.Text("r")})})
	r, err := Encode(next)
	if err == nil {
		err = r.Validate()
	}
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := json.Marshal(want.Content)
	if err != nil || r.Messages[1].Role != "assistant" || string(r.Messages[1].Content) != string(blocks) {
		t.Errorf("%v\n%s", err, cmp.Diff(string(blocks), string(r.Messages[1].Content)))
	}
}

func TestDeltasOfToolsAndUsageAddUp(t *testing.T) {
	m, err := accumulated(joined([]wire{
		starts,
		{"content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s","name":"web_search","input":{}}}`},
		ev(`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"query\":"}}`),
		ev(`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"\"a\"}"}}`),
		closes0, opensTool, calls(`{"cut`),
		ev(`{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"type":"refusal"}},"usage":{"output_tokens":5,"cache_read_input_tokens":null,"server_tool_use":{"web_search_requests":1}}}`),
		ev(`{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":6}}`), ends,
	}))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(m.Content[0].Extra); got != `{"id":"s","name":"web_search","input":{"query":"a"}}` || string(m.Content[1].Input) != "{}" {
		t.Errorf("%s, %s", got, m.Content[1].Input)
	}
	u := m.Usage
	if u.InputTokens != 10 || u.CacheReadInputTokens != 2 || u.CacheCreationInputTokens != 3 || u.OutputTokens != 6 || string(u.Extra) != `{"server_tool_use":{"web_search_requests":1}}` {
		t.Errorf("%+v", u)
	}
	if *m.StopReason != "refusal" || string(m.Extra) != `{"x":1.0,"stop_details":{"type":"refusal"}}` {
		t.Errorf("%+v", m)
	}
}

func TestEventsOutOfOrderMakeNoMessage(t *testing.T) {
	for name, events := range map[string][]wire{
		"nothing began":     {opensText},
		"begun twice":       {starts, starts},
		"a block skipped":   {starts, opensTool},
		"a piece of none":   {starts, writes("a")},
		"a negative block":  {starts, opensText, ev(`{"type":"content_block_delta","index":-1,"delta":{"type":"text_delta","text":"a"}}`)},
		"a start of no one": {ev(`{"type":"message_start"}`)},
	} {
		if _, err := accumulated(joined(events)); !fault.Is(err, fault.BadGateway) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if m, err := accumulated(""); m != nil || err != nil {
		t.Errorf("an empty stream: %+v, %v", m, err)
	}
}

func TestAGoFunctionAnswersInThePublicWire(t *testing.T) {
	var got *messages.Request
	up := messages.Serve(func(_ context.Context, r *messages.Request) (*messages.Response, error) {
		got = r
		return everyBlock(), nil
	})
	if !upstream.Supports(up, upstream.Messages, "m") || upstream.Supports(up, upstream.ChatCompletion, "m") {
		t.Error("it must serve messages alone")
	}
	call := callOf(t, hello(false))
	reply, err := up.Do(t.Context(), call)
	if err != nil || reply.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%v, %v", reply, err)
	}
	data, _ := io.ReadAll(reply.Body)
	a, err := (&Request{Request: call.Request.(*messages.Request)}).ReadAnswer(data, operation.AnswerOptions{})
	if want := (billing.Usage{Input: 10, CachedInput: 2, Output: 30, Reasoning: 4}); err != nil || a.Usage != want || got.Messages[0].Content.String() != "hi" {
		t.Errorf("%+v, %v", a.Usage, err)
	}
}

func TestAStreamHandlersEventsGoOutAsTheyAre(t *testing.T) {
	reason := "end_turn"
	up := messages.ServeStream(nil, func(context.Context, *messages.Request) iter.Seq2[*messages.Event, error] {
		return func(yield func(*messages.Event, error) bool) {
			_ = yield(&messages.Event{Type: "content_block_delta", Delta: &messages.Delta{Type: "text_delta"}}, nil) &&
				yield(&messages.Event{Type: "message_delta", Delta: &messages.Delta{StopReason: &reason}, Usage: &messages.Usage{OutputTokens: 2}}, nil) &&
				yield(&messages.Event{Type: "novel", Extra: jsontext.Value(`{"x":1.0}`)}, nil)
		}
	})
	reply, err := up.Do(t.Context(), callOf(t, hello(true)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(reply.Body)
	want := "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\"}}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"input_tokens\":0,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":2}}\n\n" +
		"event: novel\ndata: {\"type\":\"novel\",\"x\":1.0}\n\n"
	if diff := cmp.Diff(want, string(text)); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
