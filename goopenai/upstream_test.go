package goopenai_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/gatewaytest"
	"github.com/tollhouse-ai/gateway/goopenai"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/sim"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

// clientOf is a client of a vendor on the loopback.
func clientOf(t *testing.T, vendor http.Handler) *openai.Client {
	t.Helper()
	s := httptest.NewServer(vendor)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.Close()
	})
	config := openai.DefaultConfig("sk-vendor")
	config.BaseURL, config.HTTPClient = s.URL+"/v1", &http.Client{Transport: transport}
	return openai.NewClientWithConfig(config)
}

func TestTheUpstreamConforms(t *testing.T) {
	refusal := upstreamtest.Refusal{
		Status: 400, Body: []byte(`{"error":{"message":"Too long.","type":"invalid_request_error","code":"context_length_exceeded","param":"messages"}}`),
		Code: "context_length_exceeded", Message: "Too long.",
	}
	upstreamtest.Run(t, upstreamtest.Harness{
		New: func(t *testing.T, vendor http.Handler) upstream.Upstream {
			return goopenai.Upstream(clientOf(t, vendor))
		},
		Samples: map[upstream.Op]upstreamtest.Sample{
			upstream.ChatCompletion: {
				Model:   "m",
				Request: []byte(`{"model":"m", "messages":[{"role":"user","content":"hé"}],"temperature":0,"top_k":3}`),
				Wire:    []byte(`{"model":"m","messages":[{"role":"user","content":"hé"}],"temperature":1e-45,"stream":false}`),
				Stream:  []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`),
				Answer:  []byte(`{"id":"c1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"é"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`),
				Public:  []byte(`{"id":"c1","object":"chat.completion","created":0,"model":"","system_fingerprint":"","choices":[{"index":0,"message":{"role":"assistant","content":"é"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":0,"total_tokens":0,"prompt_tokens_details":null,"completion_tokens_details":null}}`),
				Events: []string{
					": keep-alive\n\n", "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n", "data: {\"x\":1.0,\"usage\":null}\n\n", "data: [DONE]\n\n",
				},
				PublicEvents: []string{
					"", "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"}]}\n\n", "data: {\"x\":1.0,\"usage\":null}\n\n", "\n\ndata: [DONE]\n\n",
				},
				Refusal: refusal,
			},
			upstream.Embeddings: {
				Model:   "m",
				Request: []byte(`{"model":"m","input":["hé",""],"dimensions":2,"x":1.0}`),
				Wire:    []byte(`{"dimensions":2,"input":["hé",""],"model":"m","x":1.0}`),
				Answer:  []byte(`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1]}],"model":"m"}`),
				Refusal: refusal,
			},
			upstream.GenerateImage: {
				Model:   "m",
				Request: []byte(`{"model":"m","prompt":"hé","n":2,"size":"1024x1024","seed":7}`),
				Wire:    []byte(`{"prompt":"hé","model":"m","n":2,"size":"1024x1024"}`),
				Answer:  []byte(`{"created":1,"data":[{"b64_json":"AAAA"}],"usage":{"total_tokens":3,"output_tokens":3}}`),
				Public:  []byte(`{"created":1,"data":[{"b64_json":"AAAA"}],"usage":{"total_tokens":3,"output_tokens":3,"input_tokens_details":{}}}`),
				Refusal: refusal,
			},
			upstream.Speech: {
				Model:   "m",
				Request: []byte(`{"model":"m","input":"hé","voice":"alloy","stream_format":"audio"}`),
				Wire:    []byte(`{"model":"m","input":"hé","voice":"alloy"}`),
				Answer:  []byte("ID3\x04\x00\xff\xfb\x90\x00 bytes"),
				Refusal: refusal,
			},
		},
	})
}

func TestWhatTheClientCannotCarryIsListedInDropped(t *testing.T) {
	const head = `{"model":"m","messages":[{"role":"user","content":"hi"}]`
	for _, c := range []struct {
		name, body string
		dropped    []string
	}{
		{"all is carried", head + `,"stop":"end","temperature":0,"seed":0,"parallel_tool_calls":false,"logit_bias":{"5":-1},"store":false,"presence_penalty":0}`, nil},
		{"unknown members", head + `,"top_k":5,"thinking":{"type":"enabled"},"x":null}`, []string{"top_k", "thinking"}},
		{"an option within one", head + `,"response_format":{"type":"grammar","grammar":"a"}}`, []string{"response_format.grammar"}},
		{"a value that does not fit", head + `,"logit_bias":{"5":0.5}}`, []string{"logit_bias"}},
		{"zero that the client takes for unset", head + `,"max_tokens":0}`, []string{"max_tokens"}},
		{"members of messages", `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}]},{"role":"user","content":"b","x":1}]}`,
			[]string{"messages.content.cache_control", "messages.x"}},
		{"tools with members of their own", head + `,"tools":[{"type":"function","function":{"name":"f"},"cache_control":{"type":"ephemeral"}},{"type":"custom","custom":{"name":"c"}}]}`, nil},
		{"a member of a function", head + `,"tools":[{"type":"function","function":{"name":"f","x":[1]}}]}`, []string{"tools.function.x"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			vendor := &recorder{}
			call := &upstream.Call{Op: upstream.ChatCompletion, Model: "m", Stream: true, Body: upstream.BytesBody([]byte(c.body))}
			reply, err := goopenai.Upstream(clientOf(t, vendor)).Do(t.Context(), call)
			if err != nil {
				t.Fatal(err)
			}
			defer reply.Body.Close()
			if !slices.Equal(reply.Dropped, c.dropped) {
				t.Errorf("dropped %q, want %q", reply.Dropped, c.dropped)
			}
			asked, sent := decoded(t, []byte(c.body)).(map[string]any), decoded(t, vendor.body).(map[string]any)
			if options, _ := sent["stream_options"].(map[string]any); options["include_usage"] != true {
				t.Errorf("the stream's usage is not asked for: %s", vendor.body)
			}
			for name := range asked {
				if _, there := sent[name]; there == slices.Contains(reply.Dropped, name) && asked[name] != nil && !isDefault(name) {
					t.Errorf("%s in %s, dropped %q", name, vendor.body, reply.Dropped)
				}
			}
		})
	}
}

// isDefault reports whether the table asks for the default of a field, which is left out.
func isDefault(name string) bool { return name == "store" || name == "presence_penalty" }

func TestWhatTheClientRefusesIsNotSent(t *testing.T) {
	for _, c := range []struct {
		name, body string
		op         upstream.Op
		because    string
	}{
		{"a part that it has no field for", `{"model":"m","messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"AA","format":"wav"}}]}]}`, upstream.ChatCompletion, "input_audio"},
		{"a combination that it checks itself", `{"model":"o3","messages":[{"role":"user","content":"a"}],"temperature":0.5}`, upstream.ChatCompletion, "beta-limitations"},
		{"a model of another method", `{"model":"text-davinci-003","messages":[{"role":"user","content":"a"}]}`, upstream.ChatCompletion, "CreateCompletion"},
		{"messages of another form", `{"model":"m","messages":"hi"}`, upstream.ChatCompletion, "cannot unmarshal"},
		{"an image in another form", `{"model":"m","input":{"messages":[]}}`, upstream.GenerateImage, `needs "prompt"`},
		{"a body that is no object", `[]`, upstream.Speech, "object"},
	} {
		t.Run(c.name, func(t *testing.T) {
			vendor := &recorder{}
			call := &upstream.Call{Op: c.op, Model: "m", Body: upstream.BytesBody([]byte(c.body))}
			_, err := goopenai.Upstream(clientOf(t, vendor)).Do(t.Context(), call)
			if f, found := upstream.FailureOf(err); !found || !f.Unasked || !fault.Is(err, fault.InvalidRequest) || !strings.Contains(err.Error(), c.because) || vendor.body != nil {
				t.Errorf("error %v, the vendor got %q", err, vendor.body)
			}
		})
	}
}

// TestTheBoundOfAReasoningModelHasItsNewerName: go-openai refuses the older one, which the
// gateway sets where the caller sets none.
func TestTheBoundOfAReasoningModelHasItsNewerName(t *testing.T) {
	vendor := &recorder{}
	call := &upstream.Call{Op: upstream.ChatCompletion, Model: "o3", Stream: true, Body: upstream.BytesBody([]byte(`{"model":"o3","messages":[{"role":"user","content":"a"}],"max_tokens":5}`))}
	reply, err := goopenai.Upstream(clientOf(t, vendor)).Do(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if !strings.Contains(string(vendor.body), `"max_completion_tokens":5`) || strings.Contains(string(vendor.body), `"max_tokens"`) || len(reply.Dropped) > 0 {
		t.Errorf("the vendor got %s, dropped %q", vendor.body, reply.Dropped)
	}
}

// TestTheClientFailsOverAsAChannel: beside another channel, its vendor's failures are not seen,
// while a 400 is the caller's.
func TestTheClientFailsOverAsAChannel(t *testing.T) {
	for status, wanted := range map[int]error{400: fault.InvalidRequest, 401: nil, 429: nil, 500: nil, 503: nil} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			client := clientOf(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, `{"error":{"message":"No.","type":"invalid_request_error"}}`)
			}))
			all := map[string]string{"*": "*"}
			up, err := router.New([]router.Channel{
				{Name: "own", Upstream: goopenai.Upstream(client), Models: all},
				{Name: "other", Upstream: sim.New(sim.Options{}), Models: all, Priority: 1},
			}, router.Options{})
			if err != nil {
				t.Fatal(err)
			}
			g := gatewaytest.New(t, func(o *gateway.Options) { o.Upstream = up })
			request, err := goopenai.ChatRequest(hello(gatewaytest.Model))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.Chat(t.Context(), request); !errors.Is(err, wanted) {
				t.Fatalf("error %v, want %v", err, wanted)
			}
			if charges := gatewaytest.Charges(t); wanted == nil && (len(charges) != 1 || charges[0].Channel != "other") {
				t.Errorf("receipts %+v", charges)
			}
		})
	}
}

// TestAnswersWithoutCountsAreNotFree: go-openai gives zeros where the vendor says nothing.
func TestAnswersWithoutCountsAreNotFree(t *testing.T) {
	client := clientOf(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"Yes, it is."},"finish_reason":"stop"}]}`)
	}))
	g := gatewaytest.New(t, func(o *gateway.Options) { o.Upstream = goopenai.Upstream(client) })
	request, err := goopenai.ChatRequest(hello(gatewaytest.Model))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Chat(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if r := gatewaytest.Charges(t)[0]; r.Charge == 0 || !r.Usage.Estimated {
		t.Errorf("receipt %+v", r)
	}
}

func TestVectorsComeInBase64IfAskedFor(t *testing.T) {
	client := clientOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":"AAAAPwAAgL8="}],"model":"m"}`)
	}))
	call := &upstream.Call{Op: upstream.Embeddings, Model: "m", Body: upstream.BytesBody([]byte(`{"model":"m","input":"a","encoding_format":"base64"}`))}
	reply, err := goopenai.Upstream(client).Do(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(reply.Body)
	if err = errors.Join(err, reply.Body.Close()); err != nil || !strings.Contains(string(data), `"embedding":"AAAAPwAAgL8="`) {
		t.Errorf("%s, %v", data, err)
	}
}

// TestAnErrorWithinAStreamReachesTheCaller as an event, like that of any vendor.
func TestAnErrorWithinAStreamReachesTheCaller(t *testing.T) {
	client := clientOf(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"error\":{\"message\":\"No more.\",\"code\":\"server_error\"}}\n\n")
	}))
	g := gatewaytest.New(t, func(o *gateway.Options) { o.Upstream = goopenai.Upstream(client) })
	stream, err := goopenai.NewClient(g).CreateChatCompletionStream(t.Context(), hello(gatewaytest.Model))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	var e *openai.APIError
	if _, err = stream.Recv(); !errors.As(err, &e) {
		t.Errorf("error %v", err)
	}
}
