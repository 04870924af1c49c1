package mcp_test

//lint:file-ignore SA1019 the suite asks for what the newest version of the protocol has deprecated

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// conformanceServer is the server that the conformance suite asks its questions of: it
// wants tools, resources and prompts of its own, which its scenarios describe.
func conformanceServer(t testing.TB) *sdk.Server {
	t.Helper()
	s := sdk.NewServer(&sdk.Implementation{Name: "fixture", Version: "1"}, &sdk.ServerOptions{
		CompletionHandler: func(context.Context, *sdk.CompleteRequest) (*sdk.CompleteResult, error) {
			return &sdk.CompleteResult{Completion: sdk.CompletionResultDetails{Values: []string{}}}, nil
		},
		SubscribeHandler:   func(context.Context, *sdk.SubscribeRequest) error { return nil },
		UnsubscribeHandler: func(context.Context, *sdk.UnsubscribeRequest) error { return nil },
	})
	addFixtureTools(s, smallPNG(t))
	addFixtureAsking(s)
	addFixtureResources(s, smallPNG(t))
	addFixturePrompts(s, smallPNG(t))
	return s
}

// smallPNG is a small PNG file.
func smallPNG(t testing.TB) []byte {
	t.Helper()
	_, data, _ := strings.Cut(pngURI(t, 1), ",")
	file, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func addFixtureTool(s *sdk.Server, name, schema string, h sdk.ToolHandler) {
	s.AddTool(&sdk.Tool{Name: name, Description: "A tool of the suite.", InputSchema: json.RawMessage(schema)}, h)
}

func contentHandler(content ...sdk.Content) sdk.ToolHandler {
	return func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: content}, nil
	}
}

func addFixtureTools(s *sdk.Server, picture []byte) {
	const none = `{"type":"object"}`
	resource := func(uri, kind, text string) sdk.Content {
		return &sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: uri, MIMEType: kind, Text: text}}
	}
	image := &sdk.ImageContent{Data: picture, MIMEType: "image/png"}
	for name, content := range map[string][]sdk.Content{
		"test_simple_text":       {&sdk.TextContent{Text: "This is a simple text response for testing."}},
		"test_image_content":     {image},
		"test_audio_content":     {&sdk.AudioContent{Data: []byte("RIFF\x00\x00\x00\x00WAVE"), MIMEType: "audio/wav"}},
		"test_embedded_resource": {resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")},
		"test_multiple_content_types": {
			&sdk.TextContent{Text: "Multiple content types test:"}, image,
			resource("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`),
		},
	} {
		addFixtureTool(s, name, none, contentHandler(content...))
	}
	addFixtureTool(s, "test_error_handling", none, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		r := &sdk.CallToolResult{}
		r.SetError(errors.New("This tool intentionally returns an error for testing"))
		return r, nil
	})
	addFixtureTool(s, "json_schema_2020_12_tool", `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
		"$defs":{"address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
		"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"}},"additionalProperties":false}`, contentHandler())
	addFixtureTool(s, "test_tool_with_logging", none, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		for _, text := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
			if err := r.Session.Log(ctx, &sdk.LoggingMessageParams{Level: "info", Data: text}); err != nil {
				return nil, err
			}
			<-time.After(50 * time.Millisecond) // the suite wants it
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "done"}}}, nil
	})
	addFixtureTool(s, "test_tool_with_progress", none, func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		for _, n := range []float64{0, 50, 100} {
			if token := r.Params.GetProgressToken(); token != nil {
				if err := r.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{ProgressToken: token, Progress: n, Total: 100}); err != nil {
					return nil, err
				}
			}
			<-time.After(50 * time.Millisecond) // the suite wants it
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "done"}}}, nil
	})
}

// askingHandler is a tool that asks the user of the client.
func askingHandler(said string, schema func(r *sdk.CallToolRequest) (string, *jsonschema.Schema)) sdk.ToolHandler {
	return func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		message, want := schema(r)
		answer, err := r.Session.Elicit(ctx, &sdk.ElicitParams{Message: message, RequestedSchema: want})
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(answer.Content)
		if err != nil {
			return nil, err
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf("%s: action=%s, content=%s", said, answer.Action, data)}}}, nil
	}
}

// addFixtureAsking adds the tools that ask the client something, which needs a
// session.
func addFixtureAsking(s *sdk.Server) {
	argument := func(r *sdk.CallToolRequest, name string) string {
		var all map[string]string
		_ = json.Unmarshal(r.Params.Arguments, &all)
		return all[name]
	}
	object := func(properties string) *jsonschema.Schema {
		var want jsonschema.Schema
		_ = json.Unmarshal([]byte(`{"type":"object","properties":`+properties+`}`), &want)
		return &want
	}
	addFixtureTool(s, "test_sampling", `{"type":"object","properties":{"prompt":{"type":"string"}},"required":["prompt"]}`,
		func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			answer, err := r.Session.CreateMessage(ctx, &sdk.CreateMessageParams{
				MaxTokens: 100, Messages: []*sdk.SamplingMessage{{Role: "user", Content: &sdk.TextContent{Text: argument(r, "prompt")}}},
			})
			if err != nil {
				return nil, err
			}
			text, _ := answer.Content.(*sdk.TextContent)
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "LLM response: " + text.Text}}}, nil
		})
	addFixtureTool(s, "test_elicitation", `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`,
		askingHandler("User response", func(r *sdk.CallToolRequest) (string, *jsonschema.Schema) {
			want := object(`{"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}}`)
			want.Required = []string{"username", "email"}
			return argument(r, "message"), want
		}))
	addFixtureTool(s, "test_elicitation_sep1034_defaults", `{"type":"object"}`,
		askingHandler("Elicitation completed", func(*sdk.CallToolRequest) (string, *jsonschema.Schema) {
			return "Defaults", object(`{"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},
				"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}}`)
		}))
	addFixtureTool(s, "test_elicitation_sep1330_enums", `{"type":"object"}`,
		askingHandler("Elicitation completed", func(*sdk.CallToolRequest) (string, *jsonschema.Schema) {
			titled := `[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]`
			return "Enums", object(`{"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},"titledSingle":{"type":"string","oneOf":` + titled + `},
				"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
				"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},"titledMulti":{"type":"array","items":{"anyOf":` + titled + `}}}`)
		}))
}

func addFixtureResources(s *sdk.Server, picture []byte) {
	for _, c := range []*sdk.ResourceContents{
		{URI: "test://static-text", MIMEType: "text/plain", Text: "This is the content of the static text resource."},
		{URI: "test://static-binary", MIMEType: "image/png", Blob: picture},
		{URI: "test://watched-resource", MIMEType: "text/plain", Text: "It changes."},
	} {
		s.AddResource(&sdk.Resource{URI: c.URI, Name: c.URI, Description: "A resource of the suite.", MIMEType: c.MIMEType},
			func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
				return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}}, nil
			})
	}
	s.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: "test://template/{id}/data", Name: "template", Description: "A template of the suite.", MIMEType: "application/json"},
		func(_ context.Context, r *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			id := strings.TrimSuffix(strings.TrimPrefix(r.Params.URI, "test://template/"), "/data")
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{
				URI: r.Params.URI, MIMEType: "application/json", Text: fmt.Sprintf(`{"id":%q,"templateTest":true,"data":"Data for ID: %s"}`, id, id),
			}}}, nil
		})
}

func addFixturePrompts(s *sdk.Server, picture []byte) {
	add := func(name string, names []string, content func(args map[string]string) []sdk.Content) {
		p := &sdk.Prompt{Name: name, Description: "A prompt of the suite."}
		for _, n := range names {
			p.Arguments = append(p.Arguments, &sdk.PromptArgument{Name: n, Required: true})
		}
		s.AddPrompt(p, func(_ context.Context, r *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			result := &sdk.GetPromptResult{}
			for _, c := range content(r.Params.Arguments) {
				result.Messages = append(result.Messages, &sdk.PromptMessage{Role: "user", Content: c})
			}
			return result, nil
		})
	}
	text := func(s string) sdk.Content { return &sdk.TextContent{Text: s} }
	add("test_simple_prompt", nil, func(map[string]string) []sdk.Content {
		return []sdk.Content{text("This is a simple prompt for testing.")}
	})
	add("test_prompt_with_arguments", []string{"arg1", "arg2"}, func(a map[string]string) []sdk.Content {
		return []sdk.Content{text(fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", a["arg1"], a["arg2"]))}
	})
	add("test_prompt_with_embedded_resource", []string{"resourceUri"}, func(a map[string]string) []sdk.Content {
		return []sdk.Content{
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: a["resourceUri"], MIMEType: "text/plain", Text: "Embedded resource content for testing."}},
			text("Please process the embedded resource above."),
		}
	})
	add("test_prompt_with_image", nil, func(map[string]string) []sdk.Content {
		return []sdk.Content{&sdk.ImageContent{Data: picture, MIMEType: "image/png"}, text("Please analyze the image above.")}
	})
}
