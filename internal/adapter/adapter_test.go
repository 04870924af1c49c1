package adapter_test

import (
	"context"
	"iter"
	"testing"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/internal/adapter"
	"github.com/tollhouse-ai/gateway/internal/adaptertest"
)

// TestWhatTheAdaptersShareConforms runs the suite of the adapters without a framework.
func TestWhatTheAdaptersShareConforms(t *testing.T) {
	adaptertest.Run(t, func(ctx context.Context, g *gateway.Gateway, q adaptertest.Question) (adaptertest.Answer, error) {
		messages := []any{map[string]any{"role": "user", "content": adapter.Content([]map[string]any{adapter.Text(q.Prompt)})}}
		if c := q.Call; c != nil {
			messages = append(messages, map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{adapter.Call(c.ID, c.Name, c.Arguments)}},
				map[string]any{"role": "tool", "tool_call_id": c.ID, "content": adapter.Encoded(q.Result)})
		}
		var tools []any
		if q.Tools {
			schema := map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}}
			tools = append(tools, adapter.Function(adaptertest.Tool, adaptertest.Description, schema))
		}
		r, err := adapter.Request(map[string]any{"model": gatewaytest.Model, "messages": messages, "tools": tools})
		if err != nil {
			return adaptertest.Answer{}, err
		}
		var each func(*chat.Message) error
		if q.Stream != nil {
			each = func(m *chat.Message) error {
				if text := m.Content.String(); text != "" {
					q.Stream(text)
				}
				return nil
			}
		}
		answer, err := adapter.Ask(ctx, g, r, each)
		if err != nil {
			return adaptertest.Answer{}, err
		}
		a := adaptertest.Answer{
			Text: answer.Message.Content.String(), Reasoning: answer.Message.ReasoningContent, Input: int(answer.Usage.PromptTokens), Output: int(answer.Usage.CompletionTokens),
			RequestID: answer.Facts["request_id"].(string), Charge: answer.Facts["charge"].(string),
		}
		for _, c := range answer.Message.ToolCalls {
			a.Calls = append(a.Calls, adaptertest.Call{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
		}
		return a, nil
	})
}

func TestPiecesOfCallsAreJoinedByTheirIndex(t *testing.T) {
	g := gatewaytest.New(t, func(o *gateway.Options) {
		o.Upstream = chat.ServeStream(nil, func(context.Context, *chat.Request) iter.Seq2[*chat.Chunk, error] {
			return func(yield func(*chat.Chunk, error) bool) {
				piece := func(index int64, id, name, arguments string) bool {
					call := chat.ToolCall{Index: &index, ID: id, Function: chat.CalledFunction{Name: name, Arguments: arguments}}
					return yield(&chat.Chunk{Choices: []chat.ChunkChoice{{Delta: chat.Message{ToolCalls: []chat.ToolCall{call}}}}}, nil)
				}
				_ = piece(0, "a", "first", "{\"x\"") && piece(1, "b", "second", "{}") && piece(0, "", "", ":1}") &&
					yield(&chat.Chunk{Choices: []chat.ChunkChoice{{FinishReason: "tool_calls"}}}, nil)
			}
		})
	})
	r, err := adapter.Request(map[string]any{"model": gatewaytest.Model, "messages": []any{map[string]any{"role": "user", "content": "hi"}}})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := adapter.Ask(t.Context(), g, r, func(*chat.Message) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	calls := answer.Message.ToolCalls
	if len(calls) != 2 || calls[0].ID != "a" || calls[0].Function.Arguments != `{"x":1}` || calls[1].Function.Name != "second" || answer.FinishReason != "tool_calls" {
		t.Errorf("calls %+v, finish reason %q", calls, answer.FinishReason)
	}
}

func TestWhatIsNotOfTheAPIIsA400(t *testing.T) {
	for name, members := range map[string]map[string]any{
		"no JSON":      {"model": func() {}},
		"another form": {"model": "m", "messages": "hi"},
	} {
		if _, err := adapter.Request(members); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := adapter.Media(nil, "application/pdf", "data:"); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("a document: %v", err)
	}
	if _, err := adapter.Members(7, nil); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("members of a number: %v", err)
	}
}
