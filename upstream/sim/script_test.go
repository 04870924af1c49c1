package sim_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// scripted is a gateway whose vendor answers by a script.
func scripted(t *testing.T, steps ...sim.Step) *gateway.Gateway {
	return gatewaytest.New(t, func(o *gateway.Options) { o.Upstream = sim.Script(steps...) })
}

// saying is a request of one message.
func saying(text string) *chat.Request {
	return &chat.Request{Model: gatewaytest.Model, Messages: []chat.Message{{Role: "user", Content: chat.Text(text)}}}
}

// lookup is a call of a tool.
func lookup(id, arguments string) chat.ToolCall {
	return chat.ToolCall{ID: id, Type: "function", Function: chat.CalledFunction{Name: "lookup", Arguments: arguments}}
}

func TestAScriptAnswersItsStepsInTheirOrder(t *testing.T) {
	g := scripted(t,
		sim.Step{Text: "One moment.", Calls: []chat.ToolCall{lookup("a", `{"q":"x"}`), lookup("", `{"q":"y"}`)}},
		sim.Step{Calls: []chat.ToolCall{lookup("c", `{}`)}},
		sim.Step{Text: "Done."},
	)
	var said []chat.Message
	var finished []string
	for range 2 {
		answer, err := g.Chat(t.Context(), saying("Go on."))
		if err != nil {
			t.Fatal(err)
		}
		said, finished = append(said, answer.Choices[0].Message), append(finished, answer.Choices[0].FinishReason)
	}
	if m := said[0]; m.Content.String() != "One moment." || len(m.ToolCalls) != 2 || m.ToolCalls[0].ID != "a" ||
		m.ToolCalls[1].ID == "" || m.ToolCalls[1].Function.Arguments != `{"q":"y"}` {
		t.Errorf("the first step is %+v", m)
	}
	if m := said[1]; m.Content.String() != "" || len(m.ToolCalls) != 1 {
		t.Errorf("the second step is %+v", m)
	}
	if finished[0] != "tool_calls" || finished[1] != "tool_calls" {
		t.Errorf("they finish with %q", finished)
	}
	stream, err := g.ChatStream(t.Context(), saying("Go on."))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for chunk, err := range stream.Chunks() {
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range chunk.Choices {
			text.WriteString(c.Delta.Content.String())
		}
	}
	if text.String() != "Done." {
		t.Errorf("the stream says %q", text.String())
	}
	if got := gatewaytest.Charges(t); len(got) != 3 || got[2].Usage.Output != 2 || got[2].Charge == 0 {
		t.Errorf("receipts %+v, want three, the last with 2 tokens of output", got)
	}
}

func TestACallBeyondTheScriptNamesItself(t *testing.T) {
	one := sim.Script(sim.Step{Text: "One."})
	spare := sim.Script(sim.Step{Text: "Of another channel."})
	channels, err := router.New([]router.Channel{
		{Name: "scripted", Upstream: one, Models: map[string]string{gatewaytest.Model: "m"}},
		{Name: "spare", Upstream: spare, Models: map[string]string{gatewaytest.Model: "m"}, Priority: 1},
	}, router.Options{})
	if err != nil {
		t.Fatal(err)
	}
	g := gatewaytest.New(t, func(o *gateway.Options) { o.Upstream = channels })
	if _, err := g.Chat(t.Context(), &chat.Request{Model: gatewaytest.Model}); err == nil {
		t.Error("a request without messages was answered")
	}
	if _, err := g.Chat(t.Context(), saying("One?")); err != nil {
		t.Errorf("a refused request took a step: %v", err)
	}
	_, err = g.Chat(t.Context(), saying("Two?"))
	f := fault.From(err)
	if want := `call 2 ("Two?") is not in the script of 1 steps`; f == nil || f.HTTPStatus() != 400 || !strings.Contains(f.Message, want) {
		t.Errorf("got %v, want a 400 that says %s", err, want)
	}
}

func TestErrorsOfAScriptAreThoseOfAVendor(t *testing.T) {
	lost := errors.New("the cable is cut")
	for _, c := range []struct {
		name     string
		err      error
		is       error
		answered bool // by the other channel
	}{
		{"a fault that is the caller's", fault.Invalid("messages", "No."), fault.InvalidRequest, false},
		{"a limit", fault.New(fault.UpstreamRateLimit, "Slow down."), nil, true},
		{"a code", fault.ServiceUnavailable, nil, true},
		{"a broken connection", lost, nil, true},
		{"the end of time", &fault.Error{Code: fault.RequestTimeout, Message: "Late.", Err: &upstream.Failure{Sent: true}}, fault.RequestTimeout, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			channels, err := router.New([]router.Channel{
				{Name: "failing", Upstream: sim.Script(sim.Step{Err: c.err}), Models: map[string]string{"m": "m"}},
				{Name: "spare", Upstream: sim.Script(sim.Step{Text: "Spare."}), Models: map[string]string{"m": "m"}, Priority: 1},
			}, router.Options{})
			if err != nil {
				t.Fatal(err)
			}
			g := gatewaytest.New(t, func(o *gateway.Options) { o.Upstream = channels })
			r := saying("Hello.")
			r.Model = "m"
			answer, err := g.Chat(t.Context(), r)
			if c.answered {
				if err != nil || answer.Choices[0].Message.Content.String() != "Spare." {
					t.Errorf("got %+v, %v, want the other channel's answer", answer, err)
				}
			} else if !errors.Is(err, c.is) {
				t.Errorf("got %v, want %v", err, c.is)
			}
		})
	}
	t.Run("alone", func(t *testing.T) {
		g := scripted(t, sim.Step{Err: lost}, sim.Step{Text: "Next."})
		if _, err := g.Chat(t.Context(), saying("Hello.")); !errors.Is(err, lost) {
			t.Errorf("got %v, want %v", err, lost)
		}
		if answer, err := g.Chat(t.Context(), saying("Hello.")); err != nil || answer.Choices[0].Message.Content.String() != "Next." {
			t.Errorf("the failed call took more than its step: %+v, %v", answer, err)
		}
	})
}

func TestADelayOfAScriptEndsWithItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := sim.Script(sim.Step{Text: "Late.", Delay: time.Minute}, sim.Step{Text: "Never.", Delay: time.Hour})
		call := callOf(t, upstream.ChatCompletion, `{"model":"m","messages":[{"role":"user","content":"a"}]}`)
		start := time.Now()
		reply, err := up.Do(t.Context(), call)
		if err != nil {
			t.Fatal(err)
		}
		if data, _ := io.ReadAll(reply.Body); !strings.Contains(string(data), "Late.") || time.Since(start) != time.Minute {
			t.Errorf("after %s: %s", time.Since(start), data)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := up.Do(ctx, call); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the end of the context", err)
		}
	})
}

func TestAScriptAnswersChatsOnly(t *testing.T) {
	_, err := sim.Script().Do(t.Context(), callOf(t, upstream.Embeddings, `{"model":"m","input":"a"}`))
	if !errors.Is(err, fault.NoChannel) {
		t.Errorf("got %v, want %s", err, fault.NoChannel)
	}
}

func TestATextOfTheOptionsWinsOverToolsAndFormats(t *testing.T) {
	tools := `"tools":[{"type":"function","function":{"name":"lookup"}}],"tool_choice":"required"`
	format := `"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}}`
	for _, c := range []struct {
		name, members, text string
		fill                bool
		want                string
	}{
		{"tools", tools, "Mine.", false, `"content":"Mine."`},
		{"a format", format, "Mine.", false, `"content":"Mine."`},
		{"a stop sequence", `"stop":["ne"]`, "Mine.", false, `"content":"Mi"`},
		{"Fill wins", `"max_tokens":3,` + tools, "Mine.", true, `"content":"Mine. Mine"`},
		{"no text: tools", tools, "", false, `"name":"lookup"`},
		{"no text: a format", format, " ", false, `"content":"{}"`},
	} {
		asked := 0
		u := sim.New(sim.Options{Fill: c.fill, Text: func(*chat.Request) string { asked++; return c.text }})
		got := answerOf(t, u, callOf(t, upstream.ChatCompletion, `{"model":"m","messages":[{"role":"user","content":"a"}],`+c.members+`}`))
		if !strings.Contains(got, c.want) || asked != 1 {
			t.Errorf("%s: %s after %d calls of Text, want %s", c.name, got, asked, c.want)
		}
	}
}
