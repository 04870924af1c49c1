// Package adaptertest is the conformance suite of the adapters: the models of frameworks that a
// gateway answers.
package adaptertest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"reflect"
	"strings"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
)

// Question is what the suite has a framework ask its model, [gatewaytest.Model].
type Question struct {
	Prompt string // of the user
	// Tools offers the tool [Tool], and lets the model choose whether to call it.
	Tools bool
	// Call, if not nil, is the call that the model made of that prompt, and Result what came of
	// it.
	Call   *Call
	Result string
	// Stream, if not nil, gets the text of a stream as it comes; nil asks for a whole answer.
	Stream func(text string)
}

// The tool that questions offer. Its arguments are an object with the string "city", which is
// required.
const (
	Tool        = "weather"
	Description = "tells the weather"
)

// Call is a call of the tool.
type Call struct{ ID, Name, Arguments string }

// Answer is what the framework returns.
type Answer struct {
	Text, Reasoning string
	Calls           []Call
	Input, Output   int    // tokens
	RequestID       string // of the gateway
	Charge          string
}

// Ask asks the framework's model of a gateway one question.
type Ask func(ctx context.Context, g *gateway.Gateway, q Question) (Answer, error)

// Run checks an adapter.
func Run(t *testing.T, ask Ask) {
	for _, stream := range []bool{false, true} {
		name := "whole"
		if stream {
			name = "stream"
		}
		t.Run(name, func(t *testing.T) {
			t.Run("text, counts and receipt", func(t *testing.T) { text(t, ask, stream) })
			t.Run("tools", func(t *testing.T) { tools(t, ask, stream) })
			t.Run("errors", func(t *testing.T) { failures(t, ask, stream) })
		})
	}
	t.Run("a stream comes as it is made and ends with the context", func(t *testing.T) { cancel(t, ask) })
	t.Run("the end of the context ends the wait for a whole answer", func(t *testing.T) { leave(t, ask) })
}

// question asks, and gathers the pieces of a stream.
func question(t *testing.T, ask Ask, g *gateway.Gateway, q Question, stream bool) (a Answer, pieces []string) {
	t.Helper()
	if stream {
		q.Stream = func(text string) { pieces = append(pieces, text) }
	}
	a, err := ask(t.Context(), g, q)
	if err != nil {
		t.Fatal(err)
	}
	return a, pieces
}

func text(t *testing.T, ask Ask, stream bool) {
	g := gatewaytest.New(t, func(o *gateway.Options) {
		usage := chat.Usage{PromptTokens: 100, CompletionTokens: 20, TotalTokens: 120}
		pieces := []chat.Message{{ReasoningContent: "hm"}, {Content: chat.Text("Yes, ")}, {Content: chat.Text("it is.")}}
		o.Upstream = chat.ServeStream(func(context.Context, *chat.Request) (*chat.Response, error) {
			m := chat.Message{Role: "assistant", ReasoningContent: "hm", Content: chat.Text("Yes, it is.")}
			return &chat.Response{ID: "c", Choices: []chat.Choice{{Message: m, FinishReason: "stop"}}, Usage: &usage}, nil
		}, func(context.Context, *chat.Request) iter.Seq2[*chat.Chunk, error] {
			return func(yield func(*chat.Chunk, error) bool) {
				for _, m := range pieces {
					if !yield(&chat.Chunk{ID: "c", Choices: []chat.ChunkChoice{{Delta: m}}}, nil) {
						return
					}
				}
				_ = yield(&chat.Chunk{ID: "c", Choices: []chat.ChunkChoice{{FinishReason: "stop"}}}, nil) && yield(&chat.Chunk{ID: "c", Choices: []chat.ChunkChoice{}, Usage: &usage}, nil)
			}
		})
	})
	a, pieces := question(t, ask, g, Question{Prompt: "Is the gate open?"}, stream)
	if stream && (len(pieces) < 2 || strings.Join(pieces, "") != "Yes, it is.") {
		t.Errorf("pieces %q", pieces)
	}
	const charge = 100*1_000 + 20*2_000 // nano-units, by the price of gatewaytest.Model
	want := Answer{Text: "Yes, it is.", Reasoning: "hm", Input: 100, Output: 20, RequestID: a.RequestID, Charge: billing.Money(charge).String()}
	if !reflect.DeepEqual(a, want) {
		t.Errorf("got %+v, want %+v", a, want)
	}
	receipt, err := g.Meter().(memory.Ledger).Receipt(t.Context(), "local", a.RequestID)
	if err != nil || receipt.Charge != charge {
		t.Errorf("receipt %+v of request %q, %v", receipt, a.RequestID, err)
	}
}

// tools plays a model that calls the tool, and then answers by its result.
func tools(t *testing.T, ask Ask, stream bool) {
	call := chat.ToolCall{ID: "call_1", Type: "function", Function: chat.CalledFunction{Name: Tool, Arguments: `{"city":"Oslo"}`}}
	g := gatewaytest.New(t, func(o *gateway.Options) {
		o.Upstream = chat.Serve(func(_ context.Context, r *chat.Request) (*chat.Response, error) {
			functions, err := r.Functions()
			if err != nil || len(functions) != 1 || functions[0].Name != Tool || functions[0].Description != Description || !takesCity(functions[0].Parameters) {
				t.Errorf("functions %+v, %v", functions, err)
			}
			if len(r.Messages) == 1 {
				return &chat.Response{Choices: []chat.Choice{{Message: chat.Message{Role: "assistant", ToolCalls: []chat.ToolCall{call}}, FinishReason: "tool_calls"}}}, nil
			}
			if len(r.Messages) != 3 || r.Messages[0].Content.String() != "weather?" || len(r.Messages[1].ToolCalls) != 1 ||
				r.Messages[1].ToolCalls[0].ID != call.ID || r.Messages[1].ToolCalls[0].Function.Arguments != call.Function.Arguments ||
				r.Messages[2].Role != "tool" || r.Messages[2].ToolCallID != call.ID || r.Messages[2].Content.String() != "sunny" {
				t.Errorf("messages %+v", r.Messages)
			}
			return &chat.Response{Choices: []chat.Choice{{Message: chat.Message{Role: "assistant", Content: chat.Text("It is sunny.")}, FinishReason: "stop"}}}, nil
		})
	})
	a, _ := question(t, ask, g, Question{Prompt: "weather?", Tools: true}, stream)
	if len(a.Calls) != 1 || a.Calls[0].ID != call.ID || a.Calls[0].Name != Tool || a.Calls[0].Arguments != call.Function.Arguments {
		t.Fatalf("answer %+v", a)
	}
	a, _ = question(t, ask, g, Question{Prompt: "weather?", Tools: true, Call: &a.Calls[0], Result: "sunny"}, stream)
	if a.Text != "It is sunny." || len(a.Calls) > 0 {
		t.Errorf("answer %+v", a)
	}
}

// takesCity reports whether a schema has the required string "city".
func takesCity(schema []byte) bool {
	var s struct {
		Type       string
		Properties map[string]struct{ Type string }
		Required   []string
	}
	err := json.Unmarshal(schema, &s)
	return err == nil && s.Type == "object" && s.Properties["city"].Type == "string" && len(s.Required) == 1 && s.Required[0] == "city"
}

// failures checks that the framework passes errors on with what the gateway says.
func failures(t *testing.T, ask Ask, stream bool) {
	for _, want := range []*fault.Error{
		fault.Invalid("messages", "The vendor does not like it."),
		fault.New(fault.ServiceUnavailable, "The vendor is away."),
	} {
		g := gatewaytest.New(t, func(o *gateway.Options) {
			o.Upstream = chat.Serve(func(context.Context, *chat.Request) (*chat.Response, error) { return nil, want })
		})
		q := Question{Prompt: "hi"}
		if stream {
			q.Stream = func(string) {}
		}
		_, err := ask(t.Context(), g, q)
		var got *fault.Error
		if !errors.As(err, &got) || got.Code != want.Code || got.HTTPStatus() != want.HTTPStatus() || got.Param != want.Param {
			t.Errorf("error %v, want %v in its chain", err, want)
		}
	}
}

func cancel(t *testing.T, ask Ask) {
	vendor := servertest.NewStream()
	g := gatewaytest.New(t, func(o *gateway.Options) { o.Upstream = vendor })
	ctx, cancel := context.WithCancel(t.Context())
	go vendor.Send(t, servertest.Delta("first"))
	var got []string
	_, err := ask(ctx, g, Question{Prompt: "hi", Stream: func(text string) {
		got = append(got, text) // the vendor is still to send the second
		cancel()
	}})
	if !errors.Is(err, context.Canceled) || strings.Join(got, "") != "first" {
		t.Errorf("error %v after %q", err, got)
	}
	<-vendor.Gone
}

func leave(t *testing.T, ask Ask) {
	ctx, cancel := context.WithCancel(t.Context())
	asked, answer := make(chan struct{}), make(chan struct{})
	g := gatewaytest.New(t, func(o *gateway.Options) {
		o.Upstream = chat.Serve(func(context.Context, *chat.Request) (*chat.Response, error) {
			close(asked)
			<-answer
			return nil, fault.New(fault.ServiceUnavailable, "It is too late.")
		})
	})
	defer close(answer)
	go func() {
		<-asked
		cancel()
	}()
	if _, err := ask(ctx, g, Question{Prompt: "hi"}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// Sent asks a question of a vendor that answers "ok". What the vendor gets must have each
// member of want, a JSON object, with its value.
func Sent(t *testing.T, want string, ask func(ctx context.Context, g *gateway.Gateway) error) {
	t.Helper()
	var got []byte
	g := gatewaytest.New(t, func(o *gateway.Options) {
		o.Upstream = upstream.Func(func(_ context.Context, call *upstream.Call) (_ *upstream.Reply, err error) {
			got, err = call.Body.Bytes()
			return &upstream.Reply{Status: 200, Body: io.NopCloser(strings.NewReader(`{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}`))}, err
		})
	})
	if err := ask(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	var members, sent map[string]any
	if err := errors.Join(json.Unmarshal([]byte(want), &members), json.Unmarshal(got, &sent)); err != nil {
		t.Fatal(err)
	}
	for name, value := range members {
		if !reflect.DeepEqual(sent[name], value) {
			t.Errorf("%s is %v, want %v", name, sent[name], value)
		}
	}
}
