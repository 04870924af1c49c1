package eino_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/schema"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/adapters/eino"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/internal/adaptertest"
)

func TestTheModelConforms(t *testing.T) { adaptertest.Run(t, ask) }

func TestOptionsAndMediaReachTheVendor(t *testing.T) {
	const want = `{"model":"other","temperature":0.7,"top_p":0.9,"max_tokens":50,"stop":["end"],"tool_choice":"required",
		"tools":[{"type":"function","function":{"name":"b"}}],"messages":[{"role":"system","content":"be brief"},{"role":"user","content":[
		{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"https://example.com/a.png"}},{"type":"video_url","video_url":{"url":"data:video/mp4;base64,AAAA"}}]}]}`
	adaptertest.Sent(t, want, func(ctx context.Context, g *gateway.Gateway) error {
		url, data := "https://example.com/a.png", "AAAA"
		input := []*schema.Message{schema.SystemMessage("be brief"), {Role: schema.User, UserInputMultiContent: []schema.MessageInputPart{
			{Type: schema.ChatMessagePartTypeText, Text: "look"},
			{Type: schema.ChatMessagePartTypeImageURL, Image: &schema.MessageInputImage{MessagePartCommon: schema.MessagePartCommon{URL: &url}}},
			{Type: schema.ChatMessagePartTypeVideoURL, Video: &schema.MessageInputVideo{MessagePartCommon: schema.MessagePartCommon{Base64Data: &data, MIMEType: "video/mp4"}}},
		}}}
		_, err := eino.New(g, gatewaytest.Model).Generate(ctx, input, model.WithModel("other"), model.WithTemperature(0.7), model.WithTopP(0.9), model.WithMaxTokens(50),
			model.WithStop([]string{"end"}), model.WithTools([]*schema.ToolInfo{{Name: "a"}, {Name: "b"}}), model.WithToolChoice(schema.ToolChoiceForced, "b"))
		return err
	})
}

// ask asks a model of eino.
func ask(ctx context.Context, g *gateway.Gateway, q adaptertest.Question) (adaptertest.Answer, error) {
	var m model.ToolCallingChatModel = eino.New(g, gatewaytest.Model)
	var err error
	if q.Tools {
		city := map[string]*schema.ParameterInfo{"city": {Type: schema.String, Required: true}}
		m, err = m.WithTools([]*schema.ToolInfo{{Name: adaptertest.Tool, Desc: adaptertest.Description, ParamsOneOf: schema.NewParamsOneOfByParams(city)}})
		if err != nil {
			return adaptertest.Answer{}, err
		}
	}
	input := []*schema.Message{schema.UserMessage(q.Prompt)}
	if c := q.Call; c != nil {
		call := schema.ToolCall{ID: c.ID, Type: "function", Function: schema.FunctionCall{Name: c.Name, Arguments: c.Arguments}}
		input = append(input, schema.AssistantMessage("", []schema.ToolCall{call}), schema.ToolMessage(q.Result, c.ID))
	}
	var answer *schema.Message
	if q.Stream == nil {
		answer, err = m.Generate(ctx, input)
	} else {
		answer, err = stream(ctx, m, input, q.Stream)
	}
	if err != nil {
		return adaptertest.Answer{}, err
	}
	a := adaptertest.Answer{Text: answer.Content, Reasoning: answer.ReasoningContent}
	a.RequestID, _ = answer.Extra["request_id"].(string)
	a.Charge, _ = answer.Extra["charge"].(string)
	if u := answer.ResponseMeta.Usage; u != nil {
		a.Input, a.Output = u.PromptTokens, u.CompletionTokens
	}
	for _, c := range answer.ToolCalls {
		a.Calls = append(a.Calls, adaptertest.Call{ID: c.ID, Name: c.Function.Name, Arguments: c.Function.Arguments})
	}
	return a, nil
}

// stream reads a stream as eino's own nodes do.
func stream(ctx context.Context, m model.ToolCallingChatModel, input []*schema.Message, each func(string)) (*schema.Message, error) {
	s, err := m.Stream(ctx, input)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var pieces []*schema.Message
	for {
		piece, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return schema.ConcatMessages(pieces)
		}
		if err != nil {
			return nil, err
		}
		if pieces = append(pieces, piece); piece.Content != "" {
			each(piece.Content)
		}
	}
}
