package gateway_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/upstream"
)

// takeover is a meter whose holds another process ends by their last checkpoints,
// as it does those of a node that it takes for dead.
type takeover struct {
	billing.Meter
	mu    sync.Mutex
	holds []billing.Hold
	soFar billing.Usage
	after int // checkpoints; the holds end with the last of them
}

func (m *takeover) Reserve(ctx context.Context, c billing.Charge) (billing.Hold, error) {
	h, err := m.Meter.Reserve(ctx, c)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds = append(m.holds, h)
	return h, err
}

func (m *takeover) Extend(ctx context.Context, h billing.Hold, soFar billing.Usage, more billing.Money) error {
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
func (m *takeover) recover() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.holds {
		_, _ = m.Settle(context.Background(), h, m.soFar, billing.Outcome{Reason: billing.ReasonInternal})
	}
}

func TestAStreamWhoseHoldAnotherProcessEndedStopsAtTheNextCheckpoint(t *testing.T) {
	chatText := strings.Repeat(chunk(`{"content":"abcd"}`, ""), 60_000) + usageChunk(1, 60_000) + "data: [DONE]\n\n"
	long := strings.Replace(askStream, `"max_tokens":100`, `"max_tokens":90000`, 1)
	for name, row := range map[string]struct {
		op        upstream.Op
		body      string
		up        upstream.Upstream
		last      string // of a complete stream
		extending bool
	}{
		"chat":              {upstream.ChatCompletion, long, &scripted{text: chatText}, "[DONE]", false},
		"chat, extending":   {upstream.ChatCompletion, strings.Replace(askStream, `"max_tokens":100,`, "", 1), &scripted{text: chatText}, "[DONE]", true},
		"messages, bridged": {upstream.Messages, strings.Replace(tellStream, `"max_tokens":100`, `"max_tokens":90000`, 1), speaker{&scripted{text: chatText}, onlyChat}, "message_stop", false},
		"messages":          {upstream.Messages, strings.Replace(tellStream, `"max_tokens":100`, `"max_tokens":90000`, 1), speaker{&scripted{text: strings.Join(told[:2], "") + strings.Repeat(messageEvent("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"abcd"}`), 60_000)}, onlyMessages}, "message_stop", false},
	} {
		for _, key := range []string{"", "k"} {
			t.Run(name+key, func(t *testing.T) {
				meter := &takeover{after: 1}
				h := newHouse(t, row.up, "1.00", func(o *gateway.Options) {
					meter.Meter, o.Meter = o.Meter, meter
					o.Models = []gateway.Model{{ID: "m", MaxOutput: 90_000}}
				})
				x := h.Begin()
				x.IdempotencyKey = key
				if err := x.Authenticate(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
				r, err := x.Call(t.Context(), row.op, []byte(row.body), nil)
				if err != nil {
					t.Fatal(err)
				}
				out := drain(t, r.Stream)
				if n := strings.Count(out, "abcd"); n < 1_000 || n > 5_000 { // two checkpoints, or two steps of the hold
					t.Errorf("%d tokens were delivered", n)
				}
				if strings.Contains(out, row.last) || !strings.Contains(out, `"error"`) || !fault.Is(r.Stream.Err(), fault.ServiceUnavailable) {
					t.Errorf("it ends with %q, %v", out[len(out)-300:], r.Stream.Err())
				}
				if receipt, ok := x.Receipt(); !ok || receipt.Reason != billing.ReasonInternal || receipt.Charge != h.spent(t, "1.00") || receipt.Charge == 0 {
					t.Errorf("receipt %+v", receipt)
				}
			})
		}
	}
}

// An answer that nobody can be charged for any more is withheld: it would be free.
func TestAnAnswerWhoseHoldAnotherProcessEndedIsWithheld(t *testing.T) {
	for _, l := range leavings() {
		if strings.Contains(l.name, "stream") || strings.HasPrefix(l.name, "speech") {
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			meter := &takeover{}
			up := upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
				meter.recover()
				if l.op == upstream.Embeddings {
					return vectorsFor(c)
				}
				return (&scripted{text: wholeAnswers[l.op]}).Do(ctx, c)
			})
			h := newHouse(t, up, "10", func(o *gateway.Options) {
				meter.Meter, o.Meter = o.Meter, meter
				o.Models, o.Prices = nil, billing.NewPriceList(map[string]*billing.Price{l.model: rates(t, l.price...)})
			})
			x, err := l.start(t.Context(), t, h, "k")
			if f := fault.From(err); f == nil || f.Code != fault.ServiceUnavailable || h.spent(t, "10") != 0 {
				t.Errorf("%v, spent %s", err, h.spent(t, "10"))
			}
			if r, ok := x.Receipt(); !ok || r.Status != billing.Released || r.Reason != billing.ReasonInternal {
				t.Errorf("receipt %+v", r)
			}
			if n := h.Unsettled(); n != 0 {
				t.Errorf("%d captures wait", n)
			}
		})
	}
}

func TestTheEndOfAStreamWhoseHoldAnotherProcessEndedIsWithheld(t *testing.T) {
	meter := &takeover{}
	h := newHouse(t, upstream.Func(func(ctx context.Context, c *upstream.Call) (*upstream.Reply, error) {
		meter.recover()
		return (&scripted{text: recorded(usageChunk(20, 30))}).Do(ctx, c)
	}), "1.00", func(o *gateway.Options) { meter.Meter, o.Meter = o.Meter, meter })
	_, r, err := h.ask(t.Context(), askStream)
	if err != nil {
		t.Fatal(err)
	}
	if out := drain(t, r.Stream); strings.Contains(out, "[DONE]") || !strings.Contains(out, `"code":"ServiceUnavailable"`) {
		t.Errorf("stream %q", out)
	}
}

func TestTheLastByteOfSpeechWhoseHoldAnotherProcessEndedIsWithheld(t *testing.T) {
	meter := &takeover{}
	h := choir(t, upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
		meter.recover()
		return &upstream.Reply{Status: 200, Header: http.Header{"Content-Type": {"audio/wav"}}, Body: io.NopCloser(wav("aaaa"))}, nil
	}), "1", func(o *gateway.Options) { meter.Meter, o.Meter = o.Meter, meter })
	if data, _, err := h.speak(t, &speech.Request{Model: flash, Input: "hello", ResponseFormat: "wav"}); !fault.Is(err, fault.ServiceUnavailable) || len(data) != 44+3 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}
