package server_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	openai "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

func openAIClient(s *fixture, options ...option.RequestOption) openai.Client {
	return openai.NewClient(append([]option.RequestOption{
		option.WithAPIKey(s.key.Reveal()), option.WithBaseURL(s.url + "/v1"), option.WithMaxRetries(0), option.WithHTTPClient(s.client),
	}, options...)...)
}

func TestOpenAIGoGetsAnAnswer(t *testing.T) {
	s := newFixture(t, fixtureOptions{})
	c := openAIClient(s)
	var response *http.Response
	r, err := c.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{
		Model: "delta-k3", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello there")},
	}, option.WithResponseInto(&response))
	if err != nil {
		t.Fatal(err)
	}
	m := r.Choices[0].Message
	if r.Model != "delta-k3" || m.Content == "" || m.JSON.ExtraFields["reasoning_content"].Raw() == "" {
		t.Errorf("response %s", r.RawJSON())
	}
	if !strings.HasPrefix(response.Header.Get("X-Request-Id"), "req_") || response.Header.Get("X-Gateway-Charge") == "" {
		t.Errorf("headers %v", response.Header)
	}
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

func TestOpenAIGoSeesAStreamThatBreaks(t *testing.T) {
	s := newFixture(t, fixtureOptions{upstream: sim.New(sim.Options{Fault: func(*upstream.Call) sim.Fault { return sim.Fault{Break: sim.Cut, After: 4} }})})
	c := openAIClient(s)
	st := c.Chat.Completions.NewStreaming(t.Context(), openai.ChatCompletionNewParams{
		Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("one two three four five six")},
	})
	n := 0
	for st.Next() {
		n++
	}
	if st.Err() == nil || n == 0 {
		t.Errorf("%d chunks, then %v", n, st.Err())
	}
}
