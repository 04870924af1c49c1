package server_test

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

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

var weather = goopenai.Tool{Type: goopenai.ToolTypeFunction, Function: &goopenai.FunctionDefinition{
	Name: "weather", Description: "tells the weather",
	Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`),
}}

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

func TestGoOpenAICallsToolsAndGetsJSON(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	for name, c := range goOpenAIClients(s) {
		t.Run(name, func(t *testing.T) {
			ask := goopenai.ChatCompletionRequest{Model: "sim-chat", Messages: userMessage("what is the weather?"), Tools: []goopenai.Tool{weather}, ToolChoice: "required"}
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
			r, err = c.CreateChatCompletion(t.Context(), goopenai.ChatCompletionRequest{
				Model: "sim-chat", Messages: userMessage("a person"), ResponseFormat: &goopenai.ChatCompletionResponseFormat{
					Type: "json_schema", JSONSchema: &goopenai.ChatCompletionResponseFormatJSONSchema{
						Name: "person", Schema: json.RawMessage(`{"type":"object","properties":{"age":{"type":"integer"}},"required":["age"]}`),
					},
				},
			})
			var person struct{ Age *int }
			if err != nil || json.Unmarshal([]byte(r.Choices[0].Message.Content), &person) != nil || person.Age == nil {
				t.Errorf("structured output %+v, %v", r, err)
			}
		})
	}
}
