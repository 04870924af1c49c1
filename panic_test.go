package gateway_test

import (
	"context"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/upstream"
)

// panickingMeter is a meter that panics at one of its methods.
type panickingMeter struct {
	billing.Meter
	at string
}

func (p *panickingMeter) Reserve(ctx context.Context, c billing.HoldRequest) (billing.Hold, error) {
	if p.at == "reserve" {
		panic("reserve: sk-secret")
	}
	return p.Meter.Reserve(ctx, c)
}

func (p *panickingMeter) Settle(ctx context.Context, h billing.Hold, u billing.Usage, with ...billing.Record) (billing.Receipt, error) {
	if p.at == "settle" {
		p.at = "" // the next one works
		panic("settle: sk-secret")
	}
	r, err := p.Meter.Settle(ctx, h, u, with...)
	if p.at == "settled" {
		p.at = ""
		panic("settled: sk-secret")
	}
	return r, err
}

func TestAPanicIsAnInternalErrorAndTheNextCallWorks(t *testing.T) {
	var broken atomic.Bool
	up := upstream.Func(func(ctx context.Context, call *upstream.Call) (*upstream.Reply, error) {
		if broken.Load() {
			panic("upstream: sk-secret")
		}
		return (&scriptedUpstream{text: chatAnswer(`,"usage":{"prompt_tokens":20,"completion_tokens":30}`)}).Do(ctx, call)
	})
	meter := &panickingMeter{}
	h := newTestGateway(t, up, "1.00", func(o *gateway.Options) {
		meter.Meter = o.Meter
		o.Meter = meter
	})
	for _, at := range []string{"upstream", "reserve"} {
		broken.Store(at == "upstream")
		meter.at = at
		_, err := h.ask(t.Context(), askChat)
		if !fault.Is(err, fault.InternalError) && !fault.Is(err, fault.ServiceUnavailable) {
			t.Errorf("%s: error %v", at, err)
		}
		if f := fault.From(err); strings.Contains(f.Message, "sk-secret") {
			t.Errorf("%s: the message tells %q", at, f.Message)
		}
		if b := h.balance(t); b.Held != 0 || b.Posted != billing.One {
			t.Errorf("%s: the balance is %+v", at, b)
		}
	}
	broken.Store(false)
	meter.at = ""
	if _, err := h.ask(t.Context(), askChat); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

// settleAll runs the gateway until no settlement waits.
func (h *testGateway) settleAll(t *testing.T) {
	t.Helper()
	stop := h.run(t)
	for h.Unsettled() != 0 {
		select {
		case <-time.After(wait):
			t.Fatal("the settlement was not retried")
		case <-time.After(time.Millisecond):
		}
	}
	stop()
}

// Of an answer whose capture fails the end is withheld, and the capture is repeated, but
// for a whole answer without a key: no client ever gets it, so that none pays for it. A
// capture that was committed, and of which only the reply was lost, stays.
func TestAnAnswerWhoseCaptureFailsIsWithheld(t *testing.T) {
	for _, l := range everyOperation() {
		for name, at := range map[string]string{"not captured": "settle", "captured, and the reply lost": "settled"} {
			for _, key := range []string{"", "k"} {
				t.Run(l.name+", "+name+", "+key, func(t *testing.T) {
					meter := &panickingMeter{at: at}
					h := l.over(t, l.answered(func() {}), func(o *gateway.Options) { meter.Meter, o.Meter = o.Meter, meter })
					x, err := l.start(t.Context(), t, h, key)
					streamed := x.Stream != nil || x.Audio != nil
					text, err := finish(x, err)
					if !fault.Is(err, fault.ServiceUnavailable) || h.Unsettled() != 1 {
						t.Fatalf("%v, %d settlements wait", err, h.Unsettled())
					}
					if strings.Contains(text, "[DONE]") && l.op != upstream.Responses || strings.Contains(text, "response.completed") || strings.Contains(text, "message_stop") || strings.HasSuffix(text, "b") {
						t.Errorf("it ends with %q", text[max(0, len(text)-300):])
					}
					h.settleAll(t)
					r, tries, err := h.ledger.Request(t.Context(), x.ID)
					if key == "" && !streamed && at == "settle" {
						if err != nil || h.spent(t) != 0 || r.Status != billing.Released || r.Reason != billing.ReasonInternal {
							t.Errorf("spent %s, receipt %+v, %v", h.spent(t), r, err)
						}
						if len(tries) != 1 || tries[0].Channel != r.Channel || tries[0].Waste == 0 {
							t.Errorf("tries %+v, want the waste of the answer", tries)
						}
						return
					}
					if err != nil || r.Reason != billing.ReasonComplete || r.Charge == 0 || h.spent(t) != r.Charge {
						t.Errorf("receipt %+v, %v", r, err)
					}
					if key == "" {
						return
					}
					if again, err := l.start(t.Context(), t, h, key); err != nil || !again.Replayed || h.spent(t) != r.Charge {
						t.Errorf("a duplicate got %+v, %v", again, err)
					}
				})
			}
		}
	}
}

// An answer that is too large to be kept reaches no duplicate either.
func TestAWithheldAnswerThatIsTooLargeToKeepIsNotChargedAndFreesItsKey(t *testing.T) {
	for _, l := range []struct {
		operationRequest
		answer string
		cost   billing.Money
	}{
		{operationRequest{name: "chat", op: upstream.ChatCompletion, model: "m", body: askChat},
			strings.Replace(chatAnswer(reported), "one two", strings.Repeat("a", idempotency.MaxAnswer), 1), micro(50)},
		{operationRequest{name: "messages", op: upstream.Messages, model: "m", body: askMessage},
			strings.Replace(messageAnswer, `"text":"`, `"text":"`+strings.Repeat("a", idempotency.MaxAnswer), 1), micro(50)},
		{operationRequest{name: "embeddings", op: upstream.Embeddings, model: "e", body: `{"model":"e","input":["abcd"]}`},
			`{"object":"list","model":"e","data":[{"object":"embedding","index":0,"embedding":[0` + strings.Repeat(",0.5", 16<<10) + `]}],"usage":{"prompt_tokens":2,"total_tokens":2}}`, micro(2)},
	} {
		t.Run(l.name, func(t *testing.T) {
			meter := &panickingMeter{at: "settle"}
			h := newTestGateway(t, &scriptedUpstream{text: l.answer}, "10", func(o *gateway.Options) {
				meter.Meter, o.Meter = o.Meter, meter
				o.Models, o.Prices = nil, pricedAt(l.model, rates(t, "input", "1", "output", "1"))
			})
			x, err := l.start(t.Context(), t, h, "k")
			if !fault.Is(err, fault.ServiceUnavailable) || h.Unsettled() != 1 {
				t.Fatalf("%v, %d settlements wait", err, h.Unsettled())
			}
			h.settleAll(t)
			r, tries, err := h.ledger.Request(t.Context(), x.ID)
			if err != nil || h.spent(t) != 0 || r.Status != billing.Released || len(tries) != 1 {
				t.Errorf("spent %s, receipt %+v, tries %+v, %v", h.spent(t), r, tries, err)
			}
			if _, err := l.start(t.Context(), t, h, "k"); err != nil || h.spent(t) != l.cost {
				t.Errorf("sent again it cost %s, %v, want %s", h.spent(t), err, l.cost)
			}
		})
	}
}

func TestAPanicInAStreamEndsItWithAnErrorEventAndSettles(t *testing.T) {
	up := chat.ServeStream(exactly, func(context.Context, *chat.Request) iter.Seq2[*chat.Chunk, error] {
		return func(yield func(*chat.Chunk, error) bool) {
			c := &chat.Chunk{ID: "e", Choices: []chat.ChunkChoice{{Delta: chat.Message{Content: chat.Text("four")}}}}
			if yield(c, nil) {
				panic("stream: sk-secret")
			}
		}
	})
	h := newTestGateway(t, up, "1.00", nil)
	_, out := h.complete(t, upstream.ChatCompletion, askChatStream)
	if !strings.Contains(out, `"code":"internal_error"`) || strings.Contains(out, "sk-secret") {
		t.Errorf("stream %q", out)
	}
	if got := h.spent(t); got != micro(estimatedInput+1) {
		t.Errorf("spent %s", got)
	}
}

// panickingLog is a log handler that panics.
type panickingLog struct{ slog.Handler }

func (panickingLog) Enabled(context.Context, slog.Level) bool { return true }

func (panickingLog) Handle(context.Context, slog.Record) error { panic("log: sk-secret") }

func TestAPanicOfTheLogDoesNotEndTheProcessOfACallInProcess(t *testing.T) {
	h := newTestGateway(t, &scriptedUpstream{text: chatAnswer(`,"usage":{"prompt_tokens":20,"completion_tokens":30}`)}, "1.00", func(o *gateway.Options) {
		o.Logger = slog.New(panickingLog{slog.DiscardHandler})
	})
	ctx, cancel := context.WithCancel(t.Context()) // such a call has a goroutine of its own
	defer cancel()
	_, err := h.Chat(ctx, &chat.Request{Model: "m", Messages: []chat.Message{{Role: "user", Content: chat.Text("Hi.")}}})
	if !fault.Is(err, fault.InternalError) || strings.Contains(fault.From(err).Message, "sk-secret") {
		t.Errorf("got the error %v", err)
	}
}
