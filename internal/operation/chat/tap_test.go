package chat

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/internal/operation"
)

const (
	asks  = `"stream":true,"stream_options":{"include_usage":true}`
	never = `"stream":true`
)

// tapOf is a tap of a stream of the model "public".
func tapOf(t testing.TB, members string) *Tap {
	t.Helper()
	return parsedAs(t, "public", members).NewTap(operation.AnswerOptions{NewID: func(string) string { return "chatcmpl-minted" }, Created: 7}).(*Tap)
}

// says is a chunk with text.
func says(text string) string {
	return fmt.Sprintf(`{"id":"a","model":"v","choices":[{"index":0,"delta":{"content":%q},"finish_reason":null}]}`, text)
}

const (
	opens   = `{"id":"a","model":"v","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`
	ends    = `{"id":"a","model":"v","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	reports = `{"id":"a","model":"v","choices":[],"usage":{"prompt_tokens":12,"completion_tokens":4,"total_tokens":16}}`
)

// feed passes events through the tap, and returns what the client gets.
func feed(t testing.TB, tap *Tap, events ...string) string {
	t.Helper()
	var out []byte
	for _, e := range events {
		var err error
		if out, _, err = tap.Event(out, "", []byte(e)); err != nil {
			t.Fatalf("%s: %v", e, err)
		}
	}
	return string(out)
}

func TestEachCallOfAStreamHasAnIndexOfItsOwn(t *testing.T) {
	piece := func(members string) string {
		return `{"choices":[{"index":0,"delta":{"tool_calls":[` + members + `]}}]}`
	}
	call := func(id, name, arguments string) string {
		return `{"id":"` + id + `","function":{"name":"` + name + `","arguments":"` + arguments + `"}}`
	}
	at := func(index, call string) string { return `{"index":` + index + `,` + call[1:] }
	numbered := func(index, call string) string { return call[:len(call)-1] + `,"index":` + index + `}` }
	const more = `{"function":{"arguments":"b"}}`
	for _, row := range []struct {
		name       string
		sent, want []string
	}{
		{"whole calls in a chunk each", []string{call("a", "f", "1"), call("b", "f", "2")}, []string{numbered("0", call("a", "f", "1")), numbered("1", call("b", "f", "2"))}},
		{"several in one chunk", []string{call("a", "f", "1") + "," + call("b", "f", "2")}, []string{numbered("0", call("a", "f", "1")) + "," + numbered("1", call("b", "f", "2"))}},
		{"arguments that go on", []string{call("a", "f", "1"), more, more, call("b", "g", ""), more}, []string{numbered("0", call("a", "f", "1")), numbered("0", more), numbered("0", more), numbered("1", call("b", "g", "")), numbered("1", more)}},
		{"the id in each piece", []string{call("a", "f", "1"), call("a", "", "2")}, []string{numbered("0", call("a", "f", "1")), numbered("0", call("a", "", "2"))}},
		{"neither index nor id", []string{call("", "f", "1"), call("", "f", "2"), call("", "f", "2")}, []string{numbered("0", call("", "f", "1")), numbered("1", call("", "f", "2")), numbered("2", call("", "f", "2"))}},
		{"an index of null", []string{at("null", call("a", "f", "1"))}, []string{at("0", call("a", "f", "1"))}},
		{"two ids under one index", []string{at("0", call("a", "f", "1")), at("0", call("b", "f", "2")), at("0", more), at("1", call("c", "g", ""))},
			[]string{at("0", call("a", "f", "1")), at("1", call("b", "f", "2")), at("1", more), at("2", call("c", "g", ""))}},
		{"right indexes", []string{at(" 0", call("a", "f", "1")), at("1", call("b", "f", "2")), at("0", more), at("1", more)}, nil},
		{"right indexes that begin late", []string{at("3", call("a", "f", "1")), at("5", call("b", "f", "2")), at("3", more)}, nil},
		{"an id made up for each piece", []string{at("0", call("a", "f", "1")), at("0", call("b", "", "2"))}, nil},
		{"what is no object", []string{"7", `null`}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			tap := tapOf(t, never)
			if row.want == nil {
				row.want = row.sent
			}
			for i, sent := range row.sent {
				if got, want := feed(t, tap, piece(sent)), "data: "+piece(row.want[i])+"\n\n"; got != want {
					t.Errorf("chunk %d is\n%swant\n%s", i, got, want)
				}
			}
		})
	}
	tap := tapOf(t, never) // candidates are numbered each by itself
	const two = `{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"a","function":{"name":"f"}}]}},{"index":1,"delta":{"tool_calls":[{"id":"b","function":{"name":"f"}}]}}]}`
	if got := feed(t, tap, two); strings.Count(got, `"index":0}]`) != 2 {
		t.Error(got)
	}
}

func TestChoicesThatAreMissingAreAnEmptyList(t *testing.T) {
	for sent, want := range map[string]string{
		`{"id":"a","choices":null,"usage":{"prompt_tokens":1,"completion_tokens":1}}`: `{"id":"a","choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}`,
		`{"id":"a","usage":{"prompt_tokens":1,"completion_tokens":1}}`:                `{"id":"a","usage":{"prompt_tokens":1,"completion_tokens":1},"choices":[]}`,
	} {
		if got := feed(t, tapOf(t, asks), sent); got != "data: "+want+"\n\n" {
			t.Errorf("%s becomes %s", sent, got)
		}
		if got := feed(t, tapOf(t, never), sent); got != "" {
			t.Errorf("%s, of which nobody asked for the usage, becomes %s", sent, got)
		}
	}
}

func TestAChunkShowsThePublicModelAndIsElseUnchanged(t *testing.T) {
	for _, row := range []struct {
		name, members, sent, want string
	}{
		{"text", never, says("hi"), strings.Replace(says("hi"), `"v"`, `"public"`, 1)},
		{"a tool call", never, `{"model":"v","choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}`, `{"model":"public","choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}`},
		{"several lines", never, "{\"model\":\"v\",\n\"choices\":[]}", "{\"model\":\"public\",\n\"choices\":[]}"},
		{"no model", never, `{"choices":[],"x":1.0}`, `{"choices":[],"x":1.0}`},
		{"spelling", never, `{ "x" : 1e400 , "model" : "v" , "choices" : [ ] }`, `{ "x" : 1e400 , "model" : "public" , "choices" : [ ] }`},
		{"no error", never, `{"error":null,"choices":[],"y":-0}`, `{"choices":[],"y":-0}`},
		{"usage that was asked for", asks, reports, strings.Replace(reports, `"v"`, `"public"`, 1)},
		{"usage that was not", never, reports, ""},
		{"usage without choices", never, `{"id":"a","usage":{"prompt_tokens":1,"completion_tokens":1}}`, ""},
		{"null usage that was asked for", asks, `{"choices":[{"delta":{"content":"a"}}],"usage":null}`, `{"choices":[{"delta":{"content":"a"}}],"usage":null}`},
		{"null usage that was not", never, `{"choices":[{"delta":{"content":"a"}}],"usage":null}`, `{"choices":[{"delta":{"content":"a"}}]}`},
		{"usage beside the end", never, `{"choices":[{"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1},"z":1}`, `{"choices":[{"delta":{},"finish_reason":"stop"}],"z":1}`},
	} {
		out, done, err := tapOf(t, row.members).Event([]byte("> "), "", []byte(row.sent))
		want := "> "
		if row.want != "" {
			want += "data: " + strings.ReplaceAll(row.want, "\n", "\ndata: ") + "\n\n"
		}
		if diff := cmp.Diff(want, string(out)); diff != "" || err != nil || done {
			t.Errorf("%s: done %t, %v (-want +got):\n%s", row.name, done, err, diff)
		}
	}
}

func TestAnErrorInAStreamEndsIt(t *testing.T) {
	for _, row := range []struct{ name, data, message string }{
		{"", `{"error":{"message":"Overloaded."}}`, "reported an error"},
		{"error", `{"message":"Overloaded."}`, "reported an error"},
		{"", `{"type":"response.failed"}`, "reported an error"},
		{"", `{"object":"error","message":"Overloaded."}`, "reported an error"},
		{"", `{"code":1001,"message":"Overloaded."}`, "reported an error"},
		{"", `{"detail":"Overloaded."}`, "reported an error"},
		{"error", `overloaded`, "not one JSON object"},
		{"", `{"choices":[`, "not one JSON object"},
		{"", `{"choices":[]}{}`, "not one JSON object"},
	} {
		out, done, err := tapOf(t, never).Event(nil, row.name, []byte(row.data))
		f := fault.From(err)
		if len(out) > 0 || done || f == nil || f.Code != fault.BadGateway || !strings.Contains(f.Message, row.message) {
			t.Errorf("%s %s: %q, %t, %v", row.name, row.data, out, done, err)
		}
	}
}

func TestTheOpeningOfAStreamIsJudged(t *testing.T) {
	for _, row := range []struct {
		name, data    string
		content, fine bool
	}{
		{"", opens, false, true},
		{"", says("a"), true, true},
		{"", ends, true, true},
		{"", reports, false, true},
		{"", `[DONE]`, true, false},
		{"", `{"error":{"message":"x"}}`, true, false},
		{"", `{"error":null,"choices":[]}`, false, true},
		{"", `<html>`, true, false},
		{"error", `{}`, true, false},
	} {
		content, err := new(Request).Opening(row.name, []byte(row.data))
		if content != row.content || (err == nil) != row.fine || err != nil && !fault.Is(err, fault.BadGateway) {
			t.Errorf("%s %s: %t, %v", row.name, row.data, content, err)
		}
	}
}

func TestTheUsageChunkIsMadeIfTheUpstreamGaveNone(t *testing.T) {
	const made = `data: {"id":"a","object":"chat.completion.chunk","created":7,"model":"public","choices":[],"usage":`
	for _, row := range []struct {
		name, members string
		events        []string
		want          string // after the upstream's own chunks
	}{
		{"asked, not given", asks, []string{says("Hello you."), ends}, made + `{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}` + "\n\n"},
		{"asked, given in a choice", asks, []string{says("Hello you."), `{"id":"a","choices":[{"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":12,"completion_tokens":4,"cached_tokens":2,"completion_tokens_details":{"reasoning_tokens":1}}}]}`}, made + `{"prompt_tokens":12,"completion_tokens":4,"total_tokens":16,"prompt_tokens_details":{"cached_tokens":2},"completion_tokens_details":{"reasoning_tokens":1}}}` + "\n\n"},
		{"asked, given", asks, []string{says("Hello you."), ends, reports}, ""},
		{"not asked", never, []string{says("Hello you."), ends}, ""},
	} {
		tap := tapOf(t, row.members)
		feed(t, tap, row.events...)
		for i, want := range []string{row.want, ""} { // once
			out, done, err := tap.Event(nil, "", []byte("[DONE]"))
			if diff := cmp.Diff(want, string(out)); diff != "" || err != nil || !done {
				t.Errorf("%s, end %d: done %t, %v (-want +got):\n%s", row.name, i, done, err, diff)
			}
		}
	}
}

func TestAHeartbeatIsAnEmptyChunkThatKeepsTheStreamsID(t *testing.T) {
	const beat = `data: {"id":"%s","object":"chat.completion.chunk","created":7,"model":"public","choices":[{"index":0,"delta":{},"finish_reason":null}]}` + "\n\n"
	tap := tapOf(t, asks)
	feed(t, tap, opens)
	if got, want := string(tap.Heartbeat(nil)), fmt.Sprintf(beat, "a"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if tap.Output() != 0 {
		t.Errorf("%d tokens", tap.Output())
	}

	tap = tapOf(t, asks)
	for _, id := range []string{`""`, `null`, `7`} { // are none
		feed(t, tap, `{"id":`+id+`,"choices":[]}`)
	}
	first := string(tap.Heartbeat(nil)) + string(tap.Heartbeat(nil))
	if want := strings.Repeat(fmt.Sprintf(beat, "chatcmpl-minted"), 2); first != want {
		t.Errorf("got %s, want %s", first, want)
	}
	later := feed(t, tap, opens, says("a"), ends, reports) + string(tap.Heartbeat(nil))
	if strings.Contains(later, `"id":"a"`) || strings.Count(later, `"id":"chatcmpl-minted"`) != 5 {
		t.Errorf("the minted id was not kept:\n%s", later)
	}
}

func TestAStreamThatIsCutShortEndsEveryCandidate(t *testing.T) {
	tap := tapOf(t, asks+`,"n":2`)
	feed(t, tap, says("Hello you."))
	const head = `data: {"id":"a","object":"chat.completion.chunk","created":7,"model":"public","choices":[`
	want := head + `{"index":0,"delta":{},"finish_reason":"length"},{"index":1,"delta":{},"finish_reason":"length"}]}` + "\n\n" +
		head + `],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}` + "\n\n"
	if diff := cmp.Diff(want, string(tap.CutShort(nil))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTextAfterTheLastReportIsEstimated(t *testing.T) {
	long := strings.Repeat("word", 20)
	usage := func(p, c string) string {
		return `{"choices":[],"usage":{"prompt_tokens":` + p + `,"completion_tokens":` + c + `}}`
	}
	for _, row := range []struct {
		name   string
		events []string
		want   billing.Usage
	}{
		{"report last", []string{says(long), usage("9", "4")}, billing.Usage{Input: 9, Output: 4}},
		{"text last", []string{usage("9", "4"), says(long)}, billing.Usage{Input: 9, Output: 20, Estimated: true}},
		{"an explicit zero at the end", []string{says(long), usage("0", "0")}, billing.Usage{Zero: true}},
		{"a late report of the input only", []string{usage("9", "4"), says(long), usage("9", "null")}, billing.Usage{Input: 9, Output: 20, Estimated: true}},
		{"nothing", nil, billing.Usage{Input: 5, Estimated: true}},
		{"nonsense", []string{says(long), usage("-9", `"x"`)}, billing.Usage{Input: 5, Output: 20, Estimated: true, Anomaly: true}},
		{"nonsense after sense", []string{usage("9", "30"), says(long), usage("-9", `"x"`)}, billing.Usage{Input: 9, Output: 30, Anomaly: true}},
	} {
		tap := tapOf(t, never)
		feed(t, tap, row.events...)
		if diff := cmp.Diff(row.want, tap.Usage()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
}

func TestArgumentsThatAreAnObjectBecomeTheTextOfIt(t *testing.T) {
	const given, want = `"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments": {"a":[1.0,"\n"]}}},{"index":1,"id":"d","function":{"arguments":"{}"}},{"index":1,"function":{"arguments":[]}}]`, `"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments": "{\"a\":[1.0,\"\\n\"]}"}},{"index":1,"id":"d","function":{"arguments":"{}"}},{"index":1,"function":{"arguments":"[]"}}]`
	tap := tapOf(t, never)
	for range 2 {
		if got := feed(t, tap, `{"id":"a","choices":[{"index":0,"delta":{`+given+`}}]}`); got != `data: {"id":"a","choices":[{"index":0,"delta":{`+want+`}}]}`+"\n\n" {
			t.Errorf("streamed: %s", got)
		}
	}
	a, err := parsedAs(t, "m", "").ReadAnswer([]byte(`{"choices":[{"message":{`+given+`}}],"x":1.0}`), operation.AnswerOptions{})
	if got := `{"choices":[{"message":{` + want + `}}],"x":1.0}`; err != nil || string(a.Body) != got {
		t.Errorf("whole: %s, %v", a.Body, err)
	}
}

func TestTheTextOfAListOfBlocksIsCounted(t *testing.T) {
	long := strings.Repeat("word", 10)
	const list = `"content":[{"type":"thinking","thinking":[{"type":"text","text":"%[1]s"}]},{"type":"text","text":"%[1]s"},{"type":"refusal","refusal":"%[1]s"}]`
	blocks := fmt.Sprintf(list, long)
	tap := tapOf(t, never)
	event := `{"id":"a","choices":[{"index":0,"delta":{` + blocks + `}}]}`
	if got := feed(t, tap, event); got != "data: "+event+"\n\n" {
		t.Errorf("got %s", got)
	}
	if u := tap.Usage(); u.Output != 30 || !u.Estimated {
		t.Errorf("streamed: %+v", u)
	}
	a, err := parsedAs(t, "m", "").ReadAnswer([]byte(`{"choices":[{"message":{`+blocks+`}}]}`), operation.AnswerOptions{})
	if err != nil || a.Usage.Output != 30 || a.Said != 30 {
		t.Errorf("whole: %+v, %v", a, err)
	}
}

func TestTheOrderAndRepetitionOfUsageChunksDoNotMatter(t *testing.T) {
	count := rapid.Int64Range(0, 1000)
	capabilitytest.InAnyOrder(t, func(t *rapid.T) string {
		member := func(name string) string { return fmt.Sprintf(`%q:%d,`, name, count.Draw(t, name)) }
		cachedTokens, thought := count.Draw(t, "cached"), count.Draw(t, "thought")
		usage := fmt.Sprintf(`{%s%s"prompt_tokens_details":{"cached_tokens":%d},"completion_tokens_details":{"reasoning_tokens":%d}}`,
			member("prompt_tokens"), member("completion_tokens"), cachedTokens, thought)
		if rapid.Bool().Draw(t, "nested") {
			return `{"choices":[{"delta":{},"finish_reason":"stop","usage":` + usage + `}]}`
		}
		return `{"choices":[],"usage":` + usage + `}`
	}, usageOf)
}

// usageOf is the usage of a stream that ends in these usage chunks.
func usageOf(t *rapid.T, chunks []string) billing.Usage {
	r, err := Parse([]byte(ask("m", never)))
	tap := r.NewTap(operation.AnswerOptions{})
	for _, c := range append([]string{says("a long answer that was produced before")}, chunks...) {
		if err == nil {
			_, _, err = tap.Event(nil, "", []byte(c))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return tap.Usage()
}
