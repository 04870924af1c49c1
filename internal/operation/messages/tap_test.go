package messages

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/capabilitytest"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/rawjson"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/internal/tokencount"
	"github.com/tollhouse-ai/gateway/upstream"
)

// asked is a parsed request of the model "public" for a stream.
func asked(t testing.TB) *Request {
	t.Helper()
	return valid(t, asks(`"stream":true`))
}

func tapped(t testing.TB) *Tap {
	t.Helper()
	return asked(t).NewTap(operation.AnswerOptions{NewID: func(string) string { return "msg_minted" }}).(*Tap)
}

// wire is one event of an upstream.
type wire struct{ name, data string }

func (w wire) String() string { return "event: " + w.name + "\ndata: " + w.data + "\n\n" }

// ev is an event called as its type says.
func ev(data string) wire {
	kind := strings.SplitN(strings.SplitN(data, `"type":"`, 2)[1], `"`, 2)[0]
	return wire{kind, data}
}

var (
	starts    = ev(`{"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"v","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":3,"cache_read_input_tokens":2,"output_tokens":1},"x":1.0}}`)
	unknowing = ev(`{"type":"message_start","message":{"id":"msg_01","type":"message","role":"assistant","model":"v","content":[],"usage":{"input_tokens":0,"output_tokens":0}}}`)
	pings     = ev(`{"type":"ping"}`)
	opensText = ev(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
	opensTool = ev(`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"look","input":{}}}`)
	closes0   = ev(`{"type":"content_block_stop","index":0}`)
	closes1   = ev(`{"type":"content_block_stop","index":1}`)
	stops     = ev(`{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":30}}`)
	ends      = ev(`{"type":"message_stop"}`)
)

// writes is a piece of text.
func writes(text string) wire {
	return ev(fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%q}}`, text))
}

// calls is a piece of a tool's input.
func calls(text string) wire {
	return ev(fmt.Sprintf(`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":%q}}`, text))
}

// wholeStream is a whole stream.
func wholeStream() []wire {
	return []wire{
		starts, pings, opensText, writes("Hello you, "), writes("there."), closes0,
		opensTool, calls(""), calls(`{"q":`), calls(`"cat"}`), closes1, ev(`{"type":"novel_event","x":1.0}`), stops, ends,
	}
}

// pass feeds events to the tap, and returns what the client gets.
func pass(t testing.TB, tap *Tap, events ...wire) string {
	t.Helper()
	var out []byte
	for _, e := range events {
		var err error
		if out, _, err = tap.Event(out, e.name, []byte(e.data)); err != nil {
			t.Fatalf("%s: %v", e.data, err)
		}
	}
	return string(out)
}

func joined(events []wire) string {
	all := ""
	for _, e := range events {
		all += e.String()
	}
	return all
}

func TestEveryEventPassesAsItCameButForTheModel(t *testing.T) {
	events := wholeStream()
	tap := tapped(t)
	got := pass(t, tap, events...)
	got += tap.Terminator()
	want := strings.Replace(joined(events), `"model":"v"`, `"model":"public"`, 1)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(billing.Usage{Input: 10, CachedInput: 2, CacheWrite: 3, Output: 30}, tap.Usage()); diff != "" {
		t.Error(diff)
	}
}

func TestTheEdgesOfWhatPasses(t *testing.T) {
	for _, row := range []struct {
		name, event, data, want string
	}{
		{"no event line", "", `{"type":"ping"}`, "event: ping\ndata: {\"type\":\"ping\"}\n\n"},
		{"an unknown event", "novel", `{"type":"novel","a":1e400,"a":-0}`, "event: novel\ndata: {\"type\":\"novel\",\"a\":1e400,\"a\":-0}\n\n"},
		{"an unknown event without a line", "", `{"type":"novel"}`, "event: novel\ndata: {\"type\":\"novel\"}\n\n"},
		{"a type that would forge a line", "", `{"type":"a\ndata: b"}`, "event: a\ndata: {\"type\":\"a\\ndata: b\"}\n\n"},
		{"no type", "novel", `{}`, "event: novel\ndata: {}\n\n"},
		{"neither", "", `{}`, "data: {}\n\n"},
		{"several lines", "ping", "{\"type\":\n\"ping\"}", "event: ping\ndata: {\"type\":\ndata: \"ping\"}\n\n"},
		{"a start without a model", "message_start", `{"type":"message_start","message":{"id":"a"}}`, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"a\"}}\n\n"},
		{"a start without a message", "message_start", `{"type":"message_start"}`, "event: message_start\ndata: {\"type\":\"message_start\"}\n\n"},
		{"white space", "message_start", `{ "message" : { "model" : "v" , "x" : 1.0 } , "type" : "message_start" }`, "event: message_start\ndata: { \"message\" : { \"model\" : \"public\" , \"x\" : 1.0 } , \"type\" : \"message_start\" }\n\n"},
		{"an error of null", "ping", `{"type":"ping","error":null}`, "event: ping\ndata: {\"type\":\"ping\",\"error\":null}\n\n"},
	} {
		out, done, err := tapped(t).Event([]byte("> "), row.event, []byte(row.data))
		if diff := cmp.Diff("> "+row.want, string(out)); diff != "" || err != nil || done {
			t.Errorf("%s: %t, %v (-want +got):\n%s", row.name, done, err, diff)
		}
	}
}

func TestAVendorsOwnHiddenEventIsWorthAtMostItsBytes(t *testing.T) {
	for data, quarters := range map[string]int64{
		`{"type":"gateway.hidden","hidden":1000000}`:                                0,
		`{"type":"gateway.hidden","hidden":"1000000"}`:                              7,
		`{"type":"gateway.hidden"}`:                                                 0,
		`{"type":"content_block_delta","delta":{"type":"text_delta","text":"abc"}}`: 0,
		`{"type":"message_stop"}`:                                                   0,
		`{"type":"message_delta","usage":{"output_tokens":1000000}}`:                0,
	} {
		tap := tapped(t)
		pass(t, tap, starts)
		out, done, err := tap.Event(nil, hiddenEvent, []byte(data))
		if len(out) > 0 || done || err != nil || tap.Output() != tokencount.Tokens(quarters) {
			t.Errorf("%s: %q, %t, %v, output %d", data, out, done, err, tap.Output())
		}
	}
	tap := tapped(t)
	if got := pass(t, tap, starts, wire{"ping", `{"type":"ping","hidden":"....."}`}, wire{"ping", `{"type":"ping","hidden":5}`}); tap.Output() != 0 || strings.Count(got, `"hidden"`) != 2 {
		t.Errorf("a ping was believed: output %d, %q", tap.Output(), got)
	}
	if got := pass(t, tap, wire{"", `{"type":"gateway.hidden","hidden":"...."}`}); got != "" || tap.Output() != 1 {
		t.Errorf("without an event line: %q, output %d", got, tap.Output())
	}
}

func TestALongHiddenThoughtFitsIntoEvents(t *testing.T) {
	const most = 100 << 10 // bytes of one event
	thought := strings.Repeat("思", 200<<10)
	tap := tapped(t)
	events := sse.NewReader(strings.NewReader(string(AppendHidden(nil, rawjson.Quote(nil, thought)))), most)
	defer events.Release()
	for {
		e, err := events.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		pass(t, tap, wire{e.Name, string(e.Data)})
	}
	if got := tap.Output(); got != 200<<10 {
		t.Error(fmt.Sprint(got, " tokens"))
	}
}

// Of a stream that fails only what the client got is charged, or what its vendor has counted.
func TestAThoughtThatNobodySawIsDeliveredOnceItIsCounted(t *testing.T) {
	unseen := ev(`{"type":"gateway.hidden","hidden":"...."}`)
	for name, c := range map[string]struct {
		events []wire
		want   bool
	}{
		"nothing":                       {[]wire{starts}, false},
		"text":                          {[]wire{starts, opensText, writes("Hi")}, true},
		"an unseen thought":             {[]wire{starts, unseen}, false},
		"an unseen thought and text":    {[]wire{starts, unseen, opensText, writes("Hi")}, true},
		"one that is counted":           {[]wire{starts, unseen, stops}, true},
		"one that came after the count": {[]wire{starts, stops, unseen}, false},
	} {
		tap := tapped(t)
		pass(t, tap, c.events...)
		if got := tap.Delivered(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestAStreamBeginsWithMessageStart(t *testing.T) {
	for _, e := range []wire{opensText, writes("a"), closes0, stops, ends} {
		out, done, err := tapped(t).Event(nil, e.name, []byte(e.data))
		if len(out) > 0 || done || !fault.Is(err, fault.BadGateway) {
			t.Errorf("%s: %q, %t, %v", e.data, out, done, err)
		}
	}
}

func TestTheTerminatorIsTheUpstreamsOwn(t *testing.T) {
	tap := tapped(t)
	if got := tap.Terminator(); got != ends.String() {
		t.Errorf("%q", got)
	}
	pass(t, tap, starts)
	out, done, err := tap.Event([]byte("> "), "message_stop", []byte(`{"type":"message_stop","x":1}`))
	if string(out) != "> " || !done || err != nil || tap.Terminator() != "event: message_stop\ndata: {\"type\":\"message_stop\",\"x\":1}\n\n" {
		t.Errorf("%q, %t, %v, %q", out, done, err, tap.Terminator())
	}
}

func TestMoneyIsRightWhereverTheClientLeaves(t *testing.T) {
	input := asked(t).InputEstimate(chat.MediaBound{})
	known := billing.Usage{Input: 10, CachedInput: 2, CacheWrite: 3, Estimated: true}
	output := func(n int64) billing.Usage { u := known; u.Output = n; return u }
	final := billing.Usage{Input: 10, CachedInput: 2, CacheWrite: 3, Output: 30}
	want := []billing.Usage{
		{Input: input, Estimated: true}, // nothing
		output(1), output(1), output(1), // message_start counts one token; ping; an empty block
		output(3), output(5), output(5), // text in quarters: 11, 17; the block's end
		output(6), output(6), output(7), output(8), output(8), output(8), // the tool's name and input: 21, 21, 26, 32
		final, final,
	}
	delivered := []int64{0, 0, 0, 0, 3, 5, 5, 6, 6, 7, 8, 8, 8, 30, 30}
	events := wholeStream()
	for n := 0; n <= len(events); n++ {
		tap := tapped(t)
		pass(t, tap, events[:n]...)
		if diff := cmp.Diff(want[n], tap.Usage()); diff != "" || tap.Output() != delivered[n] {
			t.Errorf("after %d events %d tokens (-want +got):\n%s", n, tap.Output(), diff)
		}
	}
}

func TestUsageIsWhatTheUpstreamTellsAndElseAnEstimate(t *testing.T) {
	estimate := asked(t).InputEstimate(chat.MediaBound{})
	delta := func(usage string) wire {
		return ev(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":` + usage + `}`)
	}
	start := func(usage string) wire {
		return ev(`{"type":"message_start","message":{"model":"v","usage":` + usage + `}}`)
	}
	for _, row := range []struct {
		name   string
		events []wire
		want   billing.Usage
	}{
		{"an input of nothing", []wire{unknowing, stops}, billing.Usage{Output: 30}},
		{"an input of nothing, in a stream that was cut", []wire{unknowing, writes("Hello you.")}, billing.Usage{Input: estimate, Output: 3, Estimated: true}},
		{"an input that a later event tells", []wire{unknowing, delta(`{"input_tokens":7,"cache_read_input_tokens":5,"output_tokens":4}`)}, billing.Usage{Input: 7, CachedInput: 5, Output: 4}},
		{"an input that a later event says is nothing", []wire{unknowing, delta(`{"input_tokens":0,"output_tokens":0}`)}, billing.Usage{Zero: true}},
		{"an input of cached tokens alone", []wire{start(`{"input_tokens":0,"cache_read_input_tokens":9,"output_tokens":1}`), delta(`{"output_tokens":4}`)}, billing.Usage{CachedInput: 9, Output: 4}},
		{"the cache told late and the input never", []wire{unknowing, delta(`{"cache_read_input_tokens":5,"output_tokens":4}`)}, billing.Usage{CachedInput: 5, Output: 4}},
		{"no usage at all", []wire{start(`null`), writes("Hello you.")}, billing.Usage{Input: estimate, Output: 3, Estimated: true}},
		{"the largest of each field", []wire{starts, delta(`{"input_tokens":9,"cache_creation_input_tokens":4,"output_tokens":40}`), delta(`{"output_tokens":30}`)}, billing.Usage{Input: 10, CachedInput: 2, CacheWrite: 4, Output: 40}},
		{"nulls", []wire{starts, delta(`{"input_tokens":null,"cache_read_input_tokens":null,"output_tokens":4,"output_tokens_details":null}`)}, billing.Usage{Input: 10, CachedInput: 2, CacheWrite: 3, Output: 4}},
		{"thinking", []wire{starts, delta(`{"output_tokens":4,"output_tokens_details":{"thinking_tokens":3}}`)}, billing.Usage{Input: 10, CachedInput: 2, CacheWrite: 3, Output: 4, Reasoning: 3}},
		{"more thinking than output", []wire{starts, delta(`{"output_tokens":4,"output_tokens_details":{"thinking_tokens":9}}`)}, billing.Usage{Input: 10, CachedInput: 2, CacheWrite: 3, Output: 13, Reasoning: 9}},
		{"a fraction", []wire{starts, writes("Hello you."), delta(`{"output_tokens":1.5}`)}, billing.Usage{Input: 10, CachedInput: 2, CacheWrite: 3, Output: 2}},
		{"nonsense", []wire{starts, writes("Hello you."), delta(`{"input_tokens":-1,"output_tokens":"some"}`)}, billing.Usage{Input: 10, CachedInput: 2, CacheWrite: 3, Output: 3, Estimated: true, Anomaly: true}},
		{"no object", []wire{starts, delta(`[1]`)}, billing.Usage{Input: 10, CachedInput: 2, CacheWrite: 3, Output: 1, Estimated: true, Anomaly: true}},
		{"an absurd count", []wire{starts, delta(`{"output_tokens":9223372036854775807}`)}, billing.Usage{Input: 10, CachedInput: 2, CacheWrite: 3, Output: 1 << 30, Anomaly: true}},
		{"text after the count", []wire{starts, delta(`{"output_tokens":1}`), writes(strings.Repeat("word", 9))}, billing.Usage{Input: 10, CachedInput: 2, CacheWrite: 3, Output: 9, Estimated: true}},
	} {
		tap := tapped(t)
		pass(t, tap, row.events...)
		if diff := cmp.Diff(row.want, tap.Usage()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.name, diff)
		}
	}
}

func TestTheOrderAndRepetitionOfUsageDoNotMatter(t *testing.T) {
	count := rapid.Int64Range(0, 1000)
	capabilitytest.InAnyOrder(t, func(t *rapid.T) string {
		usage := fmt.Sprintf(`{"input_tokens":%d,"cache_read_input_tokens":%d,"cache_creation_input_tokens":%d,"output_tokens":%d}`,
			count.Draw(t, "in"), count.Draw(t, "read"), count.Draw(t, "write"), count.Draw(t, "out"))
		if rapid.Bool().Draw(t, "start") {
			return `{"type":"message_start","message":{"usage":` + usage + `}}`
		}
		return `{"type":"message_delta","delta":{},"usage":` + usage + `}`
	}, func(t *rapid.T, events []string) billing.Usage {
		r := parse(t, asks(""))
		tap := r.NewTap(operation.AnswerOptions{})
		for _, e := range append([]string{`{"type":"message_start"}`, writes("a long answer that was written before").data}, events...) {
			if _, _, err := tap.Event(nil, "", []byte(e)); err != nil {
				t.Fatal(err)
			}
		}
		return tap.Usage()
	})
}

func TestTheOpeningOfAStreamIsJudged(t *testing.T) {
	for _, row := range []struct {
		e             wire
		content, fine bool
	}{
		{starts, false, true}, {pings, false, true}, {opensText, false, true}, {closes0, false, true}, {writes(""), false, true},
		{ev(`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`), false, true},
		{ev(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}`), true, true},
		{ev(`{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"x"}}`), true, true},
		{wire{"novel", `{"type":"novel"}`}, false, true},
		{ev(`{"type":"gateway.hidden","hidden":"...."}`), false, true},
		{wire{"gateway.hidden", `{"type":"message_delta","delta":{"text":"a"}}`}, false, true},
		{opensTool, true, true}, {writes("a"), true, true}, {calls("{"), true, true}, {stops, true, true},
		{ends, true, false}, {wire{"error", `{}`}, true, false}, {wire{"", `<html>`}, true, false}, {wire{"", `[DONE]`}, true, false},
		{wire{"", `{"error":{"type":"overloaded_error","message":"Overloaded"}}`}, true, false},
	} {
		content, err := new(Request).Opening(row.e.name, []byte(row.e.data))
		if content != row.content || (err == nil) != row.fine {
			t.Errorf("%s: %t, %v", row.e.data, content, err)
		}
	}
}

func BenchmarkTap(b *testing.B) {
	tap := tapped(b)
	pass(b, tap, starts, opensText)
	data, dst := []byte(writes(" word after word").data), make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := tap.Event(dst, "content_block_delta", data); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAHeartbeatIsAPing(t *testing.T) {
	if got := string(tapped(t).Heartbeat([]byte("> "))); got != "> event: ping\ndata: {\"type\":\"ping\"}\n\n" {
		t.Errorf("%q", got)
	}
}

// TestAStreamCutAnywhereIsAWholeMessage cuts a stream short after each of its
// events: what the client got is always a message that a client accepts.
func TestAStreamCutAnywhereIsAWholeMessage(t *testing.T) {
	events := wholeStream()
	for n := 0; n < len(events); n++ {
		tap := tapped(t)
		got := pass(t, tap, events[:n]...)
		got += string(tap.CutShort(nil)) + tap.Terminator()
		m, err := accumulated(got)
		if err != nil {
			t.Errorf("after %d events: %v\n%s", n, err, got)
			continue
		}
		opened, closed := strings.Count(got, "event: content_block_start"), strings.Count(got, "event: content_block_stop")
		reason, once := "max_tokens", strings.Count(got, `"stop_reason":"`)
		if n == len(events)-1 {
			reason = "end_turn"
		}
		if m.StopReason == nil || *m.StopReason != reason || once != 1 || opened != closed || m.Model != "public" {
			t.Errorf("after %d events: %+v\n%s", n, m, got)
		}
		if u := tap.Usage(); m.Usage.OutputTokens != u.Output || m.Usage.InputTokens != u.Input {
			t.Errorf("after %d events: the client is told %+v, and is charged %+v", n, m.Usage, u)
		}
		if again := tap.CutShort(nil); len(again) > 0 {
			t.Errorf("after %d events: cut twice: %s", n, again)
		}
	}
}

func TestAMessageThatNeverBeganIsBegunToBeCutShort(t *testing.T) {
	tap := tapped(t)
	input := tap.Usage().Input
	want := wire{"message_start", fmt.Sprintf(`{"type":"message_start","message":{"id":"msg_minted","type":"message","role":"assistant","model":"public","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}}`, input)}.String() +
		wire{"message_delta", fmt.Sprintf(`{"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"input_tokens":%d,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}`, input)}.String()
	if diff := cmp.Diff(want, string(tap.CutShort(nil))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := string(asked(t).NewTap(operation.AnswerOptions{}).CutShort(nil)); !strings.Contains(got, `"id":""`) {
		t.Errorf("without a NewID: %s", got)
	}
}

func TestEveryOpenBlockIsClosedInOrder(t *testing.T) {
	tap := tapped(t)
	pass(t, tap, starts, opensTool, opensText, writes("a"))
	got := string(tap.CutShort(nil))
	if want := closes0.String() + closes1.String() + "event: message_delta\n"; !strings.HasPrefix(got, want) {
		t.Error(got)
	}
}

func TestAnErrorOfTheUpstreamKeepsItsWords(t *testing.T) {
	for kind, want := range map[string]fault.Code{
		"overloaded_error": fault.ServiceUnavailable, "rate_limit_error": fault.UpstreamRateLimit, "api_error": fault.InternalServerError,
		"timeout_error": fault.RequestTimeout, "invalid_request_error": fault.InvalidRequest, "request_too_large": fault.RequestTooLarge,
	} {
		data := `{"type":"error","error":{"type":"` + kind + `","message":"Vendor's words."},"request_id":"theirs"}`
		for _, name := range []string{"error", ""} {
			tap := tapped(t)
			pass(t, tap, starts)
			out, done, err := tap.Event(nil, name, []byte(data))
			var f *fault.Error
			var cause *upstream.Failure
			if !errors.As(err, &f) || !errors.As(err, &cause) || f.Code != want || f.Message != "Vendor's words." || cause.Status < 400 || !cause.Sent || cause.Fatal || len(out) > 0 || done {
				t.Errorf("%s: %q, %t, %v", kind, out, done, err)
			}
			if strings.Contains(cause.Error(), "words") {
				t.Errorf("%s: the log gets %s", kind, cause)
			}
			if event := string(ErrorEvent(nil, "req_1", f)); !strings.HasPrefix(event, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\""+kind+`","message":"Vendor's words.","code":"`+string(want)+`"},"request_id":"req_1"}`) {
				t.Error(event)
			}
		}
	}
}

func TestAnErrorOfTheOperatorsIsHidden(t *testing.T) {
	for data, fatal := range map[string]bool{
		`{"type":"error","error":{"type":"authentication_error","message":"secret"}}`:                                 true,
		`{"type":"error","error":{"type":"permission_error","message":"secret"}}`:                                     true,
		`{"type":"error","error":{"type":"billing_error","message":"secret"}}`:                                        true,
		`{"type":"error","error":{"type":"invalid_request_error","message":"Your Credit Balance is too low secret"}}`: true,
		`{"type":"error","error":{"type":"secret text","message":"secret"}}`:                                          false,
		`{"type":"error","error":{"type":"odd_error","message":7}}`:                                                   false,
		`{"type":"error","error":"secret"}`:                                                                           false,
		`{"type":"error"}`:                                                                                            false,
	} {
		_, _, err := tapped(t).Event(nil, "error", []byte(data))
		var f *fault.Error
		var cause *upstream.Failure
		if !errors.As(err, &f) || !errors.As(err, &cause) || f.Code != fault.BadGateway || strings.Contains(err.Error(), "secret") || cause.Fatal != fatal {
			t.Errorf("%s: %v", data, err)
		}
	}
}

func TestWhatIsNotOneObjectNeverPasses(t *testing.T) {
	for _, data := range []string{``, `[]`, `null`, `[DONE]`, `{"type":"ping"`, `{"type":"ping"}{}`, `<html>`} {
		out, done, err := tapped(t).Event(nil, "ping", []byte(data))
		if len(out) > 0 || done || !fault.Is(err, fault.BadGateway) {
			t.Errorf("%s: %q, %t, %v", data, out, done, err)
		}
	}
}

func TestErrorsHaveTheVendorsNames(t *testing.T) {
	for status, want := range map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error", 405: "invalid_request_error",
		413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 502: "api_error", 503: "overloaded_error", 504: "timeout_error", 529: "overloaded_error",
	} {
		if got := ErrorType(status); got != want {
			t.Errorf("%d is %s, want %s", status, got, want)
		}
	}
	body := string(ErrorBody("req_1", fault.New(fault.InsufficientBalance, "Pay <now>.")))
	if want := `{"type":"error","error":{"type":"billing_error","message":"Pay <now>.","code":"insufficient_balance"},"request_id":"req_1"}`; body != want {
		t.Error(body)
	}
	if body := string(ErrorBody("req_1", fault.New(fault.BadGateway, "\xff"))); !strings.Contains(body, `"message":"`) {
		t.Error(body)
	}
}
