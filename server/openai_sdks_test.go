package server_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	openai "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
	goopenai "github.com/sashabaranov/go-openai"

	"github.com/tollhouse-ai/gateway/server"
)

// goOpenAIClients are the two ways to the same gateway: a socket, and none.
func goOpenAIClients(s *fixture) map[string]*goopenai.Client {
	overHTTP := goopenai.DefaultConfig(s.key.Reveal())
	overHTTP.BaseURL, overHTTP.HTTPClient = s.url+"/v1", s.client
	inProcess := goopenai.DefaultConfig(s.key.Reveal())
	inProcess.BaseURL = "http://gateway.invalid/v1"
	inProcess.HTTPClient = server.Client(s.h)
	return map[string]*goopenai.Client{
		"over HTTP": goopenai.NewClientWithConfig(overHTTP), "in process": goopenai.NewClientWithConfig(inProcess),
	}
}

func userMessage(text string) []goopenai.ChatCompletionMessage {
	return []goopenai.ChatCompletionMessage{{Role: "user", Content: text}}
}

func TestGoOpenAIStreams(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	for name, c := range goOpenAIClients(s) {
		for _, usage := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				before := s.posted(t)
				st, err := c.CreateChatCompletionStream(t.Context(), goopenai.ChatCompletionRequest{
					Model: "delta-k3", Messages: userMessage("hello there"), StreamOptions: &goopenai.StreamOptions{IncludeUsage: usage},
				})
				if err != nil {
					t.Fatal(err)
				}
				defer st.Close()
				var text, thought strings.Builder
				var seen *goopenai.Usage
				for {
					r, err := st.Recv()
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					if r.Usage != nil {
						seen = r.Usage
						continue
					}
					text.WriteString(r.Choices[0].Delta.Content)
					thought.WriteString(r.Choices[0].Delta.ReasoningContent)
				}
				if text.Len() == 0 || thought.Len() == 0 {
					t.Errorf("text %q, thought %q", text.String(), thought.String())
				}
				if (seen != nil) != usage {
					t.Fatalf("usage %+v, asked %v", seen, usage)
				}
				cost := before - s.posted(t)
				if cost <= 0 || (usage && int64(cost) != int64(seen.PromptTokens)*1000+int64(seen.CompletionTokens)*2000) {
					t.Errorf("usage %+v cost %s", seen, cost)
				}
			})
		}
	}
}

func openAIClient(s *fixture, options ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithAPIKey(s.key.Reveal()), option.WithBaseURL(s.url + "/v1"), option.WithMaxRetries(0), option.WithHTTPClient(s.client),
	}, options...)...)
}

func TestOpenAIGoAccumulatesAStreamAndRepliesToIt(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	c := openAIClient(s)
	params := openai.ChatCompletionNewParams{
		Model:         "delta-k3",
		Messages:      []openai.ChatCompletionMessageParamUnion{openai.UserMessage("what is the weather?")},
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "weather", Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}, "required": []string{"city"}},
		})},
	}
	st := c.Chat.Completions.NewStreaming(t.Context(), params)
	var acc openai.ChatCompletionAccumulator
	for st.Next() {
		if !acc.AddChunk(st.Current()) {
			t.Fatalf("the accumulator refused %s", st.Current().RawJSON())
		}
	}
	if err := st.Err(); err != nil {
		t.Fatal(err)
	}
	m := acc.Choices[0].Message
	if len(m.ToolCalls) != 1 || m.ToolCalls[0].Function.Name != "weather" || acc.Usage.TotalTokens == 0 {
		t.Fatalf("message %+v, usage %+v", m, acc.Usage)
	}
	// The accumulated answer is the next turn: its content is null.
	params.StreamOptions = openai.ChatCompletionStreamOptionsParam{}
	params.Messages = append(params.Messages, m.ToParam(), openai.ToolMessage("sunny", m.ToolCalls[0].ID))
	r, err := c.Chat.Completions.New(t.Context(), params)
	if err != nil || !strings.Contains(r.Choices[0].Message.Content, "sunny") {
		t.Errorf("after the tool: %+v, %v", r, err)
	}
}

func TestOpenAIGoMapsErrors(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	c := openAIClient(s)
	_, err := c.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
		Model: "m", Temperature: openai.Float(3), Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("x")},
	})
	var e *openai.Error
	if !errors.As(err, &e) || e.StatusCode != 400 || e.Type != "invalid_request_error" || e.Code != "invalid_request_error" || e.Param != "temperature" || e.Message == "" {
		t.Errorf("error %+v", err)
	}
	poor := openAIClient(s, option.WithAPIKey("sk-wrong"))
	if _, err = poor.Models.List(t.Context()); !errors.As(err, &e) || e.StatusCode != 401 || e.Code != "unauthorized" {
		t.Errorf("error %+v", err)
	}
	list, err := c.Models.List(t.Context())
	if err != nil || len(list.Data) != 3 {
		t.Errorf("models %+v, %v", list, err)
	}
	if m, err := c.Models.Get(t.Context(), "delta-k3"); err != nil || m.ID != "delta-k3" {
		t.Errorf("model %+v, %v", m, err)
	}
}
