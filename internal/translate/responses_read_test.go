package translate

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/upstream"
)

const (
	responseCounts = `"usage":{"input_tokens":20,"input_tokens_details":{"cached_tokens":6,"cache_write_tokens":4},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":2},"total_tokens":25}`
	completed      = `"status":"completed","error":null,"incomplete_details":null,` + responseCounts
)

// vendorResponse is a response with these items of output and these members.
func vendorResponse(output, members string) string {
	return `{"id":"resp_01","object":"response","model":"vendor-large","output":[` + output + `],` + members + `}`
}

func outputMessage(id, text string) string {
	return `{"type":"message","id":"` + id + `","role":"assistant","status":"completed","content":[{"type":"output_text","text":` + quoted(text) + `,"annotations":[],"logprobs":[]}]}`
}

func reasoningItem(id, encrypted string, summaries ...string) string {
	for i, s := range summaries {
		summaries[i] = `{"type":"summary_text","text":` + quoted(s) + `}`
	}
	return `{"type":"reasoning","id":"` + id + `","summary":[` + strings.Join(summaries, ",") + `],"encrypted_content":` + encrypted + `}`
}

func callItem(id, name, arguments string) string {
	return `{"type":"function_call","id":"fc_` + id + `","call_id":"` + id + `","name":"` + name + `","arguments":` + quoted(arguments) + `,"status":"completed"}`
}

// responseRows are responses, and what clients of the other wires make of them.
var responseRows = []struct {
	name, output, members string
	chat, finish          string
	message, stop         string
}{
	{"text", outputMessage("msg_1", "Hé \"so\""), completed, `text(Hé "so")`, "stop", `text(Hé "so")`, "end_turn"},
	{"nothing", ``, completed, "", "stop", "", "end_turn"},
	{"an empty text", outputMessage("msg_1", ""), completed, "", "stop", "", "end_turn"},
	{"two messages", outputMessage("msg_1", "a") + `,` + outputMessage("msg_2", "b"), completed, "text(a\n\nb)", "stop", "text(a\n\nb)", "end_turn"},
	{"two parts", `{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"a"},{"type":"output_text","text":"b"}]}`, completed, "text(a\n\nb)", "stop", "text(a\n\nb)", "end_turn"},
	{"a refusal", `{"type":"message","id":"m","role":"assistant","content":[{"type":"refusal","refusal":"no"}]}`, completed, "refusal(no)", "stop", "text(no)", "refusal"},
	{"a summary of thoughts", reasoningItem("rs_1", `null`, "one", "two") + `,` + outputMessage("msg_1", "a"), completed, "thinking(one\n\ntwo)text(a)", "stop", "thinking(one\n\ntwo)text(a)", "end_turn"},
	{"raw thoughts", `{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},` + outputMessage("msg_1", "a"), completed, "thinking(hm)text(a)", "stop", "thinking(hm)text(a)", "end_turn"},
	{"encrypted thoughts", reasoningItem("rs_1", `"blob"`, "hm") + `,` + outputMessage("msg_1", "a"), completed, "thinking(hm)text(a)signature(e4.blob)", "stop", "thinking(hm)text(a)", "end_turn"},
	{"thoughts that are only encrypted", reasoningItem("rs_1", `"bl"`) + `,` + reasoningItem("rs_2", `"ob"`) + `,` + callItem("c1", "f", "{}"), completed, "c1:f({})signature(e2.ble2.ob)", "tool_calls", "thinking()c1:f({})", "tool_use"},
	{"calls", callItem("c1", "f", `{"a":1.0}`) + `,` + callItem("c2", "g", ``), completed, `c1:f({"a":1.0})c2:g({})`, "tool_calls", `c1:f({"a":1.0})c2:g({})`, "tool_use"},
	{"arguments that are an object", `{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":{"a":1.0}}`, completed, `c1:f({"a":1.0})`, "tool_calls", `c1:f({"a":1.0})`, "tool_use"},
	{"text around a call", outputMessage("msg_1", "a") + `,` + callItem("c1", "f", `{}`) + `,` + outputMessage("msg_2", "b"), completed, `text(ab)c1:f({})`, "tool_calls", `text(a)c1:f({})text(b)`, "tool_use"},
	{"a custom tool's call", `{"type":"custom_tool_call","id":"ctc_1","call_id":"c1","name":"exec","input":"say \"hi\"\n"}`, completed, `c1:exec({"input":"say \"hi\"\n"})`, "tool_calls", `c1:exec({"input":"say \"hi\"\n"})`, "tool_use"},
	{"a tool of the vendor's", `{"type":"web_search_call","id":"ws_1","status":"completed","action":{}},` + outputMessage("msg_1", "a"), completed, "text(a)", "stop", "text(a)", "end_turn"},
	{"the end of max_output_tokens", outputMessage("msg_1", "a"), `"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},` + responseCounts, "text(a)", "length", "text(a)", "max_tokens"},
	{"a word of theirs for it", outputMessage("msg_1", "a"), `"status":"incomplete","incomplete_details":{"reason":"max_tokens"},` + responseCounts, "text(a)", "length", "text(a)", "max_tokens"},
	{"a content filter", outputMessage("msg_1", "a"), `"status":"incomplete","incomplete_details":{"reason":"content_filter"},` + responseCounts, "text(a)", "content_filter", "text(a)", "refusal"},
	{"completed, with details of nothing", outputMessage("msg_1", "a"), `"status":"completed","incomplete_details":{},` + responseCounts, "text(a)", "stop", "text(a)", "end_turn"},
	{"no status", outputMessage("msg_1", "a"), responseCounts, "text(a)", "stop", "text(a)", "end_turn"},
}

// responseEvents are the events that a vendor makes of a response, with texts in deltas
// of at most n bytes.
func responseEvents(t testing.TB, response string, n int) (events []string) {
	t.Helper()
	var r responses.Response
	if err := json.Unmarshal([]byte(response), &r); err != nil {
		t.Fatal(err)
	}
	add := func(format string, args ...any) { events = append(events, fmt.Sprintf(format, args...)) }
	deltas := func(kind string, item int, part string, text string) {
		for runes := []rune(text); len(runes) > 0; runes = runes[min(n, len(runes)):] {
			add(`{"type":"response.%s.delta","item_id":"x","output_index":%d%s,"delta":%s}`, kind, item, part, quoted(string(runes[:min(n, len(runes))])))
		}
		add(`{"type":"response.%s.done","item_id":"x","output_index":%d%s,"text":%s}`, kind, item, part, quoted(text))
	}
	add(`{"type":"response.created","sequence_number":0,"response":{"id":%q,"status":"in_progress","error":null,"output":[],"usage":null}}`, r.ID)
	add(`{"type":"response.in_progress","sequence_number":1,"response":{"id":%q,"status":"in_progress","output":[]}}`, r.ID)
	raw, err := rawjson.Index([]byte(response), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	items := rawjson.Elements(raw.Raw("output"))
	for i := range r.Output {
		item := &r.Output[i]
		begun := rawjson.Apply(items[i], rawjson.Set("content", []byte("[]")), rawjson.Set("summary", []byte("[]")), rawjson.Set("arguments", []byte(`""`)), rawjson.Delete("encrypted_content"))
		add(`{"type":"response.output_item.added","output_index":%d,"item":%s}`, i, begun)
		summary, err := responses.Content(item.Summary).Parts()
		content, err2 := item.Content.Parts()
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		for j, part := range summary {
			deltas("reasoning_summary_text", i, fmt.Sprintf(`,"summary_index":%d`, j), part.Text)
		}
		for j, part := range content {
			at := fmt.Sprintf(`,"content_index":%d`, j)
			add(`{"type":"response.content_part.added","output_index":%d%s,"part":{"type":%q}}`, i, at, part.Type)
			deltas(part.Type, i, at, part.Text+part.Refusal)
		}
		if arguments, _ := rawjson.String(item.Arguments); arguments != "" {
			deltas("function_call_arguments", i, "", arguments)
		}
		add(`{"type":"response.output_item.done","output_index":%d,"item":%s}`, i, items[i])
	}
	end := "completed"
	if r.Status == "incomplete" {
		end = r.Status
	}
	add(`{"type":"response.%s","response":%s}`, end, response)
	return events
}

// chatText is an assistant's message in short.
func chatText(m *chat.Message) string {
	var b strings.Builder
	for _, part := range [][2]string{{"thinking", m.ReasoningContent}, {"refusal", rawjson.LookupString(m.Extra, "refusal")}, {"text", m.Content.String()}} {
		if part[1] != "" {
			fmt.Fprintf(&b, "%s(%s)", part[0], part[1])
		}
	}
	for _, c := range m.ToolCalls {
		fmt.Fprintf(&b, "%s:%s(%s)", c.ID, c.Function.Name, c.Function.Arguments)
	}
	if s := rawjson.LookupString(m.Extra, reasoningSignature); s != "" {
		fmt.Fprintf(&b, "signature(%s)", s)
	}
	return b.String()
}

// fromResponses is what the client of a typed request gets of an upstream of Responses.
func fromResponses(request any, stream bool, from io.Reader) (string, error) {
	out, err := io.ReadAll(answeredBy(upstream.Responses, request, stream, from))
	return string(out), err
}

func TestAResponseIsTheSameAnswerWholeAndStreamed(t *testing.T) {
	for _, row := range responseRows {
		response := vendorResponse(row.output, row.members)
		t.Run(row.name+" as a completion", func(t *testing.T) {
			check := func(how string, m *chat.Message, finish string, err error) {
				if got := chatText(m); err != nil || got != row.chat || finish != row.finish {
					t.Errorf("%s: %s, %s, %v; want %s, %s", how, got, finish, err, row.chat, row.finish)
				}
			}
			data, err := fromResponses(plainChat(), false, strings.NewReader(response))
			var c chat.Response
			if err := errors.Join(err, json.Unmarshal([]byte(data), &c)); err != nil || c.ID != "chatcmpl-01" || c.Model != "m" {
				t.Fatalf("%v, %s", err, data)
			}
			check("whole", &c.Choices[0].Message, c.Choices[0].FinishReason, nil)
			for how, body := range responseStreams(t, response) {
				out, err := fromResponses(plainChat(), true, body)
				m, finish := accumulatedChat(t, out)
				check(how, &m, finish, err)
			}
		})
		t.Run(row.name+" as a message", func(t *testing.T) {
			check := func(how string, m *messages.Response, err error) {
				if got := blocksText(m.Content); err != nil || got != row.message || m.StopReason == nil || *m.StopReason != row.stop || m.ID != "msg_01" {
					t.Errorf("%s: %+v, %v; want %s, %s", how, m, err, row.message, row.stop)
				}
			}
			data, err := fromResponses(thinker(), false, strings.NewReader(response))
			var m messages.Response
			check("whole", &m, errors.Join(err, json.Unmarshal([]byte(data), &m)))
			for how, body := range responseStreams(t, response) {
				out, err := fromResponses(thinker(), true, body)
				c, wrong := follow([]byte(out))
				check(how, &c.message, errors.Join(err, wrong))
			}
		})
	}
}

// responseStreams are streams of a response: as vendors send it, and with what some of
// them leave out.
func responseStreams(t testing.TB, response string) map[string]io.Reader {
	events := responseEvents(t, response, 2)
	var itemsDone []string
	for _, e := range events {
		if !strings.Contains(e, ".delta") && !strings.Contains(e, ".added") {
			itemsDone = append(itemsDone, e)
		}
	}
	return map[string]io.Reader{
		"at once":        strings.NewReader(vendorEvents(events...)),
		"byte by byte":   iotest.OneByteReader(strings.NewReader(vendorEvents(events...))),
		"with [DONE]":    strings.NewReader(vendorEvents(events...) + sse.Done),
		"whole items":    strings.NewReader(vendorEvents(itemsDone...)),
		"the end alone":  strings.NewReader(vendorEvents(events[0], events[len(events)-1])),
		"keepalives":     strings.NewReader(vendorEvents(strings.Split(strings.Join(events, "\n"+`{"type":"keepalive"}`+"\n"), "\n")...)),
		"unknown events": strings.NewReader(vendorEvents(strings.Split(strings.Join(events, "\n"+`{"type":"response.queued"}`+"\n"+`{"type":"new"}`+"\n"), "\n")...)),
	}
}

func TestUsageThatAResponseDoesNotHaveIsLeftToTheGateway(t *testing.T) {
	data, err := fromResponses(plainChat(), false, strings.NewReader(vendorResponse(outputMessage("msg_1", "a"), `"status":"completed"`)))
	if err != nil || strings.Contains(data, "usage") {
		t.Errorf("%s, %v", data, err)
	}
}

func TestAResponseOfAnotherFormIsTheUpstreamsFault(t *testing.T) {
	for _, data := range []string{
		``, `null`, `[]`, `{}`, `{"output":null}`, `{"output":{}}`, `{"id":"resp_1","output":`,
		`{"error":{"code":"server_error","message":"secret words"},"output":[]}`,
		vendorResponse(``, `"status":"failed","error":{"code":"server_error","message":"secret words"}`),
		vendorResponse(``, `"status":"failed"`), vendorResponse(``, `"status":"in_progress"`), vendorResponse(``, `"status":"queued"`), vendorResponse(``, `"status":"cancelled"`),
		vendorResponse(`{"type":"function_call","name":"f","arguments":"{}"}`, completed), vendorResponse(`{"type":"function_call","call_id":"c1","arguments":"{}"}`, completed),
		vendorResponse(strings.Repeat(`{"type":"new"},`, 1024)+outputMessage("m", "a"), completed),
	} {
		out, err := fromResponses(plainChat(), false, strings.NewReader(data))
		if err == nil || fault.From(err).HTTPStatus() < 500 || out != "" || strings.Contains(err.Error(), "secret words") {
			t.Errorf("%.200s: %s, %v", data, out, err)
		}
	}
}

func TestAStreamOfAResponseThatGoesWrongEndsInAnErrorAfterWhatCame(t *testing.T) {
	events := responseEvents(t, vendorResponse(outputMessage("msg_1", "a"), completed), 1)
	begun := vendorEvents(events[:5]...) // until the text
	for name, stream := range map[string]string{
		"nothing":                     "",
		"a cut":                       begun,
		"a terminator alone":          begun + sse.Done,
		"no JSON":                     begun + vendorEvents(`{"type":`),
		"an error":                    begun + vendorEvents(`{"type":"error","code":"server_error","message":"secret words","param":null}`),
		"a nested error":              begun + vendorEvents(`{"type":"error","error":{"code":"server_error","message":"secret words"}}`),
		"an error by name":            begun + "event: error\ndata: {\"message\":\"secret words\"}\n\n",
		"a failure":                   begun + vendorEvents(`{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"secret words"}}}`),
		"a failure without a reason":  begun + vendorEvents(`{"type":"response.failed"}`),
		"a failure that is completed": begun + vendorEvents(`{"type":"response.completed","response":{"status":"failed","error":{"code":"server_error","message":"secret words"}}}`),
		"cancelled":                   begun + vendorEvents(`{"type":"response.cancelled","response":{}}`),
		"no response":                 begun + vendorEvents(`{"type":"response.completed"}`),
		"an item without an index":    begun + vendorEvents(`{"type":"response.output_item.added","item":{"type":"message"}}`),
		"a text without an index":     begun + vendorEvents(`{"type":"response.output_text.delta","delta":"b"}`),
		"arguments of no call":        begun + vendorEvents(`{"type":"response.function_call_arguments.delta","output_index":7,"delta":"{}"}`),
		"arguments of a message":      begun + vendorEvents(`{"type":"response.function_call_arguments.delta","output_index":0,"delta":"{}"}`),
		"a call without an id":        begun + vendorEvents(`{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","name":"f"}}`),
		"a call without a name":       begun + vendorEvents(`{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"c1"}}`),
	} {
		out, err := fromResponses(plainChat(), true, strings.NewReader(stream))
		if err == nil || fault.From(err).HTTPStatus() < 500 || strings.Contains(err.Error(), "secret words") || strings.Contains(out, "[DONE]") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if m, _ := accumulatedChat(t, out); stream != "" && m.Content.String() != "a" {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// TestItemsThatAreInterleavedLoseNothing has a vendor that makes two calls and a text at
// the same time.
func TestItemsThatAreInterleavedLoseNothing(t *testing.T) {
	response := vendorResponse(callItem("c1", "f", `{"a":1}`)+`,`+callItem("c2", "g", `{"b":2}`)+`,`+outputMessage("m", "ab"), completed)
	events := responseEvents(t, response, 3)
	var of [3][]string // the events of each item
	var mixed, rest []string
	for _, e := range events {
		o, err := rawjson.Index([]byte(e), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := rawjson.Int(o.Raw("output_index")); ok {
			of[at] = append(of[at], e)
		} else {
			rest = append(rest, e)
		}
	}
	mixed = append(mixed, rest[:2]...)
	for len(of[0])+len(of[1])+len(of[2]) > 0 {
		for i := range of {
			if len(of[i]) > 0 {
				mixed, of[i] = append(mixed, of[i][0]), of[i][1:]
			}
		}
	}
	stream := vendorEvents(append(mixed, rest[2])...)
	out, err := fromResponses(plainChat(), true, strings.NewReader(stream))
	if m, _ := accumulatedChat(t, out); err != nil || chatText(&m) != `text(ab)c1:f({"a":1})c2:g({"b":2})` {
		t.Errorf("chat: %s, %v", chatText(&m), err)
	}
	out, err = fromResponses(plain(), true, strings.NewReader(stream))
	if c, wrong := follow([]byte(out)); err != nil || wrong != nil || blocksText(c.message.Content) != `c1:f({"a":1})c2:g({"b":2})text(ab)` {
		t.Errorf("messages: %s, %v, %v", blocksText(c.message.Content), err, wrong)
	}
}

func TestTheLastEventSaysWhetherAResponseWithoutAStatusIsComplete(t *testing.T) {
	for name, want := range map[string]string{"completed": "stop", "incomplete": "length"} {
		out, err := fromResponses(plainChat(), true, strings.NewReader(vendorEvents(`{"type":"response.`+name+`","response":{"id":"resp_1","output":[`+outputMessage("m", "a")+`]}}`)))
		if m, finish := accumulatedChat(t, out); err != nil || finish != want || m.Content.String() != "a" {
			t.Errorf("%s: %s, %v", name, out, err)
		}
	}
}

func TestAWaitingStreamOfAResponsePassesHeartbeats(t *testing.T) {
	events := responseEvents(t, vendorResponse(outputMessage("msg_1", "a"), completed), 1)
	out, err := fromResponses(plainChat(), true, strings.NewReader(vendorEvents(events[0], `{"type":"keepalive","sequence_number":2}`, events[len(events)-1])))
	if err != nil || !strings.Contains(out, `"delta":{},"finish_reason":null`) {
		t.Errorf("%v\n%s", err, out)
	}
}
