package openai

import (
	"net/http"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

func TestTheDriverConforms(t *testing.T) {
	upstreamtest.Run(t, upstreamtest.Harness{
		New: func(t *testing.T, vendor http.Handler) upstream.Upstream {
			return newDriver(t, vendor, upstream.DriverOptions{Wire: []upstream.Op{upstream.ChatCompletion, upstream.Responses}})
		},
		Samples: map[upstream.Op]upstreamtest.Sample{upstream.GenerateImage: imageSample, upstream.EditImage: editSample, upstream.Responses: responseSample, upstream.CountInput: {
			Model:   "gpt-6",
			Request: []byte(`{"model":"gpt-6", "input":"hé","x":1.0}`),
			Answer:  []byte(`{"object":"response.input_tokens", "input_tokens":7}`),
			Refusal: responseSample.Refusal,
		}, upstream.ChatCompletion: {
			Model:   "kimi-k3",
			Request: []byte(`{"model":"kimi-k3", "messages":[{"role":"user","content":"hé"}],"x_seed":1.0,"big":9007199254740993}`),
			Stream:  []byte(`{"model":"kimi-k3","messages":[{"role":"user","content":"hi"}],"stream":true}`),
			Answer:  []byte(`{"id":"c1", "choices":[{"index":0,"message":{"content":"é"}}],"usage":{"prompt_tokens":1.0}}`),
			Events: []string{
				": keep-alive\n\n", "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", "data: {\"usage\":null}\n\n", "data: [DONE]\n\n",
			},
			Refusal: upstreamtest.Refusal{
				Status: 400, Body: []byte(`{"error":{"message":"Too long.","type":"invalid_request_error","code":"context_length_exceeded","param":"messages"}}`),
				Code: "context_length_exceeded", Message: "Too long.",
			},
		}, upstream.Speech: {
			Model:   "gpt-4o-mini-tts",
			Request: []byte(`{"model":"gpt-4o-mini-tts", "input":"hé","voice":"alloy","x":1.0}`),
			Answer:  []byte("ID3\x04\x00\xff\xfb\x90\x00 bytes"),
			Refusal: upstreamtest.Refusal{
				Status: 400, Body: []byte(`{"error":{"message":"No such voice.","type":"invalid_request_error","code":"invalid_voice","param":"voice"}}`),
				Code: "invalid_voice", Message: "No such voice.",
			},
		}, upstream.Rerank: {
			Model:   "rerank-a",
			Request: []byte(`{"model":"rerank-a", "query":"hé","documents":["a","b"],"return_documents":false,"x":1.0}`),
			Answer:  []byte(`{"id":"r1", "results":[{"index":1,"relevance_score":0.50}],"usage":{"total_tokens":1}}`),
			Refusal: upstreamtest.Refusal{
				Status: 400, Body: []byte(`{"error":{"message":"top_n is too large.","type":"invalid_request_error","code":null,"param":null}}`),
				Code: "invalid_request_error", Message: "top_n is too large.",
			},
		}, upstream.Moderations: {
			Model:   "judge-a",
			Request: []byte(`{"model":"judge-a", "input":["hé",""],"x":1.0}`),
			Answer:  []byte(`{"id":"modr-1", "results":[{"flagged":true,"category_scores":{"hate":0.50}},{"flagged":false}]}`),
			Refusal: upstreamtest.Refusal{
				Status: 400, Body: []byte(`{"error":{"message":"'$.input' is invalid.","type":"invalid_request_error","code":null,"param":"input"}}`),
				Code: "invalid_request_error", Message: "'$.input' is invalid.",
			},
		}, upstream.Embeddings: {
			Model:   "embed-a",
			Request: []byte(`{"model":"embed-a", "input":["hé",""],"encoding_format":"base64","x":1.0}`),
			Answer:  []byte(`{"object":"list","data":[{"object":"embedding","index":0, "embedding":"AACAPw=="}],"usage":{"prompt_tokens":1.0}}`),
			Refusal: upstreamtest.Refusal{
				Status: 400, Body: []byte(`{"error":{"message":"'$.input' is invalid.","type":"invalid_request_error","code":null,"param":null}}`),
				Code: "invalid_request_error", Message: "'$.input' is invalid.",
			},
		}},
	})
}

// newDriver is the driver under test against a vendor on the loopback.
func newDriver(t *testing.T, vendor http.Handler, o upstream.DriverOptions) upstream.Driver {
	t.Helper()
	o.BaseURL = vendortest.Serve(t, vendor) + "/v1"
	if o.Keys == nil {
		o.Keys = vendortest.Keys("sk-vendor-1")
	}
	return vendortest.New(t, New, o)
}
