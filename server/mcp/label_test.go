package mcp_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

func TestARepeatedCallWithItsLabelIsDoneAndPaidOnce(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	session := s.client(t, nil)
	for name, u := range toolCalls(t) {
		t.Run(name, func(t *testing.T) {
			labelled := args{"task_label": "work " + name}
			for k, v := range u.args {
				labelled[k] = v
			}
			before := s.Posted(t)
			first := callTool(t, session, u.tool, labelled)
			paid := before - s.Posted(t)
			second := callTool(t, session, u.tool, labelled)
			if got := before - s.Posted(t); got != paid || paid == 0 {
				t.Errorf("two calls cost %s, one %s", got, paid)
			}
			if !member[bool](t, second, "replayed") || member[string](t, second, "request_id") != member[string](t, first, "request_id") {
				t.Errorf("the second answer does not say that it is the first's: %v", second.StructuredContent)
			}
			if first, second := first.Content[0], second.Content[0]; u.tool != "create_embeddings" && !equal(t, first, second) {
				t.Error("the second answer is another one")
			}
		})
	}
}

func TestARepeatedVideoThatIsNotThereYetHasNoChargeYet(t *testing.T) {
	s := newFixture(t, fixtureOptions{upstream: sim.New(sim.Options{VideoTime: time.Hour})})
	s.unfinished = true
	session := s.client(t, nil)
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
	for name, wait := range map[string]func(ctx context.Context, s *fixture, session *sdk.ClientSession){
		"by a tool": func(ctx context.Context, _ *fixture, session *sdk.ClientSession) {
			rain := args{"model": "beta2.6-t2v", "prompt": "rain", "wait": true}
			_, _ = session.CallTool(ctx, &sdk.CallToolParams{Name: "generate_video", Arguments: rain}) // it is taken back
		},
		"by the API": func(ctx context.Context, s *fixture, _ *sdk.ClientSession) {
			const rain = `{"model":"beta2.6-t2v","input":{"prompt":"rain"},"wait":true}`
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.api+"/v1/videos/generations", strings.NewReader(rain))
			if err != nil {
				return // which the end of the wait tells
			}
			r.Header.Set("Content-Type", "application/json")
			if resp, err := (keyed{token: s.Key.Reveal()}).RoundTrip(r); err == nil {
				_ = resp.Body.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newFixture(t, fixtureOptions{upstream: sim.New(sim.Options{VideoTime: time.Hour}), gateway: func(o *gateway.Options) {
				o.Admission = gateway.Admission{MaxCalls: 1, MaxWaiting: 1, MaxWait: time.Minute}
			}})
			s.unfinished = true
			session := s.client(t, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			waited := make(chan struct{})
			go func() {
				defer close(waited)
				wait(ctx, s, session)
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
		})
	}
}

func TestARepetitionOfACallThatRunsIsToldToComeAgain(t *testing.T) {
	up := newPiped()
	s := newFixture(t, fixtureOptions{upstream: up})
	session := s.client(t, nil)
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

func equal(t testing.TB, a, b sdk.Content) bool {
	t.Helper()
	one, err := a.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(one) == string(other)
}

func TestALabelOfOtherWorkIsRefused(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	session := s.client(t, nil)
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
	session := s.client(t, nil)
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
