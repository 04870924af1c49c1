package gateway_test

import (
	"sync/atomic"
	"testing"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
)

func TestTypedCallsGoTheSameWay(t *testing.T) {
	h := newTestGateway(t, &scriptedUpstream{text: whole(`,"usage":{"prompt_tokens":20,"completion_tokens":30},"x":1`)}, "1.00", nil)
	r, err := h.Chat(t.Context(), &chat.Request{Model: "m", Messages: []chat.Message{{Role: "user", Content: chat.Text("hi")}}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Choices[0].Message.Content.String() != "one two three four" || r.Charge != micro(50) || r.RequestID == "" || r.Model != "m" {
		t.Errorf("response %+v", r)
	}
	if string(r.Extra) != `{"x":1}` {
		t.Errorf("extra %s", r.Extra)
	}
	receipt, err := h.ledger.Receipt(t.Context(), "local", r.RequestID)
	if err != nil || receipt.Charge != micro(50) {
		t.Errorf("receipt %+v, %v", receipt, err)
	}
}

func TestATypedStreamYieldsChunksAndItsErrorLast(t *testing.T) {
	for _, c := range []struct {
		name, text string
		chunks     int
		code       fault.Code
	}{
		{"complete", recorded(usageChunk(20, 30)), 6, ""},
		{"cut", chunk(`{"content":"four"}`, ""), 1, fault.BadGateway},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newTestGateway(t, &scriptedUpstream{text: c.text}, "1.00", nil)
			s, err := h.ChatStream(t.Context(), &chat.Request{Model: "m", Messages: []chat.Message{{Role: "user", Content: chat.Text("hi")}}})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			var last error
			for chunk, err := range s.Chunks() {
				if last = err; err == nil && chunk.Model == "m" {
					n++
				}
			}
			if n != c.chunks || (c.code != "") != fault.Is(last, c.code) {
				t.Errorf("%d chunks, then %v", n, last)
			}
			if _, ok := s.Receipt(); !ok {
				t.Error("there is no receipt")
			}
		})
	}
}

func TestBreakingOutOfATypedStreamSettlesIt(t *testing.T) {
	var stopped atomic.Bool
	h := newTestGateway(t, chat.ServeStream(exactly, endless(&stopped)), "1.00", nil)
	s, err := h.ChatStream(t.Context(), &chat.Request{Model: "m", MaxTokens: 500, Messages: []chat.Message{{Role: "user", Content: chat.Text("hi")}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range s.Chunks() {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if r, ok := s.Receipt(); !ok || r.Reason != billing.ReasonClientGone || r.Usage.Output == 0 || r.Charge == 0 {
		t.Errorf("receipt %+v", r)
	}
	if !stopped.Load() {
		t.Error("the upstream goes on")
	}
}
