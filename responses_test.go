package gateway_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/responsestest"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

const (
	askResponse       = `{"model":"m","max_output_tokens":100,"input":"say four words"}`
	askResponseStream = `{"model":"m","max_output_tokens":100,"stream":true,"input":"say four words"}`
)

// responseEvent is an event of a response's stream with a number.
func responseEvent(number, kind, rest string) string {
	return "event: response." + kind + "\ndata: {\"type\":\"response." + kind + "\",\"sequence_number\":" + number + rest + "}\n\n"
}

const (
	responseItem   = `{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"one two three four","annotations":[]}]}`
	responseBegun  = `{"id":"resp_v","object":"response","created_at":1,"status":"in_progress","error":null,"incomplete_details":null,"model":"vendor-m","output":[],"usage":null}`
	responseAnswer = `{"id":"resp_v","object":"response","created_at":1,"status":"completed","error":null,"incomplete_details":null,"model":"vendor-m","output":[` + responseItem + `],` +
		`"usage":{"input_tokens":20,"input_tokens_details":{"cached_tokens":0},"output_tokens":30,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":50},"x":1.0}`
)

// responseEvents is a stream of four words for 20 tokens in and 30 out.
var responseEvents = []string{
	responseEvent("0", "created", `,"response":`+responseBegun),
	responseEvent("1", "in_progress", `,"response":`+responseBegun),
	responseEvent("2", "output_item.added", `,"output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","role":"assistant","content":[]}`),
	responseEvent("3", "content_part.added", `,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}`),
	responseDelta("4", "one "),
	responseDelta("5", "two "),
	responseDelta("6", "three "),
	responseDelta("7", "four"),
	responseEvent("8", "output_text.done", `,"item_id":"msg_1","output_index":0,"content_index":0,"text":"one two three four","logprobs":[]`),
	responseEvent("9", "content_part.done", `,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","text":"one two three four","annotations":[]}`),
	responseEvent("10", "output_item.done", `,"output_index":0,"item":`+responseItem),
	responseEvent("11", "completed", `,"response":`+responseAnswer),
}

func responseDelta(number, text string) string {
	return responseEvent(number, "output_text.delta", `,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"`+text+`","logprobs":[],"obfuscation":"`+strings.Repeat("x", len(text))+`"`)
}

// newResponsesGateway is a gateway whose upstream speaks responses only.
func newResponsesGateway(t testing.TB, s *scriptedUpstream, credit string, edit func(*gateway.Options)) *testGateway {
	t.Helper()
	return newTestGateway(t, answering{upstream.Responses, s}, credit, edit)
}

func TestAResponsePassesButForItsModelAndStore(t *testing.T) {
	up := &scriptedUpstream{text: responseAnswer}
	h := newResponsesGateway(t, up, "1.00", nil)
	r := h.must(t, upstream.Responses, askResponse)
	if want := strings.Replace(responseAnswer, "vendor-m", "m", 1); string(r.Body) != want {
		t.Errorf("got %s, want %s", r.Body, want)
	}
	if got, want := up.sent(t), strings.TrimSuffix(askResponse, "}")+`,"store":false}`; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
	h = newResponsesGateway(t, &scriptedUpstream{text: strings.Join(responseEvents, "")}, "1.00", nil)
	_, out := h.complete(t, upstream.Responses, askResponseStream)
	if want := strings.ReplaceAll(strings.Join(responseEvents, ""), "vendor-m", "m") + "data: [DONE]\n\n"; out != want {
		t.Errorf("got %s\nwant %s", out, want)
	}
}

// What a response is refused with has the words by which agents decide to ask again.
func TestRefusalsOfAResponse(t *testing.T) {
	up := &scriptedUpstream{text: responseAnswer}
	h := newResponsesGateway(t, up, "0.00", func(o *gateway.Options) {
		o.Models = append(o.Models, gateway.Model{ID: "other"}, gateway.Model{ID: "gone", Withdrawn: time.Unix(1, 0)})
		o.Prices, o.RequirePrice = nil, false
	})
	ctx := auth.NewContext(t.Context(), &auth.Principal{Account: "local", Key: "k", Models: []string{"m", "gone"}})
	for _, op := range []upstream.Op{upstream.Responses, upstream.CountInput} {
		for body, want := range map[string]fault.Error{
			`{"model":"gone","input":7}`:                              {Code: fault.ModelNotFound, Status: 404, Param: "model"},
			`{"model":"other","input":"x"}`:                           {Code: fault.ModelNotFound, Status: 403, Param: "model"},
			`{"model":"m"}`:                                           {Code: fault.InvalidRequest, Status: 400, Param: "input"},
			`{"model":"m","input":"x","background":true}`:             {Code: fault.UnsupportedParameter, Status: 400, Param: "background"},
			`{"model":"m","previous_response_id":"resp_1"}`:           {Code: fault.ResponseNotFound, Status: 400, Param: "previous_response_id", Retry: fault.RetryNo},
			`{"model":"m","input":[{"id":"msg_1"}],"store":true}`:     {Code: fault.ItemNotFound, Status: 400, Param: "input[0].id", Retry: fault.RetryNo},
			`{"model":"gone","input":"x","previous_response_id":"r"}`: {Code: fault.ModelNotFound, Status: 404, Param: "model"},
		} {
			_, err := h.do(ctx, op, body)
			if f := fault.From(err); f == nil || f.Code != want.Code || f.HTTPStatus() != want.Status || f.Param != want.Param || want.Retry != 0 && f.Retry != want.Retry {
				t.Errorf("%s of %s: %+v", op, body, f)
			}
		}
	}
	if up.count() != 0 {
		t.Errorf("the vendor was asked %d times", up.count())
	}
}

// inPrepaid is billing in which what has no price is not sold.
func inPrepaid(o *gateway.Options) { o.RequirePrice = true }

func TestWordsOfTheBetaHeaderThatMayCostAreLeftOutInPrepaidOnly(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*gateway.Options)
		pass string // of the channel
		beta []string
		told string
	}{
		"in prepaid":        {inPrepaid, "", []string{"responses=v1, multi_agent=v1"}, "openai-beta"},
		"in a second one":   {inPrepaid, "", []string{"responses=v1", "multi_agent=v1"}, "openai-beta"},
		"free ones":         {inPrepaid, "", []string{"responses=v1,responses=experimental"}, ""},
		"passed":            {inPrepaid, "openai-beta", []string{"multi_agent=v1"}, ""},
		"counted billing":   {func(*gateway.Options) {}, "", []string{"multi_agent=v1"}, ""},
		"no header at all ": {inPrepaid, "", nil, ""},
	} {
		up := &scriptedUpstream{text: responseAnswer}
		var got http.Header
		vendor := upstream.Func(func(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
			got = call.Header
			return up.Do(ctx, call)
		})
		h := newTestGateway(t, newRouter(t, router.Channel{Name: "c", Upstream: answering{upstream.Responses, vendor}, Models: map[string]string{"m": "m"}, Pass: strings.Fields(c.pass)}), "1.00", c.edit)
		header := http.Header{"Openai-Beta": c.beta, "X-Own": {"1"}}
		r, err := h.Do(asAccount(t, "local"), gateway.Caller{}, &gateway.Request{Op: upstream.Responses, Body: []byte(askResponse), Header: header})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := c.told == ""; slices.Equal(got["Openai-Beta"], c.beta) != want && c.beta != nil || got.Get("X-Own") != "1" || r.Header.Get("X-Gateway-Dropped") != c.told || len(header) != 2 {
			t.Errorf("%s: the vendor got %v, told %q", name, got, r.Header.Get("X-Gateway-Dropped"))
		}
	}
}

// TestThoughtsThatOnlyTheVendorCanReadArePaidByWhoTakesThem has a client leave as soon as it
// has what it may send back, for the price of an input.
func TestThoughtsThatOnlyTheVendorCanReadArePaidByWhoTakesThem(t *testing.T) {
	sealed := strings.Repeat("QUJD", 1_000) // about 750 tokens
	thoughts := func(summary string) string {
		return responseEvent("3", "output_item.done", `,"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[`+summary+`],"encrypted_content":"`+sealed+`"}`)
	}
	head := responseEvents[0] + responseEvents[1] + responseEvent("2", "output_item.added", `,"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}`)
	rest := strings.Join(responseEvents[4:], "")
	const ask = `{"model":"m","stream":true,"include":["reasoning.encrypted_content"],"input":"say four words"}`
	said := strings.Repeat("one two ", 100)
	for name, c := range map[string]struct {
		summary, rest string
		edit          func(*gateway.Options)
		want          billing.Money
	}{
		"the vendor breaks off":                            {"", "", nil, micro(estimatedInput + 750)},
		"it leaves, and the vendor says":                   {"", rest, nil, micro(50)},
		"the vendor breaks off, with some of them shown":   {said, "", nil, micro(estimatedInput + 750)},
		"the vendor breaks off, with more shown than that": {strings.Repeat(said, 5), "", nil, micro(estimatedInput + 1_000)},
	} {
		t.Run(name, func(t *testing.T) {
			in, vendor := io.Pipe()
			h := newResponsesGateway(t, &scriptedUpstream{body: in}, "1.00", c.edit)
			go func() {
				for _, text := range []string{head + thoughts(`{"type":"summary_text","text":"`+c.summary+`"}`), c.rest} {
					_, _ = io.WriteString(vendor, text) // returns when the gateway has it
				}
				_ = vendor.Close()
			}()
			r, err := h.do(asAccount(t, "local"), upstream.Responses, ask)
			must(t, err)
			var out strings.Builder
			for err == nil && !strings.Contains(out.String(), sealed) {
				var b []byte
				b, err = r.Stream.Next()
				out.Write(b)
			}
			_ = r.Stream.Close()
			if got := h.spent(t); got != c.want {
				t.Errorf("spent %s, want %s: %v", got, c.want, r.Stream.Err())
			}
		})
	}
}

func TestAStreamWhoseBalanceEndsFailsForIt(t *testing.T) {
	text := strings.Join(responseEvents[:4], "") + strings.Repeat(responseDelta("4", "abcd"), 10_000)
	credit := micro(2_000)
	h := newResponsesGateway(t, &scriptedUpstream{text: text}, credit.String(), func(o *gateway.Options) {
		o.Models = []gateway.Model{{ID: "m", HoldTokens: 500}}
	})
	r, out := h.complete(t, upstream.Responses, strings.Replace(askResponseStream, `"max_output_tokens":100,`, "", 1))
	if err := responsestest.Check([]byte(out), responsestest.Done); err != nil || !strings.Contains(out, `"error":{"code":"insufficient_quota"`) {
		t.Errorf("%v: it ends with %s", err, out[max(0, len(out)-2_000):])
	}
	if receipt, ok := r.Receipt(); !ok || receipt.Reason != billing.ReasonBalanceEnded || receipt.Charge != h.spent(t) || receipt.Charge < micro(1_000) {
		t.Errorf("receipt %+v", receipt)
	}
}

func TestAStreamThatFailsBeforeContentIsAskedForElsewhere(t *testing.T) {
	const failed = `{"type":"response.failed","sequence_number":1,"response":{"status":"failed","error":{"code":"server_error","message":"x"},"output":[]}}`
	for name, frame := range map[string]string{
		"it failed": "event: response.failed\ndata: " + failed + "\n\n",
		"an error":  "event: error\ndata: {\"type\":\"error\",\"code\":\"server_error\",\"message\":\"x\",\"param\":null,\"sequence_number\":1}\n\n",
	} {
		routing := newRouter(t,
			router.Channel{Name: "bad", Upstream: answering{upstream.Responses, &scriptedUpstream{text: responseEvents[0] + frame}}, Models: map[string]string{"m": "m"}, Priority: 1},
			router.Channel{Name: "good", Upstream: answering{upstream.Responses, &scriptedUpstream{text: strings.Join(responseEvents, "")}}, Models: map[string]string{"m": "m"}, Priority: 2},
		)
		h := newTestGateway(t, routing, "1.00", nil)
		if _, out := h.complete(t, upstream.Responses, askResponseStream); !strings.Contains(out, "response.completed") || strings.Contains(out, "failed") {
			t.Errorf("%s: %s", name, out)
		}
		if got := h.spent(t); got != micro(50) {
			t.Errorf("%s: spent %s", name, got)
		}
		after := newResponsesGateway(t, &scriptedUpstream{text: strings.Join(responseEvents[:5], "") + frame}, "1.00", nil)
		r, out := after.complete(t, upstream.Responses, askResponseStream)
		if !strings.Contains(out, `"delta":"one "`) || !fault.Is(r.Stream.Err(), fault.InternalServerError) || after.spent(t) != micro(estimatedInput+1) {
			t.Errorf("%s after content: %v, spent %s\n%s", name, r.Stream.Err(), after.spent(t), out)
		}
		if err := responsestest.Check([]byte(out), responsestest.Done); err != nil {
			t.Errorf("%s after content: %v\n%s", name, err, out)
		}
	}
}

// TestEveryVendorsWordForAnErrorEndsAResponse is docs/reference/faults.md, row 4.
func TestEveryVendorsWordForAnErrorEndsAResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a retry that a vendor puts off waits
		for name, frame := range frames {
			least := 500
			if frameCodes[name] != "" {
				least = 400 // as on chat
			}
			for _, before := range []string{"", ": a comment\n\n", responseEvents[0]} {
				for _, after := range []string{"\n\n", "\n\ndata: [DONE]\n\n"} {
					h := newResponsesGateway(t, &scriptedUpstream{text: before + frame + after}, "1", nil)
					_, err := finish(h.do(t.Context(), upstream.Responses, askResponseStream))
					if err == nil || fault.From(err).HTTPStatus() < least || h.spent(t) != 0 {
						t.Errorf("%s behind %.5q and before %q: %v, it cost %s", name, before, after, err, h.spent(t))
					}
				}
			}
			h := newResponsesGateway(t, &scriptedUpstream{text: strings.Join(responseEvents[:5], "") + frame + "\n\n"}, "1", nil)
			r, out := h.complete(t, upstream.Responses, askResponseStream)
			if err := responsestest.Check([]byte(out), responsestest.Done); err != nil || r.Stream.Err() == nil || !strings.Contains(out, "response.failed") {
				t.Errorf("%s behind content: %v\n%s", name, err, out)
			}
			if receipt, ok := r.Stream.Receipt(); !ok || receipt.Reason != billing.ReasonUpstreamFailed || receipt.Charge != micro(estimatedInput+1) {
				t.Errorf("%s behind content: %+v", name, receipt)
			}
		}
	})
}

// TestALongSilenceHasEventsAndADuplicateHasThemToo waits five minutes for the vendor.
func TestALongSilenceHasEventsAndADuplicateHasThemToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := io.Pipe()
		routing := newRouter(t, router.Channel{
			Name: "slow", Upstream: answering{upstream.Responses, &scriptedUpstream{body: in}}, Models: map[string]string{"m": "m"},
			Timeout: router.Timeouts{Headers: time.Hour, Idle: time.Hour, Total: time.Hour},
		})
		h := newTestGateway(t, routing, "1.00", nil)
		go func() {
			time.Sleep(5 * time.Minute) // virtual
			_, _ = io.WriteString(out, strings.Join(responseEvents[:6], ""))
			time.Sleep(3 * time.Minute)
			_, _ = io.WriteString(out, strings.Join(responseEvents[6:], ""))
			_ = out.Close()
		}()
		var mu sync.Mutex
		var got strings.Builder
		write := func(b []byte) {
			mu.Lock()
			defer mu.Unlock()
			got.Write(b)
		}
		ask := &gateway.Request{Op: upstream.Responses, Body: []byte(askResponseStream), IdempotencyKey: "k"}
		r, err := h.Do(t.Context(), gateway.Caller{Heartbeat: write}, ask)
		for err == nil {
			var b []byte
			b, err = r.Stream.Next()
			write(b)
		}
		again := h.must(t, upstream.Responses, askResponseStream, "k")
		for name, text := range map[string]string{"the client": got.String(), "a duplicate": string(again.Body)} {
			if err := responsestest.Check([]byte(text), responsestest.Done); err != nil || strings.Count(text, `"type":"keepalive"`) != 2 || strings.Contains(text, "resp_v") {
				t.Errorf("%s: %v\n%s", name, err, text)
			}
		}
		if got := h.spent(t); got != micro(50) {
			t.Errorf("spent %s", got)
		}
	})
}

func TestARequestThatFailsBehindAHeartbeatEndsItsStream(t *testing.T) {
	h := newResponsesGateway(t, &scriptedUpstream{err: fault.New(fault.ServiceUnavailable, "It is full.")}, "1.00", nil)
	failed := func(body string) string {
		e := authenticated(t, t.Context(), h.Gateway)
		_, err := e.Do(t.Context(), &gateway.Request{Op: upstream.Responses, Body: []byte(body)})
		return string(e.AppendError(nil, err))
	}
	out := failed(askResponseStream)
	if err := responsestest.Check([]byte(out), responsestest.Done); err != nil || !strings.Contains(out, `"error":{"code":"server_is_overloaded"`) {
		t.Errorf("%v\n%s", err, out)
	}
	out = failed(`{`)
	if !strings.HasPrefix(out, `data: {"error":{`) { // of what was not parsed
		t.Errorf("%s", out)
	}
}

func TestTheInputOfAResponseIsCountedByTheUpstreamIfItCan(t *testing.T) {
	const body = `{"model":"m","input":"say four words","stream":true}`
	h := newTestGateway(t, &scriptedUpstream{text: `{"object":"response.input_tokens","input_tokens":4242}`}, "0", nil)
	n, err := h.CountResponseTokens(t.Context(), &responses.Request{Model: "m", Input: responses.Text("say four words")})
	if err != nil || n.InputTokens != 4242 || n.Estimated {
		t.Errorf("%+v, %v", n, err)
	}
	h = newResponsesGateway(t, &scriptedUpstream{}, "0", inPrepaid)
	r := h.must(t, upstream.CountInput, body)
	if string(r.Body) != `{"object":"response.input_tokens","input_tokens":8}` || r.Header.Get("X-Gateway-Estimated") != "true" {
		t.Errorf("%s, %v", r.Body, r.Header)
	}
	if n, err := h.CountResponseTokens(t.Context(), &responses.Request{Model: "m", Input: responses.Text("say four words")}); err != nil || n.InputTokens != 8 || !n.Estimated {
		t.Errorf("%+v, %v", n, err)
	}
}
