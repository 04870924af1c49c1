// Package eino makes a model of github.com/cloudwego/eino that a gateway answers in process:
//
//	model := eino.New(g, "gpt-5-mini")
//	agent, err := react.NewAgent(ctx, &react.AgentConfig{ToolCallingModel: model, …})
//
// The principal of the context (auth.NewContext) pays. Errors have a *fault.Error in their chain.
// Extra of an answer, and of a stream's last message, has "request_id" and "charge".
package eino

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/schema"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/adapter"
)

// Model is a model.ToolCallingChatModel. It is safe for concurrent use.
type Model struct {
	gateway *gateway.Gateway
	model   string
	tools   []*schema.ToolInfo
}

// New returns the model of that id, which model.WithModel replaces for one call.
func New(g *gateway.Gateway, model string) *Model { return &Model{gateway: g, model: model} }

// WithTools returns a model that has these tools instead.
func (m *Model) WithTools(tools []*schema.ToolInfo) (model.ToolCallingChatModel, error) {
	return &Model{m.gateway, m.model, tools}, nil
}

// Generate returns a whole answer.
func (m *Model) Generate(ctx context.Context, input []*schema.Message, opts ...model.Option) (*schema.Message, error) {
	r, err := m.request(input, opts)
	if err != nil {
		return nil, err
	}
	answer, err := adapter.Ask(ctx, m.gateway, r, nil)
	if err != nil {
		return nil, err
	}
	return toMessage(&answer.Message, answer.FinishReason, &answer.Usage, answer.Facts), nil
}

// Stream returns an answer as it comes. Read it to its end, or close it.
func (m *Model) Stream(ctx context.Context, input []*schema.Message, opts ...model.Option) (*schema.StreamReader[*schema.Message], error) {
	r, err := m.request(input, opts)
	if err != nil {
		return nil, err
	}
	r.StreamOptions = &chat.StreamOptions{IncludeUsage: true}
	stream, err := m.gateway.ChatStream(ctx, r)
	if err != nil {
		return nil, err
	}
	reader, writer := schema.Pipe[*schema.Message](1)
	go func() {
		defer writer.Close()
		for chunk, err := range stream.Chunks() {
			if err != nil {
				writer.Send(nil, err)
				return
			}
			c := append(chunk.Choices, chat.ChunkChoice{})[0]
			if closed := writer.Send(toMessage(&c.Delta, c.FinishReason, chunk.Usage, nil), nil); closed {
				return // which ends the call
			}
		}
		receipt, _ := stream.Receipt()
		writer.Send(toMessage(&chat.Message{}, "", nil, adapter.Facts(stream.RequestID, receipt.Charge)), nil)
	}()
	return reader, nil
}

func (m *Model) request(input []*schema.Message, opts []model.Option) (*chat.Request, error) {
	o := model.GetCommonOptions(&model.Options{Model: &m.model, Tools: m.tools}, opts...)
	var messages, tools []any
	for _, message := range input {
		messages = append(messages, map[string]any{
			"role": message.Role, "name": message.Name, "content": content(message), "reasoning_content": message.ReasoningContent,
			"tool_calls": message.ToolCalls, "tool_call_id": message.ToolCallID,
		})
	}
	for _, tool := range o.Tools {
		parameters, err := tool.ToJSONSchema()
		if err != nil {
			return nil, fault.Wrap(fault.InvalidRequest, "The tool "+tool.Name+" has no JSON Schema.", err)
		}
		if len(o.AllowedToolNames) == 0 || slices.Contains(o.AllowedToolNames, tool.Name) {
			tools = append(tools, adapter.Function(tool.Name, tool.Desc, parameters))
		}
	}
	choices := map[schema.ToolChoice]string{schema.ToolChoiceForbidden: "none", schema.ToolChoiceAllowed: "auto", schema.ToolChoiceForced: "required"}
	return adapter.Request(map[string]any{
		"model": o.Model, "messages": messages, "tools": tools, "tool_choice": choices[*cmp.Or(o.ToolChoice, new(schema.ToolChoice))],
		"temperature": o.Temperature, "top_p": o.TopP, "stop": o.Stop, "max_tokens": o.MaxTokens,
	})
}

// content is that of a message: its text, or its parts.
func content(m *schema.Message) any {
	var parts []map[string]any
	for _, of := range []any{m.MultiContent, m.UserInputMultiContent, m.AssistantGenMultiContent} {
		data, _ := json.Marshal(of)
		if string(data) != "null" {
			_ = json.Unmarshal(data, &parts)
		}
	}
	if len(parts) == 0 {
		return m.Content
	}
	for _, part := range parts { // as the API has them, but for the names of media
		for _, kind := range []string{"image", "audio", "video"} {
			if media, ok := part[kind].(map[string]any); ok {
				if data, ok := media["base64data"].(string); ok {
					media["url"] = fmt.Sprintf("data:%v;base64,%s", media["mime_type"], data)
				}
				delete(part, kind)
				part[kind+"_url"] = map[string]any{"url": media["url"]}
			}
		}
	}
	return parts
}

// toMessage converts an answer, or a piece of one. u and facts may be nil.
func toMessage(m *chat.Message, finish string, u *chat.Usage, facts map[string]any) *schema.Message {
	meta := &schema.ResponseMeta{FinishReason: finish}
	if u != nil {
		meta.Usage = &schema.TokenUsage{PromptTokens: int(u.PromptTokens), CompletionTokens: int(u.CompletionTokens), TotalTokens: int(u.TotalTokens)}
		meta.Usage.PromptTokenDetails.CachedTokens, meta.Usage.CompletionTokensDetails.ReasoningTokens = adapter.Details(u)
	}
	out := &schema.Message{Role: schema.Assistant, Content: m.Content.String(), ReasoningContent: m.ReasoningContent, ResponseMeta: meta, Extra: facts}
	for _, c := range m.ToolCalls {
		out.ToolCalls = append(out.ToolCalls, schema.ToolCall{ID: c.ID, Type: c.Type, Function: schema.FunctionCall{Name: c.Function.Name, Arguments: c.Function.Arguments}})
		if c.Index != nil {
			out.ToolCalls[len(out.ToolCalls)-1].Index = new(int(*c.Index))
		}
	}
	return out
}
