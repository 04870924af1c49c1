package gateway_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
)

const (
	askMessage       = `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"say four words"}]}`
	askMessageStream = `{"model":"m","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"say four words"}]}`
)

func messageEvent(name, rest string) string {
	return "event: " + name + "\ndata: {\"type\":\"" + name + "\"" + rest + "}\n\n"
}

// messageEvents is a stream of four words for 20 tokens in and 30 out.
var messageEvents = []string{
	messageEvent("message_start", `,"message":{"id":"msg_1","type":"message","role":"assistant","model":"vendor-m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":20,"output_tokens":1}}`),
	messageEvent("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`),
	messageEvent("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"one "}`),
	messageEvent("ping", ``),
	messageEvent("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"two "}`),
	messageEvent("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"three "}`),
	messageEvent("content_block_delta", `,"index":0,"delta":{"type":"text_delta","text":"four"}`),
	messageEvent("content_block_stop", `,"index":0`),
	messageEvent("message_delta", `,"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":30}`),
	messageEvent("message_stop", ``),
}

const messageAnswer = `{"id":"msg_1","type":"message","role":"assistant","model":"vendor-m","content":[{"type":"text","text":"one two three four","citations":null}],` +
	`"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":20,"output_tokens":30},"x":1.0}`

func TestAModelOfTwoDialectsFailsOverFromOneToTheOther(t *testing.T) {
	busy := &scriptedUpstream{err: (&upstream.Failure{Status: 529, Sent: true, Refused: true}).Fault()}
	spare := &scriptedUpstream{text: chatAnswer(`,"usage":{"prompt_tokens":20,"completion_tokens":30}`)}
	routing := newRouter(t,
		router.Channel{Name: "native", Upstream: speaker{busy, onlyMessages}, Models: map[string]string{"m": "hers"}, Priority: 1},
		router.Channel{Name: "chat", Upstream: speaker{spare, onlyChat}, Models: map[string]string{"m": "his"}, Priority: 2,
			Rename: map[string]string{"max_tokens": "max_completion_tokens"}, Drop: []string{"temperature"}},
	)
	h := newTestGateway(t, routing, "1.00", nil)
	r := h.must(t, upstream.Messages, strings.Replace(askMessage, `"max_tokens":100`, `"max_tokens":100,"temperature":0.5,"top_k":4`, 1))
	if !strings.Contains(string(r.Body), `"type":"message"`) || !strings.Contains(string(r.Body), "one two three four") {
		t.Errorf("answer %s", r.Body)
	}
	// The channel's edits are of what its upstream gets.
	if got := spare.sent(t); !strings.Contains(got, `"max_completion_tokens":100`) || strings.Contains(got, "temperature") || !strings.Contains(got, `"model":"his"`) {
		t.Errorf("sent %s", got)
	}
	if want := []string{"top_k", "temperature"}; !slices.Equal(r.Dropped, want) {
		t.Errorf("dropped %v, want %v", r.Dropped, want)
	}
	if got := h.spent(t); got != micro(50) {
		t.Errorf("spent %s", got)
	}
}

func TestTokensAreCountedByTheUpstreamIfItCan(t *testing.T) {
	away := (&upstream.Failure{Status: 404, Sent: true}).Fault()
	for name, c := range map[string]struct {
		refusal   error
		estimated bool
		code      fault.Code
	}{
		"it counts":           {nil, false, ""},
		"it has no counter":   {away, true, ""},
		"its counter is busy": {(&upstream.Failure{Status: 529, Sent: true, Refused: true}).Fault(), true, ""},
		"it refuses the body": {(&upstream.Failure{Status: 400, Sent: true}).Fault(), false, fault.InvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestGateway(t, &scriptedUpstream{text: `{"input_tokens":4242,"x":1.0}`, err: c.refusal}, "0", nil)
			r, err := h.do(t.Context(), upstream.CountTokens, `{"model":"m","messages":[{"role":"user","content":"x"}]}`)
			if c.code != "" {
				if !fault.Is(err, c.code) {
					t.Errorf("error %v", err)
				}
				return
			}
			must(t, err)
			if c.estimated != (r.Header.Get("X-Gateway-Estimated") == "true") || c.estimated == (string(r.Body) == `{"input_tokens":4242,"x":1.0}`) {
				t.Errorf("%s, %v", r.Body, r.Header)
			}
			if _, settled := r.Receipt(); settled {
				t.Error("a count has a receipt")
			}
		})
	}
}

// thinkingStream is a chat stream that thinks in 40 pieces of 8 characters before it says
// a word.
func thinkingStream(then string) string {
	return strings.Repeat(chunk(`{"reasoning_content":"12345678"}`), 40) + then
}

func TestThoughtsThatAClientDoesNotSeeBreakNoStreamAndArePaidByWhoHangsUp(t *testing.T) {
	for name, c := range map[string]struct {
		then string
		cost billing.Money
	}{
		"it is complete": {chatStream(usageChunk(20, 130)), micro(150)},
		"it is cut":      {"", 0}, // nothing of it was delivered
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestGateway(t, speaker{&scriptedUpstream{text: thinkingStream(c.then)}, onlyChat}, "1.00", nil)
			out, err := finish(h.do(t.Context(), upstream.Messages, askMessageStream))
			if strings.Contains(out, "hidden") || strings.Contains(out, "12345678") {
				t.Errorf("the client got %q", out)
			}
			if got := h.spent(t); got != c.cost {
				t.Errorf("spent %s, want %s; %v", got, c.cost, err)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // 40 pieces of 8 characters are 80 tokens
		in, out := io.Pipe()
		h := newTestGateway(t, speaker{&scriptedUpstream{body: in}, onlyChat}, "1.00", nil)
		var beats atomic.Int64
		go func() {
			for range 40 {
				time.Sleep(2 * time.Second) // virtual: 80 s without a word
				_, _ = io.WriteString(out, chunk(`{"reasoning_content":"12345678"}`))
			}
		}()
		ctx, leave := context.WithCancel(t.Context())
		r, err := h.Do(ctx, gateway.Caller{Heartbeat: func([]byte) { beats.Add(1) }}, &gateway.Request{Op: upstream.Messages, Body: []byte(askMessageStream)})
		must(t, err)
		time.AfterFunc(81*time.Second, leave)
		for err == nil {
			_, err = r.Stream.Next()
		}
		if beats.Load() < 4 {
			t.Errorf("%d pings in 80 s", beats.Load())
		}
		if got := h.spent(t); got != micro(estimatedInput+80) {
			t.Errorf("spent %s", got)
		}
	})
}
