// Package langchaingo makes a model of github.com/tmc/langchaingo that a gateway answers in
// process:
//
//	model := langchaingo.New(g, "gpt-5-mini")
//	text, err := llms.GenerateFromSinglePrompt(ctx, model, "Is the gate open?")
//
// The principal of the context (auth.NewContext) pays. An error is a *fault.Error. A choice's
// GenerationInfo has the counts of tokens, "request_id" and "charge".
package langchaingo

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tmc/langchaingo/llms"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/adapter"
)

// LLM is an llms.Model. It is safe for concurrent use.
type LLM struct {
	gateway *gateway.Gateway
	model   string
}

// New returns the model of that id, which llms.WithModel replaces for one call.
func New(g *gateway.Gateway, model string) *LLM { return &LLM{g, model} }

// Call answers one prompt.
func (l *LLM) Call(ctx context.Context, prompt string, options ...llms.CallOption) (string, error) {
	return llms.GenerateFromSinglePrompt(ctx, l, prompt, options...)
}

// GenerateContent answers with one choice. With a streaming function the answer streams to it. An
// option that is zero is left to the vendor.
func (l *LLM) GenerateContent(ctx context.Context, messages []llms.MessageContent, options ...llms.CallOption) (*llms.ContentResponse, error) {
	o := llms.CallOptions{Model: l.model}
	for _, set := range options {
		set(&o)
	}
	r, err := request(messages, &o)
	if err != nil {
		return nil, err
	}
	answer, err := adapter.Ask(ctx, l.gateway, r, streaming(ctx, &o))
	if err != nil {
		return nil, err
	}
	info := answer.Facts
	info["PromptTokens"], info["CompletionTokens"], info["TotalTokens"] = int(answer.Usage.PromptTokens), int(answer.Usage.CompletionTokens), int(answer.Usage.TotalTokens)
	info["CachedTokens"], info["ReasoningTokens"] = adapter.Details(&answer.Usage)
	m := &answer.Message
	choice := &llms.ContentChoice{Content: m.Content.String(), StopReason: answer.FinishReason, GenerationInfo: info, ReasoningContent: m.ReasoningContent}
	for _, c := range m.ToolCalls {
		choice.ToolCalls = append(choice.ToolCalls, llms.ToolCall{ID: c.ID, Type: c.Type, FunctionCall: &llms.FunctionCall{Name: c.Function.Name, Arguments: c.Function.Arguments}})
		choice.FuncCall = choice.ToolCalls[0].FunctionCall
	}
	return &llms.ContentResponse{Choices: []*llms.ContentChoice{choice}}, nil
}

func streaming(ctx context.Context, o *llms.CallOptions) func(*chat.Message) error {
	if o.StreamingFunc == nil && o.StreamingReasoningFunc == nil {
		return nil
	}
	return func(m *chat.Message) error {
		text := m.Content.String()
		if o.StreamingReasoningFunc != nil && (text != "" || m.ReasoningContent != "") {
			if err := o.StreamingReasoningFunc(ctx, []byte(m.ReasoningContent), []byte(text)); err != nil {
				return err
			}
		}
		if o.StreamingFunc != nil && text != "" {
			return o.StreamingFunc(ctx, []byte(text))
		}
		return nil
	}
}

func request(messages []llms.MessageContent, o *llms.CallOptions) (*chat.Request, error) {
	members := map[string]any{"model": o.Model, "stop": o.StopWords, "tool_choice": o.ToolChoice}
	for name, value := range map[string]float64{
		"max_tokens": float64(o.MaxTokens), "temperature": o.Temperature, "top_p": o.TopP, "top_k": float64(o.TopK), "seed": float64(o.Seed),
		"frequency_penalty": o.FrequencyPenalty, "presence_penalty": o.PresencePenalty, "repetition_penalty": o.RepetitionPenalty,
	} {
		if value != 0 {
			members[name] = value
		}
	}
	if o.JSONMode || o.ResponseMIMEType == "application/json" {
		members["response_format"] = chat.JSONObject()
	}
	if thinking, ok := o.Metadata["thinking_config"].(*llms.ThinkingConfig); ok && thinking.Mode != llms.ThinkingModeAuto {
		members["reasoning_effort"] = thinking.Mode
	}
	var tools, converted []any
	for _, f := range o.Functions {
		tools = append(tools, adapter.Function(f.Name, f.Description, f.Parameters))
	}
	for _, t := range o.Tools {
		if t.Function != nil {
			tools = append(tools, adapter.Function(t.Function.Name, t.Function.Description, t.Function.Parameters))
		}
	}
	for _, m := range messages {
		all, err := fromMessage(m)
		if err != nil {
			return nil, err
		}
		converted = append(converted, all...)
	}
	members["messages"], members["tools"] = converted, tools
	return adapter.Request(members)
}

// fromMessage converts a message, whose tool results become messages of their own.
func fromMessage(m llms.MessageContent) (all []any, err error) {
	var parts []map[string]any
	var calls []any
	for _, part := range m.Parts {
		if cached, ok := part.(llms.CachedContent); ok {
			part = cached.ContentPart
		}
		switch p := part.(type) {
		case llms.TextContent:
			parts = append(parts, adapter.Text(p.Text))
		case llms.ToolCall:
			calls = append(calls, adapter.Call(p.ID, p.FunctionCall.Name, p.FunctionCall.Arguments))
		case llms.ToolCallResponse:
			all = append(all, map[string]any{"role": "tool", "tool_call_id": p.ToolCallID, "content": p.Content})
		case llms.ImageURLContent:
			parts, err = adapter.Media(parts, "", p.URL)
		case llms.BinaryContent:
			parts, err = adapter.Media(parts, p.MIMEType, p.String())
		default:
			err = fault.Invalid("messages", fmt.Sprintf("A part of the type %T cannot be sent.", part))
		}
		if err != nil {
			return nil, err
		}
	}
	roles := map[llms.ChatMessageType]string{llms.ChatMessageTypeAI: "assistant", llms.ChatMessageTypeSystem: "system"}
	if len(parts)+len(calls) > 0 {
		all = append(all, map[string]any{"role": cmp.Or(roles[m.Role], "user"), "content": adapter.Content(parts), "tool_calls": calls})
	}
	return all, nil
}
