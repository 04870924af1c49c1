package goopenai_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/goopenai"
	"github.com/tollhouse-ai/gateway/internal/servertest"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/sim"
)

// toVendor is a transport to a handler.
type toVendor struct{ http.Handler }

func (v toVendor) RoundTrip(r *http.Request) (*http.Response, error) {
	return server.Client(v.Handler).Transport.RoundTrip(r)
}

// hello is a request for a short answer.
func hello(model string) openai.ChatCompletionRequest {
	return openai.ChatCompletionRequest{Model: model, Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "Is the gate open?"}}}
}

func TestTheClientIsAnsweredInProcessAndBilled(t *testing.T) {
	g := gatewaytest.New(t)
	client := goopenai.NewClient(g)
	answer, err := client.CreateChatCompletion(t.Context(), hello(gatewaytest.Model))
	if err != nil {
		t.Fatal(err)
	}
	whole := answer.Choices[0].Message.Content
	stream, err := client.CreateChatCompletionStream(t.Context(), hello(gatewaytest.Model))
	if err != nil {
		t.Fatal(err)
	}
	pieces, text := 0, ""
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		pieces++
		text += chunk.Choices[0].Delta.Content
	}
	if text != whole || !strings.Contains(whole, "Is the gate open?") || pieces < 3 {
		t.Errorf("%d pieces %q, whole %q", pieces, text, whole)
	}
	if err := errors.Join(stream.Close(), g.Shutdown(t.Context())); err != nil { // the stream is settled
		t.Fatal(err)
	}
	ledger := g.Meter().(memory.Ledger)
	receipt, err := ledger.Receipt(t.Context(), "local", answer.Header().Get("X-Request-Id"))
	if err != nil || receipt.Charge == 0 {
		t.Fatalf("receipt %+v, %v", receipt, err)
	}
	if balance, err := ledger.Balance(t.Context(), "local"); err != nil || balance.Available() != gatewaytest.Credit-2*receipt.Charge {
		t.Errorf("balance %+v, %v, after two answers for %s", balance, err, receipt.Charge)
	}
}

// TestTheContextSaysWhoPays: its principal's account does, and without one a gateway with keys
// refuses.
func TestTheContextSaysWhoPays(t *testing.T) {
	g := gatewaytest.New(t, func(o *gateway.Options) {
		o.Authenticator = &auth.Keys{Store: &memory.Keys{}}
		if err := o.Meter.(memory.Ledger).CreateAccount(t.Context(), "acme", gatewaytest.Credit); err != nil {
			t.Fatal(err)
		}
	})
	client := goopenai.NewClient(g)
	if _, err := client.CreateChatCompletion(auth.NewContext(t.Context(), &auth.Principal{Account: "acme"}), hello(gatewaytest.Model)); err != nil {
		t.Fatal(err)
	}
	if balance, err := g.Meter().(memory.Ledger).Balance(t.Context(), "acme"); err != nil || balance.Available() >= gatewaytest.Credit {
		t.Errorf("acme has %+v, %v", balance, err)
	}
	var e *openai.APIError
	if _, err := client.CreateChatCompletion(t.Context(), hello(gatewaytest.Model)); !errors.As(err, &e) || e.HTTPStatusCode != 401 {
		t.Errorf("without a principal: %v", err)
	}
}

func TestAnErrorIsAnAPIErrorWithCodeAndStatus(t *testing.T) {
	poor := func(o *gateway.Options) {
		ledger := memory.NewLedger(memory.LedgerOptions{})
		if err := ledger.CreateAccount(t.Context(), "local", 1); err != nil {
			t.Fatal(err)
		}
		o.Meter = ledger
	}
	down := func(o *gateway.Options) {
		o.Upstream = sim.New(sim.Options{Fault: func(*upstream.Call) sim.Fault { return sim.Fault{Status: 503} }})
	}
	for _, c := range []struct {
		name    string
		options func(*gateway.Options)
		ask     func(*openai.ChatCompletionRequest)
		status  int
		code    fault.Code
		param   string
	}{
		{"a field that is wrong", nil, func(r *openai.ChatCompletionRequest) { r.Temperature = 3 }, 400, fault.InvalidRequest, "temperature"},
		{"no money", poor, nil, 402, fault.InsufficientBalance, ""},
		{"the vendor is overloaded", down, nil, 503, fault.ServiceUnavailable, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			options := c.options
			if options == nil {
				options = func(*gateway.Options) {}
			}
			client, request := goopenai.NewClient(gatewaytest.New(t, options)), hello(gatewaytest.Model)
			if c.ask != nil {
				c.ask(&request)
			}
			_, whole := client.CreateChatCompletion(t.Context(), request)
			_, stream := client.CreateChatCompletionStream(t.Context(), request)
			for _, err := range []error{whole, stream} {
				var e *openai.APIError
				if !errors.As(err, &e) {
					t.Fatalf("error %v", err)
				}
				param := ""
				if e.Param != nil {
					param = *e.Param
				}
				if e.HTTPStatusCode != c.status || e.Code != string(c.code) || param != c.param {
					t.Errorf("status %d, code %v, param %q, want %d %s %q", e.HTTPStatusCode, e.Code, param, c.status, c.code, c.param)
				}
			}
		})
	}
}

// TestAStreamComesAsItIsMadeAndEndsWithTheContext also for the client as a channel, by which
// the request goes on to a vendor.
func TestAStreamComesAsItIsMadeAndEndsWithTheContext(t *testing.T) {
	for _, name := range []string{"the client of a gateway", "that before a client as a channel"} {
		t.Run(name, func(t *testing.T) {
			vendor := servertest.NewStream()
			var up upstream.Upstream = vendor
			if name != "the client of a gateway" {
				up = goopenai.Upstream(goopenai.NewClient(gatewaytest.New(t, func(o *gateway.Options) { o.Upstream = vendor })))
			}
			client := goopenai.NewClient(gatewaytest.New(t, func(o *gateway.Options) { o.Upstream = up }))
			ctx, cancel := context.WithCancel(t.Context())
			go vendor.Send(t, servertest.Delta("first"))
			stream, err := client.CreateChatCompletionStream(ctx, hello(gatewaytest.Model))
			if err != nil {
				t.Fatal(err)
			}
			if chunk, err := stream.Recv(); err != nil || chunk.Choices[0].Delta.Content != "first" {
				t.Fatalf("%+v, %v, while the vendor is still to send the second", chunk, err)
			}
			cancel()
			if _, err := stream.Recv(); !errors.Is(err, context.Canceled) {
				t.Errorf("after the end of the context: %v", err)
			}
			<-vendor.Gone
			_ = stream.Close()
		})
	}
}

func TestChatResponseKeepsWhatGoOpenAIHasAFieldFor(t *testing.T) {
	const answer = `{"id":"c1","object":"chat.completion","created":5,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"é","refusal":"no",
		"reasoning_content":"hm","tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls",
		"logprobs":{"content":[{"token":"é","logprob":-0.5,"bytes":[195,169],"top_logprobs":[]}]}}],"system_fingerprint":"fp","service_tier":"flex",
		"usage":{"prompt_tokens":9,"completion_tokens":8,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":4,"audio_tokens":1},
		"completion_tokens_details":{"reasoning_tokens":3,"audio_tokens":0,"accepted_prediction_tokens":2,"rejected_prediction_tokens":1}}}`
	var want openai.ChatCompletionResponse
	if err := json.Unmarshal([]byte(answer), &want); err != nil {
		t.Fatal(err)
	}
	g := gatewaytest.New(t, func(o *gateway.Options) {
		o.Upstream = upstream.Func(func(context.Context, *upstream.Call) (*upstream.Reply, error) {
			return &upstream.Reply{Status: 200, Body: io.NopCloser(strings.NewReader(answer))}, nil
		})
	})
	request, err := goopenai.ChatRequest(hello("m"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := g.Chat(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	got, err := goopenai.ChatResponse(response)
	if err != nil || got.Header().Get("X-Request-Id") != response.RequestID {
		t.Errorf("header %v, error %v", got.Header(), err)
	}
	got.SetHeader(nil)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestConversionsFailForWhatTheOtherTypeCannotHold(t *testing.T) {
	both := hello("m")
	both.Messages[0].MultiContent = []openai.ChatMessagePart{{Type: "text", Text: "a"}}
	if _, err := goopenai.ChatRequest(both); !fault.Is(err, fault.InvalidRequest) || !errors.Is(err, openai.ErrContentFieldsMisused) {
		t.Errorf("a message with two contents: %v", err)
	}
	number := &chat.Response{Choices: []chat.Choice{{Message: chat.Message{Content: chat.Content("7")}}}}
	if _, err := goopenai.ChatResponse(number); !fault.Is(err, fault.BadGateway) {
		t.Errorf("a content that is a number: %v", err)
	}
}
