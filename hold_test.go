package gateway_test

import (
	"cmp"
	"context"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/images"
	imagesop "github.com/tollhouse-ai/gateway/internal/operation/images"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// What is lowered is tested in internal/operation.
func TestTheHeadersSayWhatTheBalanceAffords(t *testing.T) {
	body := func(members string) string { return strings.Replace(askMessage, `"max_tokens":100`, members, 1) }
	for _, c := range []struct{ name, body, held, dropped string }{
		{"a smaller bound", body(`"max_tokens":10`), "", ""},
		{"a larger bound", body(`"max_tokens":5000`), "1000", ""},
		{"a larger bound of a stream, which is held before it begins", body(`"max_tokens":5000,"stream":true`), "1000", ""},
		{"reasoning that it does not afford", body(`"max_tokens":5000,"thinking":{"type":"enabled","budget_tokens":4000}`), "1000", "thinking"},
	} {
		up := &scriptedUpstream{text: messageAnswer}
		if strings.Contains(c.body, "stream") {
			up.text = strings.Join(messageEvents, "")
		}
		h := newTestGateway(t, speaker{up, onlyMessages}, micro(int64(len(c.body))+1_000).String(), nil) // a byte may be a token
		r, _ := h.complete(t, upstream.Messages, c.body)
		if got := r.Header.Get("X-Gateway-Max-Tokens"); got != c.held || r.Header.Get("X-Gateway-Dropped") != c.dropped || !strings.Contains(up.sent(t), `"max_tokens":`+cmp.Or(c.held, "10")) {
			t.Errorf("%s: headers %v, the vendor got %s", c.name, r.Header, up.sent(t))
		}
	}
	up := &scriptedUpstream{}
	h := newTestGateway(t, up, micro(int64(len(askChat))).String(), nil) // the input bound, but no output token
	if _, err := h.ask(t.Context(), askChat); !fault.Is(err, fault.InsufficientBalance) || fault.From(err).HTTPStatus() != 402 || up.count() != 0 {
		t.Errorf("error %v after %d calls", err, up.count())
	}
}

// endless streams words until it is told to stop.
func endless(stop *atomic.Bool) chat.StreamHandler {
	return func(ctx context.Context, _ *chat.Request) iter.Seq2[*chat.Chunk, error] {
		return func(yield func(*chat.Chunk, error) bool) {
			for i := 0; i < 100_000 && ctx.Err() == nil; i++ {
				c := &chat.Chunk{ID: "e", Object: "chat.completion.chunk", Model: "m",
					Choices: []chat.ChunkChoice{{Delta: chat.Message{Content: chat.Text("abcd")}}}}
				if !yield(c, nil) {
					stop.Store(true)
					return
				}
			}
		}
	}
}

func TestAStreamEndsForLengthWhenTheMoneyDoes(t *testing.T) {
	var stopped atomic.Bool
	up := chat.ServeStream(exactly, endless(&stopped))
	ask := `{"model":"m","messages":[{"role":"user","content":"go on"}],"stream":true,"stream_options":{"include_usage":true}}`
	affordable := int64(1_500)
	credit := micro(int64(len(ask)) + affordable).String()
	h := newTestGateway(t, up, credit, func(o *gateway.Options) {
		o.Models = []gateway.Model{{ID: "m", HoldTokens: 100, MaxOutput: 1_000}} // the upstream ignores the cap
	})
	r, out := h.complete(t, upstream.ChatCompletion, ask)
	if !strings.HasSuffix(out, "data: [DONE]\n\n") || !strings.Contains(out, `"finish_reason":"length"`) || strings.Count(out, `"usage":{`) != 1 {
		t.Errorf("the stream ends with %q", out[max(0, len(out)-400):])
	}
	if !stopped.Load() {
		t.Error("the upstream was not stopped")
	}
	words := int64(strings.Count(out, "abcd"))
	if words < affordable-100 || words > affordable+int64(len(ask)) {
		t.Errorf("%d tokens for a balance of %d", words, affordable)
	}
	if b := h.balance(t); b.Posted < 0 || b.Posted > micro(150) {
		t.Errorf("the balance is %s", b.Posted)
	}
	if r.Stream.Err() != nil {
		t.Errorf("the stream's error is %v", r.Stream.Err())
	}
}

// newEstimateGateway is a gateway over an upstream that must not be asked.
func newEstimateGateway(t *testing.T, account memory.Ledger) (*gateway.Gateway, *scriptedUpstream) {
	t.Helper()
	up := &scriptedUpstream{}
	g, err := gateway.New(gateway.Options{
		Upstream: up, Meter: account, Models: []gateway.Model{{ID: "old", Withdrawn: time.Unix(1, 0)}, {ID: "capped", MaxOutput: 20_000}},
		Prices: billing.NewPriceList(map[string]*billing.Price{
			"m":                 rates(t, "input", "1", "output", "2"),
			"capped":            rates(t, "output", "2"),
			"alpha-image-2.0":   rates(t, "image", "0.035"),
			"imagegen-2":        rates(t, "image_output", "32"),
			"alpha3-tts-flash":  rates(t, "character", "10"),
			"beta2.6-t2v":       rates(t, "second", "0.10"),
			"gamma-2-0-260128":  rates(t, "second", "0.10"),
			"text-embedding-v4": rates(t, "input", "0.07"),
		}),
	})
	must(t, err)
	t.Cleanup(func() { _ = g.Close() })
	return g, up
}

func TestAnEstimateIsTheHoldAndSaysWhetherItIsThePrice(t *testing.T) {
	ledger := memory.NewLedger(memory.LedgerOptions{})
	must(t, ledger.CreateAccount(t.Context(), "local", billing.One))
	g, up := newEstimateGateway(t, ledger)
	for name, c := range map[string]struct {
		op          upstream.Op
		body        string
		most, least string
		exact, open bool
	}{
		"a chat without a bound": {upstream.ChatCompletion, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, "", "", false, true},
		"a chat with a bound":    {upstream.ChatCompletion, `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":1000}`, "", "", false, false},
		"a chat up to the cap":   {upstream.ChatCompletion, `{"model":"capped","messages":[{"role":"user","content":"hi"}]}`, "0.04", "0.000002", false, false},
		"a stream":               {upstream.ChatCompletion, `{"model":"capped","messages":[{"role":"user","content":"hi"}],"stream":true}`, "0.008192", "0.000002", false, true},
		"a free model":           {upstream.ChatCompletion, `{"model":"free","messages":[{"role":"user","content":"hi"}]}`, "0.00", "0.00", true, false},
		"a count of tokens":      {upstream.CountTokens, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`, "0.00", "0.00", true, false},
		"a picture":              {upstream.GenerateImage, `{"model":"alpha-image-2.0","input":{"messages":[{"role":"user","content":[{"text":"x"}]}]}}`, "0.035", "0.035", true, false},
		"a picture of tokens":    {upstream.GenerateImage, `{"model":"imagegen-2","prompt":"x","size":"1024x1024"}`, "", "", false, false},
		"speech":                 {upstream.Speech, `{"model":"alpha3-tts-flash","input":"five!","response_format":"wav"}`, "0.00005", "0.00005", true, false},
		"a video":                {upstream.SubmitVideo, `{"model":"beta2.6-t2v","input":{"prompt":"x"},"duration":4}`, "0.40", "0.40", true, false},
		"a video of any length":  {upstream.SubmitVideo, `{"model":"gamma-2-0-260128","content":[{"type":"text","text":"x"}]}`, "1.50", "1.50", false, false},
		"embeddings":             {upstream.Embeddings, `{"model":"text-embedding-v4","input":"x"}`, "", "", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := g.Estimate(t.Context(), gateway.Caller{}, &gateway.Request{Op: c.op, Body: []byte(c.body)})
			must(t, err)
			if e.Exact != c.exact || e.Open != c.open || e.Least > e.Most || c.most != "" && (e.Most.String() != c.most || e.Least.String() != c.least) || c.most == "" && e.Most == 0 {
				t.Errorf("it is %+v", e)
			}
			if (e.PriceVersion == "") != (g.Price(e.Model) == nil || c.op == upstream.CountTokens) {
				t.Errorf("the price's version is %q", e.PriceVersion)
			}
		})
	}
	if b, err := ledger.Balance(t.Context(), "local"); up.count() != 0 || err != nil || b.Held != 0 || b.Posted != billing.One {
		t.Errorf("%d calls were made, balance %+v, %v", up.count(), b, err)
	}
}

func TestAnEstimateFailsAsTheCallWould(t *testing.T) {
	g, _ := newEstimateGateway(t, memory.NewLedger(memory.LedgerOptions{}))
	for name, c := range map[string]struct {
		op   upstream.Op
		body string
		code fault.Code
	}{
		"no JSON":            {upstream.ChatCompletion, `{`, fault.InvalidRequest},
		"a broken rule":      {upstream.ChatCompletion, `{"model":"m","messages":[]}`, fault.InvalidRequest},
		"a withdrawn model":  {upstream.Embeddings, `{"model":"old","input":"x"}`, fault.ModelNotFound},
		"another endpoint's": {upstream.ChatCompletion, `{"model":"alpha-image-2.0","messages":[{"role":"user","content":"hi"}]}`, fault.InvalidRequest},
		"no operation":       {"nothing", `{}`, fault.NotFound},
		"a form as a body":   {upstream.EditImage, `{}`, fault.NotFound},
		"more than is money": {upstream.ChatCompletion, `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":9007199254740991,"n":128}`, fault.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			if e, err := g.Estimate(t.Context(), gateway.Caller{}, &gateway.Request{Op: c.op, Body: []byte(c.body)}); !fault.Is(err, c.code) {
				t.Errorf("it is %+v, %v, want %s", e, err, c.code)
			}
		})
	}
}

func TestTheEstimateOfAFormClosesIt(t *testing.T) {
	g, _ := newEstimateGateway(t, memory.NewLedger(memory.LedgerOptions{}))
	closed := 0
	form := func(model string) *upstream.Form {
		parsed, err := imagesop.EncodeForm(&images.Edit{Model: model, Prompt: "x", Images: []images.File{images.BytesFile("a.png", blank(t, 64, 64))}})
		must(t, err)
		return upstream.NewForm(parsed.Form().Parts, func() error {
			closed++
			return nil
		})
	}
	e, err := g.Estimate(t.Context(), gateway.Caller{}, &gateway.Request{Op: upstream.EditImage, Form: form("imagegen-2")})
	if err != nil || e.Most == 0 || e.Exact || closed != 1 {
		t.Errorf("it is %+v, %v; closed %d times", e, err, closed)
	}
	if _, err := g.Estimate(t.Context(), gateway.Caller{}, &gateway.Request{Op: upstream.Speech, Form: form("imagegen-2")}); !fault.Is(err, fault.NotFound) || closed != 2 {
		t.Errorf("another operation gave %v; closed %d times", err, closed)
	}
}

func TestAGatewayKnowsWhetherItListsAllModels(t *testing.T) {
	one := newRouter(t, router.Channel{Name: "a", Upstream: sim.New(sim.Options{}), Models: map[string]string{"m": "m"}})
	for _, c := range []struct {
		up     upstream.Upstream
		closed bool
	}{{one, true}, {sim.New(sim.Options{}), false}} {
		g, err := gateway.New(gateway.Options{Upstream: c.up})
		must(t, err)
		if g.ListsAllModels() != c.closed {
			t.Errorf("Closed is %t", g.ListsAllModels())
		}
		_ = g.Close()
	}
}

// takeoverMeter is a meter whose holds another process ends by their last checkpoints,
// as it does those of a node that it takes for dead.
type takeoverMeter struct {
	billing.Meter
	mu    sync.Mutex
	holds []billing.Hold
	soFar billing.Usage
	after int // checkpoints; the holds end with the last of them
}

func (m *takeoverMeter) Reserve(ctx context.Context, c billing.HoldRequest) (billing.Hold, error) {
	h, err := m.Meter.Reserve(ctx, c)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds = append(m.holds, h)
	return h, err
}

func (m *takeoverMeter) Extend(ctx context.Context, h billing.Hold, soFar billing.Usage, more billing.Money) error {
	if err := m.Meter.Extend(ctx, h, soFar, more); err != nil {
		return err
	}
	m.mu.Lock()
	m.soFar = soFar
	m.after--
	last := m.after == 0
	m.mu.Unlock()
	if last {
		m.recover()
	}
	return nil
}

// recover ends the holds as the sweep of another process does.
func (m *takeoverMeter) recover() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.holds {
		_, _ = m.Settle(context.Background(), h, m.soFar, billing.Outcome{Reason: billing.ReasonInternal})
	}
}

func TestAStreamWhoseHoldAnotherProcessEndedStopsAtTheNextCheckpoint(t *testing.T) {
	chatText := strings.Repeat(chunk(`{"content":"abcd"}`), 60_000) + usageChunk(1, 60_000) + "data: [DONE]\n\n"
	long := strings.Replace(askChatStream, `"max_tokens":100`, `"max_tokens":90000`, 1)
	for name, row := range map[string]struct {
		op        upstream.Op
		body      string
		up        upstream.Upstream
		last      string // of a complete stream
		extending bool
	}{
		"chat":              {upstream.ChatCompletion, long, &scriptedUpstream{text: chatText}, "[DONE]", false},
		"chat, extending":   {upstream.ChatCompletion, strings.Replace(askChatStream, `"max_tokens":100,`, "", 1), &scriptedUpstream{text: chatText}, "[DONE]", true},
		"messages, bridged": {upstream.Messages, strings.Replace(askMessageStream, `"max_tokens":100`, `"max_tokens":90000`, 1), speaker{&scriptedUpstream{text: chatText}, onlyChat}, "message_stop", false},
		"messages":          {upstream.Messages, strings.Replace(askMessageStream, `"max_tokens":100`, `"max_tokens":90000`, 1), speaker{&scriptedUpstream{text: strings.Join(messageEvents[:2], "") + strings.Repeat(messageEvent("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"abcd"}`), 60_000)}, onlyMessages}, "message_stop", false},
		"responses":         {upstream.Responses, strings.Replace(askResponseStream, `"max_output_tokens":100`, `"max_output_tokens":90000`, 1), &scriptedUpstream{text: strings.Join(responseEvents[:4], "") + strings.Repeat(responseDelta("4", "abcd"), 60_000)}, "response.completed", false},
	} {
		for _, key := range []string{"", "k"} {
			t.Run(name+key, func(t *testing.T) {
				meter := &takeoverMeter{after: 1}
				h := newTestGateway(t, row.up, "1.00", func(o *gateway.Options) {
					meter.Meter, o.Meter = o.Meter, meter
					o.Models = []gateway.Model{{ID: "m", MaxOutput: 90_000}}
				})
				r, out := h.complete(t, row.op, row.body, key)
				if n := strings.Count(out, "abcd"); n < 1_000 || n > 5_000 { // two checkpoints, or two steps of the hold
					t.Errorf("%d tokens were delivered", n)
				}
				if strings.Contains(out, row.last) || !strings.Contains(out, `"error"`) || !fault.Is(r.Stream.Err(), fault.ServiceUnavailable) {
					t.Errorf("it ends with %q, %v", out[len(out)-300:], r.Stream.Err())
				}
				if receipt, ok := r.Receipt(); !ok || receipt.Reason != billing.ReasonInternal || receipt.Charge != h.spent(t) || receipt.Charge == 0 {
					t.Errorf("receipt %+v", receipt)
				}
			})
		}
	}
}

// An answer that cannot be charged any more is withheld: a whole one, the end of a
// stream and the last byte of audio.
func TestAnAnswerWhoseHoldAnotherProcessEndedIsWithheld(t *testing.T) {
	for _, l := range everyOperation() {
		t.Run(l.name, func(t *testing.T) {
			meter := &takeoverMeter{}
			h := l.over(t, l.answered(meter.recover), func(o *gateway.Options) { meter.Meter, o.Meter = o.Meter, meter })
			x, err := l.start(t.Context(), t, h, "k")
			text, err := finish(x, err)
			if !fault.Is(err, fault.ServiceUnavailable) || h.spent(t) != 0 || h.Unsettled() != 0 {
				t.Errorf("%v, spent %s, %d captures wait", err, h.spent(t), h.Unsettled())
			}
			if strings.Contains(text, "[DONE]") && l.op != upstream.Responses || strings.Contains(text, "response.completed") || strings.Contains(text, "message_stop") || strings.HasSuffix(text, "b") {
				t.Errorf("it ends with %q", text[max(0, len(text)-300):])
			}
			if r, ok := x.Receipt(); !ok || r.Status != billing.Released || r.Reason != billing.ReasonInternal {
				t.Errorf("receipt %+v", r)
			}
		})
	}
}
