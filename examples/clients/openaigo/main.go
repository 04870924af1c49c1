// Command openaigo has OpenAI's official SDK, with its own base URL, answered by the gateway.
// It asks for JSON of a schema, and shows how a refusal arrives.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/examples/internal/vendor"
	"github.com/tollhouse-ai/gateway/transport"
)

func main() {
	up, err := vendor.New()
	if err != nil {
		log.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{Upstream: up})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport.New(g, transport.Options{})}
	sdk := openai.NewClient(option.WithHTTPClient(client), option.WithAPIKey("none")) // no Authenticator, so any will do
	if err := ask(context.Background(), &sdk); err != nil {
		log.Fatal(err)
	}
}

func ask(ctx context.Context, client *openai.Client) error {
	schema := map[string]any{
		"type": "object", "required": []string{"pence"}, "additionalProperties": false,
		"properties": map[string]any{"pence": map[string]any{"type": "integer", "minimum": 3}},
	}
	request := openai.ChatCompletionNewParams{
		Model:    vendor.Model(),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("What is the toll?")},
		ResponseFormat: openai.ChatCompletionNewParamsResponseFormatUnion{OfJSONSchema: &openai.ResponseFormatJSONSchemaParam{
			JSONSchema: openai.ResponseFormatJSONSchemaJSONSchemaParam{Name: "toll", Schema: schema, Strict: openai.Bool(true)},
		}},
	}
	answer, err := client.Chat.Completions.New(ctx, request)
	if err != nil {
		return err
	}
	var toll struct{ Pence int }
	if err := json.Unmarshal([]byte(answer.Choices[0].Message.Content), &toll); err != nil {
		return err
	}
	fmt.Println("pence:", toll.Pence)

	request.Temperature = openai.Float(3)
	_, err = client.Chat.Completions.New(ctx, request)
	var refused *openai.Error
	if !errors.As(err, &refused) {
		return fmt.Errorf("a temperature of 3 was not refused: %w", err)
	}
	fmt.Println(refused.StatusCode, refused.Code, refused.Param)
	return nil
}

// Output:
// pence: 3
// 400 invalid_request_error temperature
