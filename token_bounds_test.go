package gateway_test

import (
	"strings"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

func TestWhatWasDeliveredIsChargedWhateverTheCallerWrote(t *testing.T) {
	const made = 3_000
	words := strings.Repeat("abcd", made)
	answer := func(usage string) string {
		return `{"id":"a","object":"chat.completion","created":7,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"` + words + `"},"finish_reason":"stop"}],"usage":` + usage + `}`
	}
	stream := func(usage string) string {
		return strings.Repeat(chunk(`{"content":"abcd"}`), made) + `data: {"id":"a","choices":[],"usage":` + usage + "}\n\ndata: [DONE]\n\n"
	}
	for _, c := range []struct {
		name, usage     string
		cost, unbounded int64 // unbounded is without a bound of the caller's; 0 for the same
	}{
		{"far above the bound that was written", `{"prompt_tokens":10,"completion_tokens":3000}`, 3_010, 0},
		{"further still, by reasoning that nobody sees", `{"prompt_tokens":10,"completion_tokens":15000}`, 15_010, 0},
		{"an odd count of the cache", `{"prompt_tokens":10,"completion_tokens":3000,"prompt_tokens_details":{"cached_tokens":11}}`, 3_010, 0},
		{"an odd count of the input", `{"prompt_tokens":"a dozen","completion_tokens":3000}`, 3_008, 0},
		{"an odd count of the output", `{"prompt_tokens":10,"completion_tokens":"many"}`, 3_010, 0},
		{"a count that no model reaches", `{"prompt_tokens":10,"completion_tokens":900000000}`, 3_010, 4_106},
		{"a count that this model does not reach", `{"prompt_tokens":10,"completion_tokens":40000}`, 3_010, 4_106},
		{"an input that no model takes", `{"prompt_tokens":900000000,"completion_tokens":3000}`, 3_000, 0},
	} {
		for _, s := range []struct{ name, text, more string }{
			{"whole", answer(c.usage), `"max_tokens":1,`}, {"streamed", stream(c.usage), `"max_tokens":1,"stream":true,`},
			{"whole, without a bound", answer(c.usage), ``}, {"streamed, without a bound", stream(c.usage), `"stream":true,`},
		} {
			t.Run(c.name+", "+s.name, func(t *testing.T) {
				h := newTestGateway(t, &scriptedUpstream{text: s.text}, "1.00", nil)
				body := `{` + s.more + `"model":"m","messages":[{"role":"user","content":"say four words"}]}`
				h.complete(t, upstream.ChatCompletion, body)
				want := c.cost
				if c.unbounded > 0 && !strings.Contains(s.more, "max_tokens") {
					want = c.unbounded
				}
				if want == 3_000 { // the most that the request's bytes can be
					want += int64(len(body))
				}
				if got := h.spent(t); got != micro(want) {
					t.Errorf("spent %s, want %s", got, micro(want))
				}
			})
		}
	}
}

// dropping is a vendor behind a channel that leaves fields out, or renames them.
func dropping(t *testing.T, up upstream.Upstream, edit func(*router.Channel)) upstream.Upstream {
	t.Helper()
	c := router.Channel{Name: "main", Upstream: up, Models: map[string]string{"m": "vendor-m"}}
	edit(&c)
	return newRouter(t, c)
}

func TestAStreamWhoseBoundIsDroppedIsHeldAsOneWithout(t *testing.T) {
	text := strings.Repeat(chunk(`{"content":"abcd"}`), 6_000) + "data: [DONE]\n\n"
	up := dropping(t, &scriptedUpstream{text: text}, func(ch *router.Channel) { ch.Drop = []string{"max_tokens"} })
	for _, c := range []struct {
		member  string
		balance int
	}{
		{`"max_tokens":1`, 5_000}, // more than the usual hold
		{`"max_tokens":1`, 100},
		{`"user":"u"`, 5_000},
		{`"user":"u"`, 100}, // the bound that the balance affords is dropped too
	} {
		ask, balance := strings.Replace(askChatStream, `"max_tokens":100`, c.member, 1), c.balance
		h := newTestGateway(t, up, micro(int64(len(ask)+balance)).String(), nil)
		r, out := h.complete(t, upstream.ChatCompletion, ask)
		receipt, _ := r.Receipt()
		if words := strings.Count(out, "abcd"); words < balance || words > balance+10 || receipt.Overrun > micro(10) || receipt.Reason != billing.ReasonBalanceEnded {
			t.Errorf("%d tokens for a balance of %d, receipt %+v", words, balance, receipt)
		}
	}
}

func TestABoundThatAChannelRenamesStandsAsItIs(t *testing.T) {
	for _, members := range []string{`"max_tokens":40`, `"max_tokens":40,"max_completion_tokens":40`} {
		up := &scriptedUpstream{text: chatAnswer(`,"usage":{"prompt_tokens":1,"completion_tokens":40}`)}
		renaming := dropping(t, up, func(ch *router.Channel) { ch.Rename = map[string]string{"max_tokens": "max_completion_tokens"} })
		h := newTestGateway(t, renaming, "1.00", nil)
		x := h.must(t, upstream.ChatCompletion, strings.Replace(askChat, `"max_tokens":100`, members, 1))
		if r, _ := x.Receipt(); r.Charge != micro(41) || !strings.Contains(up.sent(t), `"max_completion_tokens":40`) || strings.Contains(up.sent(t), `"max_tokens"`) {
			t.Errorf("%s: %+v, the vendor got %s", members, r, up.sent(t))
		}
	}
}

// The rest is tested in internal/operation.
func TestAFieldThatIsPassedLetsTheVendorReadMore(t *testing.T) {
	const chatBody, response = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}],`, `{"model":"m","max_output_tokens":9,"input":"hi","tools":[{"type":"web_search"}]}`
	for _, row := range []struct {
		name     string
		op       upstream.Op
		body     string
		pass     string // of the channel
		believed bool
	}{
		{"a tool of the vendor's", upstream.ChatCompletion, chatBody + `"tools":[{"type":"web_search"}]}`, "tools", true},
		{"a search", upstream.ChatCompletion, chatBody + `"web_search_options":{}}`, "web_search_options", true},
		{"an unknown field", upstream.ChatCompletion, chatBody + `"unknown":1}`, "unknown", true},
		{"an unknown field that is left out", upstream.ChatCompletion, chatBody + `"unknown":1}`, "", false},
		{"a tool of a response", upstream.Responses, response, "tools", true},
		{"a tool of a response that is left out", upstream.Responses, response, "", false},
	} {
		text := chatAnswer(`,"usage":{"prompt_tokens":500000,"completion_tokens":0}`)
		if row.op == upstream.Responses {
			text = strings.Replace(responseAnswer, `"input_tokens":20`, `"input_tokens":500000`, 1)
		}
		h := newTestGateway(t, newRouter(t, router.Channel{Name: "c", Upstream: answering{row.op, &scriptedUpstream{text: text}}, Models: map[string]string{"m": "m"}, Pass: strings.Fields(row.pass)}), "9.00", inPrepaid)
		r := h.must(t, row.op, row.body)
		receipt, err := h.ledger.Receipt(t.Context(), "local", r.ID)
		must(t, err)
		if u := receipt.Usage; row.believed != (u.Input == 500_000) || row.believed == u.Anomaly {
			t.Errorf("%s: %d tokens of input, an anomaly: %t", row.name, u.Input, u.Anomaly)
		}
	}
}
