// Package genkit makes a plugin of github.com/firebase/genkit/go whose models a gateway answers in
// process:
//
//	g := genkit.Init(ctx, genkit.WithPlugins(tollhouse.New(gw, "gpt-5-mini")))
//	answer, err := genkit.Generate(ctx, g, ai.WithModelName("tollhouse/gpt-5-mini"), ai.WithPrompt("Is the gate open?"))
//
// The principal of the context (auth.NewContext) pays. Errors have a *fault.Error in their chain.
// A response's Raw is a map with "request_id" and "charge".
package genkit

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/core/api"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/adapter"
)

const provider = "tollhouse"

// Plugin is an api.Plugin.
type Plugin struct {
	gateway *gateway.Gateway
	models  []string
}

// New returns the plugin "tollhouse" with these models of the gateway, as "tollhouse/MODEL".
func New(g *gateway.Gateway, models ...string) *Plugin { return &Plugin{g, models} }

// Name is "tollhouse".
func (p *Plugin) Name() string { return provider }

// Init returns the models.
func (p *Plugin) Init(context.Context) (all []api.Action) {
	for _, id := range p.models {
		all = append(all, p.model(id).(api.Action))
	}
	return all
}

func (p *Plugin) model(id string) ai.Model {
	supports := &ai.ModelSupports{Multiturn: true, SystemRole: true, Media: true, Tools: true, ToolChoice: true, Constrained: ai.ConstrainedSupportAll}
	return ai.NewModel(api.NewName(provider, id), &ai.ModelOptions{Label: provider + " - " + id, Supports: supports},
		func(ctx context.Context, in *ai.ModelRequest, send ai.ModelStreamCallback) (*ai.ModelResponse, error) {
			r, err := request(id, in)
			if err != nil {
				return nil, err
			}
			var each func(*chat.Message) error
			if send != nil {
				each = func(m *chat.Message) error {
					if m.ToolCalls = nil; m.ReasoningContent == "" && m.Content.String() == "" { // calls are whole in the response
						return nil
					}
					return send(ctx, &ai.ModelResponseChunk{Role: ai.RoleModel, Content: toParts(m)})
				}
			}
			answer, err := adapter.Ask(ctx, p.gateway, r, each)
			if err != nil {
				return nil, err
			}
			u := &ai.GenerationUsage{InputTokens: int(answer.Usage.PromptTokens), OutputTokens: int(answer.Usage.CompletionTokens), TotalTokens: int(answer.Usage.TotalTokens)}
			u.CachedContentTokens, u.ThoughtsTokens = adapter.Details(&answer.Usage)
			reasons := map[string]ai.FinishReason{"stop": ai.FinishReasonStop, "tool_calls": ai.FinishReasonStop, "length": ai.FinishReasonLength, "content_filter": ai.FinishReasonBlocked}
			reason := cmp.Or(reasons[answer.FinishReason], ai.FinishReasonOther)
			return &ai.ModelResponse{Request: in, Message: ai.NewModelMessage(toParts(&answer.Message)...), FinishReason: reason, Usage: u, Raw: answer.Facts}, nil
		})
}

func request(id string, in *ai.ModelRequest) (*chat.Request, error) {
	members, err := adapter.Members(in.Config, map[string]string{"maxOutputTokens": "max_tokens", "stopSequences": "stop", "topK": "top_k", "topP": "top_p"})
	if err != nil {
		return nil, err
	}
	var messages, tools []any
	for _, m := range in.Messages {
		all, err := fromMessage(m)
		if err != nil {
			return nil, err
		}
		messages = append(messages, all...)
	}
	for _, t := range in.Tools {
		tools = append(tools, adapter.Function(t.Name, t.Description, t.InputSchema))
	}
	if o := in.Output; o != nil && o.Schema != nil && o.Constrained {
		members["response_format"] = map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "output", "schema": o.Schema}}
	} else if o != nil && o.Format == "json" {
		members["response_format"] = chat.JSONObject()
	}
	members["model"], members["messages"], members["tools"], members["tool_choice"] = cmp.Or[any](members["version"], id), messages, tools, in.ToolChoice
	delete(members, "version")
	return adapter.Request(members)
}

// fromMessage converts a message, whose tool results become messages of their own.
func fromMessage(m *ai.Message) (all []any, err error) {
	var parts []map[string]any
	var calls []any
	reasoning := ""
	for _, p := range m.Content {
		switch {
		case p.IsText(), p.IsData():
			parts = append(parts, adapter.Text(p.Text))
		case p.IsMedia():
			parts, err = adapter.Media(parts, p.ContentType, p.Text)
		case p.IsReasoning():
			reasoning += p.Text
		case p.IsToolRequest():
			calls = append(calls, adapter.Call(cmp.Or(p.ToolRequest.Ref, p.ToolRequest.Name), p.ToolRequest.Name, adapter.Encoded(p.ToolRequest.Input)))
		case p.IsToolResponse():
			all = append(all, map[string]any{"role": "tool", "tool_call_id": cmp.Or(p.ToolResponse.Ref, p.ToolResponse.Name), "content": adapter.Encoded(p.ToolResponse.Output)})
		default:
			err = fault.Invalid("messages", fmt.Sprintf("A part of the kind %d cannot be sent.", p.Kind))
		}
		if err != nil {
			return nil, err
		}
	}
	if len(parts)+len(calls) > 0 {
		role := cmp.Or(map[ai.Role]string{ai.RoleModel: "assistant"}[m.Role], string(m.Role))
		all = append(all, map[string]any{"role": role, "content": adapter.Content(parts), "reasoning_content": reasoning, "tool_calls": calls})
	}
	return all, nil
}

// toParts are the parts of an answer, or of a piece of one.
func toParts(m *chat.Message) (parts []*ai.Part) {
	if m.ReasoningContent != "" {
		parts = append(parts, ai.NewReasoningPart(m.ReasoningContent, nil))
	}
	if text := m.Content.String(); text != "" {
		parts = append(parts, ai.NewTextPart(text))
	}
	for _, c := range m.ToolCalls {
		var input any = c.Function.Arguments
		_ = json.Unmarshal([]byte(c.Function.Arguments), &input) // the tool refuses what is not JSON
		parts = append(parts, ai.NewToolRequestPart(&ai.ToolRequest{Ref: c.ID, Name: c.Function.Name, Input: input}))
	}
	return parts
}
