// Package goopenai joins a gateway and github.com/sashabaranov/go-openai. Only a program that
// imports it links that module.
//
// A program that is written for go-openai replaces the line that makes its client. Its calls
// then have the gateway's keys, limits, money and fail-over, without a socket:
//
//	client := goopenai.NewClient(g)
//	ctx = auth.NewContext(ctx, &auth.Principal{Account: "acme"})
//	answer, err := client.CreateChatCompletion(ctx, openai.ChatCompletionRequest{…})
//
// A client that the program has already, with its Azure address, its proxy or its own headers,
// becomes a channel. The vendor gets the same requests as before:
//
//	g, err := gateway.New(gateway.Options{Upstream: goopenai.Upstream(client)})
//
// [ChatRequest] and [ChatResponse] convert the types of go-openai for a program that calls
// [gateway.Gateway.Chat] itself.
package goopenai

import (
	"encoding/json"
	"net/http"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/sashabaranov/go-openai"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/chat"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/server"
)

// NewClient returns a client whose requests g answers in process. The account that pays is
// that of the principal in the request's context (auth.NewContext). Without a principal the
// request fails with status 401 if g has an Authenticator.
//
// Streams, errors and cancellation are as over HTTP: an error of g is an *openai.APIError with
// the Code and the HTTPStatusCode that package fault documents. A path that the gateway does
// not serve is a 404. The client needs no Close and is safe for concurrent use.
func NewClient(g *gateway.Gateway) *openai.Client {
	config := openai.DefaultConfig("") // the context says who calls
	config.BaseURL = "http://gateway.invalid/v1"
	config.HTTPClient = server.Client(server.New(g, server.Options{}))
	return openai.NewClientWithConfig(config)
}

// ChatRequest converts a request. Fields that [chat.Request] does not name are members of its
// Extra, so that none is lost. It fails, with a 400, for a value that is not JSON and for a
// message that has both Content and MultiContent.
func ChatRequest(r openai.ChatCompletionRequest) (*chat.Request, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fault.Wrap(fault.InvalidRequest, "The request cannot be written as JSON.", err)
	}
	converted := &chat.Request{}
	if err := jsonv2.Unmarshal(data, converted); err != nil {
		return nil, fault.Wrap(fault.InvalidRequest, "The request is not of the form of a chat completion.", err)
	}
	return converted, nil
}

// ChatResponse converts an answer with all that go-openai has a field for. Its Header has
// X-Request-Id, by which the receipt is found. It fails for a value that go-openai's type
// cannot hold, such as a content that is neither text nor a list.
func ChatResponse(r *chat.Response) (openai.ChatCompletionResponse, error) {
	var converted openai.ChatCompletionResponse
	data, err := jsonv2.Marshal(r)
	if err == nil {
		err = json.Unmarshal(data, &converted)
	}
	if err != nil {
		return openai.ChatCompletionResponse{}, fault.Wrap(fault.BadGateway, "The answer does not fit go-openai's type.", err)
	}
	if r.RequestID != "" {
		converted.SetHeader(http.Header{"X-Request-Id": {r.RequestID}})
	}
	return converted, nil
}
