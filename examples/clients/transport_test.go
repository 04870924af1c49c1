package clients

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/transport"
)

// nowhere is the way of requests that leave the gateway out.
type nowhere struct{}

func (nowhere) RoundTrip(r *http.Request) (*http.Response, error) {
	return nil, errors.New("the request left the process for " + r.URL.String())
}

// TestOfficialSDKsKeepTheirBaseURL and the key of a vendor: package transport has the gateway
// answer, and the context says who pays.
func TestOfficialSDKsKeepTheirBaseURL(t *testing.T) {
	s := newFixture(t, options{})
	ctx := auth.NewContext(t.Context(), &auth.Principal{Account: servertest.AccountName})
	client := &http.Client{Transport: transport.New(s.gateway, transport.Options{Next: nowhere{}})}
	oai := openai.NewClient(option.WithHTTPClient(client), option.WithAPIKey("sk-vendor"), option.WithMaxRetries(0))
	ant := anthropic.NewClient(anthropicoption.WithoutEnvironmentDefaults(), anthropicoption.WithHTTPClient(client), anthropicoption.WithAPIKey("sk-ant"), anthropicoption.WithMaxRetries(0))
	s.spends(t, func() billing.Money {
		r, err := oai.Chat.Completions.New(ctx, openAIRequest("delta-k3", "hello there"))
		if err != nil {
			t.Fatal(err)
		}
		m, err := ant.Messages.New(ctx, anthropicRequest("delta-k3", "hello there"))
		if err != nil {
			t.Fatal(err)
		}
		return chatCost(r.Usage.PromptTokens, r.Usage.CompletionTokens) + chatCost(m.Usage.InputTokens, m.Usage.OutputTokens)
	})
	text := ""
	for stream := oai.Chat.Completions.NewStreaming(ctx, openAIRequest("delta-k3", "hello there")); stream.Next(); {
		if choices := stream.Current().Choices; len(choices) > 0 {
			text += choices[0].Delta.Content
		}
	}
	if !strings.Contains(text, "hello there") {
		t.Errorf("the stream has %q", text)
	}
	var refused *openai.Error
	if _, err := oai.Chat.Completions.New(t.Context(), openAIRequest("delta-k3", "hello")); !errors.As(err, &refused) || refused.StatusCode != 401 {
		t.Errorf("without a principal, with the vendor's key: %v", err)
	}
	if _, err := oai.Files.Get(ctx, "file-1"); err == nil || !strings.Contains(err.Error(), "left the process for https://api.openai.com/v1/files/file-1") {
		t.Errorf("a path that the gateway does not serve: %v", err)
	}
}
