package clients

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// anthropicClient sends the key as x-api-key.
func anthropicClient(s *fixture, more ...option.RequestOption) anthropic.Client {
	return anthropic.NewClient(append([]option.RequestOption{
		option.WithoutEnvironmentDefaults(), option.WithAPIKey(s.Key.Reveal()), option.WithBaseURL(s.url),
		option.WithMaxRetries(0), option.WithHTTPClient(s.client),
	}, more...)...)
}

func anthropicRequest(model anthropic.Model, text string) anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: model, MaxTokens: 2048, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(text))},
	}
}

func TestAnthropicGoGetsAMessageOfAChatModel(t *testing.T) {
	s := newFixture(t, options{})
	c := anthropicClient(s)
	s.spends(t, func() billing.Money {
		var response *http.Response
		m, err := c.Messages.New(t.Context(), anthropicRequest("delta-k3", "hello there"), option.WithResponseInto(&response))
		if err != nil {
			t.Fatal(err)
		}
		if m.Model != "delta-k3" || m.StopReason != anthropic.StopReasonEndTurn || len(m.Content) != 1 || !strings.Contains(m.Content[0].Text, "hello there") {
			t.Errorf("message %s", m.RawJSON())
		}
		if id := response.Header.Get("Request-Id"); !strings.HasPrefix(id, "req_") || id != response.Header.Get("X-Request-Id") {
			t.Errorf("headers %v", response.Header)
		}
		return chatCost(m.Usage.InputTokens, m.Usage.OutputTokens)
	})
}

func TestAnthropicGoSeesThinkingWhereItIsEnabled(t *testing.T) {
	c := anthropicClient(newFixture(t, options{}))
	params := anthropicRequest("delta-k3", "hello")
	params.Thinking = anthropic.ThinkingConfigParamOfEnabled(1024)
	m, err := c.Messages.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Content) != 2 || m.Content[0].Type != "thinking" || m.Content[0].Thinking == "" {
		t.Errorf("message %s", m.RawJSON())
	}
}

func TestAnthropicGoAccumulatesAStreamAndRepliesToIt(t *testing.T) {
	s := newFixture(t, options{})
	c := anthropicClient(s)
	params := anthropicRequest("delta-k3", "what is the weather?")
	params.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{
		Name: "weather", InputSchema: anthropic.ToolInputSchemaParam{
			Properties: map[string]any{"city": map[string]any{"type": "string"}}, Required: []string{"city"},
		},
	}}}
	params.Thinking = anthropic.ThinkingConfigParamOfEnabled(1024)
	var m anthropic.Message
	s.spends(t, func() billing.Money {
		stream := c.Messages.NewStreaming(t.Context(), params)
		for stream.Next() {
			if err := m.Accumulate(stream.Current()); err != nil {
				t.Fatalf("%s: %v", stream.Current().RawJSON(), err)
			}
		}
		if err := stream.Err(); err != nil {
			t.Fatal(err)
		}
		return chatCost(m.Usage.InputTokens, m.Usage.OutputTokens)
	})
	last := m.Content[len(m.Content)-1]
	if m.StopReason != anthropic.StopReasonToolUse || last.Type != "tool_use" || last.Name != "weather" {
		t.Fatalf("message %+v", m)
	}
	params.Messages = append(params.Messages, m.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock(last.ID, "sunny", false)))
	answer, err := c.Messages.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	if text := answer.Content[len(answer.Content)-1].Text; !strings.Contains(text, "sunny") {
		t.Errorf("after the tool: %s", answer.RawJSON())
	}
}

func TestAnthropicGoCountsTokensForNothing(t *testing.T) {
	s := newFixture(t, options{})
	c := anthropicClient(s)
	before := s.Posted(t)
	var response *http.Response
	count, err := c.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{
		Model: "sim-chat", Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(strings.Repeat("word ", 100)))},
	}, option.WithResponseInto(&response))
	if err != nil || count.InputTokens < 50 || count.InputTokens > 500 {
		t.Fatalf("%d tokens, %v", count.InputTokens, err)
	}
	if response.Header.Get("X-Gateway-Estimated") != "true" || s.Posted(t) != before {
		t.Errorf("headers %v, paid %s", response.Header, before-s.Posted(t))
	}
}

func TestAnthropicGoMapsErrors(t *testing.T) {
	poor := anthropicClient(newFixture(t, options{credit: 1}))
	rich := newFixture(t, options{key: auth.KeyOptions{Models: []string{"sim-chat", "delta-k3"}}})
	hot := anthropicRequest("sim-chat", "x")
	hot.Temperature = anthropic.Float(3)
	for _, tt := range []struct {
		name   string
		client anthropic.Client
		params anthropic.MessageNewParams
		status int
		kind   anthropic.ErrorType
	}{
		{"a bad field", anthropicClient(rich), hot, 400, anthropic.ErrorTypeInvalidRequestError},
		{"a wrong key", anthropicClient(rich, option.WithAPIKey("sk-wrong")), anthropicRequest("sim-chat", "x"), 401, anthropic.ErrorTypeAuthenticationError},
		{"no money", poor, anthropicRequest("sim-chat", "x"), 402, anthropic.ErrorTypeBillingError},
		{"a model that the key may not use", anthropicClient(rich), anthropicRequest("vectors", "x"), 403, anthropic.ErrorTypePermissionError},
		{"an unknown model", anthropicClient(rich), anthropicRequest("unknown", "x"), 404, anthropic.ErrorTypeNotFoundError},
	} {
		for way, err := range map[string]error{
			"whole":  func() error { _, err := tt.client.Messages.New(t.Context(), tt.params); return err }(),
			"stream": tt.client.Messages.NewStreaming(t.Context(), tt.params).Err(),
		} {
			var e *anthropic.Error
			if !errors.As(err, &e) || e.StatusCode != tt.status || e.Type() != tt.kind || !strings.HasPrefix(e.RequestID, "req_") {
				t.Errorf("%s, %s: %v", tt.name, way, err)
			}
		}
	}
}

func TestAnthropicGoSeesAStreamThatBreaks(t *testing.T) {
	c := anthropicClient(newFixture(t, options{upstream: sim.New(sim.Options{
		Fault: func(*upstream.Call) sim.Fault { return sim.Fault{Break: sim.Cut, After: 4} },
	})}))
	stream := c.Messages.NewStreaming(t.Context(), anthropicRequest("sim-chat", "one two three four five six"))
	events := 0
	for stream.Next() {
		events++
	}
	if stream.Err() == nil || events == 0 {
		t.Errorf("%d events, then %v", events, stream.Err())
	}
}

// TestAnthropicGoListsModels has the key in the header that the SDK sends on every path, and
// errors of the form that it reads.
func TestAnthropicGoListsModels(t *testing.T) {
	s := newFixture(t, options{})
	c := anthropicClient(s)
	pager := c.Models.ListAutoPaging(t.Context(), anthropic.ModelListParams{Limit: anthropic.Int(1)})
	var ids []string
	for pager.Next() {
		ids = append(ids, pager.Current().ID)
	}
	if err := pager.Err(); err != nil || len(ids) < 2 || !slices.Contains(ids, "delta-k3") {
		t.Fatalf("%q, %v", ids, err)
	}
	if m, err := c.Models.Get(t.Context(), "delta-k3", anthropic.ModelGetParams{}); err != nil || m.ID != "delta-k3" || m.DisplayName == "" || m.CreatedAt.IsZero() {
		t.Errorf("%+v, %v", m, err)
	}
	_, err := c.Models.Get(t.Context(), "none", anthropic.ModelGetParams{})
	var refused *anthropic.Error
	if !errors.As(err, &refused) || refused.StatusCode != http.StatusNotFound || refused.Type() != anthropic.ErrorTypeNotFoundError || refused.RequestID == "" {
		t.Errorf("%v", err)
	}
}
