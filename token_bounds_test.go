package gateway_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	chatop "github.com/tollhouse-ai/gateway/internal/operation/chat"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

const askUnbounded = `{"model":"m","messages":[{"role":"user","content":"say a lot"}]}`

// boundedVendor is a vendor that makes as much as it is allowed, or unasked tokens where
// it is sent no bound. It answers when release is closed.
type boundedVendor struct {
	unasked int64
	prompt  int64 // tokens of the input that it counts
	made    atomic.Int64
	arrived chan string // gets what each call sends
	release chan struct{}
}

func (v *boundedVendor) Do(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
	data, err := call.Body.Bytes()
	if err != nil {
		return nil, err
	}
	r, err := chatop.Parse(data)
	if err != nil {
		return nil, err
	}
	v.arrived <- string(data)
	select {
	case <-v.release:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	n := r.OutputBound()
	if n == 0 {
		n = v.unasked
	}
	n *= r.Candidates()
	v.made.Add(n)
	text := chatAnswer(fmt.Sprintf(`,"usage":{"prompt_tokens":%d,"completion_tokens":%d}`, v.prompt, n))
	if call.Stream {
		text = chatStream(strings.Replace(hiddenUsage, `"completion_tokens":1000`, fmt.Sprintf(`"completion_tokens":%d`, n), 1))
	}
	return (&scriptedUpstream{text: text}).Do(ctx, call)
}

// askAtOnce asks n times at once, of a vendor that answers nobody before each call
// has reached it or was refused. It returns how many were answered.
func askAtOnce(t *testing.T, h *testGateway, v *boundedVendor, n int, op upstream.Op, body string) (answered int64) {
	t.Helper()
	v.release, v.arrived = make(chan struct{}), make(chan string, n)
	var all sync.WaitGroup
	var good atomic.Int64
	for range n {
		all.Go(func() {
			_, err := finish(h.do(t.Context(), op, body))
			switch {
			case err == nil:
				good.Add(1)
			case fault.Is(err, fault.InsufficientBalance):
				v.arrived <- ""
			default:
				t.Error(err)
			}
		})
	}
	for range n {
		<-v.arrived
	}
	close(v.release)
	all.Wait()
	return good.Load()
}

// One token of output costs a hundred-thousandth, as of a model at 10 a million.
func dear(t *testing.T, models ...gateway.Model) func(*gateway.Options) {
	return func(o *gateway.Options) {
		o.Prices = pricedAt("m", price(t, "0", "10"))
		o.Models = models
	}
}

// TestAnswersAtOnceNeverCostMoreThanTheBalance has a vendor that makes as much as it may:
// what no bound reaches it is held for, or runs alone. A stream of a model that hides
// its reasoning, or whose bound is dropped, does not show what it costs.
func TestAnswersAtOnceNeverCostMoreThanTheBalance(t *testing.T) {
	const own, newer = `{"max_tokens":1,"model"`, `{"max_completion_tokens":1,"model"`
	bounded := func(first string) string { return strings.Replace(askUnbounded, `{"model"`, first, 1) }
	message := strings.Replace(askMessage, `"max_tokens":100`, `"max_tokens":30000`, 1)
	stream := strings.Replace(askChatStream, `,"max_tokens":100`, "", 1)
	for _, c := range []struct {
		name      string
		op        upstream.Op
		maxOutput int64  // of the model; 0 if it is not known
		drop      string // a field that the channel drops
		credit    int64
		body      string
		calls     int
		answered  int64
	}{
		// The first may make half of what the balance is worth, the others 4,096 each.
		{"an unknown cap", upstream.ChatCompletion, 0, "", 1, askUnbounded, 24, 14},
		{"an unknown cap, many", upstream.ChatCompletion, 0, "", 1, askUnbounded, 60, 14},
		{"a cap of 128,000", upstream.ChatCompletion, 128_000, "", 1, askUnbounded, 24, 14},
		{"a cap of a million, many", upstream.ChatCompletion, 1_048_576, "", 1, askUnbounded, 60, 14},
		{"a cap that many can have", upstream.ChatCompletion, 2_000, "", 1, askUnbounded, 60, 50},
		{"two candidates", upstream.ChatCompletion, 0, "", 1, bounded(`{"n":2,"model"`), 24, 8},
		{"a bound above what each can have", upstream.ChatCompletion, 0, "", 1, bounded(`{"max_tokens":30000,"model"`), 24, 4},
		{"messages", upstream.Messages, 0, "", 1, message, 24, 4},
		{"streams of a model that hides its reasoning", upstream.ChatCompletion, 128_000, "", 1, stream, 24, 14},
		{"streams whose caller hides the reasoning", upstream.ChatCompletion, 128_000, "", 1, strings.Replace(stream, "{", `{"include_reasoning":false,`, 1), 24, 14},
		{"streams whose bound is dropped", upstream.ChatCompletion, 128_000, "max_tokens", 1, stream, 24, 1},
		{"a dropped bound, no balance for more than one", upstream.ChatCompletion, 0, "max_tokens", 1, bounded(own), 24, 1},
		{"a dropped bound, a balance for all", upstream.ChatCompletion, 0, "max_tokens", 40, bounded(own), 24, 24},
		{"a dropped bound that the caller does not send", upstream.ChatCompletion, 0, "max_tokens", 1, askUnbounded, 24, 1},
		{"a dropped bound of the other name", upstream.ChatCompletion, 0, "max_completion_tokens", 1, bounded(newer), 24, 1},
		{"a dropped bound of the name that a translation gives", upstream.ChatCompletion, 0, "max_tokens", 1, bounded(newer), 24, 1},
		{"a dropped bound of the name that responses have", upstream.ChatCompletion, 0, "max_output_tokens", 1, bounded(own), 24, 1},
		{"a dropped bound of that name, of a message", upstream.Messages, 0, "max_output_tokens", 1, message, 24, 1},
		{"another field is dropped", upstream.ChatCompletion, 0, "max_completion_tokens", 1, bounded(own), 24, 24},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := &boundedVendor{unasked: 60_000}
			if c.maxOutput > 0 {
				v.unasked = min(v.unasked, c.maxOutput)
			}
			up := dropping(t, answering{upstream.ChatCompletion, v}, func(ch *router.Channel) {
				if c.drop != "" {
					ch.Drop = []string{c.drop}
				}
			})
			model := gateway.Model{ID: "m", MaxOutput: c.maxOutput}
			if strings.Contains(c.name, "model that hides") {
				model.Reasoning = gateway.ReasoningHidden
			}
			h := newTestGateway(t, up, fmt.Sprint(c.credit), dear(t, model))
			if answered := askAtOnce(t, h, v, c.calls, c.op, c.body); answered != c.answered {
				t.Errorf("%d of %d were answered, want %d", answered, c.calls, c.answered)
			}
			if worth := v.made.Load(); worth > 100_000*c.credit || h.spent(t) != 10_000*billing.Money(worth) {
				t.Errorf("the vendor made %d tokens for a balance of %d, which cost %s", worth, 100_000*c.credit, h.spent(t))
			}
		})
	}
}

func TestASolventCallerIsServedWhateverTheCap(t *testing.T) {
	for _, c := range []struct {
		name, credit string
		models       []gateway.Model
		calls        int
		sent         string // what the last call was limited to; empty for its own bytes
	}{
		{"alone, with next to nothing", "0.01", nil, 1, `"max_tokens":1000`},
		{"alone, half of a small balance", "1.00", nil, 1, `"max_tokens":16384`},
		{"alone, a large cap and a small balance", "1.00", []gateway.Model{{ID: "m", MaxOutput: 1_048_576}}, 1, `"max_tokens":50000`},
		{"alone, with enough", "3.00", nil, 1, ""},
		{"the second, a cap of a million", "20.00", []gateway.Model{{ID: "m", MaxOutput: 1_048_576}}, 2, `"max_tokens":4096`},
		{"the second, with enough for both", "50.00", []gateway.Model{{ID: "m", MaxOutput: 1_048_576}}, 2, ""},
		{"the tenth, a cap of a million", "20.00", []gateway.Model{{ID: "m", MaxOutput: 1_048_576}}, 10, `"max_tokens":4096`},
		{"the tenth, with enough for all", "300.00", []gateway.Model{{ID: "m", MaxOutput: 1_048_576}}, 10, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := &boundedVendor{release: make(chan struct{}), arrived: make(chan string, c.calls)}
			h := newTestGateway(t, up, c.credit, dear(t, c.models...))
			var all sync.WaitGroup
			var last string
			for range c.calls {
				all.Go(func() {
					if _, err := h.ask(t.Context(), askUnbounded); err != nil {
						t.Error(err)
					}
				})
				last = <-up.arrived
			}
			close(up.release)
			all.Wait()
			if c.sent == "" && last != askUnbounded || !strings.Contains(last, c.sent) {
				t.Errorf("the vendor got %s, want %s", last, c.sent)
			}
		})
	}
}

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

// A token is at least a byte of what was sent, and a vendor may put a prompt of its own
// before it.
func TestACountOfInputIsBelievedAsFarAsTheBodyAllows(t *testing.T) {
	const chatHead, text = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":`, `"hi"}]`
	const ownPrompt = 16_384
	for _, row := range []struct {
		name     string
		op       upstream.Op
		body     string
		pass     string // of the channel
		reported int64
		believed bool
	}{
		{"a vendor's own prompt", upstream.ChatCompletion, chatHead + text + `}`, "", 3_000, true},
		{"the most", upstream.ChatCompletion, chatHead + text + `}`, "", int64(len(chatHead+text+`}`)) + ownPrompt, true},
		{"one more", upstream.ChatCompletion, chatHead + text + `}`, "", int64(len(chatHead+text+`}`)) + ownPrompt + 1, false},
		{"no count at all", upstream.ChatCompletion, chatHead + text + `}`, "", 2_000_000, false},
		{"of a message", upstream.Messages, chatHead + text + `}`, "", 2_000_000, false},
		{"of a response", upstream.Responses, `{"model":"m","max_output_tokens":9,"input":"hi"}`, "", 2_000_000, false},
		{"of a small picture in the body", upstream.ChatCompletion, chatHead + `[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}]}`, "", 30_000, true},
		{"of a picture by URL", upstream.ChatCompletion, chatHead + `[{"type":"image_url","image_url":{"url":"https://a.test/p.png"}}]}]}`, "", 500_000, true},
		{"with a tool of the vendor's", upstream.ChatCompletion, chatHead + text + `,"tools":[{"type":"web_search"}]}`, "tools", 500_000, true},
		{"with a search", upstream.ChatCompletion, chatHead + text + `,"web_search_options":{}}`, "web_search_options", 500_000, true},
		{"with a field that is passed", upstream.ChatCompletion, chatHead + text + `,"unknown":1}`, "unknown", 500_000, true},
		{"with a field that is left out", upstream.ChatCompletion, chatHead + text + `,"unknown":1}`, "", 500_000, false},
		{"with a tool that is left out", upstream.Responses, `{"model":"m","max_output_tokens":9,"input":"hi","tools":[{"type":"web_search"}]}`, "", 500_000, false},
		{"of a response with a tool of the vendor's", upstream.Responses, `{"model":"m","max_output_tokens":9,"input":"hi","tools":[{"type":"web_search"}]}`, "tools", 500_000, true},
	} {
		up := &scriptedUpstream{text: map[upstream.Op]string{
			upstream.ChatCompletion: chatAnswer(fmt.Sprintf(`,"usage":{"prompt_tokens":%d,"completion_tokens":0}`, row.reported)),
			upstream.Messages:       strings.Replace(messageAnswer, `"input_tokens":20`, fmt.Sprintf(`"input_tokens":%d`, row.reported), 1),
			upstream.Responses:      strings.Replace(responseAnswer, `"input_tokens":20`, fmt.Sprintf(`"input_tokens":%d`, row.reported), 1),
		}[row.op]}
		h := newTestGateway(t, newRouter(t, router.Channel{Name: "c", Upstream: answering{row.op, up}, Models: map[string]string{"m": "m"}, Pass: strings.Fields(row.pass)}), "9.00", inPrepaid)
		r := h.must(t, row.op, row.body)
		receipt, err := h.ledger.Receipt(t.Context(), "local", r.ID)
		must(t, err)
		if u := receipt.Usage; row.believed != (u.Input == row.reported) || !row.believed && (!u.Anomaly || u.Input > int64(len(row.body)+16)) {
			t.Errorf("%s: %d tokens of input, an anomaly: %t, of %d reported", row.name, u.Input, u.Anomaly, row.reported)
		}
	}
}

func TestMediaByURLRunAloneUnlessTheBalanceCoversThem(t *testing.T) {
	const picture, inline = `{"type":"image_url","image_url":{"url":"https://a.test/p.png"}}`, `{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}`
	for _, c := range []struct {
		name, credit, part, more string
		answered                 int64
	}{
		{"a picture, a small balance", "0.50", picture, `"max_tokens":10`, 1},
		{"a picture, a balance for all", "20.00", picture, `"max_tokens":10`, 10},
		{"without a bound of the output", "0.50", picture, `"user":"u"`, 1},
		{"a video, a small balance", "9.00", `{"type":"video_url","video_url":{"url":"https://a.test/v.mp4"}}`, `"max_tokens":10`, 1},
		{"a file by URL", "9.00", `{"type":"file","file":{"file_data":"https://a.test/f.pdf"}}`, `"max_tokens":10`, 1},
		{"a picture in the body", "0.50", inline, `"max_tokens":10`, 10},
		{"a large text in the body", "0.60", `{"type":"file","file":{"file_data":"data:text/plain,` + strings.Repeat("word ", 20_000) + `"}}`, `"max_tokens":10`, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := &boundedVendor{unasked: 10, prompt: 1}
			h := newTestGateway(t, v, c.credit, func(o *gateway.Options) {
				o.Prices = pricedAt("m", price(t, "10", "10"))
			})
			body := `{"model":"m",` + c.more + `,"messages":[{"role":"user","content":[` + c.part + `]}]}`
			if answered := askAtOnce(t, h, v, 10, upstream.ChatCompletion, body); answered != c.answered {
				t.Errorf("%d of 10 were answered, want %d", answered, c.answered)
			}
			if _, err := h.ask(t.Context(), body); err != nil { // one at a time they are
				t.Error(err)
			}
		})
	}
}

func TestACheckpointIsClampedAsASettlementIs(t *testing.T) {
	meter := new(notedMeter)
	h := newTestGateway(t, &scriptedUpstream{text: chatStream(usageChunk(20, 900_000_000))}, "1.00", func(o *gateway.Options) {
		meter.Meter, o.Meter = o.Meter, meter
	})
	h.complete(t, upstream.ChatCompletion, askChatStream)
	if len(meter.noted) == 0 || meter.noted[len(meter.noted)-1] != 100 || h.spent(t) != micro(120) {
		t.Errorf("the checkpoints are %d, the charge is %s", meter.noted, h.spent(t))
	}
}

func TestAStreamIsNotCutWhileThereIsMoney(t *testing.T) {
	const affords, made = 6_000, 5_999
	text := strings.Repeat(chunk(`{"content":"abcd"}`), made) + "data: [DONE]\n\n"
	ask := strings.Replace(askChatStream, `"max_tokens":100,`, "", 1)
	up := &scriptedUpstream{text: text}
	h := newTestGateway(t, up, micro(int64(len(ask))+affords).String(), nil)
	r, out := h.complete(t, upstream.ChatCompletion, ask)
	if receipt, _ := r.Receipt(); strings.Contains(out, `"length"`) || receipt.Usage.Output != made || receipt.Reason != billing.ReasonComplete {
		t.Errorf("the stream ends with %q, receipt %+v", out[len(out)-200:], receipt)
	}
	if !strings.Contains(up.sent(t), fmt.Sprintf(`"max_tokens":%d`, affords)) {
		t.Errorf("the vendor got %s", up.sent(t))
	}
}

// TestAHoldCoversAnInputThatACacheTakes has a vendor bill the whole bound of the input as
// written to its cache, which costs more than to read it.
func TestAHoldCoversAnInputThatACacheTakes(t *testing.T) {
	written := rates(t, "input", "3", "cached_input", "0.3", "cache_write", "3.75", "output", "15")
	const link = `{"model":"m","max_tokens":7,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://files.example/a.png"}}]}]}`
	for _, c := range []struct {
		name  string
		op    upstream.Op
		price *billing.Price
		body  string
	}{
		{"a completion", upstream.ChatCompletion, written, strings.Replace(askUnbounded, `{"model"`, `{"max_tokens":7,"model"`, 1)},
		{"a message", upstream.Messages, written, strings.Replace(askMessage, `"max_tokens":100`, `"max_tokens":7`, 1)},
		{"a response", upstream.Responses, written, `{"model":"m","max_output_tokens":7,"input":"hi"}`},
		{"a picture by its address", upstream.ChatCompletion, written, link},
		{"writing that costs what reading does", upstream.ChatCompletion, rates(t, "input", "3", "cached_input", "0.3", "output", "15"), link},
		{"writing that costs less", upstream.ChatCompletion, rates(t, "input", "3", "cache_write", "1", "output", "15"), link},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := &scriptedUpstream{}
			q := &gateway.Request{Op: c.op, Body: []byte(c.body)}
			e, err := newPricedGateway(t, up, "1", "m", c.price).Estimate(t.Context(), gateway.Caller{}, q)
			must(t, err)
			in := e.Usage.Input + e.Usage.CacheWrite
			if (e.Usage.CacheWrite > 0) != (c.price == written) || in == 0 || e.Usage.Output != 7 {
				t.Errorf("held for %+v", e.Usage)
			}
			up.text = fmt.Sprintf(`{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cache_write_tokens":%[1]d}}}`, in, 7)
			h := newPricedGateway(t, answering{upstream.ChatCompletion, up}, e.Most.String(), "m", c.price)
			r, err := h.Do(t.Context(), gateway.Caller{}, q)
			must(t, err)
			r.Close()
			if left := h.balance(t).Posted; left < 0 || c.price == written && left != 0 {
				t.Errorf("%s is left of %s", left, e.Most)
			}
		})
	}
}
