package genkit_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/firebase/genkit/go/ai"
	"github.com/firebase/genkit/go/genkit"

	gateway "github.com/tollhouse-ai/gateway"
	tollhouse "github.com/tollhouse-ai/gateway/adapters/genkit"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/internal/adaptertest"
)

const model = "tollhouse/" + gatewaytest.Model

func TestTheModelConforms(t *testing.T) { adaptertest.Run(t, ask) }

func TestOptionsAndMediaReachTheVendor(t *testing.T) {
	const want = `{"model":"test-model","temperature":0.7,"top_p":0.9,"max_tokens":50,"stop":["end"],"seed":7,"top_k":3,
		"messages":[{"role":"system","content":"be brief"},{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}]}`
	adaptertest.Sent(t, want, func(ctx context.Context, g *gateway.Gateway) error {
		config := map[string]any{"temperature": 0.7, "topP": 0.9, "topK": 3, "maxOutputTokens": 50, "stopSequences": []string{"end"}, "seed": 7}
		_, err := genkit.Generate(ctx, genkit.Init(ctx, genkit.WithPlugins(tollhouse.New(g, gatewaytest.Model))), ai.WithModelName(model), ai.WithConfig(config), ai.WithMessages(
			ai.NewSystemTextMessage("be brief"), ai.NewUserMessage(ai.NewTextPart("look"), ai.NewMediaPart("image/png", "https://example.com/a.png")),
		))
		return err
	})
}

func TestTheSchemaOfAnOutputReachesTheVendor(t *testing.T) {
	const want = `{"model":"test-model","response_format":{"type":"json_schema","json_schema":{"name":"output","schema":{"type":"object","properties":{"pence":{"type":"integer"}},"required":["pence"]}}}}`
	schema := map[string]any{"type": "object", "properties": map[string]any{"pence": map[string]any{"type": "integer"}}, "required": []string{"pence"}}
	adaptertest.Sent(t, want, func(ctx context.Context, g *gateway.Gateway) error {
		m := genkit.LookupModel(genkit.Init(ctx, genkit.WithPlugins(tollhouse.New(g, gatewaytest.Model))), model)
		_, err := m.Generate(ctx, &ai.ModelRequest{Messages: []*ai.Message{ai.NewUserTextMessage("toll?")}, Output: &ai.ModelOutputConfig{Format: "json", Constrained: true, Schema: schema}}, nil)
		return err
	})
}

// ask asks a model of genkit.
func ask(ctx context.Context, g *gateway.Gateway, q adaptertest.Question) (adaptertest.Answer, error) {
	kit := genkit.Init(ctx, genkit.WithPlugins(tollhouse.New(g, gatewaytest.Model)))
	messages := []*ai.Message{ai.NewUserTextMessage(q.Prompt)}
	options := []ai.GenerateOption{ai.WithModelName(model), ai.WithReturnToolRequests(true)}
	if q.Tools {
		type input struct {
			City string `json:"city"`
		}
		options = append(options, ai.WithTools(genkit.DefineTool(kit, adaptertest.Tool, adaptertest.Description, func(*ai.ToolContext, input) (string, error) { return q.Result, nil })))
	}
	if c := q.Call; c != nil {
		var arguments any
		if err := json.Unmarshal([]byte(c.Arguments), &arguments); err != nil {
			return adaptertest.Answer{}, err
		}
		messages = append(messages, ai.NewModelMessage(ai.NewToolRequestPart(&ai.ToolRequest{Ref: c.ID, Name: c.Name, Input: arguments})),
			ai.NewMessage(ai.RoleTool, nil, ai.NewToolResponsePart(&ai.ToolResponse{Ref: c.ID, Name: c.Name, Output: q.Result})))
	}
	if q.Stream != nil {
		options = append(options, ai.WithStreaming(func(_ context.Context, chunk *ai.ModelResponseChunk) error {
			for _, part := range chunk.Content {
				if part.IsText() { // Text has the reasoning too
					q.Stream(part.Text)
				}
			}
			return nil
		}))
	}
	response, err := genkit.Generate(ctx, kit, append(options, ai.WithMessages(messages...))...)
	if err != nil {
		return adaptertest.Answer{}, err
	}
	a := adaptertest.Answer{Text: response.Text(), Reasoning: response.Reasoning(), Input: response.Usage.InputTokens, Output: response.Usage.OutputTokens}
	facts := response.Raw.(map[string]any)
	a.RequestID, a.Charge = facts["request_id"].(string), facts["charge"].(string)
	for _, r := range response.ToolRequests() {
		arguments, err := json.Marshal(r.Input)
		if err != nil {
			return a, err
		}
		a.Calls = append(a.Calls, adaptertest.Call{ID: r.Ref, Name: r.Name, Arguments: string(arguments)})
	}
	return a, nil
}
