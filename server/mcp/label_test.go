package mcp_test

import (
	"context"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

func TestARepeatedVideoThatIsNotThereYetHasNoChargeYet(t *testing.T) {
	s := newFixture(t, fixtureOptions{upstream: sim.New(sim.Options{VideoTime: time.Hour})})
	s.unfinished = true
	session := s.client(t)
	rain := args{"model": "beta2.6-t2v", "prompt": "rain", "task_label": "rain"}
	first := callTool(t, session, "generate_video", rain)
	second := callTool(t, session, "generate_video", rain)
	for _, r := range []*sdk.CallToolResult{first, second} {
		members, _ := r.StructuredContent.(map[string]any)
		if members["charge"] != nil || members["usage"] != nil || strings.Contains(textOf(r), "charge") {
			t.Errorf("it says of the charge: %v %q", members, textOf(r))
		}
	}
	if !member[bool](t, second, "replayed") || member[string](t, second, "id") != member[string](t, first, "id") {
		t.Errorf("the second answer is %v", second.StructuredContent)
	}
}

func TestWhoWaitsForAVideoTakesNoPlaceFromOthers(t *testing.T) {
	s := newFixture(t, fixtureOptions{upstream: sim.New(sim.Options{VideoTime: time.Hour}), gateway: func(o *gateway.Options) {
		o.Admission = gateway.Admission{MaxCalls: 1, MaxWaiting: 1, MaxWait: time.Minute}
	}})
	s.unfinished = true
	session := s.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		rain := args{"model": "beta2.6-t2v", "prompt": "rain", "wait": true}
		_, _ = session.CallTool(ctx, &sdk.CallToolParams{Name: "generate_video", Arguments: rain}) // it is taken back
	}()
	for began := time.Now(); time.Since(began) < time.Minute; { // until the video is paid for
		if b, err := s.Ledger.Balance(t.Context(), "acme"); err != nil || b.Held > 0 {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	callTool(t, session, "chat", chatting)
	select {
	case <-waited:
		t.Error("the video was not waited for")
	default:
	}
	cancel()
	awaitSoon(t, "the end of the wait", waited)
}

func TestARepetitionOfACallThatRunsIsToldToComeAgain(t *testing.T) {
	up := newPiped()
	s := newFixture(t, fixtureOptions{upstream: up})
	session := s.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := make(chan struct{})
	labelled := args{"model": "sim-chat", "prompt": "hi", "task_label": "a"}
	go func() {
		defer close(first)
		_, _ = session.CallTool(ctx, &sdk.CallToolParams{Name: "chat", Arguments: labelled}) // it is taken back
	}()
	awaitSoon(t, "the first call", up.here)
	said, about := callFailing(t, session, "chat", labelled)
	if about["code"] != "idempotency_conflict" || !strings.Contains(said, "Wait 1 s. Call again after that with the same arguments and the same task_label.") {
		t.Errorf("it said %q %v", said, about)
	}
	cancel()
	awaitSoon(t, "the end of the first call", first)
}

func TestALabelOfOtherWorkIsRefused(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	session := s.client(t)
	callTool(t, session, "chat", args{"model": "sim-chat", "prompt": "one", "task_label": "a"})
	before := s.Posted(t)
	said, about := callFailing(t, session, "chat", args{"model": "sim-chat", "prompt": "two", "task_label": "a"})
	if about["code"] != "idempotency_conflict" || !strings.Contains(said, "Use a new task_label") {
		t.Errorf("it said %q %v", said, about)
	}
	if s.Posted(t) != before {
		t.Error("the refused call cost something")
	}
	// Of other tools, one of which asks the same operation.
	callTool(t, session, "create_embeddings", args{"model": "text-embedding-v4", "input": []string{"x"}, "task_label": "a"})
	callTool(t, session, "generate_image", args{"model": "alpha-image-2.0", "prompt": "x", "task_label": "a"})
	callTool(t, session, "edit_image", args{"model": "alpha-image-edit", "prompt": "x", "images": []string{"https://example.com/a.png"}, "task_label": "a"})
}

func TestAProgressTokenDoesNotMakeAnotherCallOfALabelledOne(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	session := s.client(t)
	p := &sdk.CallToolParams{Name: "chat", Arguments: args{"model": "sim-chat", "prompt": "one", "task_label": "a"}}
	if r, err := session.CallTool(t.Context(), p); err != nil || r.IsError {
		t.Fatal(r, err)
	}
	before := s.Posted(t)
	p.SetProgressToken("t")
	r, err := session.CallTool(t.Context(), p)
	if err != nil || r.IsError {
		t.Fatal(r, err)
	}
	if s.Posted(t) != before || !member[bool](t, r, "replayed") {
		t.Error("the call with a progress token was made again")
	}
}

func TestAProgramRepeatsACallByItsMetaOrItsHeader(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	call := map[string]any{"name": "chat", "arguments": args{"model": "sim-chat", "prompt": "one"}}
	for name, repeat := range map[string]func() map[string]any{
		"by _meta": func() map[string]any {
			call["_meta"] = map[string]any{"tollhouse.ai/idempotency-key": "m"}
			defer delete(call, "_meta")
			_, m := s.rpc(t, "tools/call", call)
			return m
		},
		"by the header": func() map[string]any {
			_, m := s.rpc(t, "tools/call", call, "Idempotency-Key: h")
			return m
		},
	} {
		t.Run(name, func(t *testing.T) {
			first := repeat()
			before := s.Posted(t)
			second := repeat()
			if first["result"] == nil || s.Posted(t) != before {
				t.Errorf("the second call cost %s: %v", before-s.Posted(t), second)
			}
		})
	}
	_, m := s.rpc(t, "tools/call", call, "Idempotency-Key: "+strings.Repeat("x", 201))
	if r, _ := m["result"].(map[string]any); r["isError"] != true {
		t.Errorf("a key of 201 bytes gave %v", m)
	}
}
