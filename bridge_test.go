package gateway_test

import (
	"context"
	"testing"

	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/messages"
	"github.com/tollhouse-ai/gateway/responses"
	"github.com/tollhouse-ai/gateway/upstream"
)

// TestAModelInGoOfOneWireAnswersTheOthers asks models that are functions, of each wire,
// by the typed methods of all.
func TestAModelInGoOfOneWireAnswersTheOthers(t *testing.T) {
	for name, up := range map[string]upstream.Upstream{
		"chat": chat.Serve(func(_ context.Context, r *chat.Request) (*chat.Response, error) {
			said := "you said " + r.Messages[len(r.Messages)-1].Content.String()
			return &chat.Response{Choices: []chat.Choice{{Message: chat.Message{Role: "assistant", Content: chat.Text(said)}, FinishReason: "stop"}}, Usage: &chat.Usage{PromptTokens: 3, CompletionTokens: 2}}, nil
		}),
		"messages": messages.Serve(func(_ context.Context, r *messages.Request) (*messages.Response, error) {
			said := "you said " + r.Messages[len(r.Messages)-1].Content.String()
			end := "end_turn"
			return &messages.Response{Type: "message", Role: "assistant", Content: []messages.Block{{Type: "text", Text: said}}, StopReason: &end, Usage: messages.Usage{InputTokens: 3, OutputTokens: 2}}, nil
		}),
		"responses": responses.Serve(func(_ context.Context, r *responses.Request) (*responses.Response, error) {
			items, err := r.Input.Items()
			if err != nil {
				return nil, err
			}
			said := "you said " + items[len(items)-1].Content.String()
			return &responses.Response{
				Object: "response", Status: "completed",
				Output: []responses.Item{{Type: "message", Role: "assistant", Content: responses.Parts(responses.Part{Type: "output_text", Text: said})}},
				Usage:  &responses.Usage{InputTokens: 3, OutputTokens: 2, TotalTokens: 5},
			}, nil
		}),
	} {
		t.Run(name, func(t *testing.T) {
			const want = "you said hi"
			h := newTestGateway(t, up, "1", nil)
			completion, err := h.Chat(t.Context(), &chat.Request{Model: "m", Messages: []chat.Message{{Role: "user", Content: chat.Text("hi")}}})
			if err != nil || completion.Choices[0].Message.Content.String() != want {
				t.Errorf("chat: %+v, %v", completion, err)
			}
			message, err := h.Messages(t.Context(), &messages.Request{Model: "m", MaxTokens: 50, Messages: []messages.Message{{Role: "user", Content: messages.Text("hi")}}})
			if err != nil || message.Content[0].Text != want {
				t.Errorf("messages: %+v, %v", message, err)
			}
			response, err := h.Responses(t.Context(), &responses.Request{Model: "m", Input: responses.Text("hi")})
			if err != nil || response.Text() != want {
				t.Errorf("responses: %+v, %v", response, err)
			}
			if spent := h.spent(t, "1"); spent != 3*5*1_000 {
				t.Errorf("paid %s", spent)
			}
		})
	}
}
