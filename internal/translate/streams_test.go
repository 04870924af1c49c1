package translate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/internal/operation"
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	messagesop "github.com/tollhouse-ai/gateway/internal/operation/messages"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/upstream"
)

// chunks is a chat stream of these payloads.
func chunks(payloads ...string) string {
	var b strings.Builder
	for _, p := range payloads {
		fmt.Fprintf(&b, "data: %s\n\n", p)
	}
	return b.String()
}

// delta is a chunk with a delta.
func delta(members string) string {
	return `{"id":"chatcmpl-7","choices":[{"index":0,"delta":{` + members + `},"finish_reason":null}]}`
}

// callPiece is a chunk with a piece of a tool call.
func callPiece(index int, id, name, arguments string) string {
	return delta(fmt.Sprintf(`"tool_calls":[{"index":%d,"id":%q,"function":{"name":%q,"arguments":%q}}]`, index, id, name, arguments))
}

// finish is the chunk that says why the model stopped.
func finish(reason string) string {
	return `{"id":"chatcmpl-7","choices":[{"index":0,"delta":{},"finish_reason":"` + reason + `"}]}`
}

const (
	done   = "[DONE]"
	counts = `{"id":"chatcmpl-7","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":1}}}`
)

// streamed translates a chat stream to its end.
func streamed(r *messages.Request, body io.Reader) (string, error) {
	s := answered(r, true, body)
	out, err := io.ReadAll(s)
	return string(out), errors.Join(err, s.Close())
}

// streamRows are streams without their [DONE], and what a client makes of them.
var streamRows = []struct {
	name    string
	stream  []string
	content string
	reason  string
}{
	{"text", []string{delta(`"content":"a"`), delta(`"content":"b"`), finish("stop")}, "text(ab)", "end_turn"},
	{"nothing", []string{delta(`"role":"assistant","content":""`), finish("stop")}, "", "end_turn"},
	{"a stream without a finish reason", []string{delta(`"content":"a"`)}, "text(a)", "end_turn"},
	{"heartbeats", []string{delta(``), `{"id":"","choices":[]}`, `{"choices":[{"delta":null}]}`, delta(`"content":"a"`), delta(`"content":null`), finish("length"), delta(``)}, "text(a)", "max_tokens"},
	{"thoughts and text in turns", []string{delta(`"reasoning":"1"`), delta(`"content":"a"`), delta(`"reasoning_content":"2"`), delta(`"content":"b"`), finish("stop")},
		"thinking(1)text(a)thinking(2)text(b)", "end_turn"},
	{"a thought and text in one chunk", []string{delta(`"content":"a","reasoning_content":"1"`), finish("stop")}, "thinking(1)text(a)", "end_turn"},
	{"a list of blocks", []string{delta(`"content":[{"type":"thinking","thinking":[{"type":"text","text":"h"}]}]`), delta(`"content":[{"type":"thinking","thinking":[{"type":"text","text":"m"}]}]`), delta(`"content":[{"type":"text","text":"a"}]`), delta(`"content":"b"`), finish("stop")}, "thinking(hm)text(ab)", "end_turn"},
	{"arguments that are an object", []string{delta(`"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":{"a":1.0}}}]`), finish("tool_calls")}, `1:f({"a":1.0})`, "tool_use"},
	{"a refusal", []string{delta(`"refusal":"n"`), delta(`"refusal":"o"`), finish("stop")}, "text(no)", "refusal"},
	{"text after the finish reason", []string{delta(`"content":"a"`), finish("stop"), delta(`"content":"b"`)}, "text(ab)", "end_turn"},
	{"a finish reason in each piece of a call", []string{early(callPiece(0, "1", "f", `{"a":`)), early(callPiece(0, "", "", `1}`)), early(callPiece(1, "2", "g", `{}`))}, `1:f({"a":1})2:g({})`, "tool_use"},
	{"another reason at the end", []string{early(delta(`"content":"a"`)), delta(`"content":"b"`), finish("length")}, "text(ab)", "max_tokens"},
	{"another candidate", []string{delta(`"content":"a"`), `{"choices":[{"index":1,"delta":{"content":"x"},"finish_reason":"length"}]}`, finish("stop")}, "text(a)", "end_turn"},

	{"one call", []string{callPiece(0, "1", "f", `{"a":`), callPiece(0, "", "", `"}"}`), finish("tool_calls")}, `1:f({"a":"}"})`, "tool_use"},
	{"a call that is finished by stop", []string{callPiece(0, "1", "f", `{}`), finish("stop")}, `1:f({})`, "tool_use"},
	{"a call without arguments", []string{callPiece(0, "1", "f", ``), finish("tool_calls")}, `1:f({})`, "tool_use"},
	{"a call that is cut by max_tokens", []string{callPiece(0, "1", "f", `{"a":`), finish("length")}, `1:f({"a":)`, "max_tokens"},
	{"calls one after the other", []string{callPiece(0, "1", "f", ""), callPiece(0, "", "", `{}`), callPiece(1, "2", "g", `{"b":`), callPiece(1, "", "", `[]}`), finish("tool_calls")},
		`1:f({})2:g({"b":[]})`, "tool_use"},
	{"interleaved calls", []string{callPiece(0, "1", "f", `{"a`), callPiece(1, "2", "g", `{"b`), callPiece(0, "", "", `":1`), callPiece(2, "3", "h", `{}`), callPiece(1, "", "", `":2}`), callPiece(0, "", "", `}`), finish("tool_calls")},
		`1:f({"a":1})2:g({"b":2})3:h({})`, "tool_use"},
	{"a quote and a bracket in a string", []string{callPiece(0, "1", "f", `{"a":"\"}`), callPiece(1, "2", "g", `{}`), callPiece(0, "", "", `b"}`), finish("tool_calls")}, `1:f({"a":"\"}b"})2:g({})`, "tool_use"},
	{"calls that wait for each other to the end", []string{callPiece(0, "1", "f", `{`), callPiece(1, "2", "g", `{`), delta(`"content":"t"`), callPiece(1, "", "", `}`), finish("length")},
		`1:f({)2:g({})text(t)`, "max_tokens"},
	{"two calls in one chunk", []string{delta(`"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"2","function":{"name":"g","arguments":"{}"}}]`), finish("tool_calls")},
		`1:f({})2:g({})`, "tool_use"},
	{"text around calls", []string{delta(`"content":"a"`), callPiece(0, "1", "f", `{}`), delta(`"content":"b"`), callPiece(1, "2", "g", `{}`), finish("tool_calls")},
		`text(a)1:f({})text(b)2:g({})`, "tool_use"},
	{"the id and the name in every piece", []string{callPiece(0, "1", "f", `{"a"`), callPiece(0, "1", "f", `:1}`), callPiece(1, "2", "g", `{}`), finish("tool_calls")}, `1:f({"a":1})2:g({})`, "tool_use"},
	{"the name after the id", []string{callPiece(0, "1", "", ``), delta(`"content":"a"`), callPiece(0, "", "f", `{}`), finish("tool_calls")}, `1:f({})text(a)`, "tool_use"},
	{"all calls numbered 0", []string{callPiece(0, "1", "f", `{}`), callPiece(0, "2", "f", `{}`), finish("tool_calls")}, `1:f({})2:f({})`, "tool_use"},
	{"all calls numbered 0 and without an id", []string{callPiece(0, "", "f", `{}`), callPiece(0, "", "f", `{}`), finish("tool_calls")}, `toolu_7_0:f({})toolu_7_1:f({})`, "tool_use"},
	{"calls without a number", []string{delta(`"tool_calls":[{"function":{"name":"f","arguments":"{"}}]`), delta(`"tool_calls":[{"function":{"arguments":"}"}}]`), delta(`"tool_calls":[{"function":{"name":"g","arguments":"{}"}}]`), finish("stop")},
		`toolu_7_0:f({})toolu_7_1:g({})`, "tool_use"},
	{"blank arguments after whole ones", []string{callPiece(0, "1", "f", `{}`), callPiece(1, "2", "g", `{}`), callPiece(0, "", "", "\n"), finish("stop")}, `1:f({})2:g({})`, "tool_use"},
	{"the older form", []string{delta(`"function_call":{"name":"f","arguments":""}`), delta(`"function_call":{"arguments":"{}"}`), finish("function_call")}, `toolu_7_0:f({})`, "tool_use"},
}

// vendorEvents writes a stream out of its events' data.
func vendorEvents(events ...string) string {
	var b []byte
	for _, e := range events {
		var kind struct {
			Type string `json:"type"`
		}
		_ = json.Unmarshal([]byte(e), &kind) // a test may want what is no JSON
		b = sse.AppendEvent(b, kind.Type, []byte(e))
	}
	return string(b)
}

const (
	vendorStart = `{"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"vendor-large","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":4,"cache_read_input_tokens":6,"output_tokens":1}}}`
	vendorPing  = `{"type":"ping"}`
	vendorEnd   = `{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":5,"output_tokens_details":{"thinking_tokens":2}}}`
	vendorStop  = `{"type":"message_stop"}`
)

func blockStart(index, block string) string {
	return `{"type":"content_block_start","index":` + index + `,"content_block":` + block + `}`
}

func blockDelta(index, delta string) string {
	return `{"type":"content_block_delta","index":` + index + `,"delta":` + delta + `}`
}

func blockEnd(index string) string { return `{"type":"content_block_stop","index":` + index + `}` }

// file is the text of a file in testdata.
func file(name string) string {
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		panic(err)
	}
	return string(data)
}

// richStream has everything that a stream of a message can have; richContent is its
// content, and richChunks what a client of chat gets of it.
func richStream() string { return file("message_stream.txt") }

func richChunks() string { return file("message_stream_chunks.golden") }

func richContent() string {
	return `[{"type":"thinking","thinking":"hé \"so\"","signature":"s1"},{"type":"redacted_thinking","data":"xx"},{"type":"text","text":"let me\n"},{"type":"tool_use","id":"t1","name":"f","input":{"a":[1,2]}},{"type":"tool_use","id":"t2","name":"g","input":{}}]`
}

// chunksOf translates a stream of a message to its end.
func chunksOf(src io.Reader) (string, error) {
	got, err := io.ReadAll(answered(plainChat(), true, src))
	return string(got), err
}

func TestAStreamOfChunksBecomesAStreamOfEvents(t *testing.T) {
	got, err := streamed(thinker(), strings.NewReader(chunks(delta(`"role":"assistant"`), delta(`"reasoning_content":"h"`), delta(`"reasoning_content":"m"`),
		delta(`"content":"Hi"`), callPiece(0, "c1", "f", ""), callPiece(0, "", "", `{"a"`), callPiece(0, "", "", `: 1}`), finish("tool_calls"), counts, done)))
	if err != nil {
		t.Fatal(err)
	}
	capabilitytest.Golden(t, *update, "message_of_chat_stream.golden", []byte(got))
}

func TestAStreamOfAMessageBecomesOneOfChunks(t *testing.T) {
	for name, src := range map[string]io.Reader{
		"at once":             strings.NewReader(richStream()),
		"byte by byte":        iotest.OneByteReader(strings.NewReader(richStream())),
		"more after its end":  strings.NewReader(richStream() + vendorEvents(vendorStart, `{"type":`) + "data: x"),
		"an error at its end": io.MultiReader(strings.NewReader(richStream()), iotest.ErrReader(errors.New("late"))),
	} {
		got, err := chunksOf(src)
		if diff := cmp.Diff(richChunks(), got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got)\n%s", name, err, diff)
		}
	}
}

// early is a chunk that names a finish reason before the model has finished.
func early(chunk string) string {
	return strings.Replace(chunk, `"finish_reason":null`, `"finish_reason":"tool_calls"`, 1)
}

func TestPiecesInAnyOrderMakeBlocksInOrder(t *testing.T) {
	for _, row := range streamRows {
		whole := chunks(append(row.stream, done)...)
		for name, body := range map[string]io.Reader{"at once": strings.NewReader(whole), "byte by byte": iotest.OneByteReader(strings.NewReader(whole))} {
			out, err := streamed(thinker(), body)
			c, wrong := follow([]byte(out))
			if err != nil || wrong != nil || !c.over {
				t.Errorf("%s %s: %v, %v\n%s", row.name, name, err, wrong, out)
				continue
			}
			if got := blocksText(c.message.Content); got != row.content || *c.message.StopReason != row.reason {
				t.Errorf("%s %s: %s, %s; want %s, %s", row.name, name, got, *c.message.StopReason, row.content, row.reason)
			}
			if c.message.ID != "msg_7" || c.message.Model != "public" || c.message.Role != "assistant" || c.message.Type != "message" {
				t.Errorf("%s %s: %+v", row.name, name, c.message)
			}
		}
	}
}

func TestTheLastEventHasTheWholeUsage(t *testing.T) {
	const want = `{"input_tokens":1,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":3,"output_tokens_details":{"thinking_tokens":1}}`
	for name, row := range map[string]struct{ stream, usage string }{
		"after the finish reason":  {chunks(delta(`"content":"a"`), finish("stop"), counts, done), want},
		"without [DONE]":           {chunks(delta(`"content":"a"`), finish("stop"), counts), want},
		"before the finish reason": {chunks(delta(`"content":"a"`), counts, finish("stop"), done), want},
		"in the choice": {chunks(`{"id":"chatcmpl-7","choices":[{"delta":{"content":"a"},"finish_reason":"stop",`+
			`"usage":{"prompt_tokens":5,"completion_tokens":3,"cached_tokens":4,"completion_tokens_details":{"reasoning_tokens":1}}}]}`, done), want},
		"twice":        {chunks(`{"id":"chatcmpl-7","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1}}`, finish("stop"), counts, done), want},
		"not reported": {chunks(delta(`"content":"a"`), finish("stop"), done), "{}"},
	} {
		out, err := streamed(thinker(), strings.NewReader(row.stream))
		c, wrong := follow([]byte(out))
		if err != nil || wrong != nil || !c.over || string(c.usage) != row.usage {
			t.Errorf("%s: %v, %v, %s", name, err, wrong, c.usage)
		}
	}
}

func TestTheUsageChunkHasWhatTheUpstreamCounted(t *testing.T) {
	for name, row := range map[string]struct {
		events []string
		want   string
		usages int
	}{
		"a later smaller count takes nothing away": {[]string{vendorStart, vendorEnd, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":0,"cache_read_input_tokens":null,"output_tokens":3}}`}, chatUsage, 2},
		"a prompt that is counted at the end alone": {[]string{`{"type":"message_start","message":{"id":"msg_01","usage":{"input_tokens":0,"output_tokens":0}}}`, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":7,"output_tokens":2}}`},
			`"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":0}}}`, 1},
		"nothing is left to the gateway": {[]string{`{"type":"message_start","message":{"id":"msg_01","usage":{"output_tokens":1}}}`}, `"finish_reason":"stop"}]}` + "\n\n" + sse.Done, 0},
	} {
		got, err := chunksOf(strings.NewReader(vendorEvents(append(row.events, vendorStop)...)))
		if err != nil || !strings.Contains(got, row.want) || strings.Count(got, `"usage":`) != row.usages || strings.Count(got, `"finish_reason":"`) != 1 {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestTheGatewayReadsTheUsageOfATranslatedStream(t *testing.T) {
	for tail, estimated := range map[string]bool{chunks(counts, done): false, chunks(done): true} {
		tap := (&messagesop.Request{Request: plain()}).NewTap(operation.AnswerOptions{})
		pass(t, tap.Event, answered(plain(), true, strings.NewReader(chunks(delta(`"content":"four words of text"`), finish("stop"))+tail)), nil)
		if u := tap.Usage(); u.Estimated != estimated || u.Output < 3 || !estimated && (u.Input != 1 || u.CachedInput != 4 || u.Output != 3) {
			t.Errorf("estimated: %t, want %t: %+v", u.Estimated, estimated, u)
		}
	}
	tap := (&chatop.Request{Request: plainChat()}).NewTap(operation.AnswerOptions{NewID: func(string) string { return "own" }})
	first := true
	pass(t, tap.Event, answered(plainChat(), true, strings.NewReader(richStream())), func() {
		if u := tap.Usage(); first && (u.Input != 10 || u.CachedInput != 6 || u.CacheWrite != 4 || u.Output != 0) {
			t.Errorf("a client that leaves at once owes %+v", u)
		}
		first = false
	})
	if got, want := tap.Usage(), (billing.Usage{Input: 10, CachedInput: 6, CacheWrite: 4, Output: 5, Reasoning: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// pass gives the events of a translated stream to a tap; each, if given, runs after
// every event. It returns what the client gets, and the error that ended the stream.
func pass(t *testing.T, tap func([]byte, string, []byte) ([]byte, bool, error), stream io.Reader, each func()) (out []byte, err error) {
	t.Helper()
	events := sse.NewReader(stream, 0)
	defer events.Release()
	for {
		e, err := events.Next()
		if err != nil {
			return out, err
		}
		if out, _, err = tap(out, e.Name, e.Data); err != nil {
			t.Fatal(err)
		}
		if each != nil {
			each()
		}
	}
}

func TestAStreamThatGoesWrongEndsInAnErrorAfterWhatCame(t *testing.T) {
	const a = "text(a)"
	for _, row := range []struct{ name, stream, content string }{
		{"an empty body", "", ""},
		{"only [DONE]", chunks(done), ""},
		{"cut after text", chunks(delta(`"content":"a"`)), a},
		{"cut after the finish reason", chunks(delta(`"content":"a"`), finish("stop")), a},
		{"an error frame", chunks(delta(`"content":"a"`), `{"error":{"message":"secret words","code":"x"}}`), a},
		{"an error first", chunks(`{"error":{"message":"secret words"}}`), ""},
		{"an error event", chunks(delta(`"content":"a"`)) + "event: error\ndata: {\"message\":\"secret words\"}\n\n" + chunks(finish("stop"), counts, done), a},
		{"a chunk that is no JSON", chunks(delta(`"content":"a"`), `{"choices":`), a},
		{"a chunk of another form", chunks(delta(`"content":"a"`), `{"choices":{}}`), a},
		{"a chunk that is no object", chunks(delta(`"content":"a"`), `[]`), a},
		{"a call without a name", chunks(delta(`"content":"a"`), callPiece(0, "1", "", "{}"), finish("stop"), done), a},
		{"a call that goes on after its end", chunks(callPiece(0, "1", "f", "{}"), callPiece(1, "2", "g", "{"), callPiece(0, "1", "", "{}"), done), "1:f({})2:g({)"},
		{"an event beyond the limit", chunks(delta(`"content":"a"`), delta(`"content":"`+strings.Repeat("x", 9<<20)+`"`), done), a},
	} {
		out, err := streamed(thinker(), strings.NewReader(row.stream))
		c, wrong := follow([]byte(out))
		if got := blocksText(c.message.Content); !fault.Is(err, fault.BadGateway) || strings.Contains(err.Error(), "secret words") || wrong != nil || c.over || got != row.content {
			t.Errorf("%s: %v, %v, %s", row.name, err, wrong, out)
		}
	}
	begun := vendorEvents(vendorStart, blockStart("0", `{"type":"text","text":"a"}`))
	for name, stream := range map[string]string{
		"empty":                "",
		"content first":        vendorEvents(blockStart("0", `{"type":"text","text":"a"}`)),
		"no message":           vendorEvents(`{"type":"message_start"}`),
		"an end alone":         "",
		"an error":             begun + vendorEvents(`{"type":"error","error":{"type":"overloaded_error","message":"secret words"}}`),
		"an error by name":     begun + "\nevent: error\ndata: {\"message\":\"secret words\"}\n\n",
		"no JSON":              begun + vendorEvents(`{"type":`),
		"a terminator of chat": begun + vendorEvents(`[DONE]`),
		"a second message":     begun + vendorEvents(vendorStart),
		"no index":             begun + vendorEvents(`{"type":"content_block_start","content_block":{"type":"text"}}`),
		"no block":             begun + vendorEvents(`{"type":"content_block_start","index":1}`),
		"no such block":        begun + vendorEvents(blockDelta("1", `{"type":"text_delta","text":"b"}`)),
		"no delta":             begun + vendorEvents(`{"type":"content_block_delta","index":0}`),
		"a call without id":    begun + vendorEvents(blockStart("1", `{"type":"tool_use","name":"f"}`)),
		"a call without name":  begun + vendorEvents(blockStart("1", `{"type":"tool_use","id":"t1"}`)),
	} {
		got, err := chunksOf(strings.NewReader(stream + vendorEvents(vendorEnd, vendorStop)))
		if err == nil || fault.From(err).HTTPStatus() < 500 || strings.Contains(err.Error(), "secret words") {
			t.Errorf("%s: %v", name, err)
		}
		if strings.HasPrefix(stream, begun) != strings.HasSuffix(got, `{"index":0,"delta":{"content":"a"},"finish_reason":null}]}`+"\n\n") {
			t.Errorf("%s: %q", name, got)
		}
	}
	broken := errors.New("broken")
	out, err := streamed(thinker(), io.MultiReader(strings.NewReader(chunks(delta(`"content":"a"`))), iotest.ErrReader(broken)))
	if c, wrong := follow([]byte(out)); !errors.Is(err, broken) || wrong != nil || blocksText(c.message.Content) != a {
		t.Errorf("the body's own error: %v, %v: %s", err, wrong, out)
	}
}

func TestAStreamThatIsCutAnywhereIsNeverTakenForAWholeOne(t *testing.T) {
	response := responseEvents(t, vendorResponse(reasoningItem("rs_1", `"blob"`, "h")+`,`+outputMessage("msg_1", "a")+`,`+callItem("c1", "f", `{"a":1}`), completed), 3)
	for _, row := range []struct {
		spoken  upstream.Op
		request any
		whole   string
		last    string // of the answer: with it nothing is missing
	}{
		{upstream.ChatCompletion, thinker(), chunks(delta(`"reasoning_content":"h"`), delta(`"content":"a"`), callPiece(0, "1", "f", `{"a":1}`), finish("tool_calls"), counts, done), counts},
		{upstream.Messages, plainChat(), richStream(), vendorStop},
		{upstream.Responses, plainChat(), vendorEvents(response...), response[len(response)-1]},
	} {
		read := func(n int) (string, error) {
			out, err := io.ReadAll(answeredBy(row.spoken, row.request, true, strings.NewReader(row.whole[:n])))
			return string(out), err
		}
		all, err := read(len(row.whole))
		if err != nil {
			t.Fatal(err)
		}
		complete := strings.LastIndex(row.whole, row.last) + len(row.last)
		for n := range len(row.whole) {
			out, err := read(n)
			if n >= complete != (err == nil) || err == nil && out != all || err != nil && (!fault.Is(err, fault.BadGateway) || out == all || !strings.HasPrefix(all, out)) {
				t.Fatalf("%s cut after %d of %d bytes: %v after %q", row.spoken, n, len(row.whole), err, out)
			}
		}
	}
}

func TestWhatWaitsForItsTurnIsBounded(t *testing.T) {
	large, later, many := []string{callPiece(0, "1", "f", "{")}, []string(nil), []string(nil)
	for range 9 {
		large = append(large, callPiece(1, "2", "g", strings.Repeat("x", 1<<20)))
	}
	for i := range 6 { // never more than 2 MiB at a time
		later = append(later, callPiece(2*i, "a", "f", "{"), callPiece(2*i+1, "b", "g", `{"x":"`+strings.Repeat("x", 2<<20)), callPiece(2*i, "", "", "}"), callPiece(2*i+1, "", "", `"}`))
	}
	for i := range 1025 {
		many = append(many, callPiece(i, fmt.Sprint(i), "f", "{}"))
	}
	for _, row := range []struct {
		name    string
		stream  []string
		refused bool
	}{
		{"many bytes", large, true}, {"many bytes one after the other", later, false}, {"many calls", many, true},
	} {
		_, err := streamed(thinker(), strings.NewReader(chunks(append(row.stream, finish("stop"), done)...)))
		if row.refused != fault.Is(err, fault.BadGateway) || !row.refused && err != nil {
			t.Errorf("%s: %v", row.name, err)
		}
	}
}

func TestEveryEventIsHandedOnAtOnce(t *testing.T) {
	type step struct{ event, want string }
	for name, row := range map[string]struct {
		request any
		steps   []step
		after   string
	}{
		"chunks": {thinker(), []step{
			{chunks(`{"id":"chatcmpl-7","choices":[]}`), "message_start"},
			{chunks(delta(`"content":"a"`)), "text_delta"},
			{chunks(delta(``)) + chunks(delta(`"content":"b"`)), "text_delta"},
			{chunks(finish("stop")) + chunks(counts), "message_stop"},
		}, chunks(done)},
		"events": {plainChat(), []step{
			{vendorEvents(vendorPing, vendorStart), `"role":"assistant"`},
			{vendorEvents(vendorPing), `"delta":{}`},
			{vendorEvents(blockStart("0", `{"type":"text","text":""}`), blockDelta("0", `{"type":"text_delta","text":"a"}`)), `"content":"a"`},
			{vendorEvents(blockEnd("0"), blockStart("1", `{"type":"tool_use","id":"t","name":"f"}`)), `"name":"f"`},
			{vendorEvents(vendorEnd), `"arguments":"{}"`},
			{vendorEvents(vendorPing, vendorStop), "[DONE]"},
		}, vendorEvents(vendorPing)},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := io.Pipe()
			s := answered(row.request, true, from)
			buf := make([]byte, 64<<10)
			write := func(text string) { _, _ = io.WriteString(to, text) } // returns when it was read
			if n, err := s.Read(nil); n != 0 || err != nil {
				t.Errorf("no buffer at all: %d, %v", n, err)
			}
			for _, step := range row.steps {
				go write(step.event)
				n, err := s.Read(buf) // nothing more is written before it returns
				if err != nil || !strings.Contains(string(buf[:n]), step.want) {
					t.Fatalf("%s: %q, %v", step.event, buf[:n], err)
				}
			}
			go func() {
				write(row.after)
				_ = to.Close()
			}()
			if n, err := s.Read(buf); n != 0 || err != io.EOF {
				t.Errorf("after the end: %q, %v", buf[:n], err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestClosingAStreamEndsAReadThatWaits(t *testing.T) {
	from, to := io.Pipe()
	s := answered(thinker(), true, from)
	read := make(chan error)
	go func() {
		_, err := io.ReadAll(iotest.OneByteReader(s))
		read <- err
	}()
	if _, err := io.WriteString(to, "data: {"); err != nil { // returns when it was read
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-read; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the read ends with %v", err)
	}
}

func TestThoughtsThatNobodyAskedForAreProgressButNotShown(t *testing.T) {
	s := answered(plain(), true, iotest.OneByteReader(strings.NewReader(
		chunks(delta(`"reasoning_content":"one"`), delta(`"reasoning":"twos"`), delta(`"reasoning_content":"three","content":"a"`)))))
	buf, got := make([]byte, 64<<10), ""
	for range 3 {
		n, err := s.Read(buf) // one for each chunk, or it would wait for the next
		if err != nil {
			t.Fatal(err)
		}
		got += string(buf[:n])
	}
	if strings.Count(got, "event: gateway.hidden\n") != 3 || strings.Contains(got, "one") || strings.Contains(got, "two") || strings.Contains(got, "three") {
		t.Errorf("read %q", got)
	}
}

func TestAHiddenThoughtIsPaidFor(t *testing.T) {
	const thought = "Ünseen \"words\" 思考\n"
	gone := errors.New("gone")
	piece := delta(`"reasoning_content":` + quoted(thought))
	want := tokencount.Tokens(2 * tokencount.StringQuarters(rawjson.Quote(nil, thought)))
	for _, row := range []struct {
		name      string
		rest      io.Reader
		output    int64
		estimated bool
		ends      error
	}{
		{"a client that leaves during it", iotest.ErrReader(gone), want, true, gone},
		{"a whole stream, as reported", strings.NewReader(chunks(delta(`"content":"a"`), finish("stop"), counts, done)), 3, false, io.EOF},
	} {
		tap := (&messagesop.Request{Request: plain()}).NewTap(operation.AnswerOptions{})
		got, err := pass(t, tap.Event, answered(plain(), true, io.MultiReader(strings.NewReader(chunks(piece, piece)), row.rest)), nil)
		if u := tap.Usage(); u.Output != row.output || u.Estimated != row.estimated || !errors.Is(err, row.ends) {
			t.Errorf("%s: charged %+v, %v; want %d", row.name, u, err, row.output)
		}
		if strings.Contains(string(got), "hidden") || !strings.Contains(string(got), "event: message_start\n") {
			t.Errorf("%s: the client got %q", row.name, got)
		}
	}
}

// told is what a client makes of a stream of a message.
type told struct {
	message messages.Response // as message_start has it, with the content that followed
	started bool
	open    bool // a block is open
	stopped bool // message_delta came
	over    bool // message_stop came
	usage   jsontext.Value
}

// follow reads events as a strict client does: it fails at the first that is out
// of order.
func follow(stream []byte) (told, error) {
	var c told
	events := sse.NewReader(bytes.NewReader(stream), 0)
	defer events.Release()
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err == nil {
			err = c.take(e.Name, e.Data)
		}
		if err != nil {
			return c, err
		}
	}
}

// heard is any event.
type heard struct {
	Type    string            `json:"type"`
	Index   int               `json:"index"`
	Message messages.Response `json:"message"`
	Block   messages.Block    `json:"content_block"`
	Delta   struct {
		Type       string  `json:"type"`
		Text       string  `json:"text"`
		Thinking   string  `json:"thinking"`
		Signature  string  `json:"signature"`
		Partial    string  `json:"partial_json"`
		StopReason *string `json:"stop_reason"`
	} `json:"delta"`
	Usage jsontext.Value `json:"usage"`
}

func (c *told) take(name string, data []byte) error {
	var e heard
	if err := json.Unmarshal(data, &e, jsontext.AllowDuplicateNames(true)); err != nil {
		return err
	}
	wrong := fmt.Errorf("out of order: %s", data)
	switch {
	case e.Type != name || c.over:
		return wrong
	case e.Type == "message_start" && !c.started:
		c.started, c.message = true, e.Message
		if len(e.Message.Content) > 0 || e.Message.StopReason != nil {
			return wrong
		}
	case !c.started:
		return wrong
	case e.Type == "gateway.hidden": // for the tap
	case e.Type == "content_block_start" && !c.open && !c.stopped && e.Index == len(c.message.Content):
		c.open, c.message.Content = true, append(c.message.Content, e.Block)
		c.message.Content[e.Index].Input = nil
	case e.Type == "content_block_delta" && c.open && e.Index == len(c.message.Content)-1:
		return addTo(&c.message.Content[e.Index], &e)
	case e.Type == "content_block_stop" && c.open && e.Index == len(c.message.Content)-1:
		c.open = false
		b := &c.message.Content[e.Index]
		if b.Type == "thinking" && *b.Signature == "" {
			return fmt.Errorf("unsigned: %s", data)
		}
		if b.Type == "tool_use" && b.Input == nil {
			b.Input = jsontext.Value("{}")
		}
	case e.Type == "message_delta" && !c.open && !c.stopped && e.Delta.StopReason != nil:
		c.stopped, c.message.StopReason, c.usage = true, e.Delta.StopReason, e.Usage
	case e.Type == "message_stop" && c.stopped:
		c.over = true
	default:
		return wrong
	}
	return nil
}

// addTo puts a delta to the open block.
func addTo(b *messages.Block, e *heard) error {
	switch b.Type + " " + e.Delta.Type {
	case "text text_delta":
		b.Text += e.Delta.Text
	case "thinking thinking_delta":
		b.Thinking += e.Delta.Thinking
	case "thinking signature_delta":
		b.Signature = &e.Delta.Signature
	case "tool_use input_json_delta":
		b.Input = append(b.Input, e.Delta.Partial...)
	default:
		return fmt.Errorf("a %s in a block of %s", e.Delta.Type, b.Type)
	}
	return nil
}

// blocksText is content in short: its blocks one after the other.
func blocksText(blocks []messages.Block) string {
	var b bytes.Buffer
	for i := range blocks {
		switch block := &blocks[i]; block.Type {
		case "text":
			fmt.Fprintf(&b, "text(%s)", block.Text)
		case "thinking":
			fmt.Fprintf(&b, "thinking(%s)", block.Thinking)
		case "tool_use":
			fmt.Fprintf(&b, "%s:%s(%s)", block.ID, block.Name, block.Input)
		default:
			fmt.Fprintf(&b, "?%s", block.Type)
		}
	}
	return b.String()
}
