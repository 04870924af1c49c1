package anthropic

import (
	"net/http"
	"testing"

	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/internal/vendortest"
	"github.com/tollhouse-ai/gateway/upstream/upstreamtest"
)

// everyEvent is a stream with every type of event, block and delta.
var everyEvent = []string{
	event("message_start", `"message":{"id":"msg_01","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1}}`),
	event("content_block_start", `"index":0,"content_block":{"type":"thinking","thinking":"","signature":""}`),
	event("ping", ``),
	event("content_block_delta", `"index":0,"delta":{"type":"thinking_delta","thinking":"…"}`),
	event("content_block_delta", `"index":0,"delta":{"type":"signature_delta","signature":"c2ln"}`),
	event("content_block_stop", `"index":0`),
	event("content_block_start", `"index":1,"content_block":{"type":"redacted_thinking","data":"eA=="}`),
	event("content_block_stop", `"index":1`),
	event("content_block_start", `"index":2,"content_block":{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}`),
	event("content_block_delta", `"index":2,"delta":{"type":"input_json_delta","partial_json":"{\"query\": \"cat\"}"}`),
	event("content_block_stop", `"index":2`),
	event("content_block_start", `"index":3,"content_block":{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}`),
	event("content_block_stop", `"index":3`),
	event("content_block_start", `"index":4,"content_block":{"type":"text","text":""}`),
	event("content_block_delta", `"index":4,"delta":{"type":"text_delta","text":"Hé"}`),
	event("content_block_delta", `"index":4,"delta":{"type":"citations_delta","citation":{"type":"char_location","start_char_index":1.0}}`),
	event("content_block_stop", `"index":4`),
	event("content_block_start", `"index":5,"content_block":{"type":"tool_use","id":"toolu_1","name":"lookup","input":{}}`),
	event("content_block_delta", `"index":5,"delta":{"type":"input_json_delta","partial_json":""}`),
	event("content_block_stop", `"index":5`),
	event("some_event_to_come", `"x":9007199254740993`),
	event("message_delta", `"delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":3}`),
	event("message_stop", ``),
}

// event is one as it is written on the wire.
func event(name, rest string) string {
	if rest != "" {
		rest = "," + rest
	}
	return "event: " + name + "\ndata: {\"type\":\"" + name + "\"" + rest + "}\n\n"
}

func TestTheDriverConforms(t *testing.T) {
	refusal := upstreamtest.Refusal{
		Status: 400, Body: []byte(`{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: Field required"},"request_id":"req_01"}`),
		Code: "invalid_request_error", Message: "max_tokens: Field required",
	}
	upstreamtest.Run(t, upstreamtest.Harness{
		New: func(t *testing.T, vendor http.Handler) upstream.Upstream {
			return newDriver(t, vendor, upstream.DriverOptions{})
		},
		Samples: map[upstream.Op]upstreamtest.Sample{upstream.Messages: {
			Model:   "claude-a",
			Request: []byte(`{"model":"claude-a", "max_tokens":256,"messages":[{"role":"user","content":"hé"}],"x":1.0,"big":9007199254740993}`),
			Stream:  []byte(`{"model":"claude-a","max_tokens":256,"messages":[{"role":"user","content":"hi"}],"stream":true}`),
			Answer:  []byte(`{"id":"msg_01", "type":"message","role":"assistant","model":"claude-a","content":[{"type":"text","text":"é"}],"stop_reason":"end_turn","usage":{"input_tokens":10.0,"output_tokens":3}}`),
			Events:  everyEvent,
			Refusal: refusal,
		}, upstream.CountTokens: {
			Model:   "claude-a",
			Request: []byte(`{"model":"claude-a", "messages":[{"role":"user","content":"hé"}],"x":1.0}`),
			Answer:  []byte(`{"input_tokens": 42}`),
			Refusal: refusal,
		}},
	})
}

// newDriver is the driver under test against a vendor on the loopback.
func newDriver(t *testing.T, vendor http.Handler, o upstream.DriverOptions) upstream.Driver {
	t.Helper()
	o.BaseURL = vendortest.Serve(t, vendor)
	if o.Keys == nil {
		o.Keys = vendortest.Keys("sk-ant-1")
	}
	return vendortest.New(t, New, o)
}
