package gateway_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
)

func TestASolventCallerIsAskedForNoMoreThanTheBalanceAffords(t *testing.T) {
	const input = int64(len(askWhole)) // bytes bound the input tokens; micro-units each
	credit := micro(input + 40).String()
	for _, c := range []struct{ name, bound, sent, header string }{
		{"a larger max_tokens is lowered", `,"max_tokens":100`, `"max_tokens":40`, "40"},
		{"a smaller one is not", `,"max_tokens":10 `, `"max_tokens":10 `, ""},
		{"max_completion_tokens too", `,"max_completion_tokens":100`, `"max_completion_tokens":51`, "51"},
		{"without a bound one is set", ``, `"max_tokens":57`, "57"},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := &scripted{text: whole(`,"usage":{"prompt_tokens":1,"completion_tokens":1}`)}
			h := newHouse(t, up, credit, nil)
			body := strings.Replace(askWhole, `,"max_tokens":100`, c.bound, 1)
			if c.header == "51" { // a longer name is more input
				body = strings.Replace(body, "say four words", "say", 1)
				body = strings.Replace(body, "messages", "messages", 1)
			}
			_, r, err := h.ask(t.Context(), body)
			if err != nil {
				t.Fatal(err)
			}
			want := c.header
			if want != "" {
				want = fmt.Sprint(int64(len(askWhole)) + 40 - int64(len(body)))
			}
			if got := r.Header.Get("X-Gateway-Max-Tokens"); got != want {
				t.Errorf("X-Gateway-Max-Tokens is %q, want %q", got, want)
			}
			if sent := up.sent(t); want != "" && !strings.Contains(sent, `tokens":`+want) {
				t.Errorf("the upstream got %s", sent)
			} else if want == "" && sent != body {
				t.Errorf("the upstream got %s", sent)
			}
		})
	}
}

func TestAModelInGoIsToldOfTheBoundToo(t *testing.T) {
	ask := `{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":500}`
	h := newHouse(t, chat.Serve(exactly), micro(int64(len(ask))+40).String(), nil)
	x, _, err := h.ask(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	if r, _ := x.Receipt(); r.Usage.Output != 40 || r.Overrun != 0 {
		t.Errorf("receipt %+v", r)
	}
}

func TestABalanceThatCoversNoTokenIs402AndNothingIsAsked(t *testing.T) {
	up := &scripted{text: whole("")}
	h := newHouse(t, up, micro(int64(len(askWhole))).String(), nil) // the input bound, but no output token
	_, _, err := h.ask(t.Context(), askWhole)
	if !fault.Is(err, fault.InsufficientBalance) || up.count() != 0 {
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
	h := newHouse(t, up, credit, func(o *gateway.Options) {
		o.Models = []gateway.Model{{ID: "m", HoldTokens: 100, MaxOutput: 1_000}} // the upstream ignores the cap
	})
	_, r, err := h.ask(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	out := drain(t, r.Stream)
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

// TestACallerWithABoundOfItsOwnIsNotHeldForMore has text that looks like more
// tokens than it is: the estimate must not end a stream that the hold covers.
func TestACallerWithABoundOfItsOwnIsNotHeldForMore(t *testing.T) {
	up := &scripted{text: chunk(`{"content":"`+strings.Repeat("long ", 400)+`"}`, "") + usageChunk(1, 100) + "data: [DONE]\n\n"}
	h := newHouse(t, up, micro(int64(len(askStream))+100).String(), nil)
	x, r, err := h.ask(t.Context(), askStream)
	if err != nil {
		t.Fatal(err)
	}
	if out := drain(t, r.Stream); strings.Contains(out, `"length"`) || !strings.HasSuffix(out, "data: [DONE]\n\n") {
		t.Errorf("stream %q", out)
	}
	if receipt, _ := x.Receipt(); receipt.Charge != micro(101) || receipt.Reason != billing.ReasonComplete {
		t.Errorf("receipt %+v", receipt)
	}
}
