package responses

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/operation"
	"github.com/tollhouse-ai/gateway/internal/responsestest"
	"github.com/tollhouse-ai/gateway/internal/sse"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/upstream"
)

// event is one event of a stream.
type event struct{ name, data string }

// eventsOf are the events of a text.
func eventsOf(t testing.TB, text []byte) (all []event) {
	t.Helper()
	r := sse.NewReader(bytes.NewReader(text), 0)
	defer r.Release()
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, event{e.Name, string(e.Data)})
	}
}

// wholeStream is a stream of a thought, a text and two calls, 20 tokens in and 30 out.
func wholeStream(t testing.TB) []event {
	t.Helper()
	up := responses.Serve(func(context.Context, *responses.Request) (*responses.Response, error) {
		return &responses.Response{
			ID: "resp_v", Object: "response", CreatedAt: 1, Status: "completed", Model: "vendor-m",
			Output: []responses.Item{
				{Type: "reasoning", ID: "rs_1", Summary: jsontext.Value(`[{"type":"summary_text","text":"A thought of it."}]`), Status: "completed"},
				{Type: "message", ID: "msg_1", Role: "assistant", Status: "completed", Content: responses.Parts(responses.Part{Type: "output_text", Text: "one two three four"})},
				{Type: "function_call", ID: "fc_1", CallID: "call_1", Name: "f", Arguments: jsontext.Value(`"{\"a\":1}"`), Status: "completed"},
				{Type: "custom_tool_call", ID: "ctc_1", CallID: "call_2", Name: "g", Input: "something", Status: "completed"},
			},
			Usage: &responses.Usage{InputTokens: 20, InputTokensDetails: responses.InputDetails{CachedTokens: 5, CacheWriteTokens: 2}, OutputTokens: 30, OutputTokensDetails: responses.OutputDetails{ReasoningTokens: 7}, TotalTokens: 50},
		}, nil
	})
	reply, err := up.Do(t.Context(), &upstream.Call{Op: upstream.Responses, Stream: true, Body: upstream.BytesBody([]byte(`{}`))})
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return eventsOf(t, data)
}

// tapped is the tap of a request for "public".
func tapped(t testing.TB) *Tap {
	t.Helper()
	return tapOf(parse(t, `{"model":"public","input":"say it","stream":true,"tools":[{"type":"function","name":"f"}]}`))
}

func tapOf(r *Request) *Tap {
	return r.NewTap(operation.AnswerOptions{NewID: func(string) string { return "resp_minted" }, Created: 7, Heartbeat: time.Minute}).(*Tap)
}

// pass feeds events to the tap, and returns what the client gets, the terminator
// included.
func pass(t testing.TB, tap *Tap, events ...event) string {
	t.Helper()
	var out []byte
	for _, e := range events {
		var done bool
		var err error
		if out, done, err = tap.Event(out, e.name, []byte(e.data)); err != nil {
			t.Fatalf("%s: %v", e.data, err)
		}
		if done {
			return string(out) + tap.Terminator()
		}
	}
	return string(out)
}

func TestAStreamPassesButForItsModel(t *testing.T) {
	events := wholeStream(t)
	var want strings.Builder
	for _, e := range events {
		want.Write(sse.AppendEvent(nil, e.name, []byte(strings.ReplaceAll(e.data, "vendor-m", "public"))))
	}
	tap := tapped(t)
	got := pass(t, tap, events...)
	if got != want.String() {
		t.Errorf("got  %s\nwant %s", got, want.String())
	}
	if err := responsestest.Check([]byte(got), responsestest.Done); err != nil {
		t.Error(err)
	}
	if u, want := tap.Usage(), (billing.Usage{Input: 13, CachedInput: 5, CacheWrite: 2, Output: 30, Reasoning: 7}); u != want {
		t.Errorf("usage %+v, want %+v", u, want)
	}
}

func TestEventsAreNumberedWithoutGapsWhateverTheVendorDoes(t *testing.T) {
	number := func(data, with string) string {
		before, rest, _ := strings.Cut(data, `"sequence_number":`)
		_, after, _ := strings.Cut(rest, ",")
		return before + with + after
	}
	for name, spell := range map[string]func(i int, data string) string{
		"from one":   func(i int, data string) string { return number(data, `"sequence_number":`+strconv.Itoa(i+1)+",") },
		"with gaps":  func(i int, data string) string { return number(data, `"sequence_number":`+strconv.Itoa(i*100)+",") },
		"never":      func(_ int, data string) string { return number(data, "") },
		"no numbers": func(_ int, data string) string { return number(data, `"sequence_number":"x",`) },
	} {
		events := wholeStream(t)
		for i := range events {
			if strings.HasPrefix(events[i].data, "{") {
				events[i].data = spell(i, events[i].data)
			}
		}
		if got := pass(t, tapped(t), events...); responsestest.Check([]byte(got), responsestest.Done) != nil {
			t.Errorf("%s: %v\n%s", name, responsestest.Check([]byte(got), responsestest.Done), got)
		}
	}
}

const (
	begins     = `{"type":"response.created","sequence_number":0,"response":{"id":"resp_v","object":"response","created_at":1,"status":"in_progress","error":null,"incomplete_details":null,"model":"vendor-m","instructions":"long","tools":[{"type":"function","name":"f"}],"output":[],"usage":null}}`
	progresses = `{"type":"response.in_progress","sequence_number":1,"response":{"id":"resp_v","object":"response","created_at":1,"status":"in_progress","error":null,"incomplete_details":null,"model":"vendor-m","output":[],"usage":null}}`
	message    = `{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"12345678","annotations":[]}]}`
	itemWhole  = `{"type":"response.output_item.done","sequence_number":3,"output_index":0,"item":` + message + `}`
)

// writes is a text delta of an item.
func writes(index int, text string) event {
	return event{"response.output_text.delta", `{"type":"response.output_text.delta","sequence_number":2,"item_id":"msg_1","output_index":` + strconv.Itoa(index) + `,"content_index":0,"delta":"` + text + `","logprobs":[]}`}
}

func ends(kind, output string) event {
	return event{"", `{"type":"response.` + kind + `","response":{"id":"resp_v","object":"response","status":"` + kind + `","error":null,"model":"vendor-m","output":[` + output + `],"usage":null}}`}
}

func TestWhatIsDeliveredIsCountedOnce(t *testing.T) {
	const item2 = `{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","name":"four","arguments":"1234"}}`
	for name, c := range map[string]struct {
		events []event
		tokens int64
	}{
		"deltas":                         {[]event{writes(0, "1234"), writes(0, "5678")}, 2},
		"deltas and their item":          {[]event{writes(0, "1234"), writes(0, "5678"), {"", itemWhole}}, 2},
		"an item without deltas":         {[]event{{"", itemWhole}}, 2},
		"an item of which a part came":   {[]event{writes(0, "1234"), {"", itemWhole}}, 2},
		"items at the same time":         {[]event{writes(0, "1234"), writes(1, "1234"), writes(0, "5678"), {"", itemWhole}, {"", item2}}, 4},
		"an item, and the whole":         {[]event{{"", itemWhole}, ends("completed", message)}, 2},
		"the whole alone":                {[]event{ends("incomplete", message)}, 2},
		"parts and their text again":     {[]event{writes(0, "12345678"), {"", `{"type":"response.output_text.done","text":"12345678"}`}, {"", `{"type":"response.content_part.done","part":{"text":"12345678"}}`}}, 2},
		"a thought, a refusal, an input": {[]event{{"", `{"type":"response.reasoning_summary_text.delta","delta":"1234"}`}, {"", `{"type":"response.refusal.delta","delta":"1234"}`}, {"", `{"type":"response.custom_tool_call_input.delta","delta":"1234"}`}}, 3},
		"a type that is not known":       {[]event{{"", `{"type":"response.dream.delta","delta":"1234"}`}}, 1},
		"nothing":                        {[]event{{"", begins}, {"", progresses}, {"", `{"type":"keepalive"}`}}, 0},
	} {
		tap := tapped(t)
		pass(t, tap, c.events...)
		if tap.Output() != c.tokens || tap.Said() != c.tokens || tap.Delivered() != (c.tokens > 0) {
			t.Errorf("%s: %d tokens, said %d, want %d", name, tap.Output(), tap.Said(), c.tokens)
		}
	}
}

func TestAnErrorEndsAStream(t *testing.T) {
	failed := func(code string) event {
		return event{"response.failed", `{"type":"response.failed","response":{"status":"failed","error":{"code":"` + code + `","message":"Secret words."},"usage":{"input_tokens":5,"output_tokens":9}}}`}
	}
	for name, c := range map[string]struct {
		e     event
		code  fault.Code
		wire  string // the code of the response that failed
		shown bool   // the vendor's words
	}{
		"failed":                                 {failed("server_error"), fault.InternalServerError, serverError, false},
		"a full context":                         {failed("context_length_exceeded"), contextExceeded, contextExceeded, true},
		"too fast":                               {failed("rate_limit_exceeded"), fault.UpstreamRateLimit, rateLimited, false},
		"overloaded":                             {failed("server_is_overloaded"), fault.ServiceUnavailable, overloaded, false},
		"slow":                                   {failed("slow_down"), fault.ServiceUnavailable, overloaded, false},
		"a forbidden prompt":                     {failed("invalid_prompt"), invalidPrompt, invalidPrompt, true},
		"the operator's":                         {failed("insufficient_quota"), fault.BadGateway, serverError, false},
		"another":                                {failed("odd"), fault.BadGateway, serverError, false},
		"a flat error":                           {event{"error", `{"type":"error","code":"server_error","message":"Secret words.","param":null,"sequence_number":3}`}, fault.InternalServerError, serverError, false},
		"a nested error":                         {event{"error", `{"type":"error","error":{"type":"invalid_request_error","message":"Secret words."}}`}, fault.InvalidRequest, invalidPrompt, true},
		"a chat vendor's":                        {event{"", `{"error":{"message":"Secret words.","type":"x"}}`}, fault.BadGateway, serverError, false},
		"no type at all":                         {event{"", `{"detail":"Secret words."}`}, fault.BadGateway, serverError, false},
		"what is no object":                      {event{"", `[]`}, fault.BadGateway, serverError, false},
		"failed without more":                    {event{"", `{"type":"response.failed"}`}, fault.BadGateway, serverError, false},
		"an error that calls itself a beginning": {event{"", `{"type":"response.created","error":{"message":"Secret words."},"response":{}}`}, fault.BadGateway, serverError, false},
		"a beginning that is cut":                {event{"", begins[:len(begins)-9]}, fault.BadGateway, serverError, false},
	} {
		content, err := new(Request).Opening(c.e.name, []byte(c.e.data))
		if f := fault.From(err); !content || f == nil || f.Code != c.code || strings.Contains(f.Message, "Secret") != c.shown {
			t.Errorf("%s: at first %t, %v", name, content, err)
		}
		tap := tapped(t)
		got := pass(t, tap, event{"", begins}, event{"", progresses}, writes(0, "1234"))
		_, done, err := tap.Event(nil, c.e.name, []byte(c.e.data))
		f := fault.From(err)
		if done || f == nil || f.Code != c.code {
			t.Errorf("%s: %t, %v", name, done, err)
			continue
		}
		if reported := strings.Contains(c.e.data, "input_tokens"); reported != (tap.Usage() == billing.Usage{Input: 5, Output: 9}) {
			t.Errorf("%s: usage %+v", name, tap.Usage())
		}
		tail := string(tap.AppendError(nil, f))
		if again := string(tap.AppendError(nil, f)); again != tail {
			t.Errorf("%s: %s, and then %s", name, tail, again)
		}
		if !strings.Contains(tail, `"error":{"code":"`+c.wire+`"`) || !strings.Contains(tail, `"code":"`+string(c.code)+`"`) || !strings.HasSuffix(tail, sse.Done) {
			t.Errorf("%s: the client gets %s", name, tail)
		}
		if n := strings.Count(got+tail, "sequence_number"); !strings.Contains(tail, `"sequence_number":`+strconv.Itoa(n-1)) {
			t.Errorf("%s: %d events end with %s", name, n, tail)
		}
	}
}

func TestAStreamThatBreaksOffAnywhereEndsAsAResponseThatFailed(t *testing.T) {
	events := wholeStream(t)
	for n := range events { // the last is the vendor's [DONE]
		tap := tapped(t)
		got := strings.TrimSuffix(pass(t, tap, events[:n]...), tap.Terminator()) // which is withheld
		got += string(tap.AppendError(nil, fault.New(fault.BadGateway, "It broke off.")))
		if err := responsestest.Check([]byte(got), responsestest.Done); err != nil {
			t.Errorf("after %d events: %v\n%s", n, err, got)
		}
		cut := tapped(t)
		short := strings.TrimSuffix(pass(t, cut, events[:n]...), cut.Terminator())
		short += string(cut.CutShort(nil)) + cut.Terminator()
		if err := responsestest.Check([]byte(short), responsestest.Done); err != nil || !strings.Contains(short, `"error":{"code":"insufficient_quota"`) {
			t.Errorf("cut short after %d events: %v\n%s", n, err, short)
		}
	}
	got := string(ErrorEvents(nil, "req_7", fault.New(fault.InsufficientBalance, "No money.")))
	if err := responsestest.Check([]byte(got), responsestest.Done); err != nil || !strings.Contains(got, `"id":"resp_7"`) || !strings.Contains(got, insufficientQuota) {
		t.Errorf("before the first event: %v\n%s", err, got)
	}
}

func TestAFailedResponseHasWhatIsWholeAndNoMoreThanIsKept(t *testing.T) {
	long := strings.Repeat("x", mostOutput/2)
	tap := tapped(t)
	pass(t, tap, event{"", begins})
	for i := range 3 {
		pass(t, tap, event{"", `{"type":"response.output_item.done","output_index":` + strconv.Itoa(i) + `,"item":{"type":"message","id":"` + strconv.Itoa(i) + `","content":[{"type":"output_text","text":"` + long[i*100:] + `"}]}}`})
	}
	got := string(tap.AppendError(nil, fault.New(fault.BadGateway, "x")))
	if len(got) > mostOutput+mostHead || strings.Count(got, `"id":"0"`) != 1 || strings.Contains(got, `"id":"2"`) {
		t.Errorf("%d bytes", len(got))
	}
	for _, want := range []string{`"id":"resp_v"`, `"model":"public"`, `"status":"failed"`, `"instructions":null`, `"tools":[]`, `"input_tokens":`, `"cached_tokens":0`, `"reasoning_tokens":0`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %.2000s", want, got)
		}
	}
	large := tapped(t) // of which the id alone is kept
	pass(t, large, event{"", strings.Replace(begins, `"output":[]`, `"output":[],"metadata":{"a":"`+long+`"}`, 1)})
	if got := string(large.AppendError(nil, fault.New(fault.BadGateway, "x"))); !strings.Contains(got, `"id":"resp_v"`) || len(got) > mostHead {
		t.Errorf("%.2000s", got)
	}
	late := tapped(t) // whose item would stand in another's place
	pass(t, late, event{"", begins}, event{"", strings.Replace(itemWhole, `"output_index":0`, `"output_index":1`, 1)})
	if got := string(late.AppendError(nil, fault.New(fault.BadGateway, "x"))); !strings.Contains(got, `"output":[]`) {
		t.Errorf("%s", got)
	}
}

func TestASilentStreamHasCommentsAndThenEvents(t *testing.T) {
	beat := func(tap *Tap) string { return string(tap.Heartbeat(nil)) }
	const comment = ": keep-alive\n\n"
	events := wholeStream(t)

	tap := tapped(t)
	got := ""
	if first := beat(tap); first != comment {
		t.Errorf("the first heartbeat is %q", first)
	}
	second := beat(tap)
	if !strings.Contains(second, `"id":"resp_minted"`) || !strings.Contains(second, `"model":"public"`) || !strings.Contains(second, `"tools":[{"type":"function","name":"f"}]`) {
		t.Errorf("the beginning is %s", second)
	}
	got += second + beat(tap)
	third := beat(tap)
	if third != "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":2}\n\n" {
		t.Errorf("a later one is %q", third)
	}
	got += third + pass(t, tap, events[:8]...)
	if one := beat(tap); one != comment { // counted anew after an event
		t.Errorf("%q", one)
	}
	got += beat(tap) + pass(t, tap, events[8:]...)
	if err := responsestest.Check([]byte(got), responsestest.Done); err != nil {
		t.Errorf("%v\n%s", err, got)
	}
	if strings.Contains(got, "resp_v") || strings.Count(got, "response.created\n") != 1 || strings.Count(got, "keepalive\n") != 2 {
		t.Errorf("%s", got)
	}

	kept := parse(t, `{"model":"public","input":"x","stream":true}`)
	kept.VendorState = true
	if tap := tapOf(kept); beat(tap)+beat(tap) != comment+comment {
		t.Error("a response that the vendor keeps gets another id")
	}
	never := parse(t, with(`"stream":true`)).NewTap(operation.AnswerOptions{}).(*Tap)
	if got := beat(never) + beat(never); got != comment+comment {
		t.Errorf("%s", got)
	}
}

func TestTheEndOfAStreamIsItsTerminalEvent(t *testing.T) {
	tap := tapped(t)
	if got := pass(t, tap, event{"", begins}, event{"", "[DONE]"}, event{"", " [DONE] "}); strings.Contains(got, "DONE") {
		t.Errorf("the vendor's mark passes: %s", got)
	}
	for kind, is := range map[string]bool{"completed": true, "incomplete": true, "in_progress": false} {
		_, done, err := tap.Event(nil, "", []byte(ends(kind, "").data))
		if done != is || err != nil || done && (!strings.HasSuffix(tap.Terminator(), sse.Done) || !strings.Contains(tap.Terminator(), `"model":"public"`)) {
			t.Errorf("%s: %t, %v, %s", kind, done, err, tap.Terminator())
		}
	}
}

func TestTheFirstEventsShowWhetherThereIsContent(t *testing.T) {
	for _, c := range []struct {
		e       event
		content bool
	}{
		{event{"", begins}, false}, {event{"", progresses}, false},
		{event{"", strings.Replace(begins, `"output":[]`, `"output":[`+message+`]`, 1)}, false}, // which is counted where it is done
		{event{"", `{"type":"response.output_item.added","output_index":0,"item":{"type":"message","content":[]}}`}, false},
		{writes(0, "x"), true}, {event{"", itemWhole}, true}, {ends("completed", ""), true}, {ends("incomplete", ""), true},
	} {
		if content, err := new(Request).Opening(c.e.name, []byte(c.e.data)); content != c.content || err != nil {
			t.Errorf("%s: %t, %v", c.e.data, content, err)
		}
	}
	if content, err := new(Request).Opening("", []byte("[DONE]")); !content || !fault.Is(err, fault.BadGateway) {
		t.Errorf("an empty stream: %t, %v", content, err)
	}
}

// TestAnItemInAnUnknownEventIsCountedEachTime passes events of a kind that is not known,
// whose item has more encrypted than written.
func TestAnItemInAnUnknownEventIsCountedEachTime(t *testing.T) {
	remembers, forgets := tapped(t), tapped(t)
	for n, text := range []string{strings.Repeat("word ", 80), "", "", ""} {
		data := `{"type":"response.thought","sequence_number":` + strconv.Itoa(n) + `,"output_index":0,"item":{"content":[{"text":"` + text +
			`"}],"encrypted_content":"` + strings.Repeat("A", 400) + `"}}`
		forgets.Template.Forget()
		pass(t, remembers, event{"", data})
		pass(t, forgets, event{"", data})
		if got, want := remembers.Usage().Output, forgets.Usage().Output; got != want {
			t.Errorf("after event %d: %d tokens, want %d", n, got, want)
		}
	}
}

func TestARepeatedDeltaTakesNoMemory(t *testing.T) {
	tap, e, dst := tapped(t), writes(0, " word after word"), make([]byte, 0, 4096)
	data := []byte(e.data)
	pass(t, tap, event{"", begins}, e)
	if n := testing.AllocsPerRun(100, func() { _, _, _ = tap.Event(dst, e.name, data) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkTap(b *testing.B) {
	tap := tapped(b)
	e := writes(0, " word after word")
	pass(b, tap, event{"", begins}, e)
	data, dst := []byte(e.data), make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := tap.Event(dst, e.name, data); err != nil {
			b.Fatal(err)
		}
	}
}

func TestAWholeAnswerIsReadByItsUsageAndStatus(t *testing.T) {
	r := parse(t, `{"model":"public","input":"x"}`)
	for name, c := range map[string]struct {
		data string
		code fault.Code // of what is refused
		said int64
	}{
		"completed":               {`{"object":"response","status":"completed","error":null,"model":"v","output":[` + message + `],"usage":{"input_tokens":5,"output_tokens":9}}`, "", 2},
		"incomplete":              {`{"object":"response","status":"incomplete","error":null,"model":"v","output":[` + message + `],"usage":{"input_tokens":5,"output_tokens":9}}`, "", 2},
		"failed with output":      {`{"object":"response","status":"failed","error":{"code":"server_error","message":"The upstream failed."},"model":"v","output":[` + message + `],"usage":{"input_tokens":5,"output_tokens":9}}`, "", 2},
		"failed":                  {`{"object":"response","status":"failed","error":{"code":"rate_limit_exceeded","message":"x"},"output":[]}`, fault.UpstreamRateLimit, 0},
		"failed without an error": {`{"object":"response","status":"failed","error":null,"output":[]}`, fault.BadGateway, 0},
		"an error":                {`{"error":{"message":"x"}}`, fault.BadGateway, 0},
		"a completion":            {`{"object":"chat.completion","choices":[]}`, fault.BadGateway, 0},
		"without output":          {`{"object":"response","status":"completed"}`, fault.BadGateway, 0},
		"cut":                     {`{"object":"response","output":[`, fault.BadGateway, 0},
	} {
		a, err := r.ReadAnswer([]byte(c.data), operation.AnswerOptions{})
		if c.code != "" {
			if !fault.Is(err, c.code) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if want := strings.Replace(c.data, `"model":"v"`, `"model":"public"`, 1); err != nil || string(a.Body) != want || a.Said != c.said || a.Usage != (billing.Usage{Input: 5, Output: 9}) {
			t.Errorf("%s: %s, %+v, %v", name, a.Body, a.Usage, err)
		}
	}
	for vendors, want := range map[string]string{ // of a response that has output
		`{"code":"rate_limit_exceeded","message":"Limit of org-1: 30000. Please try again in 1.5s. Visit x."}`: `{"code":"rate_limit_exceeded","message":"The upstream's rate limit is reached. Please try again in 1500ms."}`,
		`{"code":"server_error","message":"Deployment m-1 of org-1."}`:                                         `{"code":"server_error","message":"The upstream failed."}`,
		`{"code":"insufficient_quota","message":"org-1 is out of money."}`:                                     `{"code":"server_error","message":"The upstream reported an error."}`,
		`{"code":"context_length_exceeded","message":"Too long."}`:                                             `{"code":"context_length_exceeded","message":"Too long."}`,
		`"org-1"`: `{"code":"server_error","message":"The upstream reported an error."}`,
	} {
		const before, after = `{"object":"response","status":"incomplete","error":`, `,"output":[` + message + `],"usage":{"input_tokens":5,"output_tokens":9}}`
		a, err := r.ReadAnswer([]byte(before+vendors+after), operation.AnswerOptions{})
		if want := before + want + after; err != nil || string(a.Body) != want {
			t.Errorf("%s, %v, want %s", a.Body, err, want)
		}
		tap := tapped(t)
		if _, done, err := tap.Event(nil, "", []byte(`{"type":"response.incomplete","response":`+before+vendors+after+`}`)); !done || err != nil || !strings.Contains(tap.Terminator(), want) || strings.Contains(tap.Terminator(), "org-1") {
			t.Errorf("%s, %v, want %s", tap.Terminator(), err, want)
		}
	}
	if got := string(CountAnswer(7)); got != `{"object":"response.input_tokens","input_tokens":7}` {
		t.Error(got)
	}
}
