package langchaingo_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tmc/langchaingo/llms"
	"github.com/tmc/langchaingo/llms/compliance"
	"github.com/tmc/langchaingo/testing/llmtest"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/adapters/langchaingo"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/internal/adaptertest"
)

func TestTheModelConforms(t *testing.T) { adaptertest.Run(t, ask) }

// TestTheModelPassesTheTestsOfLangchaingo, whose questions a scripted vendor answers.
func TestTheModelPassesTheTestsOfLangchaingo(t *testing.T) {
	g := gatewaytest.New(t, func(o *gateway.Options) {
		o.Upstream = chat.Serve(func(_ context.Context, r *chat.Request) (*chat.Response, error) {
			text := "Hello, World! OK, 1 2 3 4 5, Alice, 42."
			if len(r.Stop) > 0 {
				text = "Monday, Tuesday, "
			}
			m := chat.Message{Role: "assistant", Content: chat.Text(text)}
			return &chat.Response{Choices: []chat.Choice{{Message: m, FinishReason: "stop"}}, Usage: &chat.Usage{PromptTokens: 9, CompletionTokens: 9, TotalTokens: 18}}, nil
		})
	})
	model := langchaingo.New(g, gatewaytest.Model)
	t.Run("compliance", func(t *testing.T) { compliance.NewSuite("tollhouse", model).Run(t) })
	t.Run("llmtest", func(t *testing.T) { llmtest.TestLLM(t, model) })
}

func TestOptionsAndMediaReachTheVendor(t *testing.T) {
	const want = `{"model":"other","temperature":0.7,"top_p":0.9,"max_tokens":50,"stop":["end"],"seed":7,"top_k":3,"tool_choice":"required","reasoning_effort":"low",
		"response_format":{"type":"json_object"},"tools":[{"type":"function","function":{"name":"b"}}],"messages":[{"role":"system","content":"be brief"},{"role":"user","content":[
		{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"https://example.com/a.png"}},{"type":"audio_url","audio_url":{"url":"data:audio/wav;base64,AAAA"}}]}]}`
	adaptertest.Sent(t, want, func(ctx context.Context, g *gateway.Gateway) error {
		_, err := langchaingo.New(g, gatewaytest.Model).GenerateContent(ctx, []llms.MessageContent{
			llms.TextParts(llms.ChatMessageTypeSystem, "be brief"),
			{Role: llms.ChatMessageTypeHuman, Parts: []llms.ContentPart{
				llms.WithCacheControl(llms.TextPart("look"), &llms.CacheControl{Type: "ephemeral"}), llms.ImageURLPart("https://example.com/a.png"), llms.BinaryPart("audio/wav", []byte{0, 0, 0}),
			}},
		}, llms.WithModel("other"), llms.WithTemperature(0.7), llms.WithTopP(0.9), llms.WithMaxTokens(50), llms.WithStopWords([]string{"end"}), llms.WithSeed(7), llms.WithTopK(3),
			llms.WithTools([]llms.Tool{{Type: "function", Function: &llms.FunctionDefinition{Name: "b"}}}), llms.WithToolChoice("required"), llms.WithJSONMode(), llms.WithThinkingMode(llms.ThinkingModeLow))
		return err
	})
}

func TestAnErrorOfTheStreamingFunctionEndsTheCall(t *testing.T) {
	enough := errors.New("enough")
	model := langchaingo.New(gatewaytest.New(t), gatewaytest.Model)
	_, err := model.Call(t.Context(), "hi", llms.WithStreamingFunc(func(context.Context, []byte) error { return enough }))
	if !errors.Is(err, enough) {
		t.Errorf("error %v", err)
	}
}

// ask asks a model of langchaingo.
func ask(ctx context.Context, g *gateway.Gateway, q adaptertest.Question) (adaptertest.Answer, error) {
	var options []llms.CallOption
	if q.Tools {
		schema := map[string]any{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}}
		options = append(options, llms.WithTools([]llms.Tool{{Type: "function", Function: &llms.FunctionDefinition{Name: adaptertest.Tool, Description: adaptertest.Description, Parameters: schema}}}))
	}
	if q.Stream != nil {
		options = append(options, llms.WithStreamingFunc(func(_ context.Context, piece []byte) error {
			q.Stream(string(piece))
			return nil
		}))
	}
	messages := []llms.MessageContent{llms.TextParts(llms.ChatMessageTypeHuman, q.Prompt)}
	if c := q.Call; c != nil {
		call := llms.ToolCall{ID: c.ID, Type: "function", FunctionCall: &llms.FunctionCall{Name: c.Name, Arguments: c.Arguments}}
		messages = append(messages, llms.MessageContent{Role: llms.ChatMessageTypeAI, Parts: []llms.ContentPart{call}},
			llms.MessageContent{Role: llms.ChatMessageTypeTool, Parts: []llms.ContentPart{llms.ToolCallResponse{ToolCallID: c.ID, Name: c.Name, Content: q.Result}}})
	}
	response, err := langchaingo.New(g, gatewaytest.Model).GenerateContent(ctx, messages, options...)
	if err != nil {
		return adaptertest.Answer{}, err
	}
	choice := response.Choices[0]
	info := choice.GenerationInfo
	a := adaptertest.Answer{Text: choice.Content, Reasoning: choice.ReasoningContent, Input: info["PromptTokens"].(int), Output: info["CompletionTokens"].(int)}
	a.RequestID, a.Charge = info["request_id"].(string), info["charge"].(string)
	for _, c := range choice.ToolCalls {
		a.Calls = append(a.Calls, adaptertest.Call{ID: c.ID, Name: c.FunctionCall.Name, Arguments: c.FunctionCall.Arguments})
	}
	return a, nil
}
