package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	goopenai "github.com/sashabaranov/go-openai"

	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/server"
)

// eachGoOpenAI runs a test with both ways to one gateway: a socket, and none.
func eachGoOpenAI(t *testing.T, s *fixture, test func(t *testing.T, c *goopenai.Client)) {
	overHTTP, inProcess := goopenai.DefaultConfig(s.Key.Reveal()), goopenai.DefaultConfig(s.Key.Reveal())
	overHTTP.BaseURL, overHTTP.HTTPClient = s.url+"/v1", s.client
	inProcess.BaseURL, inProcess.HTTPClient = "http://gateway.invalid/v1", server.Client(s.handler)
	for name, config := range map[string]goopenai.ClientConfig{"over HTTP": overHTTP, "in process": inProcess} {
		t.Run(name, func(t *testing.T) { test(t, goopenai.NewClientWithConfig(config)) })
	}
}

func goOpenAIRequest(model, text string) goopenai.ChatCompletionRequest {
	return goopenai.ChatCompletionRequest{Model: model, Messages: []goopenai.ChatCompletionMessage{{Role: "user", Content: text}}}
}

func TestGoOpenAIStreams(t *testing.T) {
	s := newFixture(t, options{})
	eachGoOpenAI(t, s, func(t *testing.T, c *goopenai.Client) {
		for _, asked := range []bool{true, false} {
			before := s.Posted(t)
			ask := goOpenAIRequest("delta-k3", "hello there")
			ask.StreamOptions = &goopenai.StreamOptions{IncludeUsage: asked}
			stream, err := c.CreateChatCompletionStream(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			defer stream.Close()
			var text, thought strings.Builder
			var usage *goopenai.Usage
			for {
				r, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if r.Usage != nil {
					usage = r.Usage
					continue
				}
				text.WriteString(r.Choices[0].Delta.Content)
				thought.WriteString(r.Choices[0].Delta.ReasoningContent)
			}
			if text.Len() == 0 || thought.Len() == 0 || (usage != nil) != asked {
				t.Fatalf("text %q, thought %q, usage %+v, asked %v", text.String(), thought.String(), usage, asked)
			}
			cost := before - s.Posted(t)
			if cost <= 0 || usage != nil && cost != chatCost(int64(usage.PromptTokens), int64(usage.CompletionTokens)) {
				t.Errorf("usage %+v cost %s", usage, cost)
			}
		}
	})
}

func TestGoOpenAICallsToolsAndGetsJSON(t *testing.T) {
	eachGoOpenAI(t, newFixture(t, options{}), func(t *testing.T, c *goopenai.Client) {
		ask := goOpenAIRequest("sim-chat", "what is the weather?")
		ask.ToolChoice = "required"
		ask.Tools = []goopenai.Tool{{Type: goopenai.ToolTypeFunction, Function: &goopenai.FunctionDefinition{
			Name: "weather", Description: "tells the weather",
			Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`),
		}}}
		r, err := c.CreateChatCompletion(t.Context(), ask)
		if err != nil {
			t.Fatal(err)
		}
		m := r.Choices[0].Message
		if len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Name != "weather" || r.Choices[0].FinishReason != "tool_calls" {
			t.Fatalf("message %+v", m)
		}
		ask.ToolChoice = nil
		ask.Messages = append(ask.Messages, m, goopenai.ChatCompletionMessage{Role: "tool", ToolCallID: m.ToolCalls[0].ID, Content: "sunny"})
		if r, err = c.CreateChatCompletion(t.Context(), ask); err != nil || !strings.Contains(r.Choices[0].Message.Content, "sunny") {
			t.Fatalf("after the tool: %+v, %v", r, err)
		}
		structured := goOpenAIRequest("sim-chat", "a person")
		structured.ResponseFormat = &goopenai.ChatCompletionResponseFormat{
			Type: "json_schema", JSONSchema: &goopenai.ChatCompletionResponseFormatJSONSchema{
				Name: "person", Schema: json.RawMessage(`{"type":"object","properties":{"age":{"type":"integer"}},"required":["age"]}`),
			},
		}
		r, err = c.CreateChatCompletion(t.Context(), structured)
		var person struct{ Age *int }
		if err != nil || json.Unmarshal([]byte(r.Choices[0].Message.Content), &person) != nil || person.Age == nil {
			t.Errorf("structured output %+v, %v", r, err)
		}
	})
}

func TestGoOpenAIEmbedsInBothEncodings(t *testing.T) {
	eachGoOpenAI(t, newFixture(t, options{}), func(t *testing.T, c *goopenai.Client) {
		var first []float32
		for _, format := range []goopenai.EmbeddingEncodingFormat{"", goopenai.EmbeddingEncodingFormatFloat, goopenai.EmbeddingEncodingFormatBase64} {
			r, err := c.CreateEmbeddings(t.Context(), goopenai.EmbeddingRequestStrings{Input: []string{"a", "b", "c"}, Model: "vectors", EncodingFormat: format, Dimensions: 8})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Data) != 3 || r.Data[2].Index != 2 || len(r.Data[2].Embedding) != 8 || r.Model != "vectors" {
				t.Fatalf("%+v", r)
			}
			if first == nil {
				first = r.Data[2].Embedding
			}
			if !slices.Equal(first, r.Data[2].Embedding) {
				t.Errorf("%q gives %v, want %v", format, r.Data[2].Embedding, first)
			}
		}
	})
}

func TestGoOpenAIMakesAndEditsPictures(t *testing.T) {
	s := newFixture(t, options{credit: 2 * billing.One})
	path := filepath.Join(t.TempDir(), "cube.png")
	if err := os.WriteFile(path, picture(t, 16), 0o600); err != nil {
		t.Fatal(err)
	}
	eachGoOpenAI(t, s, func(t *testing.T, c *goopenai.Client) {
		onDisk, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer onDisk.Close()
		edit := func(n int, file io.Reader) func() (goopenai.ImageResponse, error) {
			return func() (goopenai.ImageResponse, error) {
				return c.CreateEditImage(t.Context(), goopenai.ImageEditRequest{Model: "imagegen-2", Prompt: "make it blue", N: n, Image: file})
			}
		}
		for name, do := range map[string]func() (goopenai.ImageResponse, error){
			"a generation": func() (goopenai.ImageResponse, error) {
				return c.CreateImage(t.Context(), goopenai.ImageRequest{Model: "imagegen-2", Prompt: "a red cube", N: 2, Size: "1024x1024"})
			},
			"an edit of a reader": edit(2, bytes.NewReader(picture(t, 16))),
			"an edit of a file":   edit(2, onDisk),
		} {
			s.spends(t, func() billing.Money {
				r, err := do()
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if len(r.Data) != 2 || r.Usage.OutputTokens == 0 || !strings.HasPrefix(r.Header().Get("X-Request-Id"), "req_") {
					t.Errorf("%s: %d pictures, usage %+v", name, len(r.Data), r.Usage)
				}
				isPNG(t, r.Data[0].B64JSON)
				return 2 * billing.One / 10
			})
		}
		legacy, err := c.CreateEditImage(t.Context(), goopenai.ImageEditRequest{
			Model: "imagegen-legacy-2", Prompt: "a", N: 1, Image: bytes.NewReader(picture(t, 16)), Size: "256x256", ResponseFormat: "url",
		})
		if err != nil || !strings.HasPrefix(legacy.Data[0].URL, "data:image/png;base64,") {
			t.Errorf("%v, %v", legacy, err)
		}
		// It sends "n" as 0 where its caller left it out.
		var e *goopenai.APIError
		if _, err = edit(0, bytes.NewReader(picture(t, 16)))(); !errors.As(err, &e) || e.HTTPStatusCode != 400 || !strings.Contains(e.Message, `"n" is 0`) {
			t.Errorf("%v", err)
		}
	})
}

func TestGoOpenAISpeaks(t *testing.T) {
	eachGoOpenAI(t, newFixture(t, options{}), func(t *testing.T, c *goopenai.Client) {
		r, err := c.CreateSpeech(t.Context(), goopenai.CreateSpeechRequest{
			Model: "alpha3-tts-flash", Input: "hello", ResponseFormat: goopenai.SpeechResponseFormatWav, Speed: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil || r.Header().Get("Content-Type") != "audio/wav" || len(data) == 0 {
			t.Errorf("%v, %v", err, r.Header())
		}
		var e *goopenai.APIError
		_, err = c.CreateSpeech(t.Context(), goopenai.CreateSpeechRequest{Model: "unknown", Input: "hello"})
		if !errors.As(err, &e) || e.HTTPStatusCode != 400 || e.Code != "endpoint_model_mismatch" {
			t.Errorf("error %v", err)
		}
	})
}
